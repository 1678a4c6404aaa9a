//! Lines of Keyferry's audit log, as [`keyferry_core::audit`] writes them. Only refusals are kept.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use serde::Deserialize;

use crate::lenient::{Lenient, or_default};

/// The most bytes of an audit log that are read.
pub const MAX_AUDIT_BYTES: usize = 64 * 1024 * 1024;
/// The longest line that is read, in bytes. The longest that Keyferry writes is far shorter.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most refusals that are kept, the newest ones.
const MAX_REFUSALS: usize = 100_000;

/// What was read of an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditLines {
    /// Where the lines come from.
    pub source: String,
    /// How many records were read.
    pub lines: usize,
    /// How many lines were left out: cut, too long or of another form.
    pub unreadable: usize,
    /// The time of the first record.
    pub since: Option<Timestamp>,
    /// The refusals, in the order of the log.
    pub refusals: VecDeque<Refusal>,
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// The caller, as far as it was known.
    pub caller: Option<ForeignText>,
    /// The caller's namespace on the hub; empty if the caller is not known.
    pub namespace: ForeignText,
    /// The access that was asked for.
    pub access: Option<ForeignText>,
    /// The target.
    pub target: Option<ForeignText>,
    /// The reason code.
    pub reason: ForeignText,
    /// How many requests it counts.
    pub count: usize,
}

/// The members of a record that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RecordView {
    #[serde(deserialize_with = "or_default")]
    time: Option<Timestamp>,
    #[serde(deserialize_with = "or_default")]
    decision: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    caller: Option<String>,
    #[serde(deserialize_with = "or_default")]
    caller_subject: Option<String>,
    #[serde(deserialize_with = "or_default")]
    access: Option<String>,
    #[serde(deserialize_with = "or_default")]
    target: Option<String>,
    #[serde(deserialize_with = "or_default")]
    count: Option<usize>,
}

impl AuditLines {
    /// Reads lines. What is neither a record nor empty is counted as unreadable, such as the first
    /// line of a log whose beginning is missing.
    pub fn read(source: &str, bytes: &[u8]) -> Self {
        let mut lines = Self {
            source: ForeignText::new(source).to_string(),
            ..Self::default()
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            lines.add_line(line.trim_ascii());
        }
        lines
    }

    fn add_line(&mut self, line: &[u8]) {
        if line.is_empty() || is_note(line) {
            return;
        }
        let record = (line.len() <= MAX_LINE_BYTES)
            .then(|| serde_json::from_slice::<Lenient<RecordView>>(line).ok())
            .flatten();
        let Some((record, at)) = record.and_then(|Lenient(it)| it.time.map(|at| (it, at))) else {
            self.unreadable += 1;
            return;
        };
        if record.decision.is_empty() || record.reason.is_empty() {
            self.unreadable += 1;
            return;
        }
        self.lines += 1;
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
        if record.decision != "granted" && matches!(record.decision.as_str(), "denied" | "failed") {
            if self.refusals.len() >= MAX_REFUSALS {
                self.refusals.pop_front();
            }
            self.refusals.push_back(Refusal::of(&record, at));
        }
    }

    /// Leaves the refusals that one namespace may know: those of its own callers and accesses.
    pub fn keep_namespace(&mut self, namespace: &str) {
        let prefix = format!("{namespace}/");
        let is_of_access = |access: &ForeignText| access.to_string().starts_with(&prefix);
        self.refusals.retain(|refusal| {
            refusal.namespace == *namespace || refusal.access.as_ref().is_some_and(is_of_access)
        });
    }

    /// Returns the refusals of the hour before `now`.
    pub fn last_hour(&self, now: Timestamp) -> impl Iterator<Item = &Refusal> {
        let since = now - SignedDuration::from_hours(1);
        self.refusals
            .iter()
            .filter(move |refusal| refusal.at > since && refusal.at <= now)
    }
}

/// Whether a line is the note at the beginning of a snapshot's file.
fn is_note(line: &[u8]) -> bool {
    line.starts_with(b"{\"note\":")
}

impl Refusal {
    fn of(record: &RecordView, at: Timestamp) -> Self {
        let caller = record.caller.as_ref().or(record.caller_subject.as_ref());
        let namespace = record
            .caller
            .as_deref()
            .and_then(|caller| caller.strip_prefix("system:serviceaccount:"))
            .and_then(|rest| rest.split(':').next())
            .unwrap_or_default();
        let text = |text: &Option<String>| text.as_deref().map(ForeignText::new);
        Self {
            at,
            caller: caller.map(|caller| ForeignText::new(caller)),
            namespace: ForeignText::new(namespace),
            access: text(&record.access),
            target: text(&record.target),
            reason: ForeignText::new(&record.reason),
            count: record.count.unwrap_or(1).max(1),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::reason::Reason;
    use keyferry_core::audit::AuditRecord;

    use super::*;

    /// The lines that the server writes are the lines that are read.
    #[test]
    fn records_are_read_and_other_lines_are_counted() {
        let mut record = AuditRecord {
            route: "exchange",
            time: Timestamp::from_second(1_000).unwrap(),
            ..AuditRecord::default()
        };
        record.set_decision("denied", Reason::TargetNotGranted);
        let mut log = record.to_json_line().unwrap();
        record.set_decision("granted", Reason::Ready);
        log.extend(record.to_json_line().unwrap());
        record.set_decision("failed", Reason::HubUnreachable);
        record.count = Some(7);
        log.extend(record.to_json_line().unwrap());
        log.extend(b"{\"note\":\"a map\"}\n\nnot json\n{\"time\":\"2026-01-01T00:00:00Z\"}\n");
        log.extend(vec![b'x'; MAX_LINE_BYTES + 1]);
        let lines = AuditLines::read("audit\n.jsonl", &log);
        assert_eq!((lines.lines, lines.unreadable), (3, 3));
        assert_eq!(lines.source, "audit\\u{a}.jsonl");
        let counts: Vec<usize> = lines.refusals.iter().map(|it| it.count).collect();
        assert_eq!(counts, [1, 7]);
        assert_eq!(lines.since, Timestamp::from_second(1_000).ok());
        assert_eq!(
            lines
                .last_hour(Timestamp::from_second(1_000).unwrap())
                .count(),
            2
        );
        assert_eq!(
            lines
                .last_hour(Timestamp::from_second(4_600).unwrap())
                .count(),
            0
        );
    }

    #[test]
    fn a_tenant_keeps_its_own_refusals() {
        let line = |caller: &str, access: &str| {
            format!(
                r#"{{"time":"2026-01-01T00:00:00Z","decision":"denied","reason":"TargetNotGranted","caller":"system:serviceaccount:{caller}:ci","access":"{access}"}}"#
            )
        };
        let log = [
            line("a", "b/x"),
            line("b", "a/x"),
            line("b", "b/x"),
            line("b", "ab/x"),
        ];
        let mut lines = AuditLines::read("log", log.join("\n").as_bytes());
        lines.keep_namespace("a");
        assert_eq!(lines.refusals.len(), 2);
    }
}
