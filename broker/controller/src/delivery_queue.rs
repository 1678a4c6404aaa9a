//! Schedules the reconciliation of accesses: as soon as something relevant changes, when a token is
//! due, and after a failure with growing pauses.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use keyferry_api::config::StoredAccess;
use keyferry_api::moment::Moment;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::authorise::HubView;
use keyferry_hub::targets::Readiness;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::context::Context;
use crate::delivery::{Deliveries, Next};

/// How often changes and due accesses are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How soon after a change of the policy accesses are checked: long enough to collect further
/// changes.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// How many accesses are reconciled at once.
const MAX_CONCURRENT_RECONCILIATIONS: usize = 16;
/// The concurrency limit per namespace, so that one tenant's dead targets do not delay the others.
const MAX_CONCURRENT_RECONCILIATIONS_PER_NAMESPACE: usize = 4;
/// The shortest pause between two reconciliations of an access, however often its author changes
/// it.
const MIN_RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// The queue entry of an access.
#[derive(Clone, Copy, Default)]
struct QueueEntry {
    /// The hash of the inputs that it was last reconciled for.
    inputs: u64,
    /// When it is due, by the monotonic clock; `None` means on the next change.
    due: Option<Duration>,
    /// When its last reconciliation started.
    started: Option<Duration>,
    /// Whether it is due because of a change.
    urgent: bool,
    /// Whether it had our finalizer at the last check.
    has_finalizer: bool,
    failures: u32,
    running: bool,
}

/// Reconciles accesses until the task is dropped, unless a watch has failed for longer than
/// `max_stale`: then its data is too old to write by.
pub async fn run_delivery_queue(
    context: Arc<Context>,
    deliveries: Arc<Deliveries>,
    max_stale: Duration,
) {
    let (mut changes, mut leads) = (context.policy.changes(), context.leadership.changes());
    let mut queue: HashMap<AccessName, QueueEntry> = HashMap::new();
    let mut running = JoinSet::new();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut check, mut debouncing) = (ChangeCheck::Now, false);
    loop {
        let now = context.clock.now();
        if context.leadership.leads(now) && context.live.is_complete() {
            if check == ChangeCheck::Now {
                mark_changed_due(&context, &mut queue, now.mono);
            }
            if is_view_current(&context, max_stale, now) {
                start_due(&mut queue, &mut running, &deliveries, now.mono);
            }
        } else {
            queue.retain(|_, entry| entry.running);
            deliveries.not_leading();
        }
        check = tokio::select! {
            // In one order, so that a run in virtual time replays. No branch is ready so often that
            // it keeps out those after it.
            biased;
            _ = ticks.tick() => {
                debouncing = false;
                ChangeCheck::Now
            }
            Some(done) = running.join_next(), if !running.is_empty() => {
                if let Ok((name, next)) = done {
                    record_result(&mut queue, &name, next, context.clock.now().mono);
                }
                ChangeCheck::Later
            }
            changed = changes.changed() => {
                if changed.is_err() { return }
                // A list arrives object by object, but each check covers all accesses, so changes
                // are collected first.
                if !std::mem::replace(&mut debouncing, true) {
                    ticks.reset_after(DEBOUNCE);
                }
                ChangeCheck::Later
            }
            changed = leads.changed() => if changed.is_err() { return } else { ChangeCheck::Now },
        }
    }
}

/// Whether the view of the hub is recent enough: else tokens would be renewed for accesses that
/// policy no longer allows.
fn is_view_current(context: &Context, max_stale: Duration, now: Moment) -> bool {
    context.live.is_complete() && context.live.is_current(max_stale, now)
}

/// Whether to check for changes now; due accesses are started in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeCheck {
    Now,
    Later,
}

/// Makes every access due whose inputs have changed.
fn mark_changed_due(context: &Context, queue: &mut HashMap<AccessName, QueueEntry>, now: Duration) {
    let current_inputs = hash_access_inputs(context);
    for (name, inputs) in &current_inputs {
        let (known, entry) = (
            queue.contains_key(name),
            queue.entry(name.clone()).or_default(),
        );
        let stripped = entry.has_finalizer && !inputs.has_finalizer;
        entry.has_finalizer = inputs.has_finalizer;
        if entry.inputs != inputs.hash || stripped {
            let due = entry
                .started
                .map_or(now, |started| now.max(started + MIN_RECONCILE_INTERVAL));
            *entry = QueueEntry {
                inputs: inputs.hash,
                due: Some(due),
                urgent: known,
                failures: 0,
                ..*entry
            };
        }
    }
    for (name, entry) in queue
        .iter_mut()
        .filter(|(name, entry)| !current_inputs.contains_key(*name) && entry.inputs != 0)
    {
        tracing::debug!(access = %name, "an access is gone");
        *entry = QueueEntry {
            inputs: 0,
            due: Some(now),
            urgent: true,
            failures: 0,
            ..*entry
        };
    }
}

/// What an access depends on.
struct AccessInputs {
    /// The hash of all inputs, never 0.
    hash: u64,
    /// Whether it has our finalizer. To add it is our own change and needs no reconciliation; its
    /// removal by others does.
    has_finalizer: bool,
}

fn hash_access_inputs(context: &Context) -> HashMap<AccessName, AccessInputs> {
    let policy = context.policy.current();
    let protected = context.author_policy.require_active().is_ok();
    let draining = context.store.all_draining();
    let requested_checks = context.store.requested_checks();
    // A status may be outdated, so whether an object contains a token of a revoked key is checked
    // at the object.
    let revoked = context.published.revoked_kids();
    let inputs_of = |name: &AccessName, stored: &StoredAccess| {
        let mut hasher = DefaultHasher::new();
        let record = &stored.record;
        (
            protected,
            &revoked,
            record.uid.as_str(),
            record.generation,
            record.deleting,
            &record.requested_at,
        )
            .hash(&mut hasher);
        record.finalizers.others.hash(&mut hasher);
        context
            .live
            .namespace_labels(&name.namespace)
            .hash(&mut hasher);
        // One access of too many counts as soon as an older one is gone.
        policy.accesses.contains_key(name).hash(&mut hasher);
        // An invalid access still depends on its last valid spec, which policy may stop granting.
        if let Some(access) = stored.meant() {
            let account = ServiceAccount {
                namespace: name.namespace.clone(),
                name: access.service_account.clone(),
            };
            context
                .live
                .service_account(&account)
                .map(|uid| uid.as_str().to_owned())
                .hash(&mut hasher);
            context.live.flux_credential(&account).hash(&mut hasher);
            if let Some(target) = policy.targets.get(&access.target) {
                target.generation.hash(&mut hasher);
                requested_checks.get(&target.name).hash(&mut hasher);
                match context.targets.readiness(target) {
                    Readiness::Ready(pem) => pem.hash(&mut hasher),
                    Readiness::NotReady { reason, .. } => reason.hash(&mut hasher),
                }
            } else if let Some(draining) = draining.get(&access.target) {
                (draining.target.generation, draining.since).hash(&mut hasher);
            }
        }
        (
            name.clone(),
            AccessInputs {
                hash: hasher.finish() | 1,
                has_finalizer: record.finalizers.ours,
            },
        )
    };
    context.store.each_access(inputs_of).into_iter().collect()
}

fn start_due(
    queue: &mut HashMap<AccessName, QueueEntry>,
    running: &mut JoinSet<(AccessName, Next)>,
    deliveries: &Arc<Deliveries>,
    now: Duration,
) {
    for name in select_due(queue, now) {
        let Some(entry) = queue.get_mut(&name) else {
            continue;
        };
        *entry = QueueEntry {
            running: true,
            due: None,
            started: Some(now),
            urgent: false,
            ..*entry
        };
        let deliveries = Arc::clone(deliveries);
        running.spawn(async move {
            let next = retry_after_panic(deliveries.reconcile(&name)).await;
            (name, next)
        });
    }
}

/// A panic is a defect of ours. It must not leave an access running for ever, and so its tokens to end.
async fn retry_after_panic(reconciliation: impl Future<Output = Next>) -> Next {
    let next = AssertUnwindSafe(reconciliation).catch_unwind().await;
    next.unwrap_or(Next::Retry)
}

/// Returns the accesses to start within the overall and the namespace limits. Changed accesses come
/// before regular checks, because a withdrawn permission must not wait behind all others. Among
/// equals the longest wait comes first.
fn select_due(queue: &HashMap<AccessName, QueueEntry>, now: Duration) -> Vec<AccessName> {
    let mut pending: HashMap<&Namespace, usize> = HashMap::new();
    for (name, _) in queue.iter().filter(|(_, entry)| entry.running) {
        *pending.entry(&name.namespace).or_default() += 1;
    }
    let room = MAX_CONCURRENT_RECONCILIATIONS.saturating_sub(pending.values().sum());
    if room == 0 {
        return Vec::new();
    }
    let is_due = |entry: &QueueEntry| entry.due.filter(|due| !entry.running && *due <= now);
    let mut waiting: Vec<_> = queue
        .iter()
        .filter_map(|(name, entry)| Some((!entry.urgent, is_due(entry)?, name)))
        .collect();
    waiting.sort_unstable();
    let mut has_room = |namespace| {
        let of_namespace = pending.entry(namespace).or_default();
        *of_namespace += 1;
        *of_namespace <= MAX_CONCURRENT_RECONCILIATIONS_PER_NAMESPACE
    };
    waiting
        .into_iter()
        .filter(|(.., name)| has_room(&name.namespace))
        .take(room)
        .map(|(.., name)| name.clone())
        .collect()
}

fn record_result(
    queue: &mut HashMap<AccessName, QueueEntry>,
    name: &AccessName,
    next: Next,
    now: Duration,
) {
    let Some(entry) = queue.get_mut(name) else {
        return;
    };
    entry.running = false;
    if entry.inputs == 0 && next == Next::OnChange && entry.due.is_none() {
        queue.remove(name);
        return;
    }
    entry.failures = if next == Next::Retry {
        entry.failures.saturating_add(1)
    } else {
        0
    };
    let pause = match next {
        Next::OnChange => return,
        Next::After(pause) => pause,
        Next::Retry => (MIN_RETRY_PAUSE
            * 2_u32.saturating_pow(entry.failures.saturating_sub(1).min(6)))
        .min(MAX_RETRY_PAUSE),
    };
    // An access that changed meanwhile keeps its earlier due time.
    entry.due.get_or_insert(now + pause);
}

#[cfg(test)]
mod tests;
