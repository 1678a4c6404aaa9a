//! `keyferry explain`: prints cause and fix of a reason code, from docs/troubleshooting.md, which
//! is compiled in.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use keyferry_terminal::output_format::OutputFormat;
use keyferry_terminal::ui;

const DOCUMENT: &str = include_str!("../../../docs/troubleshooting.md");

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// A reason code, or words of a message like 401 or "invalid bearer token"; without either, all
    /// codes are listed.
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// The document's section on a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    reason: &'static str,
    symptom: String,
    cause: String,
    fix: String,
}

pub(super) fn run(args: &ExplainArgs) -> ExitCode {
    let all: Vec<Explanation> = all().collect();
    let Some(asked) = &args.reason else {
        return match args.output {
            OutputFormat::Text => ui::finish(&listed(&all)),
            OutputFormat::Json => ui::finish_json(&all, ExitCode::SUCCESS),
        };
    };
    match (
        all.iter()
            .find(|explanation| explanation.reason.eq_ignore_ascii_case(asked.trim())),
        args.output,
    ) {
        (Some(found), OutputFormat::Text) => ui::finish(&text(found)),
        (Some(found), OutputFormat::Json) => ui::finish_json(found, ExitCode::SUCCESS),
        (None, output) => {
            let found = mentioning(asked, &all);
            if !found.is_empty() {
                return match output {
                    OutputFormat::Text => ui::finish(&mentions(&found)),
                    OutputFormat::Json => ui::finish_json(&found, ExitCode::SUCCESS),
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

/// The parts of the document in its order: the first code of each part, and its topic.
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
/// The part for codes about the caller's own token. In the document, these are among the codes of
/// the first part.
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

/// The length limit of a summary, in characters.
const MAX_SUMMARY: usize = 90;

/// Returns the first sentence, cut at a word if it is too long.
fn summary(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = line
        .split(". ")
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .replace('`', "");
    if sentence.chars().count() <= MAX_SUMMARY {
        return sentence;
    }
    let cut: String = sentence.chars().take(MAX_SUMMARY).collect();
    format!(
        "{} …",
        cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept)
    )
}

/// Words in which apiservers and clients report a status, with that status.
const ALSO: [(&str, &str); 2] = [("unauthorized", "401"), ("forbidden", "403")];

/// Finds the codes whose text contains a message, or at least each of its words. The most common
/// cause comes first.
fn mentioning(asked: &str, all: &[Explanation]) -> Vec<Explanation> {
    let asked = asked
        .split_whitespace()
        .take(32)
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase();
    let also = ALSO
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
    found.sort_by_key(|explanation| !text(explanation, false).contains("most common"));
    found
}

fn mentions(found: &[Explanation]) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|code| vec![code.reason.to_owned(), summary(&code.cause)])
        .collect();
    format!(
        "That is not a reason code. These mention it; keyferry explain CODE says more, and \
         keyferry doctor finds which one it is:\n{}",
        ui::table(&rows)
    )
}

/// Returns every section of the document whose heading is a code.
fn all() -> impl Iterator<Item = Explanation> {
    let sections = DOCUMENT
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'));
    sections
        .filter(|(heading, _)| !heading.contains(' '))
        .filter_map(|(reason, text)| {
            let (_, rest) = text.split_once("- **Symptom:** ")?;
            let (symptom, rest) = rest.split_once("- **Cause:** ")?;
            let (cause, fix) = rest.split_once("- **Fix:** ")?;
            Some(Explanation {
                reason,
                symptom: prose(symptom),
                cause: prose(cause),
                fix: prose(fix),
            })
        })
}

/// Converts Markdown for a terminal: drops links and list indents, and keeps blocks.
fn prose(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix("  ").unwrap_or(line).trim_end())
        .collect();
    unlink(lines.join("\n").trim())
        .replace("\n```", "\n")
        .replace("**", "")
}

/// Replaces `[text](target)` by `text`.
fn unlink(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        match after
            .split_once("](")
            .and_then(|(name, tail)| Some((name, tail.split_once(')')?.1)))
        {
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
    let Explanation {
        reason,
        symptom,
        cause,
        fix,
    } = explanation;
    [
        (*reason).to_owned(),
        part("Symptom:", symptom),
        part("Cause:", cause),
        part("Fix:", fix),
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
    use keyferry_api::reason::Reason;
    use keyferry_kube_authn::Code;

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
        let found = |asked: &str| {
            mentioning(asked, &all)
                .into_iter()
                .map(|found| found.reason)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found("invalid bearer token").first(),
            Some(&"IssuerDiffers"),
            "the most common cause"
        );
        for asked in ["401", "Unauthorized"] {
            let found = found(asked);
            assert!(
                ["IssuerDiffers", "TokenRefused", "CallerRejected"]
                    .iter()
                    .all(|code| found.contains(code)),
                "{asked}: {found:?}"
            );
            assert!(found.len() < all.len() / 2, "{asked}: {found:?}");
        }
        assert!(found("forbidden").contains(&"NoRights"));
        assert!(found("zzzzzzzzzzzz").is_empty() && found("a").is_empty());
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

    #[test]
    fn links_become_their_text() {
        assert_eq!(
            unlink("see [this](#a) and jwt[0] and [b](c.md#d)."),
            "see this and jwt[0] and b."
        );
    }
}
