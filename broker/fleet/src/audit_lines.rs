//! Lines of Keyferry's audit log, as [`keyferry_core::audit`] writes them. [`AuditLines`] keeps the
//! refusals, and [`trail`](crate::trail) the issuances.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::{ForeignText, hide_credentials_in};
use serde::{Deserialize, Serialize};

use crate::lenient::{Lenient, or_default};

/// The most bytes of an audit log that are read.
pub const MAX_AUDIT_BYTES: usize = 64 * 1024 * 1024;
/// The longest line that is read, in bytes. The longest that Keyferry writes is far shorter.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024;
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
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
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
    #[serde(deserialize_with = "or_default", skip_serializing)]
    route: String,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    service_account: Option<String>,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    token_id: Option<String>,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    key_id: Option<String>,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    expires_at: Option<Timestamp>,
}

/// What a line of the log is.
pub(crate) enum LogLine {
    /// A record, and when its decision was made.
    Record(Box<Issuance>, Timestamp),
    /// A note, or a line that another log wrote.
    Other,
    /// A line that is cut or no JSON. It may have been a record.
    Unreadable,
}

/// What a record says of an issuance.
#[derive(Debug, Default)]
pub(crate) struct Issuance {
    /// The route by which it was issued.
    pub(crate) route: String,
    /// Who asked for it.
    pub(crate) caller: Option<String>,
    /// The access.
    pub(crate) access: Option<String>,
    /// Its ServiceAccount, as `namespace/name`.
    pub(crate) account: Option<String>,
    /// The target.
    pub(crate) target: Option<String>,
    /// Its `jti`, if one was issued.
    pub(crate) token_id: Option<String>,
    /// The key that signed it. Versions before this member wrote none.
    pub(crate) key_id: Option<String>,
    /// When it ends.
    pub(crate) expires_at: Option<Timestamp>,
}

impl LogLine {
    /// Reads a line without its end.
    pub(crate) fn read(line: &[u8]) -> Self {
        if line.is_empty() || is_note(line) {
            return Self::Other;
        }
        match read_record(line) {
            Ok((record, at)) => Self::Record(Box::new(Issuance::of(record)), at),
            Err(NoRecord::OtherDocument) => Self::Other,
            Err(NoRecord::Unreadable) => Self::Unreadable,
        }
    }
}

impl Issuance {
    fn of(record: RecordView) -> Self {
        let is_granted = record.decision == "granted";
        Self {
            route: record.route,
            caller: record.caller.or(record.caller_subject),
            access: record.access,
            account: record.service_account,
            target: record.target,
            token_id: record.token_id.filter(|id| is_granted && !id.is_empty()),
            key_id: record.key_id,
            expires_at: record.expires_at,
        }
    }
}

/// Why a line is no record.
enum NoRecord {
    /// It is JSON of another form.
    OtherDocument,
    /// It is cut, too long or no JSON.
    Unreadable,
}

impl AuditLines {
    /// Reads lines, the newest ones of a log that is too long. What is neither a record nor empty is
    /// counted as unreadable.
    pub fn read(source: &str, bytes: &[u8]) -> Self {
        let mut lines = Self {
            source: ForeignText::new(source).to_string(),
            ..Self::default()
        };
        for line in newest_lines(bytes) {
            lines.add_line(line);
        }
        lines
    }

    fn add_line(&mut self, line: &[u8]) {
        let Ok((record, at)) = read_record(line) else {
            self.unreadable += 1;
            return;
        };
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

/// Returns the records of a log with nothing but the members that are read, a line each. Others may
/// hold what no folder should, such as the headers that a proxy added.
pub fn reduce_records(bytes: &[u8]) -> impl Iterator<Item = String> {
    newest_lines(bytes).filter_map(|line| {
        let (record, _) = read_record(line).ok()?;
        let mut document = serde_json::to_value(&record).ok()?;
        // In the finished line, a credential that has no end would take the members after it along.
        hide_credentials_in(&mut document);
        serde_json::to_string(&document).ok()
    })
}

/// The lines that are neither empty nor a note. If the log is too long, the newest ones, without the
/// one that was cut.
fn newest_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let skipped = bytes.len().saturating_sub(MAX_AUDIT_BYTES + 1);
    let newest = bytes.get(skipped..).unwrap_or_default();
    let cut_lines = usize::from(bytes.len() > MAX_AUDIT_BYTES);
    let lines = newest.split(|byte| *byte == b'\n').skip(cut_lines);
    lines
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty() && !is_note(line))
}

fn read_record(line: &[u8]) -> Result<(RecordView, Timestamp), NoRecord> {
    if line.len() > MAX_LINE_BYTES {
        return Err(NoRecord::Unreadable);
    }
    let read = serde_json::from_slice::<Lenient<RecordView>>(line);
    let Lenient(record) = read.map_err(|_| NoRecord::Unreadable)?;
    match record.time {
        Some(at) if !record.decision.is_empty() && !record.reason.is_empty() => Ok((record, at)),
        _ => Err(NoRecord::OtherDocument),
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
    fn the_first_line_of_a_log_that_is_too_long_is_cut_and_not_counted() {
        let line =
            br#"{"time":"2026-01-01T00:00:00Z","decision":"denied","reason":"TargetNotGranted"}"#;
        let long = |length: usize| [vec![b'x'; length], b"\n".to_vec(), line.to_vec()].concat();
        for (length, unreadable) in [(10, 1), (MAX_AUDIT_BYTES, 0)] {
            let lines = AuditLines::read("log", &long(length));
            assert_eq!((lines.lines, lines.unreadable), (1, unreadable), "{length}");
        }
        let whole = [
            vec![b'x'; 100],
            b"\n".to_vec(),
            vec![b' '; MAX_AUDIT_BYTES - line.len()],
        ];
        let whole = [whole.concat(), line.to_vec()].concat();
        let lines = AuditLines::read("log", &whole);
        assert_eq!(
            (lines.lines, lines.unreadable),
            (1, 0),
            "the cut was at the end of a line"
        );
    }

    #[test]
    fn a_reduced_record_has_only_what_is_read() {
        let log = br#"{"time":"2026-01-01T00:00:00Z","decision":"denied","reason":"TargetNotGranted","authorization":"Bearer x","caller":"Bearer abc-1234567890-DEF"}
no record"#;
        let reduced: Vec<String> = reduce_records(log).collect();
        assert_eq!(reduced.len(), 1);
        assert!(!reduced[0].contains("authorization") && reduced[0].contains("Bearer [hidden]"));
        let lines = |log: &str| AuditLines::read("log", log.as_bytes()).lines;
        assert_eq!(lines(&reduced[0]), 1);
    }

    /// A caller of another issuer chooses its subject, and must not make its own refusals unreadable.
    #[test]
    fn a_private_key_without_an_end_hides_no_other_member() {
        let log = br#"{"time":"2026-01-01T00:00:00Z","decision":"denied","reason":"TargetNotGranted","callerSubject":"-----BEGIN PRIVATE KEY-----MC4","count":7}"#;
        let reduced: Vec<String> = reduce_records(log).collect();
        let lines = AuditLines::read("log", reduced.join("\n").as_bytes());
        assert_eq!((lines.lines, lines.unreadable), (1, 0), "{reduced:?}");
        assert_eq!(lines.refusals[0].count, 7);
        assert!(!reduced[0].contains("MC4"), "{reduced:?}");
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
