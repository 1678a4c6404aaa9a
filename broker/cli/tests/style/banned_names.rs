//! Names that say nothing alone: a reader meets them in a stack trace, a list or a call, far from
//! the line that explains them.

use std::collections::BTreeSet;
use std::fmt;

use super::source::{Token, enclosing_end, item_end, tokens, workspace_files};
use super::table::read_rows;

/// A variable that is forgotten after this many lines needs no more than a word.
const SHORT_LIFE_LINES: usize = 15;
/// Neither product nor harness: a bench is read with the report that it prints.
const BENCHES: &str = "broker/cli/benches/";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameKind {
    Function,
    Constant,
    /// A field of a struct.
    Field,
    /// A `let` that lives for more than [`SHORT_LIFE_LINES`].
    Variable,
}

impl fmt::Display for NameKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Function => "function",
            Self::Constant => "constant",
            Self::Field => "field",
            Self::Variable => "variable",
        })
    }
}

struct DefinedName<'a> {
    kind: NameKind,
    name: &'a str,
    line: usize,
}

/// What a file names, without short-lived variables.
fn defined_names<'a>(tokens: &[Token<'a>]) -> Vec<DefinedName<'a>> {
    let mut names = Vec::new();
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token<'a>| token.text);
    for at in 0..tokens.len() {
        let mutable = usize::from(text(at + 1) == "mut");
        let name_at = at + 1 + mutable;
        let next = text(name_at + 1);
        let kind = match tokens[at].text {
            "fn" if is_name(text(name_at)) => NameKind::Function,
            "const" | "static" if next == ":" && is_name(text(name_at)) => NameKind::Constant,
            "let" if [":", "=", ";"].contains(&next) && outlives(tokens, name_at) => {
                NameKind::Variable
            }
            "struct" => {
                names.extend(field_names(tokens, at));
                continue;
            }
            _ => continue,
        };
        let Token { text: name, line } = tokens[name_at];
        names.push(DefinedName { kind, name, line });
    }
    names
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Whether the last use of the variable is more than [`SHORT_LIFE_LINES`] below.
fn outlives(tokens: &[Token<'_>], name_at: usize) -> bool {
    let name = tokens[name_at];
    let block = &tokens[name_at..enclosing_end(tokens, name_at)];
    let last = block.iter().rfind(|token| token.text == name.text);
    last.is_some_and(|last| last.line - name.line >= SHORT_LIFE_LINES)
}

fn field_names<'a>(tokens: &[Token<'a>], start: usize) -> Vec<DefinedName<'a>> {
    let mut names = Vec::new();
    let mut depth = 0;
    for at in start..item_end(tokens, start) {
        match tokens[at].text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            ":" if depth == 1 => {
                let path = tokens[at - 1].text == ":"
                    || tokens.get(at + 1).is_some_and(|next| next.text == ":");
                let Token { text: name, line } = tokens[at - 1];
                if !path && is_name(name) {
                    let kind = NameKind::Field;
                    names.push(DefinedName { kind, name, line });
                }
            }
            _ => {}
        }
    }
    names
}

#[test]
fn no_name_is_a_riddle() {
    let banned = read_rows("banned.tsv");
    let exceptions: BTreeSet<(String, String)> = read_rows("exceptions.tsv")
        .into_iter()
        .map(|[path, name, _]| (path, name))
        .collect();
    let mut used = BTreeSet::new();
    let mut riddles = Vec::new();
    let files = workspace_files().into_iter();
    for file in files.filter(|file| !file.path.starts_with(BENCHES)) {
        for DefinedName { kind, name, line } in defined_names(&tokens(&file.text)) {
            let rule = banned.iter().find(|[kinds, banned_name, _]| {
                banned_name == name && kinds.split(' ').any(|word| word == kind.to_string())
            });
            let Some([_, _, instead]) = rule else {
                continue;
            };
            let exception = (file.path.clone(), name.to_owned());
            if exceptions.contains(&exception) {
                used.insert(exception);
            } else {
                let place = format!("{}:{}", file.path, line + 1);
                riddles.push(format!("{place}: the {kind} `{name}`: write {instead}"));
            }
        }
    }
    assert!(
        riddles.is_empty(),
        "{} names say nothing alone. fix: rename them, or add a row with the reason to \
         broker/cli/tests/style/exceptions.tsv\n{}",
        riddles.len(),
        riddles.join("\n")
    );
    let unneeded: Vec<_> = exceptions.difference(&used).collect();
    assert!(
        unneeded.is_empty(),
        "fix: remove these rows from exceptions.tsv, nothing needs them: {unneeded:?}"
    );
}

#[test]
fn every_exception_says_why() {
    for [path, name, reason] in read_rows("exceptions.tsv") {
        assert!(reason.len() > 10, "{path} {name}: {reason:?}");
    }
    for [kinds, name, instead] in read_rows("banned.tsv") {
        let known = ["function", "constant", "field", "variable"];
        assert!(
            kinds.split(' ').all(|kind| known.contains(&kind)) && !instead.is_empty(),
            "{name}: {kinds:?}, {instead:?}"
        );
    }
}

#[test]
fn names_are_found_by_their_kind() {
    let text = "struct S { pub(crate) a: std::io::Error, b: fn(c: u8) } const D: u8 = 1;\n\
                fn f(g: u8) { let mut short = 1; short += 1; let long = 2; \n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\
                long }";
    let tokens = tokens(text);
    let names = defined_names(&tokens);
    let names: Vec<String> = names
        .iter()
        .map(|name| format!("{} {}", name.kind, name.name))
        .collect();
    assert_eq!(
        names,
        [
            "field a",
            "field b",
            "constant D",
            "function f",
            "variable long"
        ]
    );
}
