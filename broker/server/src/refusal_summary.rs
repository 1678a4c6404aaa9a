//! Summarises rate-limited requests in one audit record a second: a flood must not fill the log,
//! for which every issuance waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use keyferry_hub::clock::Clock;
use keyferry_hub::ports::AuditSink;
use keyferry_hub::random::Random;
use keyferry_listener::Source;
use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(1);
/// How many sources are counted individually in a second.
const COUNTED: usize = 1024;
const NAMED: usize = 4;

/// Counts rate-limited requests and writes a summary record each second.
#[derive(Clone)]
pub(crate) struct RefusalSummary {
    audit: Arc<dyn AuditSink>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Default)]
struct Counted {
    all: usize,
    by_source: BTreeMap<Source, usize>,
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
            counted: Arc::default(),
        }
    }

    /// Counts a refusal. The first one of a second schedules the summary record for the end of that
    /// second.
    pub(crate) fn count(&self, source: Source) {
        let mut counted = self.counted.lock();
        counted.all += 1;
        if counted.by_source.len() < COUNTED || counted.by_source.contains_key(&source) {
            *counted.by_source.entry(source).or_insert(0) += 1;
        }
        if counted.all == 1 {
            let summary = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(EVERY).await;
                summary.write();
            });
        }
    }

    fn write(&self) {
        let Counted { all, by_source } = std::mem::take(&mut *self.counted.lock());
        let mut sources: Vec<(Source, usize)> = by_source.into_iter().collect();
        sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named: Vec<String> = sources
            .iter()
            .take(NAMED)
            .map(|(source, count)| format!("{source} ({count})"))
            .collect();
        let sources = named.join(", ");
        let mut record = AuditRecord {
            time: self.clock.now().wall,
            request_id: self.random.request_id(),
            route: "summary",
            count: Some(all),
            sources: Some(sources.clone()),
            ..AuditRecord::default()
        };
        record.ended("denied", Reason::RateLimited);
        tracing::warn!(reason = %Reason::RateLimited, count = all, sources,
            "requests above a limit were refused");
        // The requests are refused even if the record cannot be written.
        drop(self.audit.record(&record));
    }
}
