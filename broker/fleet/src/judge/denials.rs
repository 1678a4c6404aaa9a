//! Refusals from the audit log, with the text about their reason codes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::reason::Reason;

use super::Judgement;
use crate::audit_lines::Refusal;
use crate::facts::{Denial, DenialFacts, DenialGroup};

/// The most refusals that are shown one by one.
const MAX_SHOWN_DENIALS: usize = 50;

impl Judgement<'_> {
    /// Groups the refusals of the hour before the reading.
    pub(super) fn denial_facts(&self) -> DenialFacts {
        let Some(audit) = &self.snapshot.audit else {
            return DenialFacts::default();
        };
        let end = self.snapshot.read_at;
        let mut groups: BTreeMap<(String, String), DenialGroup> = BTreeMap::new();
        for refusal in audit.last_hour(end) {
            let key = (refusal.reason.to_string(), refusal.namespace.to_string());
            let group = groups.entry(key).or_insert_with(|| DenialGroup {
                reason: refusal.reason.clone(),
                namespace: refusal.namespace.clone(),
                count: 0,
                by_minute: BTreeMap::new(),
            });
            group.count = group.count.saturating_add(refusal.count);
            let minute = group
                .by_minute
                .entry(minute_of(refusal.at, end))
                .or_default();
            *minute = minute.saturating_add(refusal.count);
        }
        let mut groups: Vec<DenialGroup> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        let mut newest: Vec<&Refusal> = audit.refusals.iter().collect();
        newest.sort_by_key(|refusal| std::cmp::Reverse(refusal.at));
        DenialFacts {
            source: Some(audit.source.clone()),
            lines: audit.lines,
            since: audit.since,
            groups,
            newest: newest
                .into_iter()
                .take(MAX_SHOWN_DENIALS)
                .map(denial)
                .collect(),
        }
    }
}

/// The minute of the hour before `end`, from 0, the oldest, to 59.
fn minute_of(at: Timestamp, end: Timestamp) -> u8 {
    let start = end - SignedDuration::from_hours(1);
    let minutes = at.duration_since(start).as_mins().clamp(0, 59);
    u8::try_from(minutes).unwrap_or(59)
}

fn denial(refusal: &Refusal) -> Denial {
    let code = refusal.reason.to_string();
    let reason = Reason::ALL.iter().find(|reason| reason.as_str() == code);
    let text = |heading| reason.map(|reason| first_paragraph(reason.markdown(), heading));
    Denial {
        at: refusal.at,
        caller: refusal.caller.clone(),
        access: refusal.access.clone(),
        target: refusal.target.clone(),
        reason: refusal.reason.clone(),
        cause: text("## What happened").unwrap_or_default(),
        fix: text("## Fix").unwrap_or_else(|| "this version does not know the code".to_owned()),
    }
}

/// The first paragraph below a heading of a code's text, on one line and without Markdown's marks.
fn first_paragraph(markdown: &str, heading: &str) -> String {
    let lines = markdown.lines().skip_while(|line| *line != heading).skip(1);
    let paragraph: Vec<&str> = lines
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty())
        .collect();
    paragraph.join(" ").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_cause_and_a_fix() {
        for reason in Reason::ALL {
            for heading in ["## What happened", "## Fix"] {
                let text = first_paragraph(reason.markdown(), heading);
                assert!(!text.is_empty(), "{}: {heading}", reason.as_str());
            }
        }
    }
}
