//! Regular expressions in Go's RE2 syntax, run by the `regex` crate.

mod translate;

use super::{Called, Context};
use crate::value::Val;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: regex::Regex,
    /// Whether it uses Unicode properties of characters, which depend on the release of Unicode.
    unicode: bool,
}

/// The last character up to which all releases of Unicode agree.
const LAST_SETTLED: char = '\u{24f}';

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
        let translated = translate::translate(written)?;
        let unicode = translated.unicode;
        let built = regex::RegexBuilder::new(&translated.text)
            .size_limit(10 << 20)
            .dfa_size_limit(2 << 20)
            .nest_limit(60)
            .build();
        built
            .map(|regex| Self { regex, unicode })
            .map_err(|_| PatternFault::Beyond(format!("the pattern {written:?}")))
    }

    /// Whether it matches anywhere in the text.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, String> {
        self.settled(text)?;
        Ok(self.regex.is_match(text))
    }

    fn settled(&self, text: &str) -> Result<(), String> {
        if self.unicode && text.chars().any(|c| c > LAST_SETTLED) {
            return Err("a Unicode class in a pattern, and a text beyond U+024F".to_owned());
        }
        Ok(())
    }

    /// Returns the first `n` matches, or all if `n` is negative.
    pub(super) fn find_all(&self, text: &str, n: i64) -> Result<Vec<String>, String> {
        self.settled(text)?;
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        Ok(self
            .regex
            .find_iter(text)
            .take(limit)
            .map(|m| m.as_str().to_owned())
            .collect())
    }
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
