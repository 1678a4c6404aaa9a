//! Unescapes names such as `a__dot__b`, which are escaped because CEL identifiers cannot contain
//! them.

/// Keywords with a meaning of their own.
const KEYWORD_LITERALS: [&str; 4] = ["true", "false", "null", "in"];

/// Names that cannot be used for a variable or a function.
pub(crate) const RESERVED_NAMES: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name that an escaped name means; `None` if it is not escaped or its escape is
/// invalid.
pub(crate) fn unescape_name(name: &str) -> Option<String> {
    unescape_strict(name).filter(|found| found != name)
}

/// Returns the name that a name means: itself if it has no escape; `None` if it contains an unknown
/// escape.
pub(crate) fn unescape_strict(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find("__") {
        let (before, tail) = rest.split_at(open);
        let inner = tail.get(2..).unwrap_or_default();
        let end = inner.find('_').unwrap_or(inner.len());
        let (word, after) = inner.split_at(end);
        if word.is_empty() || !after.starts_with("__") {
            // No escape starts here, but one may start at the next underscore.
            let step = open + 1;
            out.push_str(rest.get(..step).unwrap_or_default());
            rest = rest.get(step..).unwrap_or_default();
            continue;
        }
        out.push_str(before);
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            _ if (KEYWORD_LITERALS.contains(&word) || RESERVED_NAMES.contains(&word))
                && name.len() == word.len() + 4 =>
            {
                out.push_str(word)
            }
            _ => return None,
        }
        rest = after.get(2..).unwrap_or_default();
    }
    out.push_str(rest);
    Some(out)
}
