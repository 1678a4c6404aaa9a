//! Writes block and flow collections as YAML, each detail in a style that is chosen at random.

mod scalar;

use crate::differential::node::Node;
use crate::random::Random;

pub(super) struct Writer<'a> {
    pub(super) random: &'a mut Random,
    pub(super) out: String,
    pub(super) line_end: &'static str,
    pub(super) anchors: usize,
    /// How often, in percent, something is written in an unusual way.
    pub(super) odd: usize,
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
    pub(super) fn block(&mut self, node: &Node, indent: usize) {
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
                let deeper = self.random.pick_copied(&[2, 2, 2, 4, 1, 3]);
                self.block(node, indent + deeper);
            }
            Node::List(items) if !items.is_empty() && !in_flow => {
                self.end();
                let deeper = self.random.pick_copied(&[0, 0, 2, 2, 4]);
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
}

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
