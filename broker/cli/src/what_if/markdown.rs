//! What a change does, as Markdown for the comment of a pull request.

use std::fmt::Write;

use keyferry_reach::what_if::{WhatIfReport, WhatIfWay};

use super::text::{change_words, door_words, sentence, target_words};

/// How many rows are shown: a comment has a limit.
const MAX_ROWS: usize = 100;

/// A sentence, and a table with a row for each way and delivery.
pub(super) fn table(report: &WhatIfReport) -> String {
    let mut lines = vec![sentence(report), String::new()];
    if !report.ways.is_empty() {
        lines.push(
            "| change | subject | target | door | as, and its rights | because of |".to_owned(),
        );
        lines.push("|---|---|---|---|---|---|".to_owned());
        lines.extend(report.ways.iter().take(MAX_ROWS).map(row));
        let more = report.ways.len().saturating_sub(MAX_ROWS);
        if more > 0 {
            lines.extend([String::new(), format!("{more} more ways are not shown.")]);
        }
    }
    for broken in &report.broken_deliveries {
        let breaks = if broken.answer == "yes" {
            "breaks"
        } else {
            "may break"
        };
        lines.push(format!(
            "- delivery {} of {} {breaks}: {}",
            inert(&broken.delivery.to_string()),
            inert(&broken.access.to_string()),
            inert(&broken.why.to_string())
        ));
    }
    for unjudged in &report.not_judged {
        lines.push(format!(
            "- not judged: {}: {}",
            inert(&unjudged.object.to_string()),
            inert(&unjudged.why.to_string())
        ));
    }
    lines.join("\n").trim_end().to_owned()
}

fn row(way: &WhatIfWay) -> String {
    let texts = way
        .users
        .iter()
        .chain(&way.rights)
        .map(|it| inert(&it.to_string()));
    let doubts = way
        .undecided
        .iter()
        .map(|it| inert(&it.description.to_string()));
    let object = way.object.as_ref().map(|it| inert(&it.to_string()));
    format!(
        "| {}{} | {} {} | {} | {} | {} | {} |",
        change_words(way),
        if way.is_allowed { " (expected)" } else { "" },
        way.kind,
        inert(&way.subject.to_string()),
        inert(&target_words(way)),
        door_words(way.door),
        texts.chain(doubts).collect::<Vec<_>>().join("<br>"),
        object.unwrap_or_default(),
    )
}

/// Writes text of others as code, in which nothing is a link, a mention or markup. Every character
/// that could be is an entity; an at sign is spelled out, because code hosts look for mentions after
/// entities were read.
fn inert(text: &str) -> String {
    let mut shown = "<code>".to_owned();
    for character in text.chars() {
        match character {
            '@' => shown.push_str("\\u{40}"),
            ' ' | '-' => shown.push(character),
            _ if character.is_alphanumeric() => shown.push(character),
            _ => {
                let _ = write!(shown, "&#{};", u32::from(character));
            }
        }
    }
    shown.push_str("</code>");
    shown
}

#[cfg(test)]
mod tests {
    use super::inert;

    #[test]
    fn text_of_others_is_no_markup() {
        for hostile in [
            "`code` | a | <b>x</b>",
            "[x](https://evil.test) ![x](//evil.test)",
            "<script>alert(1)</script></code>",
            "@platform-team #1 www.evil.test a@evil.test",
            "a\u{a0}| b \\| c\\\\ ~~d~~ **e** __f__",
            "--> ]]> {{x}} ${x} &lt;b&gt; javascript:alert(1)",
        ] {
            let shown = inert(hostile);
            let inner = shown
                .trim_start_matches("<code>")
                .trim_end_matches("</code>");
            assert!(
                !inner.contains([
                    '<', '>', '|', '`', '[', ']', '(', '@', '*', '_', '~', ':', '.', '!'
                ]),
                "{shown}"
            );
        }
        assert_eq!(inert("a/b"), "<code>a&#47;b</code>");
    }
}
