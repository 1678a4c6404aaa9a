//! `keyferry explain`: cause and mend of a reason code, from docs/troubleshooting.md, which is compiled in.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::ui;

const DOCUMENT: &str = include_str!("../../../docs/troubleshooting.md");

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// A reason code, as logs, audit records, answers, verify and lint print it; without one, all are listed.
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// A JSON object, or an array of all of them.
    Json,
}

/// What the document says about a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    reason: &'static str,
    symptom: String,
    cause: String,
    mend: String,
}

pub(super) fn run(args: &ExplainArgs) -> ExitCode {
    let all: Vec<Explanation> = all().collect();
    let Some(asked) = &args.reason else {
        let text = match args.output {
            Output::Text => all.iter().map(|explanation| explanation.reason).collect::<Vec<_>>().join("\n"),
            Output::Json => serde_json::to_string_pretty(&all).unwrap_or_default(),
        };
        return ui::finish(&text);
    };
    match (all.iter().find(|explanation| explanation.reason.eq_ignore_ascii_case(asked.trim())), args.output) {
        (Some(found), Output::Text) => ui::finish(&text(found)),
        (Some(found), Output::Json) => ui::finish(&serde_json::to_string_pretty(found).unwrap_or_default()),
        (None, _) => {
            let near = near(asked, &all);
            let hint = if near.is_empty() {
                "keyferry explain without a code lists them all".to_owned()
            } else {
                format!("near ones are {}", near.join(", "))
            };
            ui::fail(&format!("explaining {:?}: there is no such reason code", ui::plain(asked)), Some(&hint))
        }
    }
}

/// Every section of the document whose heading is a code.
fn all() -> impl Iterator<Item = Explanation> {
    let sections = DOCUMENT.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    sections.filter(|(heading, _)| !heading.contains(' ')).filter_map(|(reason, text)| {
        let (_, rest) = text.split_once("- **Symptom:** ")?;
        let (symptom, rest) = rest.split_once("- **Cause:** ")?;
        let (cause, mend) = rest.split_once("- **Mend:** ")?;
        Some(Explanation { reason, symptom: prose(symptom), cause: prose(cause), mend: prose(mend) })
    })
}

/// Markdown as a terminal shows it: no links, list indents gone, blocks kept as they are.
fn prose(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).trim_end()).collect();
    unlink(lines.join("\n").trim()).replace("\n```", "\n").replace("**", "")
}

/// `[text](target)` becomes `text`.
fn unlink(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        match after.split_once("](").and_then(|(name, tail)| Some((name, tail.split_once(')')?.1))) {
            Some((name, tail)) if !name.contains(['[', ']', '\n']) => {
                out.push_str(name);
                rest = tail;
            }
            _ => {
                out.push('[');
                rest = after;
            }
        }
    }
    out + rest
}

fn text(explanation: &Explanation) -> String {
    let part = |name: &str, text: &str| format!("{name}\n  {}", text.replace('\n', "\n  "));
    let Explanation { reason, symptom, cause, mend } = explanation;
    [(*reason).to_owned(), part("Symptom:", symptom), part("Cause:", cause), part("Mend:", mend)].join("\n")
}

/// The three nearest codes that are near at all: a part of the name, or few letters apart.
fn near(asked: &str, all: &[Explanation]) -> Vec<&'static str> {
    let asked: String = asked.chars().filter(char::is_ascii_alphanumeric).take(64).collect::<String>().to_ascii_lowercase();
    let mut ranked: Vec<(usize, &'static str)> = Vec::new();
    for Explanation { reason, .. } in all {
        let known = reason.to_ascii_lowercase();
        let apart = distance(&asked, &known);
        if asked.len() >= 3 && known.contains(&asked) {
            ranked.push((0, reason));
        } else if apart * 2 <= known.len() {
            ranked.push((apart, reason));
        }
    }
    ranked.sort_unstable();
    ranked.into_iter().take(3).map(|(_, reason)| reason).collect()
}

/// How many letters must be put in, taken out or changed.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.bytes().enumerate() {
        let mut next = vec![index + 1];
        for (other, (above, diagonal)) in right.bytes().zip(row.iter().skip(1).zip(&row)) {
            let beside = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(letter != other)).min(above + 1).min(beside + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_core::reason::Reason;
    use keyferry_trust::Code;

    use super::*;

    #[test]
    fn every_code_is_explained_without_markdown() {
        let all: Vec<Explanation> = all().collect();
        let codes = Reason::ALL.iter().map(|reason| reason.as_str()).chain(Code::ALL.iter().map(|code| code.name()));
        for code in codes {
            let found = all.iter().find(|explanation| explanation.reason == code);
            let found = found.unwrap_or_else(|| panic!("{code} is not explained"));
            for part in [&found.symptom, &found.cause, &found.mend] {
                assert!(!part.is_empty() && !part.contains("](") && !part.contains("**"), "{code}: {part}");
            }
        }
    }

    #[test]
    fn near_codes_are_suggested() {
        let all: Vec<Explanation> = all().collect();
        assert_eq!(near("AudienceDifers", &all).first(), Some(&"AudienceDiffers"));
        assert!(near("expired", &all).contains(&"TokenExpired"));
        assert!(near("zzzzzzzzzzzz", &all).is_empty());
    }

    #[test]
    fn links_become_their_text() {
        assert_eq!(unlink("see [this](#a) and jwt[0] and [b](c.md#d)."), "see this and jwt[0] and b.");
    }
}
