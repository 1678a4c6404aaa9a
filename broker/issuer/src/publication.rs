//! The discovery documents that targets fetch: the hub's keys as [`TrackedKeys`] judges them,
//! rendered once per change, and kept through every failure of the hub.

mod document;
mod events;
mod fault;
mod published;
mod records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::Guard;
use keyferry_api::issuer::{Issuer, PublicUrl};
use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_hub::ports::{EndpointAnswer, IssuerDocuments, UpstreamDocuments};
use keyferry_keys::discovery::{self, ProviderMetadata};
use keyferry_keys::json::{self, JsonLimits};
use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
use keyferry_keys::tracked_keys::{KeyActivation, KeyEvent, Reading, TrackedKeys};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::single_flight::SingleFlight;
use parking_lot::{Mutex, MutexGuard};

pub use document::Document;
pub use fault::PublishError;
pub use published::{PublicationReader, Published};
pub use records::KeyRecords;

/// The shortest pause between two reloads that tokens with unknown keys cause.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(5);

/// The source of an event, so that a lasting event is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventSource {
    Hub,
    Record,
}

/// The settings and dependencies of a [`Publisher`].
pub struct PublisherParts {
    /// Fetches the hub's documents.
    pub source: Arc<dyn IssuerDocuments>,
    /// The public address of Keyferry's documents.
    pub public_url: PublicUrl,
    /// The pinned issuer; without one, the first issuer that the hub states is kept.
    pub pinned: Option<Issuer>,
    /// The activation delay: how long a key must have been published before tokens that it signed
    /// are issued.
    pub activation_delay: Duration,
    /// The key journal that replicas share and that survives restarts.
    pub records: KeyRecords,
    /// The clock for key lifetimes.
    pub clock: Arc<dyn Clock>,
    /// Counts alarms about keys.
    pub metrics: Metrics,
}

/// Updates the published documents. Each process has one; a clone is the same one.
#[derive(Clone)]
pub struct Publisher {
    parts: Arc<PublisherParts>,
    tracked: Arc<Mutex<Option<TrackedKeys>>>,
    leads: Arc<AtomicBool>,
    published: PublicationReader,
    readings: Arc<SingleFlight<(), Result<(), PublishError>>>,
    unknown_key: Arc<Mutex<Option<Duration>>>,
    reported: Arc<Mutex<BTreeMap<EventSource, Vec<KeyEvent>>>>,
    /// Allows one exchange with the shared key journal at a time.
    syncing: Arc<tokio::sync::Mutex<()>>,
}

impl Publisher {
    /// Creates a publisher that has read nothing yet.
    pub fn new(parts: PublisherParts) -> Self {
        // A single replica always leads.
        let leads = !parts.records.is_shared();
        Self {
            parts: Arc::new(parts),
            tracked: Arc::default(),
            leads: Arc::new(AtomicBool::new(leads)),
            published: PublicationReader::default(),
            readings: Arc::default(),
            unknown_key: Arc::default(),
            reported: Arc::default(),
            syncing: Arc::default(),
        }
    }

    /// Returns a reader of the published documents.
    pub fn reader(&self) -> PublicationReader {
        self.published.clone()
    }

    /// Borrows what is published now; drop the guard soon.
    pub fn borrow_current(&self) -> Guard<Option<Arc<Published>>> {
        self.published.borrow_current()
    }

    /// Sets whether this replica may withdraw keys.
    pub fn set_leadership(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Reads the hub's documents from every endpoint and publishes the valid ones. Concurrent
    /// callers share one reading.
    ///
    /// # Errors
    /// [`PublishError`] if no endpoint gave valid documents; what was published before stays.
    pub async fn refresh(&self) -> Result<(), PublishError> {
        let this = self.clone();
        let read = self.readings.join((), || async move {
            let answers = this.parts.source.fetch().await;
            let outcome = this.apply_readings(answers);
            let cut_off = outcome
                .as_ref()
                .is_err_and(|error| error.reason() == Reason::HubUnreachable);
            this.published.cut_off.store(cut_off, Ordering::Relaxed);
            outcome
        });
        read.await.unwrap_or(Err(PublishError::SharedCallLost))
    }

    /// Reloads the hub's documents because a token names a key that is not published; at most once
    /// in five seconds.
    ///
    /// # Errors
    /// [`Reason::HubUnreachable`] when the hub did not answer: the key may be good.
    pub async fn refresh_for_unknown_key(&self, now: Moment) -> Result<(), Reason> {
        {
            let mut next_reload = self.unknown_key.lock();
            // A reading in progress is joined.
            if next_reload.is_some_and(|from| now.mono < from) && self.readings.is_empty() {
                return Ok(());
            }
            *next_reload = Some(now.mono.saturating_add(UNKNOWN_KEY_PAUSE));
        }
        match self.refresh().await {
            Err(error) if error.reason() == Reason::HubUnreachable => Err(Reason::HubUnreachable),
            _ => Ok(()),
        }
    }

    /// Publishes the key `kid`, with which the hub has just signed a token: if it is new, the
    /// documents are reloaded first.
    pub async fn publish_signing_key(&self, kid: &str) {
        if self
            .reader()
            .current()
            .is_some_and(|published| published.keys.get(kid).is_some())
        {
            return;
        }
        if let Err(reason) = self.refresh_for_unknown_key(self.parts.clock.now()).await {
            tracing::warn!(%reason, "the hub signed with a key that is not published");
        }
        self.change_keys(EventSource::Hub, |tracked, now| {
            tracked.publish_signing_key(kid, now)
        });
        self.sync_if_changed().await;
    }

    /// Notes that a token signed by `kid` was issued and expires at `expires`.
    pub fn note_signature(&self, kid: &str, expires: jiff::Timestamp) {
        if let Some(tracked) = self.lock_keys().as_mut() {
            tracked.note_signature(kid, self.parts.clock.now().wall, expires);
        }
    }

    /// Returns whether tokens signed by `kid` may be issued, and if not yet, when.
    pub fn key_activation(&self, kid: &str) -> KeyActivation {
        self.lock_keys()
            .as_ref()
            .map_or(KeyActivation::Unpublished, |tracked| {
                tracked.activation(kid, self.parts.clock.now())
            })
    }

    /// Whether the shared key journal was read recently enough to mint.
    pub fn is_current(&self) -> bool {
        self.lock_keys()
            .as_ref()
            .is_some_and(|tracked| tracked.is_current(self.parts.clock.now()))
    }

    /// Returns the number of published keys that this process has not seen at the hub itself.
    pub fn unconfirmed_keys(&self) -> usize {
        self.lock_keys().as_ref().map_or(0, |tracked| {
            tracked.unconfirmed_keys(self.parts.clock.now())
        })
    }

    fn apply_readings(&self, answers: Vec<EndpointAnswer>) -> Result<(), PublishError> {
        let (mut reading, mut fault) = (Reading::default(), None);
        for EndpointAnswer {
            endpoint,
            documents,
        } in answers
        {
            match documents
                .map_err(PublishError::Hub)
                .and_then(|documents| self.check_documents(&documents))
            {
                Ok(keys) => reading.answered.push((endpoint, keys)),
                Err(error) => {
                    tracing::debug!(endpoint, reason = %error.reason(), %error, "an endpoint of \
                        the hub gave no usable documents");
                    reading.silent += 1;
                    fault = fault.or(Some(error));
                }
            }
        }
        if reading.answered.is_empty() {
            return Err(fault.unwrap_or(PublishError::SharedCallLost));
        }
        let leads = self.leads.load(Ordering::Relaxed);
        self.change_keys(EventSource::Hub, |tracked, now| {
            tracked.apply_reading(&reading, leads, now)
        });
        Ok(())
    }

    /// Checks one endpoint's documents. The first issuer stated is kept for ever.
    fn check_documents(&self, documents: &UpstreamDocuments) -> Result<PublicKeySet, PublishError> {
        let known = self
            .lock_keys()
            .as_ref()
            .map(|tracked| tracked.issuer().clone())
            .or_else(|| self.parts.pinned.clone());
        let issuer = known.map_or_else(|| stated_issuer(&documents.metadata), Ok)?;
        ProviderMetadata::from_upstream(&documents.metadata, issuer.as_str())
            .map_err(|error| PublishError::Metadata(Arc::new(error)))?;
        let (keys, rejected) =
            PublicKeySet::from_upstream(&documents.jwks, KeySetLimits::default())
                .map_err(|error| PublishError::Keys(Arc::new(error)))?;
        for key in &rejected {
            tracing::warn!(why = %key.why.code(), "a key of the hub is not published");
        }
        self.start_tracking(issuer);
        Ok(keys)
    }

    fn start_tracking(&self, issuer: Issuer) {
        let mut tracked = self.lock_keys();
        if tracked.is_none() {
            *tracked = Some(TrackedKeys::new(
                issuer,
                self.parts.activation_delay,
                self.parts.records.is_shared(),
                self.parts.clock.now(),
            ));
        }
    }

    /// Publishes again, because keys can expire even while the hub does not answer.
    fn republish(&self) {
        let now = self.parts.clock.now();
        let tracked = self.lock_keys();
        let Some(tracked) = tracked.as_ref() else {
            return;
        };
        self.publish_keys(tracked, now);
        self.parts
            .metrics
            .unconfirmed_keys(tracked.unconfirmed_keys(now));
    }

    /// Changes the tracked keys, reports the events and publishes the result.
    fn change_keys(
        &self,
        source: EventSource,
        change: impl FnOnce(&mut TrackedKeys, Moment) -> Vec<KeyEvent>,
    ) {
        let now = self.parts.clock.now();
        let mut tracked = self.lock_keys();
        let Some(tracked) = tracked.as_mut() else {
            return;
        };
        self.report_events(source, change(tracked, now));
        self.publish_keys(tracked, now);
    }

    fn publish_keys(&self, tracked: &TrackedKeys, now: Moment) {
        if !tracked
            .revoked_kids()
            .eq(self.published.revoked.load().iter().map(String::as_str))
        {
            self.published.revoked.store(Arc::new(
                tracked.revoked_kids().map(str::to_owned).collect(),
            ));
        }
        let Some(keys) = tracked.published_keys(now) else {
            self.published.current.store(None);
            return;
        };
        let before = self.published.current();
        let (metadata, jwks) = match before.filter(|before| before.keys == keys) {
            Some(before) => (before.metadata.clone(), before.jwks.clone()),
            None => {
                let metadata = discovery::render_metadata(
                    tracked.issuer().as_str(),
                    &self.parts.public_url.jwks_uri(),
                    &keys,
                );
                let jwks = Document::new(keys.to_bytes());
                tracing::info!(issuer = %tracked.issuer(), keys = keys.len(), sha256 = %jwks.sha256, "the published key set changed");
                (Document::new(metadata), jwks)
            }
        };
        let from = |kid: &str| match tracked.activation(kid, now) {
            KeyActivation::Active => Some(now.mono),
            // Not recorded yet, or never: evaluated again with every change.
            _ if !tracked.is_recorded(kid) => None,
            KeyActivation::After(left) => Some(now.mono.saturating_add(left)),
            KeyActivation::Unpublished | KeyActivation::Revoked => None,
        };
        let activations = keys.kids().map(|kid| (kid.to_owned(), from(kid))).collect();
        let (issuer, authenticating) = (tracked.issuer().clone(), tracked.authenticating_keys(now));
        self.published.current.store(Some(Arc::new(Published {
            issuer,
            keys,
            authenticating,
            metadata,
            jwks,
            activations,
            journal: tracked.journal_reading(),
        })));
    }

    /// Reports each event once for as long as it lasts.
    fn report_events(&self, source: EventSource, events: Vec<KeyEvent>) {
        let mut reported = self.reported.lock();
        let before = reported.insert(source, events.clone()).unwrap_or_default();
        for event in events.iter().filter(|event| !before.contains(event)) {
            events::to_log(event);
            if let Some(reason) = events::alarm_reason(event) {
                self.parts.metrics.key_alarm(reason);
            }
        }
    }

    /// Adopts a key journal that revokes the key.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "a test names a key that there is")]
    pub fn revoke_for_test(&self, kid: &str) {
        self.change_keys(EventSource::Record, |tracked, now| {
            let journal = tracked
                .snapshot_journal()
                .with_revoked(kid, now.wall)
                .unwrap();
            tracked.adopt_journal(&journal, keyferry_keys::tracked_keys::Origin::Sealed, now)
        });
    }

    fn lock_keys(&self) -> MutexGuard<'_, Option<TrackedKeys>> {
        self.tracked.lock()
    }
}

fn stated_issuer(metadata: &[u8]) -> Result<Issuer, PublishError> {
    let limits = JsonLimits {
        bytes: discovery::MAX_DISCOVERY_BYTES,
        depth: json::MAX_JSON_DEPTH,
    };
    let stated = json::read_object(metadata, limits)
        .ok()
        .and_then(|object| object.get("issuer")?.as_str().map(str::to_owned));
    Ok(Issuer::new(stated.unwrap_or_default())?)
}

#[cfg(test)]
mod tests;
