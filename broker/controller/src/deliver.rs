//! Schedules the reconciliation of accesses: as soon as something relevant changes, when a token is
//! due, and after a failure with growing pauses.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::StoredAccess;
use keyferry_api::moment::Moment;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::authorise::HubView;
use keyferry_hub::admission_policy::AdmissionPolicyReader;
use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::ObjectStore;
use keyferry_hub::targets::{Readiness, TargetReader};
use keyferry_issuer::publication::PublicationReader;
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyReader;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::delivery::{Deliveries, Next};

/// How often changes and due accesses are checked.
const TICK: Duration = Duration::from_millis(500);
/// How soon after a change of the policy accesses are checked: long enough to collect further
/// changes.
const TOGETHER: Duration = Duration::from_millis(50);
/// How many accesses are reconciled at once.
const AT_ONCE: usize = 16;
/// The concurrency limit per namespace, so that one tenant's dead targets do not delay the others.
const OF_ONE_NAMESPACE: usize = 4;
/// The shortest pause between two reconciliations of an access, however often its author changes
/// it.
const BETWEEN: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// The dependencies of [`follow`].
pub struct DeliverParts {
    /// The active policy.
    pub policy: PolicyReader,
    /// The hub's accesses.
    pub store: Arc<ObjectStore>,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The targets' CA certificates.
    pub targets: TargetReader,
    /// Whether authors are checked.
    pub admission_policy: AdmissionPolicyReader,
    /// The revoked keys.
    pub published: PublicationReader,
    /// Whether this replica leads.
    pub leadership: LeadershipReader,
    /// The clock for due times.
    pub clock: Arc<dyn Clock>,
    /// How long a watch may fail before its data is too old to write by.
    pub max_stale: Duration,
}

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
    kept: bool,
    failures: u32,
    running: bool,
}

/// Reconciles accesses until the task is dropped.
pub async fn follow(parts: DeliverParts, deliveries: Arc<Deliveries>) {
    let (mut changes, mut leads) = (parts.policy.changes(), parts.leadership.changes());
    let mut places: HashMap<AccessName, QueueEntry> = HashMap::new();
    let mut running = JoinSet::new();
    let mut looks = tokio::time::interval(TICK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut look, mut soon) = (ChangeCheck::Now, false);
    loop {
        let now = parts.clock.now();
        if parts.leadership.leads(now) && parts.live.is_complete() {
            if look == ChangeCheck::Now {
                notice(&parts, &mut places, now.mono);
            }
            if sees(&parts, now) {
                start(&mut places, &mut running, &deliveries, now.mono);
            }
        } else {
            places.retain(|_, place| place.running);
            deliveries.not_leading();
        }
        look = tokio::select! {
            _ = looks.tick() => {
                soon = false;
                ChangeCheck::Now
            }
            Some(done) = running.join_next(), if !running.is_empty() => {
                if let Ok((name, next)) = done {
                    finish(&mut places, &name, next, parts.clock.now().mono);
                }
                ChangeCheck::Later
            }
            changed = changes.changed() => {
                if changed.is_err() { return }
                // A list arrives object by object, but each check covers all accesses, so changes
                // are collected first.
                if !std::mem::replace(&mut soon, true) {
                    looks.reset_after(TOGETHER);
                }
                ChangeCheck::Later
            }
            changed = leads.changed() => if changed.is_err() { return } else { ChangeCheck::Now },
        }
    }
}

/// Whether the view of the hub is recent enough: else tokens would be renewed for accesses that
/// policy no longer allows.
fn sees(parts: &DeliverParts, now: Moment) -> bool {
    parts.live.is_complete() && parts.live.is_current(parts.max_stale, now)
}

/// Whether to check for changes now; due accesses are started in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeCheck {
    Now,
    Later,
}

/// Makes every access due whose inputs have changed.
fn notice(parts: &DeliverParts, places: &mut HashMap<AccessName, QueueEntry>, now: Duration) {
    let seen = inputs(parts);
    for (name, inputs) in &seen {
        let (known, place) = (
            places.contains_key(name),
            places.entry(name.clone()).or_default(),
        );
        let stripped = place.kept && !inputs.kept;
        place.kept = inputs.kept;
        if place.inputs != inputs.number || stripped {
            let due = place
                .started
                .map_or(now, |started| now.max(started + BETWEEN));
            *place = QueueEntry {
                inputs: inputs.number,
                due: Some(due),
                urgent: known,
                failures: 0,
                ..*place
            };
        }
    }
    for (name, place) in places
        .iter_mut()
        .filter(|(name, place)| !seen.contains_key(*name) && place.inputs != 0)
    {
        tracing::debug!(access = %name, "an access is gone");
        *place = QueueEntry {
            inputs: 0,
            due: Some(now),
            urgent: true,
            failures: 0,
            ..*place
        };
    }
}

/// What an access depends on.
struct Inputs {
    /// The hash of all inputs, never 0.
    number: u64,
    /// Whether it has our finalizer. To add it is our own change and needs no reconciliation; its
    /// removal by others does.
    kept: bool,
}

fn inputs(parts: &DeliverParts) -> HashMap<AccessName, Inputs> {
    let policy = parts.policy.current();
    let protected = parts.admission_policy.checked().is_ok();
    let draining = parts.store.all_draining();
    let requested_checks = parts.store.requested_checks();
    // A status may be outdated, so whether an object contains a token of a revoked key is checked
    // at the object.
    let revoked = parts.published.revoked();
    let of = |name: &AccessName, stored: &StoredAccess| {
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
        parts
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
            parts
                .live
                .service_account(&account)
                .map(|uid| uid.as_str().to_owned())
                .hash(&mut hasher);
            parts.live.flux_credential(&account).hash(&mut hasher);
            if let Some(target) = policy.targets.get(&access.target) {
                target.generation.hash(&mut hasher);
                requested_checks.get(&target.name).hash(&mut hasher);
                match parts.targets.readiness(target) {
                    Readiness::Ready(pem) => pem.hash(&mut hasher),
                    Readiness::NotReady { reason, .. } => reason.hash(&mut hasher),
                }
            } else if let Some(draining) = draining.get(&access.target) {
                (draining.target.generation, draining.since).hash(&mut hasher);
            }
        }
        (
            name.clone(),
            Inputs {
                number: hasher.finish() | 1,
                kept: record.finalizers.ours,
            },
        )
    };
    parts.store.each_access(of).into_iter().collect()
}

fn start(
    places: &mut HashMap<AccessName, QueueEntry>,
    running: &mut JoinSet<(AccessName, Next)>,
    deliveries: &Arc<Deliveries>,
    now: Duration,
) {
    for name in due(places, now) {
        let Some(place) = places.get_mut(&name) else {
            continue;
        };
        *place = QueueEntry {
            running: true,
            due: None,
            started: Some(now),
            urgent: false,
            ..*place
        };
        let deliveries = Arc::clone(deliveries);
        running.spawn(async move {
            let next = deliveries.reconcile(&name).await;
            (name, next)
        });
    }
}

/// Returns the accesses to start within the overall and the namespace limits. Changed accesses come
/// before regular checks, because a withdrawn permission must not wait behind all others. Among
/// equals the longest wait comes first.
fn due(places: &HashMap<AccessName, QueueEntry>, now: Duration) -> Vec<AccessName> {
    let mut under_way: HashMap<&Namespace, usize> = HashMap::new();
    for (name, _) in places.iter().filter(|(_, place)| place.running) {
        *under_way.entry(&name.namespace).or_default() += 1;
    }
    let room = AT_ONCE.saturating_sub(under_way.values().sum());
    if room == 0 {
        return Vec::new();
    }
    let is_due = |place: &QueueEntry| place.due.filter(|due| !place.running && *due <= now);
    let mut waiting: Vec<_> = places
        .iter()
        .filter_map(|(name, place)| Some((!place.urgent, is_due(place)?, name)))
        .collect();
    waiting.sort_unstable();
    let mut has_room = |namespace| {
        let of_namespace = under_way.entry(namespace).or_default();
        *of_namespace += 1;
        *of_namespace <= OF_ONE_NAMESPACE
    };
    waiting
        .into_iter()
        .filter(|(.., name)| has_room(&name.namespace))
        .take(room)
        .map(|(.., name)| name.clone())
        .collect()
}

fn finish(
    places: &mut HashMap<AccessName, QueueEntry>,
    name: &AccessName,
    next: Next,
    now: Duration,
) {
    let Some(place) = places.get_mut(name) else {
        return;
    };
    place.running = false;
    if place.inputs == 0 && next == Next::OnChange && place.due.is_none() {
        places.remove(name);
        return;
    }
    place.failures = if next == Next::Retry {
        place.failures.saturating_add(1)
    } else {
        0
    };
    let pause = match next {
        Next::OnChange => return,
        Next::After(pause) => pause,
        Next::Retry => (FIRST_PAUSE
            * 2_u32.saturating_pow(place.failures.saturating_sub(1).min(6)))
        .min(LAST_PAUSE),
    };
    // An access that changed meanwhile keeps its earlier due time.
    place.due.get_or_insert(now + pause);
}

#[cfg(test)]
mod tests;
