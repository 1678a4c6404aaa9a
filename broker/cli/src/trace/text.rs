//! Writes the report of `keyferry trace` for a person.

use keyferry_fleet::trail::{
    IssuanceReport, RequestReport, TokenReport, TraceNote, TraceReport, UsesReport,
};

use crate::ui;

/// Writes the token that was asked for with its requests, or a line for each note of all tokens.
pub(super) fn of(report: &TraceReport, is_asked: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    match is_asked {
        true => parts.extend(report.tokens.iter().map(token_path)),
        false => parts.extend(notes_table(report)),
    }
    let of_files: Vec<String> = report.undetermined.iter().map(note_lines).collect();
    if !of_files.is_empty() {
        parts.push(of_files.join("\n"));
    }
    parts.push(summary(report, is_asked));
    ui::block(&parts.join("\n\n"))
}

/// The steps of a token, in the order in which they happen.
fn token_path(token: &TokenReport) -> String {
    let none = || "no line of the files".to_owned();
    let rows = [
        ("token", token.token_id.to_string()),
        (
            "requested",
            token.requested.as_ref().map_or_else(none, request_in_words),
        ),
        (
            "recorded",
            token.recorded.as_ref().map_or_else(none, issuance_in_words),
        ),
        ("used", token.used.as_ref().map_or_else(none, uses_in_words)),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    let mut parts = vec![ui::table(&rows)];
    if let Some(used) = token.used.as_ref().filter(|used| !used.requests.is_empty()) {
        parts.push(ui::table(&request_rows(used)));
    }
    let notes: Vec<String> = token.notes.iter().map(note_lines).collect();
    if !notes.is_empty() {
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n")
}

fn request_in_words(request: &RequestReport) -> String {
    format!(
        "{} by {} for {}{}",
        request.at,
        request.user,
        request.account,
        from(request.from.as_deref())
    )
}

fn issuance_in_words(issuance: &IssuanceReport) -> String {
    let mut words = vec![format!("{} by {}", issuance.at, issuance.route)];
    let named = [
        ("access", &issuance.access),
        ("target", &issuance.target),
        ("account", &issuance.account),
        ("caller", &issuance.caller),
        ("key", &issuance.key_id),
    ];
    words.extend(
        named
            .into_iter()
            .filter_map(|(name, text)| Some(format!("{name} {}", text.as_ref()?))),
    );
    if let Some(end) = issuance.expires_at {
        words.push(format!("ends {end}"));
    }
    words.push(format!("{} record(s)", issuance.records));
    words.join(", ")
}

fn uses_in_words(used: &UsesReport) -> String {
    let networks = match used.networks.is_empty() {
        true => "no known network".to_owned(),
        false => used.networks.join(", "),
    };
    format!(
        "as {} in {} line(s), {} to {}, from {networks}",
        used.user, used.lines, used.first, used.last
    )
}

fn request_rows(used: &UsesReport) -> Vec<Vec<String>> {
    let head = ["TIME", "VERB", "PATH", "CODE", "FROM", "AGENT"].map(str::to_owned);
    let rows = used.requests.iter().map(|request| {
        vec![
            request.at.to_string(),
            request.verb.to_string(),
            request.path.to_string(),
            request
                .code
                .map_or_else(String::new, |code| code.to_string()),
            request.from.clone().unwrap_or_default(),
            request.agent.to_string(),
        ]
    });
    std::iter::once(head.to_vec()).chain(rows).collect()
}

fn from(address: Option<&str>) -> String {
    address.map_or_else(String::new, |address| format!(" from {address}"))
}

fn note_lines(note: &TraceNote) -> String {
    let kind = if note.code.is_finding() {
        ""
    } else {
        "undetermined: "
    };
    let detail = ui::plain(&note.detail);
    format!("{kind}{:?}: {detail}\nfix: {}", note.code, note.fix)
}

/// A row for each note, and below them what to do about each code.
fn notes_table(report: &TraceReport) -> Option<String> {
    let mut rows = vec![["TOKEN", "CODE", "DETAIL"].map(str::to_owned).to_vec()];
    let mut codes = Vec::new();
    for token in &report.tokens {
        for note in &token.notes {
            rows.push(vec![
                token.token_id.to_string(),
                format!("{:?}", note.code),
                note.detail.clone(),
            ]);
            codes.push(note.code);
        }
    }
    if rows.len() == 1 {
        return None;
    }
    codes.sort();
    codes.dedup();
    let fixes: Vec<String> = codes
        .into_iter()
        .map(|code| format!("fix: {code:?}: {}", code.fix()))
        .collect();
    let more = match report.more_tokens {
        0 => String::new(),
        more => format!("\nand {more} more token(s)"),
    };
    Some(format!(
        "{}{more}\n\n{}",
        ui::table(&rows),
        fixes.join("\n")
    ))
}

fn summary(report: &TraceReport, is_asked: bool) -> String {
    let mut lines: Vec<String> = report
        .not_checked
        .iter()
        .map(|text| format!("not checked: {text}"))
        .collect();
    if !is_asked {
        lines.push(format!(
            "{} used token(s) of the hub, {} of other issuers, which are not judged",
            report.used_tokens, report.other_tokens
        ));
    }
    lines.push(
        match (report.has_findings, report.has_undetermined) {
            (true, _) => "something is wrong",
            (false, true) => "nothing wrong was found, and not everything is known",
            (false, false) => "nothing wrong was found in these files",
        }
        .to_owned(),
    );
    lines.join("\n")
}
