//! Objects of a hub in YAML or JSON: a stream of documents, each an object or a list. They are read
//! one by one, so that a list of the whole hub is never in memory as a tree.

use std::cell::Cell;
use std::fmt;

use keyferry_api::config::ReducedObject;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::MergeKeyPolicy;

/// The most events of a YAML document: more than any document of the largest folder has.
const MAX_EVENTS: usize = 200_000_000;

/// What is wrong with a document of a stream. Objects before it were read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The text is not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The document cannot be parsed, or one of its items is not an object.
    ///
    /// A parser's message may repeat a value, so nothing of it is kept.
    #[error("line {line}: it is not YAML or JSON of objects")]
    Unreadable {
        /// The line of the file.
        line: u64,
    },
    /// The document ends before its end.
    #[error("it ends in the middle of an object or a list")]
    Cut,
    /// The list is one page of several.
    #[error("a list is one page of several")]
    OnePage,
}

impl StreamError {
    /// Whether the last object of the stream may be half an object.
    pub fn cuts_the_last_object(&self) -> bool {
        matches!(self, Self::Cut)
    }
}

/// Reads all objects of a text. Each is given to `sink` as soon as it was read.
///
/// # Errors
/// [`StreamError`] of the first document that cannot be read; the rest is not read.
pub fn read_objects(bytes: &[u8], mut sink: impl FnMut(ReducedObject)) -> Result<(), StreamError> {
    let text = std::str::from_utf8(bytes).map_err(|_| StreamError::NotUtf8)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for document in documents(text) {
        read_document(&document, &mut sink)?;
    }
    Ok(())
}

/// One document, and how many lines of the file are before it.
struct Document<'a> {
    text: &'a str,
    lines_before: u64,
}

/// Splits a stream at its markers. In YAML these begin a line nowhere else.
fn documents(text: &str) -> impl Iterator<Item = Document<'_>> {
    let (mut start, mut lines_before, mut line_number) = (0, 0, 0);
    let mut parts = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if bare == "---" || bare == "..." || line.starts_with("--- ") {
            parts.push((start..offset, lines_before));
            // Content may follow a marker on its line.
            start = offset + 3;
            lines_before = line_number;
        }
        offset += line.len();
        line_number += 1;
    }
    parts.push((start..offset, lines_before));
    parts.into_iter().filter_map(move |(range, lines_before)| {
        let text = text.get(range)?;
        let is_content = |line: &str| !line.is_empty() && !line.starts_with('#');
        text.lines()
            .any(|line| is_content(line.trim()))
            .then_some(Document { text, lines_before })
    })
}

fn read_document(
    document: &Document<'_>,
    sink: &mut dyn FnMut(ReducedObject),
) -> Result<(), StreamError> {
    // Only a list has this member, so most single objects are parsed once.
    if document.text.contains("items") {
        let shape = Cell::new(DocumentShape::default());
        parse(
            document,
            ListSeed {
                sink,
                shape: &shape,
            },
        )?;
        let shape = shape.into_inner();
        if shape.has_items {
            return match shape {
                DocumentShape { is_list: false, .. } => Err(StreamError::Cut),
                DocumentShape { is_page: true, .. } => Err(StreamError::OnePage),
                _ => Ok(()),
            };
        }
    }
    let object = parse(document, ObjectSeed)?;
    sink(object);
    Ok(())
}

fn parse<'de, S: DeserializeSeed<'de>>(
    document: &Document<'de>,
    seed: S,
) -> Result<S::Value, StreamError> {
    let text = document.text;
    if is_json(text) {
        let mut json = serde_json::Deserializer::from_str(text);
        let read = seed
            .deserialize(&mut json)
            .and_then(|value| json.end().map(|()| value));
        return read.map_err(|error| match error.is_eof() {
            true => StreamError::Cut,
            false => StreamError::Unreadable {
                line: document.lines_before + u64::try_from(error.line()).unwrap_or_default(),
            },
        });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_documents: 1,
            max_depth: 64,
            max_aliases: 64,
            max_anchors: 64,
            max_total_scalar_bytes: usize::MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000, max_replay_stack_depth: 4 },
        legacy_octal_numbers: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        seed.deserialize(yaml)
    })
    .map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        // The parser's position is that in the document.
        StreamError::Unreadable {
            line: document.lines_before + line,
        }
    })
}

/// Whether a document is JSON: YAML's own notation in braces has no quotes in most cases, and JSON is
/// parsed faster.
fn is_json(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with('"') || inner.starts_with('}'))
}

/// What a document turned out to be.
#[derive(Clone, Copy, Default)]
struct DocumentShape {
    /// It has a sequence `items`.
    has_items: bool,
    /// Its kind is that of a list.
    is_list: bool,
    /// It says that there are more pages.
    is_page: bool,
}

struct ObjectSeed;

impl<'de> DeserializeSeed<'de> for ObjectSeed {
    type Value = ReducedObject;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ReducedObject, D::Error> {
        serde::Deserialize::deserialize(deserializer)
    }
}

/// Reads the items of a list, and skips all else.
struct ListSeed<'a> {
    sink: &'a mut dyn FnMut(ReducedObject),
    shape: &'a Cell<DocumentShape>,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut shape = DocumentShape::default();
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "items" => {
                    shape.has_items = true;
                    members.next_value_seed(ItemsSeed(&mut *self.sink))?;
                }
                "kind" => {
                    let kind: Option<String> = members.next_value()?;
                    shape.is_list = kind.is_some_and(|kind| kind.ends_with("List"));
                }
                "metadata" => {
                    let metadata: ListMetadata = members.next_value()?;
                    shape.is_page = metadata.next.is_some_and(|next| !next.is_empty());
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        self.shape.set(shape);
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

struct ItemsSeed<'a>(&'a mut dyn FnMut(ReducedObject));

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // An empty list may have no value.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence of objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(object) = items.next_element_seed(ObjectSeed)? {
            (self.0)(object);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PROD: &str =
        "{apiVersion: keyferry.dev/v1alpha1, kind: TargetCluster, metadata: {name: prod}}";

    fn read(text: &str) -> (Vec<String>, Option<String>) {
        let mut names = Vec::new();
        let read = read_objects(text.as_bytes(), |object| names.push(object.full_name()));
        (names, read.err().map(|error| error.to_string()))
    }

    #[test]
    fn lists_streams_and_json_are_read_object_by_object() {
        let json = r#"{"kind":"List","items":[{"kind":"A","metadata":{"name":"a"}},{"metadata":{"name":"b","namespace":"n"}}]}"#;
        let list = "# a note\napiVersion: v1\nitems:\n- kind: A\n  metadata:\n    name: a\n- metadata:\n    name: b\n    namespace: n\nkind: List\n";
        for text in [json, list] {
            assert_eq!(read(text), (vec!["a".to_owned(), "n/b".to_owned()], None));
        }
        let stream = format!("# two\n---\n{list}---\n# nothing\n...\n--- {PROD}\n");
        let (names, error) = read(&stream);
        assert_eq!((names.join(" "), error), ("a n/b prod".to_owned(), None));
        assert_eq!(
            read("apiVersion: v1\nkind: List\nitems: []\n"),
            (vec![], None)
        );
        assert_eq!(read("apiVersion: v1\nkind: List\nitems:\n"), (vec![], None));
        assert_eq!(read("# nothing\n---\n"), (vec![], None));
    }

    #[test]
    fn what_is_cut_or_odd_is_an_error_and_what_was_before_it_is_kept() {
        let item = r#"{"kind":"A","metadata":{"name":"a"}}"#;
        let cases = [
            (
                format!(r#"{{"items":[{item},{{"kind":"B""#),
                "ends in the middle",
            ),
            (format!("items:\n- {item}\n"), "ends in the middle"),
            (
                format!(r#"{{"kind":"List","metadata":{{"continue":"x"}},"items":[{item}]}}"#),
                "one page of several",
            ),
            (
                format!(r#"{{"kind":"List","items":[{item},7]}}"#),
                "line 1: ",
            ),
            (format!("kind: List\nitems:\n- {item}\n- 7\n"), "line "),
            (format!("{item}\n---\na: [\n"), "line "),
            (format!("{item}\n---\na: &a [1]\nb: *c\n"), "line "),
            (format!("{item}\n---\n- 1\n"), "line "),
        ];
        for (text, expected) in cases {
            let (names, error) = read(&text);
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
            assert_eq!(names, ["a"], "{text}");
        }
        assert_eq!(read_objects(&[0xe4], drop), Err(StreamError::NotUtf8));
        let deep = format!("a: {}{}", "[".repeat(2_000), "]".repeat(2_000));
        assert!(read(&deep).1.is_some());
    }
}
