//! Files and functions beyond the usual size, each with the reason why it is one thing.
//!
//! `KEYFERRY_WRITE_COPIES=1` writes the table: rows that nothing needs any more go, and a new row
//! has no reason until somebody writes it, which a test demands.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{SourceFile, Token, item_end, test_items, tokens, workspace_files};
use super::table::{read_rows, table_path};

/// Beyond it a file is more than one noun, unless its row says which one it is.
const MAX_FILE_LINES: usize = 600;
/// Beyond it a function does more than one thing. Blank lines and comments do not count.
const MAX_FUNCTION_LINES: usize = 70;
/// The name in the row of a whole file.
const WHOLE_FILE: &str = "-";
const WRITE_COMMAND: &str =
    "KEYFERRY_WRITE_COPIES=1 cargo test --workspace --locked --test style -- budget";

/// What is over its budget: path and name, with its lines.
fn over_budget() -> BTreeMap<(String, String), usize> {
    let mut over = BTreeMap::new();
    for file in workspace_files() {
        if file.lines() > MAX_FILE_LINES {
            let key = (file.path.clone(), WHOLE_FILE.to_owned());
            over.insert(key, file.lines());
        }
        if !file.is_test() {
            over.extend(long_functions(&file));
        }
    }
    over
}

/// The long functions of a file. Tests are lists of cases, so they may be long.
fn long_functions(file: &SourceFile) -> Vec<((String, String), usize)> {
    let tokens = tokens(&file.text);
    let tests = test_items(&tokens);
    let mut long = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if pair[0].text != "fn" || tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let lines = code_lines(&tokens[at..item_end(&tokens, at)]);
        if lines > MAX_FUNCTION_LINES {
            long.push(((file.path.clone(), pair[1].text.to_owned()), lines));
        }
    }
    long
}

fn code_lines(tokens: &[Token<'_>]) -> usize {
    let mut lines = BTreeSet::new();
    for token in tokens {
        let last = token.line + token.text.matches('\n').count();
        lines.extend(token.line..=last);
    }
    lines.len()
}

#[test]
fn budget_names_what_is_long() {
    let over = over_budget();
    let rows = read_rows("budget.tsv");
    let listed: BTreeSet<(String, String)> = rows
        .iter()
        .map(|[path, name, _]| (path.clone(), name.clone()))
        .collect();
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        write_budget(&over, &rows);
        return;
    }
    let new: Vec<String> = over
        .iter()
        .filter(|(key, _)| !listed.contains(key))
        .map(|((path, name), lines)| format!("{path} {name}: {lines} lines"))
        .collect();
    assert!(
        new.is_empty(),
        "longer than {MAX_FILE_LINES} lines a file or {MAX_FUNCTION_LINES} a function. fix: split \
         it where a reader would, or say in broker/cli/tests/style/budget.tsv why it is one \
         thing\n{}",
        new.join("\n")
    );
    let unneeded: Vec<_> = listed
        .iter()
        .filter(|key| !over.contains_key(key))
        .collect();
    assert!(
        unneeded.is_empty(),
        "no longer over the budget. fix: {WRITE_COMMAND}\n{unneeded:?}"
    );
}

fn write_budget(over: &BTreeMap<(String, String), usize>, rows: &[[String; 3]]) {
    let mut text =
        "# Files over 600 lines (-) and functions over 70: path, name, why it is one thing\n"
            .to_owned();
    for (path, name) in over.keys() {
        let row = rows.iter().find(|row| row[0] == *path && row[1] == *name);
        let reason = row.map_or("", |row| &row[2]);
        text.push_str(&format!("{path}\t{name}\t{reason}\n"));
    }
    std::fs::write(table_path("budget.tsv"), text).unwrap();
}

#[test]
fn budget_rows_say_why() {
    let silent: Vec<[String; 3]> = read_rows("budget.tsv")
        .into_iter()
        .filter(|[_, _, reason]| reason.len() < 15)
        .collect();
    assert!(
        silent.is_empty(),
        "fix: say in budget.tsv why each is one thing: {silent:?}"
    );
}
