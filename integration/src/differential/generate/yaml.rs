//! Writes configurations as YAML like that of people and generators, and as nearly valid YAML.
//!
//! The tree defines what the file means. This module chooses every detail of the text at random:
//! styles of scalars, indentation, tabs, comments, line ends, keys, flow and block collections,
//! anchors, tags, directives. It may then damage the text.

use crate::differential::node::Node;
use crate::differential::random::Random;

/// Writes a tree as YAML, well formed or nearly so.
pub(crate) fn text(random: &mut Random, tree: &Node) -> String {
    let line_end = if random.percent(90) {
        "\n"
    } else {
        random.pick(&["\r\n", "\r", "\u{85}", "\u{2028}"])
    };
    let mut writer = Writer {
        random,
        out: String::new(),
        line_end,
        anchors: 0,
        odd: 0,
    };
    // Half of the files are written plainly except for their scalars, so that only one thing
    // differs at a time.
    writer.odd = writer.random.one(&[0, 0, 0, 1, 1, 2, 4, 10]);
    if writer.random.percent(15) {
        let before = writer.random.pick(&BEFORE);
        writer.out.push_str(before);
    }
    writer.block(tree, 0);
    if writer.random.percent(12) {
        let after = writer.random.pick(&AFTER);
        writer.out.push_str(after);
    }
    let mut out = writer.out;
    if random.percent(40) {
        for _ in 0..random.one(&[1, 1, 1, 2, 4]) {
            out = damaged(random, &out);
        }
    }
    out
}

struct Writer<'a> {
    random: &'a mut Random,
    out: String,
    line_end: &'static str,
    anchors: usize,
    /// How often, in percent, something is written in an unusual way.
    odd: usize,
}

impl Writer<'_> {
    fn odd(&mut self) -> bool {
        self.random.percent(self.odd)
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes the blank between two tokens of a line.
    fn blank(&mut self) {
        let blank = if self.odd() {
            self.random.pick(&["  ", "\t", " \t", "\t ", "    "])
        } else {
            " "
        };
        self.put(blank);
    }

    /// Ends a line, perhaps with a comment before the end and empty lines after it.
    fn end(&mut self) {
        if self.odd() {
            let comment =
                self.random
                    .pick(&["#c", " # c", "\t#c", " #", "  # ü: [", " ", "\t", "  \t "]);
            self.put(comment);
        }
        self.put(self.line_end);
        if self.odd() {
            let between = self
                .random
                .pick(&["", "# c", "   # c", "\t# c", "\t", "    ", "#"]);
            self.put(between);
            self.put(self.line_end);
        }
    }

    fn pad(&mut self, indent: usize) {
        if self.random.percent(self.odd / 5) {
            let pad = self.random.pick(&["\t", " \t", ""]);
            self.put(pad);
        } else {
            self.put(&" ".repeat(indent));
        }
    }

    /// Writes a collection on its own lines, or a scalar.
    fn block(&mut self, node: &Node, indent: usize) {
        match node {
            Node::Map(entries) if !entries.is_empty() => {
                for (key, value) in entries {
                    self.pad(indent);
                    self.member(key, value, indent);
                }
                if self.odd() {
                    self.pad(indent);
                    let more = self.random.pick(&MEMBERS);
                    self.put(more);
                    self.end();
                }
            }
            Node::List(items) if !items.is_empty() => {
                for item in items {
                    self.pad(indent);
                    self.put("-");
                    self.item(item, indent);
                }
            }
            other => {
                self.pad(indent);
                self.scalar(other, indent, false);
                self.end();
            }
        }
    }

    fn member(&mut self, key: &str, value: &Node, indent: usize) {
        if self.random.percent(self.odd / 3) {
            self.put("?");
            self.blank();
            self.put(key);
            self.end();
            self.pad(indent);
        } else {
            self.key(key);
            if self.odd() {
                self.blank();
            }
        }
        self.put(":");
        self.value(value, indent);
    }

    fn key(&mut self, key: &str) {
        if !self.odd() {
            return self.put(key);
        }
        let written = match self.random.below(7) {
            0 => format!("'{key}'"),
            1 => format!("\"{key}\""),
            2 => format!("!!str {key}"),
            3 => format!("&k {key}"),
            4 => format!(
                "\"\\x{:02x}{}\"",
                key.bytes().next().unwrap_or(b'a'),
                key.get(1..).unwrap_or_default()
            ),
            5 => format!("? {key}"),
            _ => format!(
                "{key}{}",
                self.random.pick(&["'", "#", "?", "-", " x", "\t"])
            ),
        };
        self.put(&written);
    }

    /// Writes the part after a colon.
    fn value(&mut self, node: &Node, indent: usize) {
        if self.properties(node) {
            return;
        }
        let in_flow = self.random.percent(6 + self.odd);
        match node {
            Node::Map(entries) if !entries.is_empty() && !in_flow => {
                self.end();
                let deeper = self.random.one(&[2, 2, 2, 4, 1, 3]);
                self.block(node, indent + deeper);
            }
            Node::List(items) if !items.is_empty() && !in_flow => {
                self.end();
                let deeper = self.random.one(&[0, 0, 2, 2, 4]);
                self.block(node, indent + deeper);
            }
            _ => self.inline(node, indent),
        }
    }

    /// Writes the part after a dash.
    fn item(&mut self, node: &Node, indent: usize) {
        if self.properties(node) {
            return;
        }
        match node {
            Node::Map(entries) if !entries.is_empty() && self.random.percent(90) => {
                self.put(" ");
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        self.pad(indent + 2);
                    }
                    self.member(key, value, indent + 2);
                }
            }
            _ => self.inline(node, indent),
        }
    }

    /// Rarely writes an anchor or a tag. Returns true if it wrote an alias in place of the value.
    fn properties(&mut self, node: &Node) -> bool {
        if !self.odd() {
            return false;
        }
        match self.random.below(6) {
            0 if self.anchors > 0 => {
                let name = self.random.below(self.anchors + 1);
                self.put(&format!(" *a{name}"));
                self.end();
                return true;
            }
            0..=2 => {
                self.put(&format!(" &a{}", self.anchors));
                self.anchors += 1;
            }
            3 => {
                let tag = if matches!(node, Node::Text(_)) {
                    "!!str"
                } else {
                    self.random.pick(&TAGS)
                };
                self.put(&format!(" {tag}"));
            }
            4 => {
                let tag = self.random.pick(&TAGS);
                self.put(&format!(" {tag}"));
            }
            _ => {}
        }
        false
    }

    fn inline(&mut self, node: &Node, indent: usize) {
        self.blank();
        match node {
            Node::Map(_) | Node::List(_) => {
                self.flow(node, indent);
                self.end();
            }
            scalar => {
                self.scalar(scalar, indent, false);
                if !self.out.ends_with(self.line_end) {
                    self.end();
                }
            }
        }
    }

    /// Writes a place in a flow collection where a line may end.
    fn gap(&mut self, indent: usize) {
        if self.odd() {
            match self.random.below(4) {
                0 => self.end(),
                1 => {
                    self.end();
                    let pad = self.random.below(indent + 4);
                    self.put(&" ".repeat(pad));
                }
                2 => {
                    self.end();
                    self.put("\t");
                }
                _ => self.blank(),
            }
        }
    }

    fn flow(&mut self, node: &Node, indent: usize) {
        let (open, close) = if matches!(node, Node::List(_)) {
            ("[", "]")
        } else {
            ("{", "}")
        };
        self.put(open);
        self.gap(indent);
        match node {
            Node::Map(entries) => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.comma(index, indent);
                    if self.random.percent(50) {
                        self.put(&format!("\"{key}\""));
                    } else {
                        self.put(key);
                    }
                    self.gap(indent);
                    let colon = if self.odd() {
                        self.random.pick(&[":", " :", ":\t", " : ", ""])
                    } else {
                        ": "
                    };
                    self.put(colon);
                    self.flow_value(value, indent);
                }
            }
            Node::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.comma(index, indent);
                    self.flow_value(item, indent);
                }
            }
            other => self.scalar(other, indent, true),
        }
        if self.odd() {
            let end = self.random.pick(&[
                ",",
                ", ",
                ",,",
                " # c",
                "?",
                "a: b",
                ", a: b",
                ", ? a : b",
                ", ?",
                ", - a",
            ]);
            self.put(end);
        }
        self.gap(indent);
        self.put(close);
    }

    fn comma(&mut self, index: usize, indent: usize) {
        if index > 0 {
            let comma = if self.odd() {
                self.random.pick(&[",", " ,", ",\t", " , "])
            } else {
                ", "
            };
            self.put(comma);
        }
        self.gap(indent);
    }

    fn flow_value(&mut self, node: &Node, indent: usize) {
        match node {
            Node::Map(_) | Node::List(_) => self.flow(node, indent),
            scalar => self.scalar(scalar, indent, true),
        }
        self.gap(indent);
    }

    fn scalar(&mut self, node: &Node, indent: usize, in_flow: bool) {
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
            0 | 1 if plain_enough(&text) || self.odd() => self.put(&text),
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
        for _ in 0..self.random.one(&[1, 1, 1, 2, 3]) {
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
        let deeper = self.random.one(&[2, 2, 2, 1, 4, 0]);
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
                self.random.one(&[0, 1, 3, 5])
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
    !text.is_empty() && !text.contains([':', '\n', '#']) && text.split(' ').all(plain_enough)
}

fn plain_enough(text: &str) -> bool {
    !text.is_empty()
        && !text.contains([
            ' ', '\n', '#', '\'', '"', '{', '}', '[', ']', ',', '&', '*', '!', '|', '>', '%', '@',
            '`', '?',
        ])
        && !text.ends_with(':')
        && !text.starts_with('-')
}

/// The text with one small change.
fn damaged(random: &mut Random, text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let at = random.below(characters.len() + 1);
    let (before, after) = characters.split_at(at);
    let (before, after): (String, String) = (before.iter().collect(), after.iter().collect());
    match random.below(10) {
        0..=3 => format!("{before}{}{after}", random.pick(&SNIPPETS)),
        4 => format!(
            "{before}{}",
            after.chars().skip(1 + random.below(3)).collect::<String>()
        ),
        5 => lines(random, text, |random, line| {
            let indent = line.len() - line.trim_start_matches(' ').len();
            let other = match random.below(4) {
                0 => " ".repeat(indent + 1),
                1 => " ".repeat(indent.saturating_sub(1)),
                2 => format!("{}\t", " ".repeat(indent)),
                _ => "\t".to_owned(),
            };
            vec![format!("{other}{}", line.trim_start_matches(' '))]
        }),
        6 => lines(random, text, |_, line| {
            vec![line.to_owned(), line.to_owned()]
        }),
        7 => lines(random, text, |_, _| Vec::new()),
        8 => lines(random, text, |random, line| {
            vec![format!("{line}{}", random.pick(&ENDS))]
        }),
        _ => lines(random, text, |random, line| {
            vec![line.to_owned(), random.pick(&LINES).to_owned()]
        }),
    }
}

/// The text with one of its lines changed.
fn lines(
    random: &mut Random,
    text: &str,
    change: impl Fn(&mut Random, &str) -> Vec<String>,
) -> String {
    let all: Vec<&str> = text.split('\n').collect();
    let chosen = random.below(all.len());
    let mut out = Vec::new();
    for (index, line) in all.into_iter().enumerate() {
        if index == chosen {
            out.extend(change(random, line))
        } else {
            out.push(line.to_owned())
        }
    }
    out.join("\n")
}

const BEFORE: [&str; 20] = [
    "---\n",
    "--- # c\n",
    "# c\n",
    "\u{feff}",
    "\u{feff}\u{feff}",
    "\n\u{feff}",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "%YAML 1.1 # c\n--- \n",
    "%TAG !e! tag:e,2000:\n---\n",
    "%TAG !! tag:yaml.org,2002:\n--- !!map\n",
    "%FOO\n---\n",
    "\n\n",
    "\t\n",
    " \n",
    "...\n",
    "--- !!map\n",
    "--- &root\n",
    "---\n---\n",
    "\u{2028}",
];

const AFTER: [&str; 26] = [
    "---\nkind: Other\n",
    "--- { not yaml",
    "...\n",
    "...\ngarbage: [\n",
    "# c",
    "\t",
    "}\n",
    "]\n",
    "x\n",
    "x: \"\n",
    "unknown: 1\n",
    "\tx: 1\n",
    "<<: {a: 1}\n",
    "<<: [{a: 1}, {jwt: []}]\n",
    "<<: x\n",
    "x: &a {b: 1}\ny: *a\n",
    "x: &a {b: 1}\n<<: *a\n",
    "x: &a [*a]\n",
    "x: *none\n",
    "1: x\n1: y\n",
    "? [a]\n: b\n",
    "? {a: 1}\n",
    "---\n\u{0}",
    "x: .inf\n",
    "\u{7f}",
    "kind: AuthenticationConfiguration\n",
];

/// Map members with a key that is not a string, or with a value that YAML 1.1 reads differently.
const MEMBERS: [&str; 40] = [
    "1: x",
    "0x10: x",
    "1.5: x",
    "1e6: x",
    "-0.0: x",
    "1e-7: {}",
    "100000000000: x",
    "18446744073709551615: x",
    "yes: x",
    "on: x",
    "~: x",
    "null: [1]",
    ".inf: x",
    "2001-01-01: x",
    "a: .nan",
    "a: -.inf",
    "a: {{ b }}",
    "{{ a }}: b",
    "[a, 1, true, ~]: b",
    "? {a: 1, b: [x, ~]}",
    "a: !!int x",
    "a: !!float 1",
    "a: !!bool \"yes\"",
    "a: !!null x",
    "a: !!binary aGk=",
    "a: !!binary \"!\"",
    "a: !!timestamp 2001-01-01",
    "a: !!timestamp 2001-13-01",
    "a: !!set {x}",
    "a: !foo x",
    "a: !e!x y",
    "a: !<tag:yaml.org,2002:int> \"1\"",
    "<<: {url: x}",
    "<<: [{a: 1}, {a: 2}]",
    "\"<<\": x",
    "!!merge <<: {a: 1}",
    "a: <<",
    "a: 0o17",
    "a: 1_000",
    "a: 09",
];

const TAGS: [&str; 12] = [
    "!!str", "!!map", "!!seq", "!!int", "!!null", "!!binary", "!", "!foo", "!e!x", "!<x>", "!!",
    "!%41",
];

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

const SNIPPETS: [&str; 48] = [
    " ", "  ", "\t", "\n", "\n\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{feff}", ":", ": ",
    ":\t", "#", " #", "-", "- ", "-\t", "?", "? ", "'", "\"", "\\", "\\\n", "[", "]", "{", "}",
    ",", "&a ", "*a", "!", "!!str ", "|", ">", "|\n", "%", "@", "`", "\n---\n", "\n...\n", "\u{0}",
    "\u{7f}", "x: y", "\nx", "\n x: y", "\n\tx", "<<: ",
];

const ENDS: [&str; 16] = [
    "#c", " #c", "\t#c", " ", "\t", ":", " :", ": x", " x", ",", "'", "\"", "|", " |", "\\", " &a",
];

const LINES: [&str; 16] = [
    "",
    "\t",
    "# c",
    "x",
    "x:",
    "  x: y",
    "- x",
    "  - x",
    ": x",
    "? x",
    "---",
    "...",
    "\u{feff}x: y",
    "\"x\" : y",
    "'x\ny': z",
    "x: 'a\nb'",
];
