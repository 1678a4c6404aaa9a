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
use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::ObjectStore;
use keyferry_hub::ports::{HubError, HubObjects};
use keyferry_issuer::audience_guard::AudienceTrial;
use keyferry_issuer::publication::PublicationReader;
use keyferry_keys::managed_issuer::INERT_AUDIENCE;
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyReader;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// How often to check whether a ServiceAccount or a Namespace changed the grants.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the object is read without a known change: it may have been edited.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// How often an audience is tested. The guard caches its verdict for an hour: a hub's flags change
/// only with a restart.
const TRY_EVERY: Duration = Duration::from_secs(600);
/// The pause after an undecided test.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How many audiences are tested at once.
const AT_ONCE: usize = 8;

/// Audiences of targets that the AudiencePairing does not list, each with the reason. The hub
/// refuses a token for them to no ServiceAccount.
#[derive(Clone, Default)]
pub struct UnlistedAudiences(Arc<ArcSwap<BTreeMap<String, String>>>);

impl UnlistedAudiences {
    /// Returns why this audience is not listed, if known.
    pub fn why(&self, audience: &Audience) -> Option<String> {
        self.0.load().get(audience.as_str()).cloned()
    }

    pub(super) fn set(&self, unlisted: BTreeMap<String, String>) {
        if **self.0.load() != unlisted {
            self.0.store(Arc::new(unlisted));
        }
    }
}

/// The dependencies of [`follow`].
pub struct PairingParts {
    /// The active policy.
    pub policy: PolicyReader,
    /// The hub's targets, for their audiences.
    pub store: Arc<ObjectStore>,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// Reads and writes the AudiencePairing.
    pub objects: Arc<dyn HubObjects>,
    /// Tests whether an audience is the hub's.
    pub trial: Arc<dyn AudienceTrial>,
    /// The hub's issuer, which is never listed.
    pub published: PublicationReader,
    /// Keyferry's own audience, which is never listed.
    pub caller_audience: Audience,
    /// The unlisted audiences, for the targets' statuses.
    pub unlisted: UnlistedAudiences,
    /// Whether this replica leads.
    pub leadership: LeadershipReader,
    /// The clock for tests and leadership.
    pub clock: Arc<dyn Clock>,
    /// The canary ServiceAccount, which may test every audience.
    pub canary: ServiceAccount,
}

/// Reconciles the AudiencePairing until the task is dropped.
pub async fn follow(parts: PairingParts) {
    let mut changes = parts.policy.changes();
    let mut pairing = Pairing::new(parts);
    loop {
        pairing.reconcile().await;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            changed = changes.changed() => if changed.is_err() { return },
            () = pairing.tried() => {}
        }
    }
}

/// The test results of an audience.
#[derive(Default)]
struct Tried {
    /// The last decisive result: whether a target may use the audience.
    decided: Option<bool>,
    /// Why the last test was undecided.
    failed: Option<Reason>,
    again: Duration,
    under_way: bool,
}

struct Pairing {
    parts: PairingParts,
    written: Option<BTreeMap<String, BTreeSet<String>>>,
    read_at: Duration,
    warned: bool,
    /// What the object listed when this replica became leader, so that a restart exposes no
    /// audience.
    listed_before: Option<BTreeSet<String>>,
    tried: BTreeMap<String, Tried>,
    tries: JoinSet<(String, Result<(), Reason>)>,
}

impl Pairing {
    fn new(parts: PairingParts) -> Self {
        Self {
            parts,
            written: None,
            read_at: Duration::ZERO,
            warned: false,
            listed_before: None,
            tried: BTreeMap::new(),
            tries: JoinSet::new(),
        }
    }

    /// Waits for a test to end; for ever if none is running.
    async fn tried(&mut self) {
        match self.tries.join_next().await {
            Some(ended) => self.note(ended.ok()),
            None => std::future::pending().await,
        }
    }

    fn note(&mut self, ended: Option<(String, Result<(), Reason>)>) {
        // A task that panicked does not say which audience it tested; its retry is due soon.
        let Some((audience, outcome)) = ended else {
            return;
        };
        let now = self.parts.clock.now().mono;
        let Some(tried) = self.tried.get_mut(&audience) else {
            return;
        };
        tried.under_way = false;
        tried.failed = None;
        tried.again = now + TRY_EVERY;
        match outcome {
            Ok(()) => tried.decided = Some(true),
            Err(Reason::AudienceIsHubs) => tried.decided = Some(false),
            Err(reason) => {
                tried.failed = Some(reason);
                tried.again = now + TRY_AGAIN;
            }
        }
    }

    async fn reconcile(&mut self) {
        while let Some(ended) = self.tries.try_join_next() {
            self.note(ended.ok());
        }
        let now = self.parts.clock.now();
        if !(self.parts.leadership.leads(now) && self.parts.live.is_complete()) {
            (self.written, self.listed_before) = (None, None);
            return;
        }
        if self.listed_before.is_none() {
            match self.parts.objects.get(&path()).await {
                Ok(read) => {
                    self.listed_before =
                        Some(read.map(|read| listed(read.value())).unwrap_or_default())
                }
                Err(error) => return self.warn(&error),
            }
        }
        let audiences = self.parts.store.audiences();
        self.start_tries(&audiences, now.mono);
        let (listed, unlisted) = self.sort(audiences);
        self.parts.unlisted.set(unlisted);
        let pairs = pairing::pairs(
            &self.parts.policy.current(),
            &*self.parts.live,
            listed,
            &self.parts.canary,
        );
        if self.written.as_ref() == Some(&pairs)
            && now.mono.saturating_sub(self.read_at) <= READ_AGAIN
        {
            return;
        }
        match write(&self.parts, &pairs).await {
            Ok(()) => (self.written, self.read_at, self.warned) = (Some(pairs), now.mono, false),
            Err(error) => {
                self.written = None;
                self.warn(&error);
            }
        }
    }

    fn warn(&mut self, error: &HubError) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(%error, "the AudiencePairing could not be written; the admission policy \
                uses an older one or none");
        }
    }

    fn start_tries(&mut self, audiences: &BTreeSet<String>, now: Duration) {
        self.tried
            .retain(|audience, tried| tried.under_way || audiences.contains(audience));
        for audience in audiences {
            if self.tries.len() >= AT_ONCE {
                return;
            }
            let tried = self.tried.entry(audience.clone()).or_default();
            // An audience whose task panicked becomes due again as well.
            if now < tried.again {
                continue;
            }
            let Ok(named) = Audience::new(audience.as_str()) else {
                continue;
            };
            (tried.under_way, tried.again) = (true, now + TRY_EVERY);
            let (trial, audience) = (Arc::clone(&self.parts.trial), audience.clone());
            self.tries.spawn(async move {
                let outcome = trial.try_audience(&named).await;
                (audience, outcome)
            });
        }
    }

    /// Decides which audiences are listed, and why the others are not, if there is a reason to
    /// report.
    fn sort(&self, audiences: BTreeSet<String>) -> (BTreeSet<String>, BTreeMap<String, String>) {
        let published = self.parts.published.current();
        let (mut listed, mut unlisted) = (BTreeSet::new(), BTreeMap::new());
        for audience in audiences {
            let tried = self.tried.get(&audience);
            let is_before = || {
                self.listed_before
                    .as_ref()
                    .is_some_and(|before| before.contains(&audience))
            };
            let why =
                if audience == self.parts.caller_audience.as_str() || audience == INERT_AUDIENCE {
                    Some("it is Keyferry's own".to_owned())
                } else if published
                    .as_ref()
                    .is_some_and(|published| published.issuer.as_str() == audience)
                {
                    Some("it is the hub's issuer".to_owned())
                } else {
                    match tried.map(|tried| (tried.decided, tried.failed)) {
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

fn path() -> String {
    format!("{}/{}", pairing::COLLECTION, pairing::NAME)
}

fn listed(object: &Value) -> BTreeSet<String> {
    object
        .get("pairs")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(audience, _)| audience.clone())
        .collect()
}

async fn write(
    parts: &PairingParts,
    pairs: &BTreeMap<String, BTreeSet<String>>,
) -> Result<(), HubError> {
    let path = path();
    let Some(read) = parts.objects.get(&path).await? else {
        return parts
            .objects
            .post(pairing::COLLECTION, &pairing::object(pairs, None))
            .await;
    };
    if read.value().get("pairs") == Some(&json!(pairs)) {
        return Ok(());
    }
    let version = read
        .value()
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str);
    if !parts.leadership.leads(parts.clock.now()) {
        return Err(HubError::Busy);
    }
    parts
        .objects
        .put(&path, &pairing::object(pairs, version))
        .await
}

#[cfg(test)]
mod tests;
