//! Writes a rehearsal for a person.

use std::fmt::Write;

use jiff::Timestamp;
use keyferry_fleet::rehearsal::{CallerClass, Refusal, Rehearsal, Step, Window};

use crate::ui;

/// The most refusals that are listed.
const MAX_ROWS: usize = 50;

/// The whole text: the answer, who is refused, what else happens, and what to do.
pub(super) fn rehearsal_text(rehearsal: &Rehearsal) -> String {
    let mut text = format!("at {}: {}\n", printed(rehearsal.at), rehearsal.answer);
    let _ = match &rehearsal.earliest_safe {
        Some(safe) => writeln!(text, "safe from {} on: {}", printed(safe.at), safe.step),
        None => writeln!(text, "no safe moment is known"),
    };
    if rehearsal.refusals.is_empty() && rehearsal.is_undetermined() {
        text.push_str("\nno refusal is known; what is undetermined may refuse calls\n");
    } else {
        write_refusals(&mut text, &rehearsal.refusals);
    }
    write_other_events(&mut text, rehearsal);
    for open in &rehearsal.undetermined {
        let _ = writeln!(
            text,
            "\nundetermined: {}: {}\nfix: {}",
            ui::plain(&open.question),
            ui::plain(&open.why),
            ui::plain(&open.fix)
        );
    }
    if !rehearsal.runbook.is_empty() {
        text.push_str("\nRUNBOOK\n");
    }
    for (number, step) in (1..).zip(&rehearsal.runbook) {
        write_step(&mut text, number, step);
    }
    text.push('\n');
    for assumption in &rehearsal.assumptions {
        let _ = writeln!(text, "assumes: {}", ui::plain(assumption));
    }
    text.trim_end().to_owned()
}

/// The timeline of refusals, the earliest first.
fn write_refusals(text: &mut String, refusals: &[Refusal]) {
    if refusals.is_empty() {
        text.push_str("\nno call is refused\n");
        return;
    }
    let head = [
        "POSSIBLE FROM",
        "CERTAIN FROM",
        "CERTAIN UNTIL",
        "POSSIBLE UNTIL",
        "WHO",
        "ACCESS",
        "TARGET",
        "REASON",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(refusals.iter().take(MAX_ROWS).map(cells));
    let _ = writeln!(text, "\n{}", ui::table(&rows));
    if refusals.len() > MAX_ROWS {
        let _ = writeln!(
            text,
            "{} more: -o json prints all",
            refusals.len() - MAX_ROWS
        );
    }
}

fn cells(refusal: &Refusal) -> Vec<String> {
    let name = |name: Option<String>| name.unwrap_or_else(|| "-".to_owned());
    let end = |window: Window| window.until().map_or_else(|| "open".to_owned(), printed);
    let certain = |cell: &dyn Fn(Window) -> String| refusal.certain.map_or("-".to_owned(), cell);
    vec![
        printed(refusal.possible.from()),
        certain(&|window| printed(window.from())),
        certain(&end),
        end(refusal.possible),
        caller_label(refusal.caller).to_owned(),
        name(refusal.access.as_ref().map(ToString::to_string)),
        name(refusal.target.as_ref().map(ToString::to_string)),
        refusal.reason.to_owned(),
    ]
}

fn caller_label(caller: CallerClass) -> &'static str {
    match caller {
        CallerClass::UnconfirmedCaller => "new caller",
        CallerClass::ConfirmedCaller => "known caller",
        CallerClass::CallerWithoutToken => "caller without token",
        CallerClass::AnyCaller => "any caller",
        CallerClass::ObjectReader => "reader of the object",
        CallerClass::OwnMinter => "client that mints",
        CallerClass::KeptCopy => "copy kept elsewhere",
    }
}

/// Milestones and branches.
fn write_other_events(text: &mut String, rehearsal: &Rehearsal) {
    if !rehearsal.milestones.is_empty() {
        let head = ["FROM", "BY", "TARGET", "WHAT"].map(str::to_owned).to_vec();
        let rows = rehearsal.milestones.iter().take(MAX_ROWS).map(|milestone| {
            vec![
                printed(milestone.earliest),
                milestone
                    .latest
                    .map_or_else(|| "not known".to_owned(), printed),
                milestone
                    .target
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), ToString::to_string),
                milestone.event.clone(),
            ]
        });
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        let _ = writeln!(text, "\n{}", ui::table(&rows));
        if rehearsal.milestones.len() > MAX_ROWS {
            let more = rehearsal.milestones.len() - MAX_ROWS;
            let _ = writeln!(text, "{more} more: -o json prints all");
        }
    }
    if !rehearsal.branches.is_empty() {
        text.push('\n');
    }
    for branch in &rehearsal.branches {
        let _ = writeln!(
            text,
            "if {}: {}",
            ui::plain(&branch.condition),
            ui::plain(&branch.consequence)
        );
    }
}

fn write_step(text: &mut String, number: usize, step: &Step) {
    let _ = writeln!(text, "{number}. {}", ui::plain(&step.action));
    if let Some(command) = &step.command {
        let _ = writeln!(text, "   $ {}", ui::plain(command));
    }
    let _ = writeln!(text, "   see: {}", ui::plain(&step.expect));
}

fn printed(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
