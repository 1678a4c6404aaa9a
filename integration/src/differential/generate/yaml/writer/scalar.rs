//! Writes scalars as YAML: plain, quoted, folded or as a block.

use super::Writer;
use crate::differential::node::Node;

impl Writer<'_> {
    pub(super) fn scalar(&mut self, node: &Node, indent: usize, in_flow: bool) {
        let text = match node {
            Node::Text(text) if self.random.percent(2 + self.odd / 2) => {
                let other = self.random.pick(&TEXTS);
                if self.random.percent(50) {
                    format!("{text}{other}")
                } else {
                    other.to_owned()
                }
            }
            Node::Text(text) => text.clone(),
            other => return self.put(&other.json()),
        };
        match self.random.below(if in_flow { 6 } else { 10 }) {
            0 | 1 if is_plain_word(&text) || self.odd() => self.put(&text),
            0..=2 => self.quoted(&text.replace('\'', "''"), "'", indent),
            3 | 4 => {
                let json = serde_json::Value::from(text).to_string();
                let inner = json
                    .get(1..json.len().saturating_sub(1))
                    .unwrap_or_default()
                    .to_owned();
                self.quoted(&inner, "\"", indent);
            }
            5 => self.put(&serde_json::Value::from(text).to_string()),
            6 | 7 if folds_plainly(&text) || self.odd() => self.folded_plain(&text, indent),
            6 | 7 => self.quoted(&text.replace('\'', "''"), "'", indent),
            _ => self.block_scalar(&text, indent),
        }
    }

    /// Writes quoted text. Its blanks may become line ends, with any indentation.
    fn quoted(&mut self, text: &str, quote: &str, indent: usize) {
        self.put(quote);
        for (index, part) in text.split(' ').enumerate() {
            if index > 0 {
                self.fold(indent, quote == "\"");
            }
            self.put(part);
        }
        if self.random.percent(self.odd / 2) {
            self.fold(indent, quote == "\"");
        }
        self.put(quote);
        if self.odd() {
            let after = self.random.pick(&[
                "#c", "\t", "x", " x", ":", ": x", " : x", "\t# c", ",", "'", "\"",
            ]);
            self.put(after);
        }
    }

    fn fold(&mut self, indent: usize, double: bool) {
        if !self.random.percent(25 + self.odd) {
            return self.put(" ");
        }
        if double && self.random.percent(15) {
            self.put("\\");
        }
        let trailing = self.random.pick(&["", "", "", " ", "\t"]);
        self.put(trailing);
        for _ in 0..self.random.pick_copied(&[1, 1, 1, 2, 3]) {
            self.put(self.line_end);
        }
        let pad = if self.random.percent(70) {
            indent + 2
        } else {
            self.random.below(indent + 3)
        };
        self.put(&" ".repeat(pad));
        if self.random.percent(6) {
            let start = self
                .random
                .pick(&["\t", "# ", "- ", "--- ", "... ", "a: ", ": "]);
            self.put(start);
        }
    }

    fn folded_plain(&mut self, text: &str, indent: usize) {
        for (index, part) in text.split(' ').enumerate() {
            if index > 0 {
                self.fold(indent, false);
            }
            self.put(part);
        }
    }

    fn block_scalar(&mut self, text: &str, indent: usize) {
        let style = self.random.pick(&["|", "|-", "|+", ">", ">-", ">+"]);
        self.put(style);
        let deeper = self.random.pick_copied(&[2, 2, 2, 1, 4, 0]);
        if self.odd() {
            let hint = self.random.pick(&[
                "1", "2", "4", "0", "9", "-1", "+2", "x", " x", " # c", "#c", "\t",
            ]);
            self.put(hint);
        }
        self.put(self.line_end);
        for line in text.split([' ', '\n']) {
            if self.odd() {
                let between = self.random.pick(&["", "  ", "\t", "      ", "#", " # c"]);
                self.put(between);
                self.put(self.line_end);
            }
            let shifted = if self.odd() {
                self.random.pick_copied(&[0, 1, 3, 5])
            } else {
                0
            };
            self.put(&" ".repeat(indent + deeper + shifted));
            if self.random.percent(self.odd / 3) {
                self.put("\t");
            }
            self.put(line);
            self.put(self.line_end);
        }
    }
}

/// Whether the text keeps its meaning as a plain scalar of several lines.
fn folds_plainly(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '\n', '#']) && text.split(' ').all(is_plain_word)
}

fn is_plain_word(text: &str) -> bool {
    !text.is_empty()
        && !text.contains([
            ' ', '\n', '#', '\'', '"', '{', '}', '[', ']', ',', '&', '*', '!', '|', '>', '%', '@',
            '`', '?',
        ])
        && !text.ends_with(':')
        && !text.starts_with('-')
}

/// Values of strings. Some have another meaning when they are plain.
const TEXTS: [&str; 32] = [
    "a b c",
    "a  b",
    " a",
    "a ",
    "a: b",
    "a #b",
    "a# b",
    "#a",
    "- a",
    "a\tb",
    "a\nb\n\nc",
    "yes",
    "off",
    "~",
    "0777",
    "1e3",
    "0x1f",
    "1_0",
    "2001-01-01",
    "it's",
    "say \"x\"",
    "back\\slash",
    "ü \u{1f600} x",
    "\u{85}a",
    "a\u{2028}b",
    "a\u{feff}b",
    "[a, b]",
    "{a: b}",
    "a?b",
    "?a",
    ":a",
    "-a",
];
