//! Makes texts that lack one part of a given text.

/// Every text without some of its lines, and without a run of characters if few remain. Those that
/// remove most come first.
pub(super) fn smaller(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    let mut found = without_runs(&lines);
    if characters.len() <= 200 {
        found.extend(without_runs(&characters));
    }
    found
}

/// Removes halves, quarters and so on, down to single parts.
fn without_runs(parts: &[&str]) -> Vec<String> {
    let mut candidates = Vec::new();
    let mut length = parts.len() / 2;
    while length > 0 {
        for start in (0..parts.len()).step_by(length) {
            let gone = start..start + length;
            candidates.push(
                parts
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| !gone.contains(index))
                    .map(|(_, part)| *part)
                    .collect(),
            );
        }
        length /= 2;
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_first_and_then_characters() {
        let found = smaller("ab\nc\n");
        assert_eq!(found.first().map(String::as_str), Some("c\n"));
        assert!(found.contains(&"a\nc\n".to_owned()));
        assert!(smaller("").is_empty());
    }
}
