//! Reconciles the AudiencePairing, which the hub's admission policy reads, with the policy. Only
//! the leader writes it.
//!
//! The hub refuses a listed audience to all other ServiceAccounts. So an audience is listed only
//! after the canary has shown that the hub itself does not accept it: an audience of the hub in
//! that object would stop every Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keyferry_api::audience::Audience;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::pairing;
use keyferry_hub::ports::HubError;
use keyferry_issuer::audience_guard::AudienceTrial;
use keyferry_keys::managed_issuer::INERT_AUDIENCE;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::context::Context;

/// How often to check whether a ServiceAccount or a Namespace changed the grants.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the object is read without a known change: it may have been edited.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);
/// How often an audience is tested. The guard caches its verdict for an hour: a hub's flags change
/// only with a restart.
const TRIAL_INTERVAL: Duration = Duration::from_secs(600);
/// The pause after an undecided test.
const TRIAL_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How many audiences are tested at once.
const MAX_CONCURRENT_TRIALS: usize = 8;

/// Audiences of targets that the AudiencePairing does not list, each with the reason. The hub
/// refuses a token for them to no ServiceAccount.
#[derive(Clone, Default)]
pub struct UnlistedAudiences(Arc<ArcSwap<BTreeMap<String, String>>>);

impl UnlistedAudiences {
    /// Returns why this audience is not listed, if known.
    pub fn reason_for(&self, audience: &Audience) -> Option<String> {
        self.0.load().get(audience.as_str()).cloned()
    }

    pub(super) fn set(&self, unlisted: BTreeMap<String, String>) {
        if **self.0.load() != unlisted {
            self.0.store(Arc::new(unlisted));
        }
    }
}

/// Reconciles the AudiencePairing until the task is dropped.
pub async fn run_audience_pairing(mut pairing: AudiencePairing) {
    let mut changes = pairing.context.policy.changes();
    loop {
        pairing.reconcile_pairing().await;
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            changed = changes.changed() => if changed.is_err() { return },
            () = pairing.wait_for_trial() => {}
        }
    }
}

/// The test results of an audience.
#[derive(Default)]
struct AudienceVerdict {
    /// The last decisive result: whether a target may use the audience.
    decided: Option<bool>,
    /// Why the last test was undecided.
    failed: Option<Reason>,
    next_at: Duration,
    is_running: bool,
}

/// The reconciliation of the AudiencePairing.
pub struct AudiencePairing {
    context: Arc<Context>,
    /// Tests whether an audience is the hub's.
    trial: Arc<dyn AudienceTrial>,
    /// Keyferry's own audience, which is never listed.
    caller_audience: Audience,
    /// The canary ServiceAccount, which may test every audience.
    canary: ServiceAccount,
    /// The unlisted audiences, for the targets' statuses.
    unlisted: UnlistedAudiences,
    written: Option<BTreeMap<String, BTreeSet<String>>>,
    read_at: Duration,
    warned: bool,
    /// What the object listed when this replica became leader, so that a restart exposes no
    /// audience.
    listed_before: Option<BTreeSet<String>>,
    verdicts: BTreeMap<String, AudienceVerdict>,
    trials: JoinSet<(String, Result<(), Reason>)>,
}

impl AudiencePairing {
    /// Creates the reconciliation, before any audience is tested. `trial` tests whether an audience
    /// is the hub's, as the `canary`; `unlisted` gets the audiences that are not listed.
    pub fn new(
        context: Arc<Context>,
        trial: Arc<dyn AudienceTrial>,
        caller_audience: Audience,
        canary: ServiceAccount,
        unlisted: UnlistedAudiences,
    ) -> Self {
        Self {
            context,
            trial,
            caller_audience,
            canary,
            unlisted,
            written: None,
            read_at: Duration::ZERO,
            warned: false,
            listed_before: None,
            verdicts: BTreeMap::new(),
            trials: JoinSet::new(),
        }
    }

    /// Waits for a test to end; for ever if none is running.
    async fn wait_for_trial(&mut self) {
        match self.trials.join_next().await {
            Some(ended) => self.record_trial(ended.ok()),
            None => std::future::pending().await,
        }
    }

    fn record_trial(&mut self, ended: Option<(String, Result<(), Reason>)>) {
        // A task that panicked does not say which audience it tested; its retry is due soon.
        let Some((audience, outcome)) = ended else {
            return;
        };
        let now = self.context.clock.now().mono;
        let Some(verdict) = self.verdicts.get_mut(&audience) else {
            return;
        };
        verdict.is_running = false;
        verdict.failed = None;
        verdict.next_at = now + TRIAL_INTERVAL;
        match outcome {
            Ok(()) => verdict.decided = Some(true),
            Err(Reason::AudienceIsHubs) => verdict.decided = Some(false),
            Err(reason) => {
                verdict.failed = Some(reason);
                verdict.next_at = now + TRIAL_RETRY_INTERVAL;
            }
        }
    }

    async fn reconcile_pairing(&mut self) {
        while let Some(ended) = self.trials.try_join_next() {
            self.record_trial(ended.ok());
        }
        let now = self.context.clock.now();
        if !(self.context.leadership.leads(now) && self.context.live.is_complete()) {
            (self.written, self.listed_before) = (None, None);
            return;
        }
        if self.listed_before.is_none() {
            match self.context.objects.get(&pairing_path()).await {
                Ok(read) => {
                    self.listed_before = Some(
                        read.map(|read| listed_audiences(read.value()))
                            .unwrap_or_default(),
                    )
                }
                Err(error) => return self.warn_once(&error),
            }
        }
        let audiences = self.context.store.audiences();
        self.start_trials(&audiences, now.mono);
        let (listed, unlisted) = self.sort_audiences(audiences);
        self.unlisted.set(unlisted);
        let granted = pairing::accounts_by_audience(
            &self.context.policy.current(),
            &*self.context.live,
            listed,
            &self.canary,
        );
        if self.written.as_ref() == Some(&granted)
            && now.mono.saturating_sub(self.read_at) <= REREAD_INTERVAL
        {
            return;
        }
        match write_pairing(&self.context, &granted).await {
            Ok(()) => (self.written, self.read_at, self.warned) = (Some(granted), now.mono, false),
            Err(error) => {
                self.written = None;
                self.warn_once(&error);
            }
        }
    }

    fn warn_once(&mut self, error: &HubError) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(%error, "the AudiencePairing could not be written; the admission policy \
                uses an older one or none");
        }
    }

    fn start_trials(&mut self, audiences: &BTreeSet<String>, now: Duration) {
        self.verdicts
            .retain(|audience, verdict| verdict.is_running || audiences.contains(audience));
        for audience in audiences {
            if self.trials.len() >= MAX_CONCURRENT_TRIALS {
                return;
            }
            let verdict = self.verdicts.entry(audience.clone()).or_default();
            // An audience whose task panicked becomes due again as well.
            if now < verdict.next_at {
                continue;
            }
            let Ok(named) = Audience::new(audience.as_str()) else {
                continue;
            };
            (verdict.is_running, verdict.next_at) = (true, now + TRIAL_INTERVAL);
            let (trial, audience) = (Arc::clone(&self.trial), audience.clone());
            self.trials.spawn(async move {
                let outcome = trial.try_audience(&named).await;
                (audience, outcome)
            });
        }
    }

    /// Decides which audiences are listed, and why the others are not, if there is a reason to
    /// report.
    fn sort_audiences(
        &self,
        audiences: BTreeSet<String>,
    ) -> (BTreeSet<String>, BTreeMap<String, String>) {
        let published = self.context.published.current();
        let (mut listed, mut unlisted) = (BTreeSet::new(), BTreeMap::new());
        for audience in audiences {
            let verdict = self.verdicts.get(&audience);
            let is_before = || {
                self.listed_before
                    .as_ref()
                    .is_some_and(|before| before.contains(&audience))
            };
            let why = if audience == self.caller_audience.as_str() || audience == INERT_AUDIENCE {
                Some("it is Keyferry's own".to_owned())
            } else if published
                .as_ref()
                .is_some_and(|published| published.issuer.as_str() == audience)
            {
                Some("it is the hub's issuer".to_owned())
            } else {
                match verdict.map(|verdict| (verdict.decided, verdict.failed)) {
                    Some((Some(true), _)) => None,
                    Some((Some(false), _)) => Some("the hub itself accepts it".to_owned()),
                    _ if is_before() => None,
                    Some((None, Some(reason))) => Some(format!(
                        "it is unknown whether the hub itself accepts it ({reason})"
                    )),
                    // Its first test is still running.
                    Some((None, None)) | None => continue,
                }
            };
            match why {
                Some(why) => drop(unlisted.insert(audience, why)),
                None => drop(listed.insert(audience)),
            }
        }
        (listed, unlisted)
    }
}

fn pairing_path() -> String {
    format!("{}/{}", pairing::COLLECTION_PATH, pairing::PAIRING_NAME)
}

fn listed_audiences(object: &Value) -> BTreeSet<String> {
    object
        .get("pairs")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(audience, _)| audience.clone())
        .collect()
}

async fn write_pairing(
    context: &Context,
    pairs: &BTreeMap<String, BTreeSet<String>>,
) -> Result<(), HubError> {
    let path = pairing_path();
    let Some(read) = context.objects.get(&path).await? else {
        return context
            .objects
            .create_plain(
                pairing::COLLECTION_PATH,
                &pairing::pairing_object(pairs, None),
            )
            .await;
    };
    if read.value().get("pairs") == Some(&json!(pairs)) {
        return Ok(());
    }
    let version = read
        .value()
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str);
    if !context.is_leader() {
        return Err(HubError::Busy);
    }
    context
        .objects
        .replace_plain(&path, &pairing::pairing_object(pairs, version))
        .await
}

#[cfg(test)]
mod tests;
