//! Where a file inside another one is written, so that its lines can be named in the outer one.

use keyferry_go_formats::json::Json;
use keyferry_go_formats::yaml::{self, Position};
use serde_json::{Map, Number, Value};

/// How the lines of an inner file are written in the outer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InnerLines {
    /// Line for line, after so many lines and with so many characters before each.
    Shifted { lines: u64, columns: u64 },
    /// In another way, like base64 or with escapes, from this line on, if it is known.
    Elsewhere { line: Option<u64> },
}

impl InnerLines {
    /// The file itself.
    pub(super) const fn outer() -> Self {
        Self::after(0, 0)
    }

    pub(super) const fn after(lines: usize, columns: usize) -> Self {
        Self::Shifted {
            lines: lines as u64,
            columns: columns as u64,
        }
    }

    pub(super) const fn on(line: Option<u64>) -> Self {
        Self::Elsewhere { line }
    }

    /// Returns how the lines are written in the outer file, for `inner` in a file that is written
    /// as `self`.
    pub(super) fn within(self, inner: Self) -> Self {
        match (self, inner) {
            (
                Self::Shifted { lines, columns },
                Self::Shifted {
                    lines: more,
                    columns: further,
                },
            ) => Self::Shifted {
                lines: lines + more,
                columns: columns + further,
            },
            (Self::Shifted { lines, .. }, Self::Elsewhere { line }) => Self::Elsewhere {
                line: line.map(|line| line + lines),
            },
            (elsewhere, _) => elsewhere,
        }
    }

    /// Returns the line and the column of the outer file.
    pub(crate) fn outer_position(
        self,
        line: Option<u64>,
        column: Option<u64>,
    ) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Shifted { lines, columns } => (
                line.map(|line| line + lines),
                column.map(|column| column + columns),
            ),
            Self::Elsewhere { line } => (line, None),
        }
    }
}

/// Returns the line of a field.
pub(super) fn line_of(document: &yaml::Document, path: &str) -> Option<u64> {
    document
        .positions
        .get(path)
        .map(|Position { line, .. }| *line)
}

/// Finds the lines of a text in a literal block, which follow the line of its key.
pub(super) fn of_text(
    outer: &str,
    document: &yaml::Document,
    path: &str,
    text: &str,
) -> InnerLines {
    let line = line_of(document, path);
    let Some(key) = line.and_then(|line| usize::try_from(line).ok()) else {
        return InnerLines::on(None);
    };
    let written: Vec<&str> = outer.lines().skip(key).collect();
    let indent = written
        .iter()
        .find(|line| !line.trim().is_empty())
        .map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
    let same = |(inner, outer): (&str, Option<&&str>)| {
        outer.is_some_and(|outer| {
            let outer = outer.get(indent.min(outer.len())..).unwrap_or_default();
            outer.trim_end() == inner.trim_end()
        })
    };
    let all_same = text
        .trim_end()
        .lines()
        .enumerate()
        .all(|(index, line)| same((line, written.get(index))));
    if all_same {
        InnerLines::after(key, indent)
    } else {
        InnerLines::on(line)
    }
}

/// Returns an object of a document as a file, and its lines: those below its key without their
/// indentation, if they mean the same, else its JSON.
pub(super) fn of_object(
    outer: &str,
    document: &yaml::Document,
    path: &str,
    value: &Json,
) -> (Vec<u8>, InnerLines) {
    let line = line_of(document, path);
    let as_json = || {
        (
            to_value(value).to_string().into_bytes(),
            InnerLines::on(line),
        )
    };
    let Some(key) = line.and_then(|line| usize::try_from(line).ok()) else {
        return as_json();
    };
    let blank = |line: &&str| line.trim().is_empty();
    let indent_of = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let below: Vec<&str> = outer.lines().skip(key).collect();
    let Some(indent) = below
        .iter()
        .find(|line| !blank(line))
        .map(|line| indent_of(line))
    else {
        return as_json();
    };
    let lines: Vec<&str> = below
        .into_iter()
        .take_while(|line| blank(line) || indent_of(line) >= indent)
        .map(|line| line.get(indent.min(line.len())..).unwrap_or_default())
        .collect();
    let text = format!("{}\n", lines.join("\n").trim_end());
    let same = yaml::read(text.as_bytes()).is_ok_and(|read| read.value == *value);
    if same && indent > 0 {
        (text.into_bytes(), InnerLines::after(key, indent))
    } else {
        as_json()
    }
}

fn to_value(value: &Json) -> Value {
    match value {
        Json::Null | Json::Deep(_) => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => digits
            .parse::<Number>()
            .map_or_else(|_| Value::String(digits.clone()), Value::Number),
        Json::Text(text) => Value::String(text.clone()),
        Json::List(items) => items.iter().map(to_value).collect(),
        Json::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), to_value(member)))
            .collect::<Map<_, _>>()
            .into(),
    }
}
