//! Regular expressions in Go's RE2 syntax, run by the `regex` crate.

mod translate;
mod unicode;

use std::ops::Range;
use std::sync::LazyLock;

use super::{Called, Context};
use crate::value::Val;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    engine: Engine,
    /// Whether it uses Unicode properties of characters, which depend on the release of Unicode.
    unicode: bool,
    /// Whether it depends on which code points have no character.
    unassigned: bool,
}

/// A code point without a character.
static UNASSIGNED: LazyLock<Option<regex::Regex>> =
    LazyLock::new(|| regex::Regex::new("\\p{Cn}").ok());

/// The form of the regular expression.
#[derive(Debug)]
enum Engine {
    Text(regex::Regex),
    /// One with `\B`, which the crate does not allow on texts: it can match within a character.
    Bytes(regex::bytes::Regex),
}

/// The memory of a compiled pattern, and of its cache, in bytes.
const MAX_BYTES: usize = 10 << 20;
const MAX_CACHE_BYTES: usize = 2 << 20;

/// Why a pattern does not compile.
#[derive(Debug, Clone)]
pub(crate) enum PatternFault {
    /// Go refuses the pattern.
    Refused(String),
    /// The pattern uses something that cannot be decided here.
    Beyond(String),
}

impl Pattern {
    /// Compiles a pattern in Go's syntax.
    pub(crate) fn compile(written: &str) -> Result<Self, PatternFault> {
        let translated = translate::translate_pattern(written)?;
        let (unicode, unassigned) = (translated.unicode, translated.unassigned);
        let built = if translated.bytes {
            regex::bytes::RegexBuilder::new(&translated.text)
                .size_limit(MAX_BYTES)
                .dfa_size_limit(MAX_CACHE_BYTES)
                .nest_limit(60)
                .build()
                .map(Engine::Bytes)
        } else {
            regex::RegexBuilder::new(&translated.text)
                .size_limit(MAX_BYTES)
                .dfa_size_limit(MAX_CACHE_BYTES)
                .nest_limit(60)
                .build()
                .map(Engine::Text)
        };
        built
            .map(|engine| Self {
                engine,
                unicode,
                unassigned,
            })
            .map_err(|_| PatternFault::Beyond(format!("the pattern {written:?}")))
    }

    /// Whether it matches anywhere in the text.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, String> {
        self.refuse_undecided(text)?;
        Ok(match &self.engine {
            Engine::Text(regex) => regex.is_match(text),
            Engine::Bytes(regex) => !matches_between_characters(regex, text, 1).is_empty(),
        })
    }

    fn refuse_undecided(&self, text: &str) -> Result<(), String> {
        if self.unicode && text.chars().any(unicode::has_other_class) {
            return Err(
                "a Unicode class in a pattern, and a character of a new Unicode".to_owned(),
            );
        }
        let has_unassigned = |regex: &regex::Regex| regex.is_match(text);
        if self.unassigned && UNASSIGNED.as_ref().is_none_or(has_unassigned) {
            return Err(
                "the class C in a pattern, and a code point without a character".to_owned(),
            );
        }
        Ok(())
    }

    /// Returns the first `n` matches, or all if `n` is negative.
    pub(super) fn find_all(&self, text: &str, n: i64) -> Result<Vec<String>, String> {
        self.refuse_undecided(text)?;
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        let found = match &self.engine {
            Engine::Text(regex) => regex
                .find_iter(text)
                .map(|m| m.range())
                .take(limit)
                .collect(),
            Engine::Bytes(regex) => matches_between_characters(regex, text, limit),
        };
        let copy = |range: Range<usize>| text.get(range).unwrap_or_default().to_owned();
        Ok(found.into_iter().map(copy).collect())
    }
}

/// Returns the first matches that start and end between characters. As in Go, an empty match right
/// after another one does not count.
fn matches_between_characters(
    regex: &regex::bytes::Regex,
    text: &str,
    limit: usize,
) -> Vec<Range<usize>> {
    let next = |at: usize| (at + 1..=text.len()).find(|at| text.is_char_boundary(*at));
    let mut matches: Vec<Range<usize>> = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from
        && matches.len() < limit
    {
        let Some(range) = regex.find_at(text.as_bytes(), at).map(|m| m.range()) else {
            break;
        };
        // A match within a character is empty, because every other one consumes characters.
        let inside = !text.is_char_boundary(range.start);
        let again = range.is_empty() && matches.last().is_some_and(|last| last.end == range.start);
        from = if range.is_empty() {
            next(range.start)
        } else {
            Some(range.end)
        };
        if !inside && !again {
            matches.push(range);
        }
    }
    matches
}

/// Runs a function with the pattern of the call, which is compiled now if it was not constant.
pub(super) fn with(
    context: &Context<'_>,
    written: &str,
    run: impl Fn(&Pattern) -> Called,
) -> Called {
    if let Some(pattern) = context.pattern {
        return run(pattern);
    }
    match Pattern::compile(written) {
        Ok(pattern) => run(&pattern),
        Err(PatternFault::Refused(message)) => Ok(Val::error(message)),
        Err(PatternFault::Beyond(reason)) => Err(reason),
    }
}
