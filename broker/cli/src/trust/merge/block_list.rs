//! A file in YAML's block style, and the places where its `jwt` list can be changed.

use keyferry_kube_authn::config::Loaded;

use super::flow_text::FlowText;
use crate::trust::indented;

/// The most places that are tried for the end of an empty list.
const MAX_PLACES: usize = 16;

/// The text of a file, and where its list is.
pub(super) struct BlockText<'a> {
    text: &'a str,
    line_end: &'static str,
    /// The lines of the first document, each with its end.
    lines: Vec<&'a str>,
    /// The line of the key `jwt`, from 0.
    key: Option<usize>,
    /// Whether the list has no entry.
    is_empty: bool,
}

impl<'a> BlockText<'a> {
    pub(super) fn of(text: &'a str, loaded: &Loaded) -> Self {
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        let has_content = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        // A `---` before any content only begins the document.
        let first = all.iter().position(has_content).unwrap_or(0);
        let end = all
            .iter()
            .enumerate()
            .skip(first + 1)
            .find(|(_, line)| is_document_end(line))
            .map_or(all.len(), |(index, _)| index);
        let key = loaded
            .positions
            .get("jwt")
            .and_then(|position| usize::try_from(position.line).ok()?.checked_sub(1));
        Self {
            text,
            line_end: if text.contains("\r\n") { "\r\n" } else { "\n" },
            lines: all.into_iter().take(end).collect(),
            key,
            is_empty: loaded.configuration.jwt.is_empty(),
        }
    }

    /// Returns candidates for the file with one more entry.
    pub(super) fn with_entry(&self, entry: &str) -> Vec<String> {
        match self.key {
            None => self.with_section(&format!("jwt:\n{entry}")),
            Some(key) if self.is_empty => self.with_first_entry(key, entry),
            Some(key) => match self.items(key) {
                Some(items) => {
                    let added = indented(entry, items.indent);
                    items
                        .ends
                        .iter()
                        .map(|end| self.spliced(*end, *end, &added))
                        .collect()
                }
                None => Vec::new(),
            },
        }
    }

    /// Returns candidates for the file with a section at the end of its document.
    pub(super) fn with_section(&self, section: &str) -> Vec<String> {
        let content = self
            .lines
            .iter()
            .rposition(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
            .map_or(0, |last| last + 1);
        [content, self.lines.len()]
            .into_iter()
            .map(|at| self.spliced(at, at, section))
            .collect()
    }

    /// Returns candidates for the file with an entry in its empty list, however that is written.
    fn with_first_entry(&self, key: usize, entry: &str) -> Vec<String> {
        let line = self.lines.get(key).copied().unwrap_or_default();
        let Some(colon) = line.find(':') else {
            return Vec::new();
        };
        let (name, value) = line.split_at(colon + 1);
        // A comment stays; everything else is the empty list.
        let comment = value
            .find(" #")
            .map_or("", |at| value.get(at..).unwrap_or_default());
        let list = format!("{name}{}\n{}", comment.trim_end(), indented(entry, 2));
        let last = self.lines.len().min(key + 1 + MAX_PLACES);
        (key + 1..=last)
            .map(|end| self.spliced(key, end, &list))
            .collect()
    }

    /// Returns candidates for the file with an entry instead of the one at this index.
    pub(super) fn replacing_entry(&self, index: usize, entry: &str) -> Vec<String> {
        let Some(items) = self.key.and_then(|key| self.items(key)) else {
            return Vec::new();
        };
        let Some(start) = items.starts.get(index).copied() else {
            return Vec::new();
        };
        let new = indented(entry, items.indent);
        let ends = match items.starts.get(index + 1) {
            // Comments before the next entry are about that one.
            Some(next) => vec![self.before_comments(start, *next), *next],
            None => items.ends.to_vec(),
        };
        ends.into_iter()
            .map(|end| self.spliced(start, end, &new))
            .collect()
    }

    /// The list in flow style, if it is written so.
    pub(super) fn flow_list(&self) -> Option<FlowText<'a>> {
        let before: usize = self
            .lines
            .iter()
            .take(self.key?)
            .map(|line| line.len())
            .sum();
        let line = self.lines.get(self.key?)?;
        FlowText::of_list(self.text, before + line.find(':')? + 1)
    }

    /// Finds the entries of a list whose key is in this line.
    fn items(&self, key: usize) -> Option<Items> {
        let mut items: Option<Items> = None;
        for (index, line) in self.lines.iter().enumerate().skip(key + 1) {
            let shown = line.trim();
            let indent = line.len() - line.trim_start_matches(' ').len();
            let dash = shown == "-" || shown.starts_with("- ");
            match &mut items {
                _ if shown.is_empty() => continue,
                None if shown.starts_with('#') => continue,
                None if dash => {
                    items = Some(Items {
                        indent,
                        starts: vec![index],
                        ends: [index + 1; 2],
                    });
                }
                None => return None,
                Some(items) if dash && indent == items.indent => {
                    items.starts.push(index);
                    items.ends = [index + 1; 2];
                }
                Some(items) if indent > items.indent => items.ends = [index + 1; 2],
                // A comment beside the list belongs to what follows.
                Some(_) if shown.starts_with('#') => continue,
                Some(found) => {
                    found.ends[1] = self.before_comments(found.ends[0], index);
                    return items;
                }
            }
        }
        // The second place is for a text block that keeps empty lines.
        items.map(|mut items| {
            items.ends[1] = self.before_comments(items.ends[0], self.lines.len());
            items
        })
    }

    /// Returns the first line of the comments that end before a line.
    fn before_comments(&self, from: usize, to: usize) -> usize {
        let mut start = to;
        while start > from
            && self
                .lines
                .get(start - 1)
                .is_some_and(|line| line.trim().starts_with('#'))
        {
            start -= 1;
        }
        start
    }

    /// Returns the text with other lines instead of those from `start` up to `end`.
    fn spliced(&self, start: usize, end: usize, lines: &str) -> String {
        let offset =
            |line: usize| -> usize { self.lines.iter().take(line).map(|line| line.len()).sum() };
        let head = self.text.get(..offset(start)).unwrap_or_default();
        let tail = self.text.get(offset(end)..).unwrap_or_default();
        let lines = lines.replace('\n', self.line_end);
        let head_end = if head.is_empty() || head.ends_with('\n') {
            ""
        } else {
            self.line_end
        };
        format!("{head}{head_end}{lines}{tail}")
    }
}

/// The entries of a block list.
struct Items {
    /// The indentation of their dashes.
    indent: usize,
    /// The first line of each.
    starts: Vec<usize>,
    /// The line after the last entry: after its last line with content, and before the comments of
    /// what follows.
    ends: [usize; 2],
}

/// Whether a line ends a document or starts the next.
fn is_document_end(line: &str) -> bool {
    let line = line.trim_end();
    line == "---" || line == "..." || line.starts_with("--- ")
}
