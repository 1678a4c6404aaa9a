//! Finds shapes in the text of an expression, mostly outside of its string literals.

use std::sync::LazyLock;

use regex::Regex;

/// A questionable construct in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    EmailByIndex,
    Arithmetic,
    ClaimsAsMap,
    Escape,
}

/// Compiles a pattern. A broken pattern would match nothing; the tests show that none is broken.
fn compile_pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

static ARITHMETIC_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile_pattern(
        r"\bclaims(\s*\.\s*\w+)+\s*[-+*/%]\s*\d|(^|[^\w.])\d[\w.]*\s*[-+*/%]\s*claims\s*\.",
    )
});
static CLAIMS_AS_MAP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile_pattern(
        r"\bin\s+claims\s*($|[^.\[\s])|\bsize\s*\(\s*claims\s*\)|\bclaims\s*\.\s*size\s*\(",
    )
});
static ESCAPE_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile_pattern(r"\.\s*\??\w*__(dot|dash|slash|underscores)__"));
static EMAIL_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile_pattern(r#"\bclaims\s*\[\s*\??\s*[rR]?(['"])email(['"])\s*\]"#));

/// Finds every shape in an expression.
pub(super) fn find_shapes(expression: &str) -> Vec<Shape> {
    let code = without_literals(expression);
    let found = |pattern: &LazyLock<Option<Regex>>, text: &str| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    };
    [
        (Shape::EmailByIndex, found(&EMAIL_PATTERN, expression)),
        (Shape::Arithmetic, found(&ARITHMETIC_PATTERN, &code)),
        (Shape::ClaimsAsMap, found(&CLAIMS_AS_MAP, &code)),
        (Shape::Escape, found(&ESCAPE_PATTERN, &code)),
    ]
    .into_iter()
    .filter_map(|(shape, found)| found.then_some(shape))
    .collect()
}

/// Returns the text with every string literal emptied.
pub(super) fn without_literals(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut open: Option<char> = None;
    let mut escaped = false;
    for character in expression.chars() {
        match open {
            Some(quote) if character == quote && !escaped => {
                open = None;
                out.push(character);
            }
            Some(_) => escaped = character == '\\' && !escaped,
            None => {
                if matches!(character, '"' | '\'') {
                    open = Some(character);
                }
                escaped = false;
                out.push(character);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_seen_outside_of_literals() {
        for (text, expected) in [
            ("claims['email']", vec![Shape::EmailByIndex]),
            ("claims[?\"email\"].orValue('')", vec![Shape::EmailByIndex]),
            ("claims.email", vec![]),
            ("claims.n + 1 > 2", vec![Shape::Arithmetic]),
            ("1 + claims.n", vec![Shape::Arithmetic]),
            ("int(claims.n) + 1", vec![]),
            ("claims.exp - claims.iat <= 3600", vec![]),
            ("'claims.n + 1'", vec![]),
            ("'sub' in claims", vec![Shape::ClaimsAsMap]),
            ("'sub' in claims && true", vec![Shape::ClaimsAsMap]),
            ("'a' in claims.groups", vec![]),
            ("size(claims) > 1", vec![Shape::ClaimsAsMap]),
            ("claims.kubernetes__dot__io.namespace", vec![Shape::Escape]),
            ("claims['a__dot__b']", vec![]),
        ] {
            assert_eq!(find_shapes(text), expected, "{text}");
        }
        assert_eq!(without_literals(r#"a + "b\"c" + 'd'"#), r#"a + "" + ''"#);
    }
}
