//! Prints refusals as cel-go does: with line, column and a pointer into the text.

use crate::check::Issue;

/// The most issues that are printed; further ones are only counted.
const MAX_PRINTED_ISSUES: usize = 100;

/// Prints the messages of the issues, sorted by place. The issues come in the order in which they
/// were found.
pub(crate) fn print_issues(text: &[char], issues: &[Issue]) -> String {
    let mut kept: Vec<&Issue> = issues.iter().take(MAX_PRINTED_ISSUES).collect();
    kept.sort_by_key(|issue| issue.at);
    let mut printed: Vec<String> = kept
        .into_iter()
        .map(|issue| print_issue(text, issue))
        .collect();
    if issues.len() > MAX_PRINTED_ISSUES {
        printed.push(format!(
            "{} more errors were truncated",
            issues.len() - MAX_PRINTED_ISSUES
        ));
    }
    printed.join("\n")
}

fn print_issue(text: &[char], issue: &Issue) -> String {
    if issue.at == Issue::NO_PLACE {
        return format!("ERROR: <input>:-1:0: {}", issue.message);
    }
    let at = usize::try_from(issue.at)
        .unwrap_or(usize::MAX)
        .min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let line = before.iter().filter(|c| **c == '\n').count();
    let start = before.iter().rposition(|c| *c == '\n').map_or(0, |i| i + 1);
    let column = at - start;
    let shown: String = text
        .iter()
        .skip(start)
        .take_while(|c| **c != '\n')
        .map(|c| if *c == '\t' { ' ' } else { *c })
        .collect();
    let dots: String = shown
        .chars()
        .take(column)
        .map(|c| if c.is_ascii() { '.' } else { '．' })
        .collect();
    let pointer = if shown.chars().nth(column).is_some_and(|c| !c.is_ascii()) {
        '＾'
    } else {
        '^'
    };
    format!(
        "ERROR: <input>:{}:{}: {}\n | {shown}\n | {dots}{pointer}",
        line + 1,
        column + 1,
        issue.message
    )
}
