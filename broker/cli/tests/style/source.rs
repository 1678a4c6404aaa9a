//! Rust's files as tokens: enough to find names, the ends of blocks and lines of code.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// One word, number or sign outside of comments. A literal is one token without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// A file of the workspace.
pub(crate) struct SourceFile {
    /// Its path below the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    /// Whether the whole file is for tests and benches.
    pub(crate) fn is_test(&self) -> bool {
        let below = self.path.splitn(3, '/').nth(2).unwrap_or(&self.path);
        let folders = ["tests", "benches", "testing"];
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        self.path.starts_with("integration/tests/")
            || folder.split('/').any(|part| folders.contains(&part))
            || name.ends_with("tests.rs")
            || name == "testing.rs"
    }

    /// The number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// Every Rust file of the product, of its tests and of the harness.
pub(crate) fn workspace_files() -> Vec<SourceFile> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for folder in ["broker", "integration"] {
        collect_paths(&repository.join(folder), &mut paths);
    }
    paths.sort();
    assert!(paths.len() > 500, "only {} files were found", paths.len());
    let files = paths.into_iter().map(|path| SourceFile {
        text: std::fs::read_to_string(&path).unwrap(),
        path: path
            .strip_prefix(&repository)
            .unwrap()
            .display()
            .to_string(),
    });
    files.collect()
}

fn collect_paths(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "node_modules" {
                collect_paths(&path, paths);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// The tokens of a file.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 0);
    while at < bytes.len() {
        let start = at;
        let rest = &text[at..];
        let is_token = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                false
            }
            b'/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                false
            }
            b'/' if rest.starts_with("/*") => {
                at += block_comment_length(rest);
                false
            }
            b'"' => {
                at += string_length(rest);
                true
            }
            b'\'' => {
                at += quote_length(rest);
                true
            }
            byte if is_word(byte) => {
                at += rest.bytes().take_while(|byte| is_word(*byte)).count();
                at += raw_string_length(&text[start..at], &text[at..]);
                true
            }
            _ => {
                at += 1;
                true
            }
        };
        if is_token {
            let text = &text[start..at];
            tokens.push(Token { text, line });
        }
        line += text[start..at].matches('\n').count();
    }
    tokens
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a string with escapes, from its first quote.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character's literal, or of the quote of a lifetime.
fn quote_length(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            characters
                .find(|(_, character)| *character == '\'')
                .map_or(1, |(at, _)| at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// The length of what follows the word before a string: `r#"…"#`, `b"…"`.
fn raw_string_length(word: &str, rest: &str) -> usize {
    if !matches!(word, "r" | "b" | "br" | "c" | "cr") {
        return 0;
    }
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    if !rest[hashes..].starts_with('"') {
        return 0;
    }
    if !word.ends_with('r') {
        return string_length(rest);
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = rest[hashes + 1..].find(&close);
    end.map_or(rest.len(), |end| hashes + 1 + end + close.len())
}

/// The end of the item or block that starts at `start`: behind its closing brace, or behind the
/// first `;` outside of all brackets.
pub(crate) fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth < 0 {
                    return at;
                }
                if depth == 0 && token.text == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The end of the block around `start`.
pub(crate) fn enclosing_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
    }
    tokens.len()
}

/// The items behind `#[cfg(test)]`, as ranges of tokens.
pub(crate) fn test_items(tokens: &[Token<'_>]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (at, window) in tokens.windows(5).enumerate() {
        let words = [0, 1, 2, 3].map(|offset| window[offset].text);
        let gated = words == ["#", "[", "cfg", "("] && ["test", "any"].contains(&window[4].text);
        let close = tokens[at..].iter().position(|token| token.text == "]");
        let Some(close) = close.filter(|_| gated) else {
            continue;
        };
        let attribute = &tokens[at..at + close];
        if !attribute.iter().any(|token| token.text == "test") {
            continue;
        }
        let mut item = at + close + 1;
        // Further attributes belong to the same item.
        while tokens.get(item).is_some_and(|token| token.text == "#") {
            let end = tokens[item..].iter().position(|token| token.text == "]");
            item += end.map_or(1, |end| end + 1);
        }
        ranges.push(at..item_end(tokens, item));
    }
    ranges
}

#[test]
fn literals_and_comments_hold_no_names() {
    let text =
        "let a = 'x'; // let b\nfn f<'a>() { r#\"let \"c\" = 1\"#; /* let /* d */ */ '\\'' }";
    let words: Vec<&str> = tokens(text).iter().map(|token| token.text).collect();
    assert_eq!(
        words,
        [
            "let",
            "a",
            "=",
            "'x'",
            ";",
            "fn",
            "f",
            "<",
            "'",
            "a",
            ">",
            "(",
            ")",
            "{",
            "r#\"let \"c\" = 1\"#",
            ";",
            "'\\''",
            "}"
        ]
    );
}
