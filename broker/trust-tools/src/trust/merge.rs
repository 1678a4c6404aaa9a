//! Adds entries at the end of the `jwt` list of a file, and keeps the rest byte for byte.

use std::path::PathBuf;

use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{self, AuthenticationConfiguration, LoadFault};

use super::indented;

/// Entries cannot be added to a file.
#[derive(Debug, thiserror::Error)]
#[error("adding to {}: {problem}", path.display())]
pub(crate) struct MergeError {
    pub(super) path: PathBuf,
    pub(super) problem: MergeProblem,
}

/// Why entries cannot be added to a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MergeProblem {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("the file is not one that the target loads: {0}")]
    NotLoaded(LoadFault),
    /// The entries alone are not a file that the target loads.
    #[error(transparent)]
    Entries(LoadFault),
    #[error("it is JSON; write it as YAML with a plain block list")]
    Json,
    #[error(
        "its jwt list is not written so that text can be added at its end; write it as a plain \
         block list, each entry after a dash"
    )]
    NotBlockList,
}

/// Returns the text with the entries added.
///
/// # Errors
/// [`MergeProblem`].
pub(super) fn add(text: &str, entries: &str, minor: Minor) -> Result<String, MergeProblem> {
    let load = |text: &str| config::load(text.as_bytes(), minor);
    let before = load(text).map_err(MergeProblem::NotLoaded)?;
    let place = InsertionPoint::find(text)?;
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let added = indented(entries, place.indent).replace('\n', line_end);
    let list = if place.new_list {
        format!("jwt:{line_end}")
    } else {
        String::new()
    };
    let alone = load(&super::file(entries, minor)).map_err(MergeProblem::Entries)?;
    let expected = AuthenticationConfiguration {
        jwt: before
            .configuration
            .jwt
            .into_iter()
            .chain(alone.configuration.jwt)
            .collect(),
        ..before.configuration
    };
    for offset in place.offsets {
        let (head, tail) = text
            .split_at_checked(offset)
            .ok_or(MergeProblem::NotBlockList)?;
        let head_end = if head.ends_with('\n') { "" } else { line_end };
        let merged = format!("{head}{head_end}{list}{added}{tail}");
        // Text inserted at a wrong place would change or break the file, so the result must load as
        // expected.
        let fits = load(&merged).is_ok_and(|after| {
            after.configuration == expected
                && after.version == before.version
                && after.second_document == before.second_document
        });
        if fits {
            return Ok(merged);
        }
    }
    Err(MergeProblem::NotBlockList)
}

/// The place for new entries.
struct InsertionPoint {
    /// Byte offsets to try: after the last line with content, and before what follows the list. The
    /// second is for a text block that keeps empty lines.
    offsets: [usize; 2],
    /// The indentation of the dash.
    indent: usize,
    /// Whether `jwt:` must be written before the entries.
    new_list: bool,
}

impl InsertionPoint {
    fn find(text: &str) -> Result<Self, MergeProblem> {
        if text.trim_start().starts_with('{') {
            return Err(MergeProblem::Json);
        }
        let mut offset = 0;
        let mut list: Option<Option<usize>> = None;
        let mut end = 0;
        let mut content = 0;
        let mut next = None;
        for line in text.split_inclusive('\n') {
            let start = offset;
            offset += line.len();
            let shown = line.trim();
            let indent = line.len() - line.trim_start_matches(' ').len();
            if shown.is_empty() {
                continue;
            }
            if is_document_end(line) && content > 0 {
                next.get_or_insert(start);
                break;
            }
            if shown.starts_with('#') && list.flatten().is_none_or(|dash| indent <= dash) {
                next.get_or_insert(start);
                continue;
            }
            let after_list = next.take();
            match list {
                None if key(line) == Some("jwt") => match line
                    .trim_start_matches("jwt")
                    .trim_start()
                    .trim_start_matches(':')
                    .trim()
                {
                    rest if rest.is_empty() || rest.starts_with('#') => list = Some(None),
                    _ => return Err(MergeProblem::NotBlockList),
                },
                None => {}
                Some(None) if shown.starts_with('-') => {
                    list = Some(Some(indent));
                    end = offset;
                }
                Some(None) => return Err(MergeProblem::NotBlockList),
                Some(Some(dash)) if indent > dash || (indent == dash && shown.starts_with('-')) => {
                    end = offset;
                }
                Some(Some(_)) => {
                    next = Some(after_list.unwrap_or(start));
                    break;
                }
            }
            content = offset;
        }
        match list {
            Some(Some(indent)) => Ok(Self {
                offsets: [end, next.unwrap_or(text.len())],
                indent,
                new_list: false,
            }),
            Some(None) => Err(MergeProblem::NotBlockList),
            None => Ok(Self {
                offsets: [content, next.unwrap_or(text.len())],
                indent: 0,
                new_list: true,
            }),
        }
    }
}

/// Returns the plain key at the start of an unindented line.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    (!key.starts_with([' ', '#', '-', '"', '\''])).then(|| key.trim_end())
}

/// Whether a line ends a document or starts the next.
fn is_document_end(line: &str) -> bool {
    let line = line.trim_end();
    line == "---" || line == "..." || line.starts_with("--- ")
}
