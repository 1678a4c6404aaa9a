//! Finds the reason codes of a message that somebody pasted: a line of a log, a part of it, or JSON
//! around it.
//!
//! The messages of a code stand in backquotes under "Where it shows" of its file, with `…` for a
//! value. Only these fixed parts are looked for, in their order, so names, times and addresses of
//! the pasted message do not matter.

use std::collections::BTreeMap;

use super::Explanation;

/// The longest message that is read, in bytes. A log line with a whole token is shorter.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The shortest text that is looked for, without its values, in characters.
const MIN_TEXT: usize = 8;
/// How many codes may share a text that still says which one it is.
const MAX_CODES_OF_TEXT: usize = 3;

/// Words with which a command begins, which is not a message.
const COMMANDS: [&str; 9] = [
    "keyferry ",
    "lint ",
    "verify ",
    "trust ",
    "serve ",
    "whoami ",
    "can-i ",
    "doctor ",
    "kubectl ",
];

/// Causes by how often people meet them, most often first. Codes that are not here come later, in
/// the order of the codes.
const FREQUENT: [&str; 22] = [
    "IssuerDiffers",
    "AudienceDiffers",
    "ConfigurationNotActive",
    "AuthenticatorNotInitialized",
    "TokenExpired",
    "TokenRefused",
    "ClaimRuleFalse",
    "NoRights",
    "RequestAnonymous",
    "TargetUntrusted",
    "DiscoveryUntrusted",
    "DiscoveryNotServed",
    "DiscoveryForbidden",
    "DiscoveryUnreachable",
    "SignatureInvalid",
    "TargetUnreachable",
    "KeysUntrusted",
    "KeysNotServed",
    "CallerExpired",
    "CallerAudienceMismatch",
    "CallerRejected",
    "MintForbidden",
];

/// Returns a code's place among the causes by frequency.
pub(super) fn rank(reason: &str) -> usize {
    FREQUENT
        .iter()
        .position(|known| *known == reason)
        .unwrap_or(FREQUENT.len())
}

/// Returns the messages of a section: what stands in backquotes and is no name or command.
pub(super) fn texts(section: &str) -> Vec<String> {
    let joined = section.split_whitespace().collect::<Vec<_>>().join(" ");
    joined
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| text.contains(' ') && !is_setting(text))
        .filter(|text| !COMMANDS.iter().any(|command| text.starts_with(command)))
        .map(str::to_owned)
        .collect()
}

/// Whether a text is a setting or a header, like `probe: Require`.
fn is_setting(text: &str) -> bool {
    let is_name = |part: &str| {
        part.chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '-')
    };
    text.split_once(": ")
        .is_some_and(|(name, value)| is_name(name) && is_name(value) && !value.is_empty())
        && text.len() < 32
}

/// Returns the codes whose text is in the message, the most specific first, then the most frequent.
pub(super) fn matching<'a>(pasted: &str, all: &'a [Explanation]) -> Vec<&'a Explanation> {
    let mut end = pasted.len().min(MAX_MESSAGE_BYTES);
    while !pasted.is_char_boundary(end) {
        end -= 1;
    }
    let pasted = pasted.get(..end).unwrap_or_default();
    let named = naming(pasted, all);
    if !named.is_empty() {
        return named;
    }
    let message = normal(pasted);
    let mut codes_of_text: BTreeMap<String, usize> = BTreeMap::new();
    for text in all.iter().flat_map(|explanation| &explanation.texts) {
        *codes_of_text.entry(normal(text)).or_default() += 1;
    }
    let mut matches: Vec<Match<'_>> = all
        .iter()
        .filter_map(|explanation| {
            let texts = explanation.texts.iter().map(|text| normal(text));
            let best = texts
                .filter_map(|text| Some((fixed_length(&text, &message)?, text)))
                .max()?;
            Some(Match {
                explanation,
                length: best.0,
                says_which: codes_of_text.get(&best.1).copied().unwrap_or(1) <= MAX_CODES_OF_TEXT,
            })
        })
        .collect();
    // A text of many codes is only of use without a text of few.
    if matches.iter().any(|found| found.says_which) {
        matches.retain(|found| found.says_which);
    }
    let longest = matches.iter().map(|found| found.length).max().unwrap_or(0);
    // A much shorter text is only a part of the longest, like its first words.
    matches.retain(|found| found.length * 3 >= longest * 2);
    matches.sort_by_key(|found| {
        (
            std::cmp::Reverse(found.length),
            rank(found.explanation.reason),
        )
    });
    matches.into_iter().map(|found| found.explanation).collect()
}

/// A code whose text is in the message.
struct Match<'a> {
    explanation: &'a Explanation,
    /// The characters of the text without its values.
    length: usize,
    /// Whether few codes have this text.
    says_which: bool,
}

/// Returns the codes that the message names, as Keyferry's own messages do, and then those with a
/// text that names one of them.
fn naming<'a>(pasted: &str, all: &'a [Explanation]) -> Vec<&'a Explanation> {
    let is_letter = |character: char| character.is_ascii_alphanumeric();
    let words: Vec<&str> = pasted.split(|character| !is_letter(character)).collect();
    let is_named = |explanation: &&Explanation| {
        // A name of one word, like Ready, is also a word of other messages.
        let capitals = explanation.reason.chars().filter(char::is_ascii_uppercase);
        capitals.count() > 1 && words.contains(&explanation.reason)
    };
    let named: Vec<&Explanation> = all.iter().filter(is_named).collect();
    let has_text = |explanation: &&Explanation| {
        let of_named = |text: &String| named.iter().any(|one| text.contains(one.reason));
        !is_named(explanation) && explanation.texts.iter().any(of_named)
    };
    let others = all.iter().filter(has_text);
    named.iter().copied().chain(others).collect()
}

/// Removes what differs between a message and a paste of it: quotes, escapes of JSON, line ends,
/// and the case of letters. The indexes of lists are values.
fn normal(text: &str) -> String {
    let text = text.replace("\\n", " ").replace("\\t", " ");
    let mut out = String::with_capacity(text.len());
    let mut in_brackets = false;
    for character in text.chars() {
        match character {
            '"' | '\'' | '`' | '\\' | '“' | '”' | '‘' | '’' => {}
            '[' => {
                in_brackets = true;
                out.push('[');
            }
            digit if in_brackets && digit.is_ascii_digit() => {
                if !out.ends_with('…') {
                    out.push('…');
                }
            }
            other => {
                in_brackets = false;
                if other.is_whitespace() {
                    if !out.ends_with(' ') {
                        out.push(' ');
                    }
                } else {
                    out.extend(other.to_lowercase());
                }
            }
        }
    }
    out
}

/// Returns the length of a text without its values, if its fixed parts are in the message in their
/// order.
fn fixed_length(text: &str, message: &str) -> Option<usize> {
    let mut rest = message;
    let mut length = 0;
    for part in text
        .split('…')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let at = rest.find(part)?;
        rest = rest.get(at + part.len()..)?;
        length += part.chars().count();
    }
    (length >= MIN_TEXT).then_some(length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
