//! The meaning of a CEL expression, as far as two expressions are compared.

use std::collections::BTreeSet;

/// What an expression says. Two equal meanings are of expressions that decide alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// `claims.sub in [...]`: the subject is one of these, in any order.
    Subjects(BTreeSet<String>),
    /// The same for the subjects from one up to another, as `keyferry trust` cuts a long list.
    SubjectRange {
        from: Option<String>,
        to: Option<String>,
        subjects: BTreeSet<String>,
    },
    /// Anything else, with one blank between two words, and none beside a bracket or an operator.
    Text(String),
}

impl Meaning {
    pub(super) fn of(expression: &str) -> Self {
        let text = normal(expression);
        match subjects(&text) {
            Some(subjects) => Self::Subjects(subjects),
            None => subject_range(&text).unwrap_or(Self::Text(text)),
        }
    }

    /// Returns what the expression says of the tokens for one audience alone. `None` if it is true
    /// for all of them. `audience` is absent where an entry has one for all.
    pub(super) fn at_audience(expression: &str, audience: Option<&str>) -> Option<Self> {
        let text = normal(expression);
        if let Some(audience) = audience {
            if let Some((guarded, rest)) = guarded(&text) {
                return (guarded == audience).then(|| Self::of(rest));
            }
            if let Some(value) = value_of_audience(&text, audience) {
                return Some(Self::Text(value));
            }
        }
        Some(Self::of(&text))
    }

    /// Returns the subjects of all ranges, if the ranges follow each other and leave none out.
    pub(super) fn joined<'a>(meanings: impl Iterator<Item = &'a Self>) -> Option<BTreeSet<String>> {
        let mut ranges: Vec<_> = meanings
            .filter_map(|meaning| match meaning {
                Self::SubjectRange { from, to, subjects } => Some((from, to, subjects)),
                _ => None,
            })
            .collect();
        // `None` is less than every text.
        ranges.sort();
        let begins = ranges.first().is_some_and(|(from, ..)| from.is_none());
        let ends = ranges.last().is_some_and(|(_, to, _)| to.is_none());
        let follow = ranges
            .windows(2)
            .all(|pair| matches!(pair, [(_, to, _), (from, ..)] if to.is_some() && to == from));
        (begins && ends && follow).then(|| {
            ranges
                .into_iter()
                .flat_map(|(from, to, subjects)| {
                    // A subject outside of its range is listed in vain.
                    let inside = |one: &&String| {
                        from.as_ref().is_none_or(|from| *one >= from)
                            && to.as_ref().is_none_or(|to| *one < to)
                    };
                    subjects.iter().filter(inside).cloned()
                })
                .collect()
        })
    }

    /// Returns what the expression is about: the name that it begins with.
    pub(super) fn topic(&self) -> &str {
        match self {
            Self::Subjects(_) | Self::SubjectRange { .. } => "claims.sub",
            Self::Text(text) => {
                let is_name =
                    |character: char| character.is_ascii_alphanumeric() || "._".contains(character);
                let end = text.find(|character| !is_name(character));
                text.get(..end.unwrap_or(text.len())).unwrap_or_default()
            }
        }
    }
}

/// Removes the blanks that separate nothing. An expression whose blanks may be part of a literal in
/// a way that is not read here, or that has a comment, stays as it is.
fn normal(expression: &str) -> String {
    let expression = expression.trim();
    if ["\\", "\"\"\"", "'''"]
        .iter()
        .any(|odd| expression.contains(odd))
    {
        return expression.to_owned();
    }
    // Not the slash: two of them begin a comment.
    let is_operator = |character: char| "()[]{},<>=!&|+-*%?:.".contains(character);
    let mut out = String::with_capacity(expression.len());
    let mut quote = None;
    let mut blank = false;
    for character in expression.chars() {
        if quote.is_some() {
            out.push(character);
            if quote == Some(character) {
                quote = None;
            }
            continue;
        }
        if character.is_whitespace() {
            blank = true;
            continue;
        }
        // An audience in a literal has such slashes too; here they begin a comment.
        if character == '/' && !blank && out.ends_with('/') {
            return expression.to_owned();
        }
        let beside = is_operator(character) || out.chars().next_back().is_some_and(is_operator);
        if std::mem::take(&mut blank) && !beside {
            out.push(' ');
        }
        out.push(character);
        quote = matches!(character, '\'' | '"').then_some(character);
    }
    out
}

/// Splits a normal expression `claims.aud[0]!='A'||REST` into the audience and the rest. A ternary
/// would bind the guard too, and a comment could hide what follows.
fn guarded(text: &str) -> Option<(&str, &str)> {
    let literal = text.strip_prefix("claims.aud[0]!='")?;
    let (audience, rest) = literal.split_once("'||")?;
    (!audience.contains('\'') && !rest.contains('?') && !text.contains('\\'))
        .then_some((audience, rest))
}

/// Returns the value for an audience in a normal expression `{'A':VALUE,'B':VALUE}[claims.aud[0]]`,
/// with what follows.
fn value_of_audience(text: &str, audience: &str) -> Option<String> {
    let inside = text.strip_prefix('{')?;
    let (mut depth, mut is_literal, mut members) = (0_usize, false, vec![String::new()]);
    let mut end = None;
    for (place, character) in inside.char_indices() {
        match character {
            '\'' => is_literal = !is_literal,
            _ if is_literal => {}
            '"' | '\\' | '?' => return None,
            '(' | '[' | '{' => depth += 1,
            '}' if depth == 0 => {
                end = Some(place);
                break;
            }
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                members.push(String::new());
                continue;
            }
            _ => {}
        }
        members.last_mut()?.push(character);
    }
    let rest = inside.get(end? + 1..)?.strip_prefix("[claims.aud[0]]")?;
    if !members.iter().all(|member| member.starts_with('\'')) {
        return None;
    }
    let key = format!("'{audience}':");
    let mut values = members
        .iter()
        .filter_map(|member| member.strip_prefix(&key));
    let value = values.next().filter(|_| values.next().is_none())?;
    Some(format!("{value}{rest}"))
}

/// Returns the range and the subjects of a normal expression
/// `claims.sub<'a'||claims.sub>='b'||claims.sub in['a']`, of whose bounds one may be
/// missing.
fn subject_range(text: &str) -> Option<Meaning> {
    let bound = |text: &str, comparison: &str| -> Option<String> {
        let literal = text.strip_prefix("claims.sub")?.strip_prefix(comparison)?;
        let inside = literal.strip_prefix('\'')?.strip_suffix('\'')?;
        (!inside.contains(['\'', '\\'])).then(|| inside.to_owned())
    };
    let mut parts: Vec<&str> = text.split("||").collect();
    let subjects = subjects(parts.pop()?)?;
    let (from, to) = match parts.as_slice() {
        [from, to] => (Some(bound(from, "<")?), Some(bound(to, ">=")?)),
        [one] => match bound(one, "<") {
            Some(from) => (Some(from), None),
            None => (None, Some(bound(one, ">=")?)),
        },
        _ => return None,
    };
    Some(Meaning::SubjectRange { from, to, subjects })
}

/// Returns the subjects of a normal expression `claims.sub in['a','b']`.
fn subjects(text: &str) -> Option<BTreeSet<String>> {
    let list = text.strip_prefix("claims.sub in[")?.strip_suffix(']')?;
    let literal = |item: &str| {
        let quote = item
            .chars()
            .next()
            .filter(|quote| matches!(quote, '\'' | '"'))?;
        let inside = item.strip_prefix(quote)?.strip_suffix(quote)?;
        // A ServiceAccount's name has none of these, and then the list is split at its commas.
        (!inside.contains(['\'', '"', '\\', ','])).then(|| inside.to_owned())
    };
    // CEL accepts a comma after the last item.
    let list = list.strip_suffix(',').unwrap_or(list);
    list.split(',').map(literal).collect()
}

#[cfg(test)]
mod tests {
    use super::Meaning;

    #[test]
    fn blanks_between_tokens_have_no_meaning_and_those_in_a_literal_have() {
        let same = |a: &str, b: &str| Meaning::of(a) == Meaning::of(b);
        assert!(same(
            "claims.exp - claims.iat\n  <= 3600",
            " claims.exp - claims.iat <= 3600\n"
        ));
        assert!(same("f( a,\n b )", "f(a, b)"));
        assert!(same("a==1&&b . c<-2", "a == 1 && b.c < -2"));
        assert!(!same("a / / b", "a // b"));
        assert!(!same("claims.hd == 'a b'", "claims.hd == 'a  b'"));
        assert!(!same("claims.hd == 'a( b'", "claims.hd == 'a(b'"));
        assert!(!same("a in b", "ain b"));
        assert!(
            !same("a // b\n && c", "a // b && c"),
            "a comment ends with its line"
        );
        assert!(!same(r"'\' + ' a'", r"'\' + 'a'"));
    }

    #[test]
    fn subjects_are_a_set() {
        let subjects = |text: &str| match Meaning::of(text) {
            Meaning::Subjects(subjects) => Some(subjects.into_iter().collect::<Vec<_>>()),
            _ => None,
        };
        assert_eq!(
            subjects("claims.sub in [\n  'b',\n  \"a\",\n]"),
            Some(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(
            Meaning::of("claims.sub in ['a', 'b']"),
            Meaning::of("claims.sub in ['b','a']")
        );
        for other in [
            "claims.sub in ['a'] || true",
            "claims.sub in ['a', x]",
            "claims.sub in ['a'] || claims.sub in ['b']",
            "claims.sub in ['a','b'].filter(x, true)",
            "!(claims.sub in ['a'])",
        ] {
            assert_eq!(subjects(other), None, "{other}");
        }
        assert_eq!(
            Meaning::of("claims.aud.size() == 1").topic(),
            "claims.aud.size"
        );
        assert_eq!(Meaning::of("claims.sub in ['a']").topic(), "claims.sub");
        assert_eq!(Meaning::of("claims.sub == 'a'").topic(), "claims.sub");
    }
}
