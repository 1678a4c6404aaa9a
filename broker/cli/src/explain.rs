//! `keyferry explain`: prints the text about a reason code, from the code's own file, which is
//! compiled in.

mod message;

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::reason::Reason;
use keyferry_client::code_link::with_addresses;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::code_text::{CodeText, split_paragraphs};
use serde::Serialize;

use crate::args::output_format::FormatArgs;
use crate::ui;

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// A reason code, or a message in quotes as it was logged or printed [default: all codes are
    /// listed]
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

/// The text about a code, without Markdown: each paragraph is one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    reason: &'static str,
    /// Where it shows.
    symptom: String,
    /// What happened.
    cause: String,
    fix: String,
    /// The messages that have this reason, with `…` for values.
    #[serde(skip)]
    texts: Vec<String>,
}

/// The most codes that are shown for a message.
const MAX_ROWS: usize = 5;

pub(super) fn run(args: &ExplainArgs) -> ExitCode {
    let all: Vec<Explanation> = all().collect();
    let Some(asked) = &args.reason else {
        return match args.format.output.document() {
            None => ui::finish(&listed(&all)),
            Some(format) => ui::finish_document(&all, format, ExitCode::SUCCESS),
        };
    };
    match (
        all.iter()
            .find(|explanation| explanation.reason.eq_ignore_ascii_case(asked.trim())),
        args.format.output.document(),
    ) {
        (Some(found), None) => ui::finish(&text(found)),
        (Some(found), Some(format)) => ui::finish_document(found, format, ExitCode::SUCCESS),
        (None, output) => {
            let found = explaining(asked, &all);
            if !found.is_empty() {
                return match output {
                    None => ui::finish(&candidates(&found)),
                    Some(format) => ui::finish_document(&found, format, ExitCode::SUCCESS),
                };
            }
            let near = near(asked, &all);
            let hint = if near.is_empty() {
                "keyferry explain without a code lists them all".to_owned()
            } else {
                format!("near ones are {}", near.join(", "))
            };
            ui::fail(
                &format!(
                    "explaining {:?}: there is no such reason code",
                    ui::plain(asked)
                ),
                Some(&hint),
            )
        }
    }
}

/// The parts of the list in its order: the first code of each part, and its topic.
const PARTS: [(&str, &str); 5] = [
    (
        "AdmissionPolicyIncomplete",
        "Keyferry, the hub and deliveries",
    ),
    ("EmptyFile", "The target's AuthenticationConfiguration"),
    ("NotCompact", "A token at the target"),
    (
        "ConfigurationRefused",
        "What verify and lint cannot know, and traps that they see",
    ),
    (
        "StartUnread",
        "From the start to the target: Flux, documents, the target (doctor)",
    ),
];
/// The part for codes about the caller's own token. In the order of codes, these are among the
/// codes of the first part.
const CALLER: &str = "The caller's token";

/// Lists each code with a summary, by parts.
fn listed(all: &[Explanation]) -> String {
    let mut parts: Vec<(&str, Vec<&Explanation>)> = vec![(CALLER, Vec::new())];
    let mut caller = Vec::new();
    for explanation in all {
        if let Some((_, part)) = PARTS.iter().find(|(first, _)| *first == explanation.reason) {
            parts.push((part, Vec::new()));
        }
        match parts.last_mut() {
            Some((_, codes)) if !explanation.reason.starts_with("Caller") => {
                codes.push(explanation)
            }
            _ => caller.push(explanation),
        }
    }
    if let Some((_, codes)) = parts.first_mut() {
        *codes = caller;
    }
    let parts = parts.iter().map(|(part, codes)| {
        let rows: Vec<Vec<String>> = codes
            .iter()
            .map(|code| vec![format!("  {}", code.reason), summary(&code.cause)])
            .collect();
        format!("{part}\n{}", ui::table(&rows))
    });
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the first sentence.
fn summary(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split(". ")
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .replace('`', "")
}

/// Words in which apiservers and clients report a status, with that status.
const STATUS_WORDS: [(&str, &str); 2] = [("unauthorized", "401"), ("forbidden", "403")];

/// Finds the codes of a message: those with one of its texts, else those that mention its words.
fn explaining(asked: &str, all: &[Explanation]) -> Vec<Explanation> {
    let found = message::matching(asked, all);
    if found.is_empty() {
        return mentioning(asked, all);
    }
    found.into_iter().cloned().collect()
}

/// Finds the codes whose text contains a message, or at least each of its words. The most common
/// cause comes first.
fn mentioning(asked: &str, all: &[Explanation]) -> Vec<Explanation> {
    let asked = asked
        .split_whitespace()
        .take(32)
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase();
    let also = STATUS_WORDS
        .iter()
        .find(|(word, _)| asked == *word)
        .map(|(_, status)| *status);
    let text = |explanation: &Explanation, whole: bool| {
        let Explanation {
            symptom,
            cause,
            fix,
            ..
        } = explanation;
        let text = if whole {
            format!("{symptom} {cause} {fix}")
        } else {
            symptom.clone()
        };
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .to_ascii_lowercase()
    };
    let together =
        |text: &str| text.contains(&asked) || also.is_some_and(|also| text.contains(also));
    let each = |text: &str| asked.split(' ').all(|word| text.contains(word));
    if asked.len() < 3 {
        return Vec::new();
    }
    let find = |whole: bool, fits: &dyn Fn(&str) -> bool| -> Vec<Explanation> {
        all.iter()
            .filter(|explanation| fits(&text(explanation, whole)))
            .cloned()
            .collect()
    };
    let mut found = find(false, &together);
    if found.is_empty() {
        found = find(true, &together);
    }
    if found.is_empty() {
        found = find(true, &each);
    }
    found.sort_by_key(|explanation| message::rank(explanation.reason));
    found
}

/// Shows the code of a message, or the likely ones with their fixes.
fn candidates(found: &[Explanation]) -> String {
    if let [only] = found {
        return text(only);
    }
    let shown = found.iter().take(MAX_ROWS).map(|one| {
        let fix = wrapped(&one.fix, 7);
        let fix = fix.trim_start();
        format!("{}: {}\n  fix: {fix}", one.reason, summary(&one.cause))
    });
    let shown: Vec<String> = shown.collect();
    let of = if found.len() > MAX_ROWS {
        format!("the {MAX_ROWS} most frequent of {} reasons", found.len())
    } else {
        format!("{} reasons", found.len())
    };
    format!(
        "{of} have this message, the most likely one first; keyferry doctor finds which one it \
         is:\n{}",
        shown.join("\n")
    )
}

/// Returns every code once, in alphabetical order.
pub(crate) fn codes() -> BTreeSet<&'static str> {
    let of_server = Reason::ALL.iter().map(|reason| reason.as_str());
    of_server
        .chain(Code::ALL.iter().map(|code| code.name()))
        .collect()
}

/// Returns the text about every code.
fn all() -> impl Iterator<Item = Explanation> {
    let of_server = Reason::ALL
        .iter()
        .map(|reason| (reason.as_str(), reason.markdown()));
    let of_targets = Code::ALL.iter().map(|code| (code.name(), code.markdown()));
    of_server.chain(of_targets).map(|(reason, markdown)| {
        let text = CodeText::parse(markdown).unwrap_or_default();
        Explanation {
            reason,
            texts: message::texts(text.where_it_shows),
            symptom: prose(text.where_it_shows),
            cause: prose(text.what_happened),
            fix: prose(text.fix),
        }
    })
}

/// Converts a section for a terminal: each paragraph in one line, each link with its address.
fn prose(section: &str) -> String {
    let lines = split_paragraphs(section).map(|paragraph| with_addresses(&paragraph));
    lines.collect::<Vec<_>>().join("\n")
}

/// The width of a printed line, in characters.
const WIDTH: usize = 100;

/// Breaks each paragraph into lines that are indented by `indent`, the first one too.
fn wrapped(text: &str, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = indent.clone();
        for word in unbroken_words(paragraph) {
            let is_first = line.len() == indent.len();
            let is_full = line.chars().count() + 1 + word.chars().count() > WIDTH;
            if is_full && !is_first {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            } else if !is_first {
                line.push(' ');
            }
            line.push_str(&word);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// Splits a paragraph into words. What stands in backquotes is one word, so that a command can be
/// copied from one line.
fn unbroken_words(paragraph: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_code = false;
    for word in paragraph.split(' ') {
        match words.last_mut() {
            Some(last) if in_code => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        in_code ^= word.matches('`').count() % 2 == 1;
    }
    words
}

fn text(explanation: &Explanation) -> String {
    let Explanation {
        reason,
        symptom,
        cause,
        fix,
        ..
    } = explanation;
    let part = |name: &str, text: &str| format!("{name}:\n{}", wrapped(text, 2));
    [
        (*reason).to_owned(),
        part("What happened", cause),
        part("Fix", fix),
        part("Where it shows", symptom),
    ]
    .join("\n")
}

/// Returns the three most similar codes: those that contain the input, or differ from it in few
/// letters.
fn near(asked: &str, all: &[Explanation]) -> Vec<&'static str> {
    let asked: String = asked
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .collect::<String>()
        .to_ascii_lowercase();
    let mut ranked: Vec<(usize, &'static str)> = Vec::new();
    for Explanation { reason, .. } in all {
        let known = reason.to_ascii_lowercase();
        let apart = strsim::levenshtein(&asked, &known);
        if asked.len() >= 3 && known.contains(&asked) {
            ranked.push((0, reason));
        } else if apart * 2 <= known.len() {
            ranked.push((apart, reason));
        }
    }
    ranked.sort_unstable();
    ranked
        .into_iter()
        .take(3)
        .map(|(_, reason)| reason)
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_without_markdown() {
        let all: Vec<Explanation> = all().collect();
        let codes = Reason::ALL
            .iter()
            .map(|reason| reason.as_str())
            .chain(Code::ALL.iter().map(|code| code.name()));
        for code in codes {
            let found = all.iter().find(|explanation| explanation.reason == code);
            let found = found.unwrap_or_else(|| panic!("{code} is not explained"));
            for part in [&found.symptom, &found.cause, &found.fix] {
                assert!(
                    !part.is_empty() && !part.contains("](") && !part.contains("**"),
                    "{code}: {part}"
                );
            }
        }
    }

    #[test]
    fn the_list_has_each_code_once_with_a_summary() {
        let all: Vec<Explanation> = all().collect();
        let list = listed(&all);
        let lines: Vec<&str> = list.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(lines.len(), all.len());
        for line in lines {
            let (code, summary) = line
                .trim()
                .split_once("  ")
                .unwrap_or_else(|| panic!("no summary: {line}"));
            assert!(
                all.iter().any(|explanation| explanation.reason == code)
                    && summary.trim().len() > 5,
                "{line}"
            );
        }
        for (first, part) in PARTS {
            let below = list
                .split_once(&format!("{part}\n"))
                .unwrap_or_else(|| panic!("{part}"))
                .1;
            assert!(below.starts_with(&format!("  {first} ")), "{part}: {below}");
        }
        assert!(
            list.starts_with("The caller's token\n  CallerAmbiguous "),
            "{list}"
        );
    }

    #[test]
    fn words_of_a_message_find_its_codes() {
        let all: Vec<Explanation> = all().collect();
        let reasons_for = |asked: &str| {
            explaining(asked, &all)
                .into_iter()
                .map(|found| found.reason)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            reasons_for("invalid bearer token").first(),
            Some(&"IssuerDiffers"),
            "the most common cause"
        );
        for asked in ["401", "Unauthorized"] {
            let found = reasons_for(asked);
            assert!(
                ["IssuerDiffers", "TokenRefused", "CallerRejected"]
                    .iter()
                    .all(|code| found.contains(code)),
                "{asked}: {found:?}"
            );
            assert!(found.len() < all.len() / 2, "{asked}: {found:?}");
        }
        assert!(reasons_for("forbidden").contains(&"NoRights"));
        assert!(reasons_for("zzzzzzzzzzzz").is_empty() && reasons_for("a").is_empty());
    }

    #[test]
    fn near_codes_are_suggested() {
        let all: Vec<Explanation> = all().collect();
        assert_eq!(
            near("AudienceDifers", &all).first(),
            Some(&"AudienceDiffers")
        );
        assert!(near("expired", &all).contains(&"TokenExpired"));
        assert!(near("zzzzzzzzzzzz", &all).is_empty());
    }

    /// What is printed is the text of the file: no word is left out, and each link has its address.
    #[test]
    fn a_text_is_printed_whole() {
        for explanation in all() {
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let Explanation {
                reason,
                symptom,
                cause,
                fix,
                ..
            } = &explanation;
            let whole =
                format!("{reason} What happened: {cause} Fix: {fix} Where it shows: {symptom}");
            assert_eq!(words(&super::text(&explanation)), words(&whole));
            for part in [symptom, cause, fix] {
                assert!(part.ends_with(['.', '`', ')']), "{reason} is cut: {part}");
                assert!(
                    !part.starts_with(char::is_lowercase) || is_name(part),
                    "{reason}: {part}"
                );
            }
        }
        let settling = all().find(|one| one.reason == "KeySettling").unwrap();
        assert!(
            settling.fix.ends_with("publish a key before it signs: key rotation (https://github.com/keyferry/keyferry/blob/main/docs/guides/day-two.md#key-rotation-on-the-hub)."),
            "{}",
            settling.fix
        );
    }

    /// Whether a text begins with a name that is written in lower case.
    fn is_name(text: &str) -> bool {
        ["kube-apiserver ", "kubectl ", "certificateAuthority "]
            .iter()
            .any(|name| text.starts_with(name))
    }

    #[test]
    fn commands_stay_on_one_line() {
        let long = "word ".repeat(18);
        let text = format!("{long}and `kubectl get pods -n a`.");
        let lines: Vec<String> = wrapped(&text, 2).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines
                .iter()
                .any(|line| line.contains("`kubectl get pods -n a`"))
        );
    }
}
