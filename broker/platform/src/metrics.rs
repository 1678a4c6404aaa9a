//! The metrics, each named in one table: those of the server here, the others in the files below.
//! Labels come only from fixed sets: reasons, results, routes.
//! Key IDs, the hash of the published keys and the names of accesses are limited in number and in
//! characters.

mod accesses;
mod connections;
mod published_keys;
mod table;
mod targets;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::ProbeCounts;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::accesses::Accesses;
use self::connections::Connections;
use self::published_keys::PublishedKeys;
pub use self::table::MetricDescription;
use self::table::{Counters, Gauge, Gauges, PREFIX, Series, metrics};
use self::targets::Targets;

metrics! {
    /// The metrics of the server and of the tasks beside it.
    ServerMetrics {
        requests: Counters = "requests" ["decision", "reason"]
            "Requests on the two routes of the token API; not 404 and 405",
        mints: Counters = "token_requests" ["result", "reason"]
            "Attempts to get a token for a grant, by outcome; with those that were refused before a \
             TokenRequest was sent, without those for the canary",
        mint_times: Series<Histogram, &'static str> = "token_request_duration_seconds" ["result"]
            "Histogram: duration of TokenRequests to the hub, the canary's included; counts the \
             wait in the queue and requests that failed before they were sent",
        token_reviews: Counters = "token_reviews" ["result"]
            "TokenReviews of callers and of readers of metrics, by whether the hub answered",
        access_reviews: Counters = "access_reviews" ["result"]
            "SubjectAccessReviews, by whether the hub answered",
        publications: Counters = "issuer_reads" ["result", "reason"]
            "Periodic reads of the hub's discovery documents",
        published_at: Gauge = "issuer_read_success_timestamp_seconds" []
            "When the hub's discovery documents were last read successfully",
        admission_policies: Gauges = "admission_policy_active" ["policy"]
            "1 if this admission policy of the hub is active",
        leads: Gauge = "leads" []
            "1 if this replica leads: only one writes deliveries, statuses and the AudiencePairing",
        leader_missing: Gauge = "leader_missing" []
            "1 if this replica has seen no leader for a minute",
        key_alarms: Counters = "key_alarms" ["reason"]
            "Unexpected changes to the hub's keys or to the key journal",
        own_key_reads: Counters = "managed_issuer_key_reads" ["result", "reason"]
            "Reads of the key sets of managed issuers",
        own_key_writes: Counters = "managed_issuer_key_writes" ["change", "result"]
            "Writes of the key sets of managed issuers",
        reloads: Counters = "configuration_reloads" ["result"]
            "Reloads of a changed configuration file",
        cached: Gauge = "cached_tokens" []
            "Cached tokens",
        skew: Gauge = "hub_clock_skew_seconds" []
            "Seconds by which the hub's clock was ahead of this process at the last TokenRequest",
        tasks: Gauge = "tasks" []
            "Tasks that have not ended: of open connections, of work under way, and those that last \
             as long as the process",
        build: Gauges = "build_info" ["version"]
            "1; the running version",
    }
}

/// Counters and gauges; a clone updates the same ones.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    server: ServerMetrics,
    published_keys: PublishedKeys,
    accesses: Accesses,
    targets: Targets,
    connections: Connections,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let server = ServerMetrics::register(&mut registry);
        // The series of granted requests exists from the start, so that its first increase counts.
        drop(server.requests.of(["granted", Reason::Ready.as_str()]));
        server.build.of([env!("CARGO_PKG_VERSION")]).set(1);
        let published_keys = PublishedKeys::register(&mut registry);
        let accesses = Accesses::register(&mut registry);
        let targets = Targets::register(&mut registry);
        let connections = Connections::register(&mut registry);
        Self {
            registry: Arc::new(registry),
            server,
            published_keys,
            accesses,
            targets,
            connections,
        }
    }
}

/// Describes every metric that there is.
pub fn describe() -> Vec<MetricDescription> {
    [
        ServerMetrics::describe(),
        PublishedKeys::describe(),
        Connections::describe(),
        Accesses::describe(),
        Targets::describe(),
    ]
    .concat()
}

impl Metrics {
    /// Counts a decided request.
    pub fn count_request(&self, decision: &'static str, reason: Reason) {
        self.server.requests.of([decision, reason.as_str()]).inc();
    }

    /// Counts a TokenRequest.
    pub fn count_mint(&self, outcome: Result<(), Reason>) {
        self.server.mints.of(outcome_labels(outcome)).inc();
    }

    /// Records the duration of a TokenRequest to the hub.
    pub fn token_request_took(&self, time: Duration, answered: bool) {
        self.server
            .mint_times
            .of([result_label(answered)])
            .observe(time.as_secs_f64());
    }

    /// Counts a TokenReview.
    pub fn token_review(&self, answered: bool) {
        self.server.token_reviews.of([result_label(answered)]).inc();
    }

    /// Counts a SubjectAccessReview.
    pub fn access_review(&self, answered: bool) {
        self.server
            .access_reviews
            .of([result_label(answered)])
            .inc();
    }

    /// Counts a reading of the hub's documents.
    pub fn issuer_read(&self, outcome: Result<i64, Reason>) {
        self.server.publications.of(outcome_labels(outcome)).inc();
        if let Ok(at) = outcome {
            self.server.published_at.set(at);
        }
    }

    /// Reports the keys that are published after a successful reading; `hash` is `sha256:` and that
    /// of the key set's bytes, `at` is in seconds since 1970.
    pub fn report_published_keys<'a>(
        &self,
        kids: impl Iterator<Item = &'a str>,
        hash: &str,
        at: i64,
    ) {
        self.published_keys.report_reading(kids, hash, at);
    }

    /// Reports how many published keys this process has not seen at the hub itself.
    pub fn unconfirmed_keys(&self, count: usize) {
        self.published_keys.set_unconfirmed(count);
    }

    /// Counts an unexpected change to the hub's keys or to the key journal.
    pub fn key_alarm(&self, reason: Reason) {
        self.server.key_alarms.of([reason.as_str()]).inc();
    }

    /// Counts a reading of a managed issuer's key set.
    pub fn own_keys_read(&self, outcome: Result<(), Reason>) {
        self.server.own_key_reads.of(outcome_labels(outcome)).inc();
    }

    /// Counts an attempt to write a managed issuer's key set; a lost race is a failure too.
    pub fn own_keys_written(&self, change: &'static str, good: bool) {
        self.server
            .own_key_writes
            .of([change, result_label(good)])
            .inc();
    }

    /// Reports the state of an access; `expires` is the earliest expiry of its written tokens, in
    /// seconds since 1970.
    pub fn report_access(&self, name: &AccessName, ready: bool, expires: Option<i64>) {
        self.accesses.set_access(name, ready, expires);
    }

    /// Reports whether the target accepted a token of an access, if that was probed.
    pub fn report_probe(&self, name: &AccessName, accepted: Option<bool>) {
        self.accesses.set_probe_result(name, accepted);
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
    pub fn report_target(
        &self,
        name: &ObjectName,
        reachable: Option<bool>,
        accesses: Option<ProbeCounts>,
    ) {
        self.targets.set(name, reachable, accesses);
    }

    /// Removes the metrics of every other target.
    pub fn keep_targets(&self, is_kept: impl Fn(&ObjectName) -> bool) {
        self.targets.retain(is_kept);
    }

    /// Counts a connection that was not served.
    pub fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        self.connections.refused.of([listener, reason]).inc();
    }

    /// Counts a new open connection.
    pub fn connection_opened(&self, listener: &'static str) {
        self.connections.open.of([listener]).inc();
    }

    /// Counts an open connection that Keyferry ended.
    pub fn connection_ended(&self, listener: &'static str, reason: &'static str) {
        self.connections.ended.of([listener, reason]).inc();
    }

    /// Counts a request after which its connection is not read from for a moment.
    pub fn connection_paused(&self, listener: &'static str) {
        self.connections.pauses.of([listener]).inc();
    }

    /// Counts down the open connections, whichever side closed this one.
    pub fn connection_closed(&self, listener: &'static str) {
        self.connections.open.of([listener]).dec();
    }

    /// Reports the certificate that a listener serves; `not_after` is its expiry in seconds since
    /// 1970.
    pub fn serving_certificate(&self, listener: &'static str, not_after: i64) {
        self.connections.not_after.of([listener]).set(not_after);
    }

    /// Counts a reload of a changed serving certificate.
    pub fn serving_certificate_reloaded(&self, listener: &'static str, good: bool) {
        self.connections
            .reloads
            .of([listener, result_label(good)])
            .inc();
    }

    /// Reports when the first CA of client certificates in use expires, in seconds since 1970.
    pub fn caller_authority(&self, not_after: i64) {
        self.connections
            .authority_not_after
            .of(["api"])
            .set(not_after);
    }

    /// Counts a reload of a changed CA of client certificates.
    pub fn caller_authority_reloaded(&self, good: bool) {
        self.connections
            .authority_reloads
            .of([result_label(good)])
            .inc();
    }

    /// Reports whether the admission policy of this name is active.
    pub fn admission_policy(&self, name: &'static str, active: bool) {
        self.server
            .admission_policies
            .of([name])
            .set(i64::from(active));
    }

    /// Reports whether this replica leads, and whether no leader was seen for a minute.
    pub fn report_leadership(&self, leads: bool, missing: bool) {
        self.server.leads.set(i64::from(leads));
        self.server.leader_missing.set(i64::from(missing));
    }

    /// Counts a reload of the configuration file.
    pub fn count_reload(&self, good: bool) {
        self.server.reloads.of([result_label(good)]).inc();
    }

    /// Reports the seconds that the hub's clock was ahead of ours.
    pub fn hub_clock_skew(&self, seconds: i64) {
        self.server.skew.set(seconds);
    }

    /// Reports the number of cached tokens.
    pub fn cached_tokens(&self, count: u64) {
        self.server
            .cached
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Reports the number of tasks that the runtime has and that have not ended.
    pub fn running_tasks(&self, count: usize) {
        self.server
            .tasks
            .set(i64::try_from(count).unwrap_or(i64::MAX));
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

fn result_label(good: bool) -> &'static str {
    if good { "success" } else { "failure" }
}

/// The labels of an outcome. A success has the reason `Ready`.
fn outcome_labels<T>(outcome: Result<T, Reason>) -> [&'static str; 2] {
    let good = outcome.is_ok();
    let reason = outcome.err().unwrap_or(Reason::Ready);
    [result_label(good), reason.as_str()]
}
