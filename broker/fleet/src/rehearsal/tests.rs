//! Predictions against hand-computed ones, to the second.

#![allow(clippy::unwrap_used)]

mod authorities;
mod documents;
mod facts;
mod gaps;
mod keys;
mod outages;
mod properties;

use jiff::Timestamp;

use super::{Event, Parameters, Rehearsal, Window, rehearse};
use crate::facts::Fleet;

/// Rehearses at the moment when the facts were judged.
fn rehearsed(fleet: &Fleet, event: &Event, parameters: &Parameters) -> Rehearsal {
    rehearse(fleet, event, parameters, fleet.reading.judged_at)
}

/// Each refusal on one line, in seconds after the begin: who, access, target, reason, the certain
/// window, the possible window. An end that is not known is `..`.
fn lines(rehearsal: &Rehearsal) -> Vec<String> {
    let seconds = |at: Timestamp| at.as_second() - rehearsal.at.as_second();
    let window = |window: Option<Window>| match window {
        None => "never".to_owned(),
        Some(window) => match window.until() {
            Some(until) => format!("{}-{}", seconds(window.from()), seconds(until)),
            None => format!("{}..", seconds(window.from())),
        },
    };
    rehearsal
        .refusals
        .iter()
        .map(|refusal| {
            let name = |name: Option<String>| name.unwrap_or_else(|| "*".to_owned());
            format!(
                "{:?} {} {} {}: certain {}, possible {}",
                refusal.caller,
                name(refusal.access.as_ref().map(ToString::to_string)),
                name(refusal.target.as_ref().map(ToString::to_string)),
                refusal.reason,
                window(refusal.certain),
                window(Some(refusal.possible))
            )
        })
        .collect()
}

/// The seconds from the begin to the earliest safe moment.
fn safe_after(rehearsal: &Rehearsal) -> Option<i64> {
    let safe = rehearsal.earliest_safe.as_ref()?;
    Some(safe.at.as_second() - rehearsal.at.as_second())
}
