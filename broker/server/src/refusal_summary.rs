//! Summarises refusals beyond a limit in one audit record a second and reason: a flood must not fill
//! the log, for which every issuance waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use keyferry_listener::Source;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::Random;
use parking_lot::Mutex;

const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);
/// How many sources, and how many namespaces, are counted individually in a second.
const MAX_COUNTED: usize = 1024;
const MAX_NAMED: usize = 4;

/// One refused request that gets no record of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummarisedRefusal<'a> {
    pub(crate) decision: &'static str,
    pub(crate) reason: Reason,
    pub(crate) source: Source,
    /// Of a known caller.
    pub(crate) namespace: Option<&'a Namespace>,
}

/// Counts such refusals, and writes a summary record for each reason each second.
#[derive(Clone)]
pub(crate) struct RefusalSummary {
    audit: Arc<dyn AuditSink>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// There are only a few reasons, so the map stays small.
    counts: Arc<Mutex<BTreeMap<&'static str, RefusalCount>>>,
}

struct RefusalCount {
    decision: &'static str,
    reason: Reason,
    all: usize,
    by_source: BTreeMap<Source, usize>,
    by_namespace: BTreeMap<Namespace, usize>,
}

impl RefusalSummary {
    pub(crate) fn new(
        audit: Arc<dyn AuditSink>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            audit,
            clock,
            random,
            counts: Arc::default(),
        }
    }

    /// Counts a refusal. The first one of a second schedules the summary records for the end of
    /// that second.
    pub(crate) fn count_refusal(&self, refusal: SummarisedRefusal<'_>) {
        let SummarisedRefusal {
            decision,
            reason,
            source,
            namespace,
        } = refusal;
        let mut counts = self.counts.lock();
        let is_first = counts.is_empty();
        let count = counts
            .entry(reason.as_str())
            .or_insert_with(|| RefusalCount {
                decision,
                reason,
                all: 0,
                by_source: BTreeMap::new(),
                by_namespace: BTreeMap::new(),
            });
        count.all += 1;
        add_one(&mut count.by_source, &source);
        if let Some(namespace) = namespace {
            add_one(&mut count.by_namespace, namespace);
        }
        drop(counts);
        if is_first {
            let summary = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(SUMMARY_INTERVAL).await;
                summary.write_summary();
            });
        }
    }

    fn write_summary(&self) {
        // Unlocked before the records are written.
        let counts = std::mem::take(&mut *self.counts.lock());
        for (_, count) in counts {
            let sources = largest_counts(count.by_source);
            let namespaces =
                Some(largest_counts(count.by_namespace)).filter(|text| !text.is_empty());
            tracing::warn!(reason = %count.reason, count = count.all, sources, namespaces,
                "requests above a limit were refused");
            let mut record = AuditRecord {
                time: self.clock.now().wall,
                request_id: self.random.request_id(),
                route: "summary",
                count: Some(count.all),
                sources: Some(sources),
                namespaces,
                ..AuditRecord::default()
            };
            record.set_decision(count.decision, count.reason);
            // The requests are refused even if the record cannot be written.
            drop(self.audit.record(&record));
        }
    }
}

fn add_one<K: Clone + Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if counts.len() < MAX_COUNTED || counts.contains_key(key) {
        *counts.entry(key.clone()).or_insert(0) += 1;
    }
}

/// Names the keys with the largest counts.
fn largest_counts<K: std::fmt::Display>(counts: BTreeMap<K, usize>) -> String {
    let mut counts: Vec<(K, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named: Vec<String> = counts
        .iter()
        .take(MAX_NAMED)
        .map(|(key, count)| format!("{key} ({count})"))
        .collect();
    named.join(", ")
}
