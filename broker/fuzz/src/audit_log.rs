//! Lines of an audit log that others may have written to.

use keyferry_fleet::audit_lines::{AuditLines, reduce_records};

use crate::{assert_shown, now};

/// The most characters of a text in a refusal, with the marks of a text that was cut.
const MAX_TEXT: usize = 20_003;

/// Each line is a record, unreadable, or a note. A record keeps its refusal when it is reduced, and
/// what others wrote in it may be shown.
pub(crate) fn audit_line(data: &[u8]) {
    let log = AuditLines::read("audit.log", data);
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(log.lines + log.unreadable <= lines);
    assert!(log.refusals.len() <= log.lines);
    assert_eq!(log.since.is_some(), log.lines > 0);
    for refusal in &log.refusals {
        let texts = [&refusal.caller, &refusal.access, &refusal.target]
            .into_iter()
            .flatten();
        for text in texts.chain([&refusal.namespace, &refusal.reason]) {
            assert_shown(&text.to_string(), MAX_TEXT);
        }
        assert!(refusal.count > 0);
    }
    assert!(log.last_hour(now()).all(|refusal| refusal.at <= now()));
    let reduced: Vec<String> = reduce_records(data).collect();
    assert_eq!(reduced.len(), log.lines);
    assert!(reduced.iter().all(|line| !line.contains('\n')));
    let again = AuditLines::read("audit.log", reduced.join("\n").as_bytes());
    assert_eq!((again.lines, again.unreadable), (log.lines, 0));
    assert_eq!(again.since, log.since);
    let counts =
        |log: &AuditLines| -> Vec<_> { log.refusals.iter().map(|it| (it.at, it.count)).collect() };
    assert_eq!(counts(&again), counts(&log));
}
