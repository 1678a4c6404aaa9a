//! The metrics, all named in one place. Labels come only from fixed sets: reasons, results, routes.
//! Key IDs, the hash of the published keys and the names of accesses are limited in number and in
//! characters.

mod accesses;
mod connections;
mod published_keys;
mod targets;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::ProbeCounts;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::accesses::Accesses;
use self::connections::Connections;
use self::published_keys::PublishedKeys;
use self::targets::Targets;

type Labels = Vec<(&'static str, &'static str)>;

/// Counters and gauges; a clone updates the same ones.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: Family<Labels, Counter<u64, AtomicU64>>,
    mints: Family<Labels, Counter<u64, AtomicU64>>,
    mint_times: Family<Labels, Histogram, fn() -> Histogram>,
    token_reviews: Family<Labels, Counter<u64, AtomicU64>>,
    access_reviews: Family<Labels, Counter<u64, AtomicU64>>,
    publications: Family<Labels, Counter<u64, AtomicU64>>,
    published_at: Gauge<i64, AtomicI64>,
    published_keys: PublishedKeys,
    accesses: Accesses,
    targets: Targets,
    connections: Connections,
    admission_policies: Family<Labels, Gauge<i64, AtomicI64>>,
    leads: Gauge<i64, AtomicI64>,
    leader_missing: Gauge<i64, AtomicI64>,
    own_key_reads: Family<Labels, Counter<u64, AtomicU64>>,
    own_key_writes: Family<Labels, Counter<u64, AtomicU64>>,
    reloads: Family<Labels, Counter<u64, AtomicU64>>,
    key_alarms: Family<Labels, Counter<u64, AtomicU64>>,
    cached: Gauge<i64, AtomicI64>,
    skew: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("keyferry");
        let requests: Family<Labels, Counter<u64, AtomicU64>> = Family::default();
        // The series of granted requests exists from the start, so that its first increase counts.
        drop(requests.get_or_create(&vec![
            ("decision", "granted"),
            ("reason", Reason::Ready.as_str()),
        ]));
        registry.register(
            "requests",
            "Requests on the token API, by decision and reason",
            requests.clone(),
        );
        let mints = Family::default();
        registry.register(
            "token_requests",
            "TokenRequests, by result and reason. Includes mints that were refused before a request \
             was sent",
            mints.clone(),
        );
        let mint_times: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(token_request_histogram);
        registry.register(
            "token_request_duration_seconds",
            "Duration of TokenRequests to the hub, the canary's included; counts the wait in the \
             queue and requests that failed before they were sent",
            mint_times.clone(),
        );
        let token_reviews = Family::default();
        registry.register(
            "token_reviews",
            "TokenReviews sent to the hub, by result",
            token_reviews.clone(),
        );
        let access_reviews = Family::default();
        registry.register(
            "access_reviews",
            "SubjectAccessReviews sent to the hub, by result",
            access_reviews.clone(),
        );
        let publications = Family::default();
        registry.register(
            "issuer_reads",
            "Reads of the hub's discovery documents, by result and reason",
            publications.clone(),
        );
        let published_at = Gauge::default();
        registry.register(
            "issuer_read_success_timestamp_seconds",
            "When the hub's discovery documents were last read successfully",
            published_at.clone(),
        );
        let published_keys = PublishedKeys::register(&mut registry);
        let accesses = Accesses::register(&mut registry);
        let targets = Targets::register(&mut registry);
        let connections = Connections::register(&mut registry);
        let admission_policies = Family::default();
        registry.register(
            "admission_policy_active",
            "Whether an admission policy of the hub that Keyferry relies on is active",
            admission_policies.clone(),
        );
        let leads = Gauge::default();
        registry.register(
            "leads",
            "Whether this replica leads: only one writes deliveries, statuses and the \
             AudiencePairing",
            leads.clone(),
        );
        let leader_missing = Gauge::default();
        registry.register(
            "leader_missing",
            "Whether this replica has seen no leader for a minute",
            leader_missing.clone(),
        );
        let key_alarms = Family::default();
        registry.register(
            "key_alarms",
            "Unexpected changes to the hub's keys or to the key journal, by reason",
            key_alarms.clone(),
        );
        let own_key_reads = Family::default();
        registry.register(
            "managed_issuer_key_reads",
            "Reads of the key sets of managed issuers, by result and reason",
            own_key_reads.clone(),
        );
        let own_key_writes = Family::default();
        registry.register(
            "managed_issuer_key_writes",
            "Writes of the key sets of managed issuers, by change and result",
            own_key_writes.clone(),
        );
        let reloads = Family::default();
        registry.register(
            "configuration_reloads",
            "Reloads of a changed configuration file, by result",
            reloads.clone(),
        );
        let cached = Gauge::default();
        registry.register("cached_tokens", "Cached tokens", cached.clone());
        let skew = Gauge::default();
        registry.register(
            "hub_clock_skew_seconds",
            "Seconds by which the hub's clock was ahead of this process at the last TokenRequest",
            skew.clone(),
        );
        let build: Family<Labels, Gauge<i64, AtomicI64>> = Family::default();
        build
            .get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))])
            .set(1);
        registry.register("build_info", "The running version", build);
        let registry = Arc::new(registry);
        Self {
            registry,
            requests,
            mints,
            mint_times,
            token_reviews,
            access_reviews,
            publications,
            published_at,
            published_keys,
            accesses,
            targets,
            connections,
            admission_policies,
            leads,
            leader_missing,
            reloads,
            key_alarms,
            own_key_reads,
            own_key_writes,
            cached,
            skew,
        }
    }
}

impl Metrics {
    /// Counts a decided request.
    pub fn request(&self, decision: &'static str, reason: Reason) {
        self.requests
            .get_or_create(&vec![("decision", decision), ("reason", reason.as_str())])
            .inc();
    }

    /// Counts a TokenRequest.
    pub fn mint(&self, outcome: Result<(), Reason>) {
        self.mints.get_or_create(&outcome_labels(outcome)).inc();
    }

    /// Records the duration of a TokenRequest to the hub.
    pub fn token_request_took(&self, time: Duration, answered: bool) {
        self.mint_times
            .get_or_create(&vec![("result", result(answered))])
            .observe(time.as_secs_f64());
    }

    /// Counts a TokenReview.
    pub fn token_review(&self, answered: bool) {
        self.token_reviews
            .get_or_create(&vec![("result", result(answered))])
            .inc();
    }

    /// Counts a SubjectAccessReview.
    pub fn access_review(&self, answered: bool) {
        self.access_reviews
            .get_or_create(&vec![("result", result(answered))])
            .inc();
    }

    /// Counts a reading of the hub's documents.
    pub fn issuer_read(&self, outcome: Result<i64, Reason>) {
        self.publications
            .get_or_create(&outcome_labels(outcome))
            .inc();
        if let Ok(at) = outcome {
            self.published_at.set(at);
        }
    }

    /// Reports the keys that are published after a successful reading; `hash` is `sha256:` and that
    /// of the key set's bytes, `at` is in seconds since 1970.
    pub fn published<'a>(&self, kids: impl Iterator<Item = &'a str>, hash: &str, at: i64) {
        self.published_keys.read(kids, hash, at);
    }

    /// Reports how many published keys this process has not seen at the hub itself.
    pub fn unconfirmed_keys(&self, count: usize) {
        self.published_keys.unconfirmed(count);
    }

    /// Counts an unexpected change to the hub's keys or to the key journal.
    pub fn key_alarm(&self, reason: Reason) {
        self.key_alarms
            .get_or_create(&vec![("reason", reason.as_str())])
            .inc();
    }

    /// Counts a reading of a managed issuer's key set.
    pub fn own_keys_read(&self, outcome: Result<(), Reason>) {
        self.own_key_reads
            .get_or_create(&outcome_labels(outcome))
            .inc();
    }

    /// Counts an attempt to write a managed issuer's key set; a lost race is a failure too.
    pub fn own_keys_written(&self, change: &'static str, good: bool) {
        self.own_key_writes
            .get_or_create(&vec![("change", change), ("result", result(good))])
            .inc();
    }

    /// Reports the state of an access; `expires` is the earliest expiry of its written tokens, in
    /// seconds since 1970.
    pub fn access(&self, name: &AccessName, ready: bool, expires: Option<i64>) {
        self.accesses.set(name, ready, expires);
    }

    /// Reports whether the target accepted a token of an access, if that was probed.
    pub fn probe(&self, name: &AccessName, accepted: Option<bool>) {
        self.accesses.probed(name, accepted);
    }

    /// Removes the metrics of a deleted access.
    pub fn access_gone(&self, name: &AccessName) {
        self.accesses.forget(name);
    }

    /// Removes the metrics of all accesses, because another process leads and these would become
    /// outdated.
    pub fn accesses_gone(&self) {
        self.accesses.forget_all();
    }

    /// Reports how a target answers: whether it is reachable, and its answers to the tokens of its
    /// accesses. `None` where that is not known, or not asked.
    pub fn target(
        &self,
        name: &ObjectName,
        reachable: Option<bool>,
        accesses: Option<ProbeCounts>,
    ) {
        self.targets.set(name, reachable, accesses);
    }

    /// Removes the metrics of every other target.
    pub fn keep_targets(&self, is_kept: impl Fn(&ObjectName) -> bool) {
        self.targets.keep(is_kept);
    }

    /// Counts a connection that was not served.
    pub fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        self.connections.refused(listener, reason);
    }

    /// Counts a new open connection.
    pub fn connection_opened(&self, listener: &'static str) {
        self.connections.opened(listener);
    }

    /// Counts an open connection that Keyferry ended.
    pub fn connection_ended(&self, listener: &'static str, reason: &'static str) {
        self.connections.ended(listener, reason);
    }

    /// Counts down the open connections, whichever side closed this one.
    pub fn connection_closed(&self, listener: &'static str) {
        self.connections.closed(listener);
    }

    /// Reports the certificate that a listener serves; `not_after` is its expiry in seconds since
    /// 1970.
    pub fn serving_certificate(&self, listener: &'static str, not_after: i64) {
        self.connections.certificate(listener, not_after);
    }

    /// Counts a reload of a changed serving certificate.
    pub fn serving_certificate_reloaded(&self, listener: &'static str, good: bool) {
        self.connections.reloaded(listener, good);
    }

    /// Reports when the first CA of client certificates in use expires, in seconds since 1970.
    pub fn caller_authority(&self, not_after: i64) {
        self.connections.authority(not_after);
    }

    /// Counts a reload of a changed CA of client certificates.
    pub fn caller_authority_reloaded(&self, good: bool) {
        self.connections.authority_reloaded(good);
    }

    /// Reports whether the admission policy of this name is active.
    pub fn admission_policy(&self, name: &'static str, active: bool) {
        self.admission_policies
            .get_or_create(&vec![("policy", name)])
            .set(i64::from(active));
    }

    /// Reports whether this replica leads, and whether no leader was seen for a minute.
    pub fn leader(&self, leads: bool, missing: bool) {
        self.leads.set(i64::from(leads));
        self.leader_missing.set(i64::from(missing));
    }

    /// Counts a reload of the configuration file.
    pub fn reload(&self, good: bool) {
        self.reloads
            .get_or_create(&vec![("result", result(good))])
            .inc();
    }

    /// Reports the seconds that the hub's clock was ahead of ours.
    pub fn hub_clock_skew(&self, seconds: i64) {
        self.skew.set(seconds);
    }

    /// Reports the number of cached tokens.
    pub fn cached_tokens(&self, count: u64) {
        self.cached.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Renders all metrics as OpenMetrics text.
    pub fn exposition(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

/// Buckets from a hub on the same machine up to a call that waits first and then ends at its
/// deadline of 5 s.
fn token_request_histogram() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

fn result(good: bool) -> &'static str {
    if good { "success" } else { "failure" }
}

/// The labels of an outcome. A success has the reason `Ready`.
fn outcome_labels<T>(outcome: Result<T, Reason>) -> Labels {
    let good = outcome.is_ok();
    let reason = outcome.err().unwrap_or(Reason::Ready);
    vec![("result", result(good)), ("reason", reason.as_str())]
}
