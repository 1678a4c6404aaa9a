//! Makes expressions that lack a part of a given one. It works on words alone, because an
//! expression that does not compile does not disagree.

/// Shorter texts, shortest first.
pub(super) fn smaller(text: &str) -> Vec<String> {
    let words = words(text);
    let mut candidates = Vec::new();
    for (open, close) in pairs(&words) {
        // The content of the brackets, instead of the whole text or instead of the brackets.
        let inside = words.get(open + 1..close).unwrap_or_default();
        candidates.push(inside.concat());
        for part in split(inside) {
            candidates.push(part.concat());
            candidates.push(joined(&words, open, close + 1, &part));
        }
        candidates.push(joined(&words, open, close + 1, inside));
        candidates.push(joined(&words, open, close + 1, &[]));
        // A call without its name, and a method call without the part before it.
        if open > 0 {
            candidates.push(joined(&words, open - 1, close + 1, inside));
            candidates.push(joined(&words, open.saturating_sub(2), close + 1, &[]));
        }
        candidates.push(words.get(open..=close).unwrap_or_default().concat());
        candidates.push(words.get(..=close).unwrap_or_default().concat());
    }
    let mut length = words.len() / 2;
    while length > 0 {
        for start in (0..words.len()).step_by(length) {
            candidates.push(joined(
                &words,
                start,
                (start + length).min(words.len()),
                &[],
            ));
        }
        length /= 2;
    }
    for (index, word) in words.iter().enumerate() {
        let simple = match word.chars().next() {
            Some('\'' | '"') => "''",
            Some(digit) if digit.is_ascii_digit() => "1",
            _ => continue,
        };
        candidates.push(joined(&words, index, index + 1, &[simple.to_owned()]));
    }
    let length = |text: &String| text.len();
    candidates.retain(|shorter| !shorter.trim().is_empty() && shorter.len() < text.len());
    candidates.sort_by_key(length);
    candidates.dedup();
    candidates
}

fn joined(words: &[String], start: usize, end: usize, between: &[String]) -> String {
    let before = words.get(..start).unwrap_or_default();
    let after = words.get(end..).unwrap_or_default();
    [before, between, after].concat().concat()
}

/// Splits a text into names, numbers, quoted strings, white space, and single other characters.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut quote = None;
    for letter in text.chars() {
        let kind = |letter: char| {
            (
                letter.is_alphanumeric() || letter == '_',
                letter.is_whitespace(),
            )
        };
        let extends = match (quote, words.last().and_then(|word| word.chars().last())) {
            (Some(_), _) => true,
            (None, Some(last)) => kind(last) == kind(letter) && kind(letter) != (false, false),
            (None, None) => false,
        };
        match words.last_mut() {
            Some(word) if extends => word.push(letter),
            _ => words.push(letter.to_string()),
        }
        match quote {
            Some(open) if open == letter => quote = None,
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            _ => {}
        }
    }
    words
}

/// The positions where brackets open and close, outermost first.
fn pairs(words: &[String]) -> Vec<(usize, usize)> {
    let mut open = Vec::new();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match word.as_str() {
            "(" | "[" | "{" => open.push(index),
            ")" | "]" | "}" => found.extend(open.pop().map(|start| (start, index))),
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

/// The parts between commas and operators outside inner brackets.
fn split(words: &[String]) -> Vec<Vec<String>> {
    let mut depth = 0_usize;
    let mut parts = vec![Vec::new()];
    for word in words {
        match word.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "," | "&" | "|" | "?" | ":" | "=" | "!" | "<" | ">" | "+" | "-" | "*" | "/" | "%"
                if depth == 0 =>
            {
                parts.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(word.clone());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert_eq!(
            words("claims.a == 'x y'&&f(1)").join("~"),
            "claims~.~a~ ~=~=~ ~'x y'~&~&~f~(~1~)"
        );
    }

    #[test]
    fn parts_are_offered() {
        let found = smaller("(a && size(claims.x) > 1)");
        for wanted in ["a && size(claims.x) > 1", "claims.x", " size(claims.x) "] {
            assert!(
                found.iter().any(|text| text == wanted),
                "{wanted}: {found:?}"
            );
        }
    }
}
