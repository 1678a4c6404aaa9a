//! Entries added to the end of the `jwt` list of a file, the rest of it byte for byte as it was.

use keyferry_trust::Minor;
use keyferry_trust::config::{self, AuthenticationConfiguration};

use super::indented;

/// The text with the entries in it.
///
/// # Errors
/// A line that says why that cannot be done as text.
pub(super) fn add(text: &str, entries: &str, minor: Minor) -> Result<String, String> {
    let load = |text: &str| config::load(text.as_bytes(), minor);
    let before = load(text)
        .map_err(|fault| format!("the file is not one that the target loads: {fault}"))?;
    let place = Place::find(text)?;
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let added = indented(entries, place.indent).replace('\n', line_end);
    let list = if place.new_list {
        format!("jwt:{line_end}")
    } else {
        String::new()
    };
    let alone = load(&super::file(entries, minor)).map_err(|fault| fault.to_string())?;
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
        let (head, tail) = text.split_at_checked(offset).ok_or(UNFIT)?;
        let head_end = if head.ends_with('\n') { "" } else { line_end };
        let merged = format!("{head}{head_end}{list}{added}{tail}");
        // Text that was put into the middle of something changes what the file says, or breaks it.
        let fits = load(&merged).is_ok_and(|after| {
            after.configuration == expected
                && after.version == before.version
                && after.second_document == before.second_document
        });
        if fits {
            return Ok(merged);
        }
    }
    Err(UNFIT.to_owned())
}

const UNFIT: &str = "its jwt list is not written so that text can be added at its end; write it as \
    a plain block list, each entry after a dash";

/// Where entries go.
struct Place {
    /// In bytes: after the last line with content, and, for a text block that keeps empty lines,
    /// before what follows the list.
    offsets: [usize; 2],
    /// Of the dash.
    indent: usize,
    /// Whether `jwt:` has to be written before them.
    new_list: bool,
}

impl Place {
    fn find(text: &str) -> Result<Self, &'static str> {
        if text.trim_start().starts_with('{') {
            return Err("it is JSON; write it as YAML with a plain block list");
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
                    _ => return Err(UNFIT),
                },
                None => {}
                Some(None) if shown.starts_with('-') => {
                    list = Some(Some(indent));
                    end = offset;
                }
                Some(None) => return Err(UNFIT),
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
            Some(None) => Err(UNFIT),
            None => Ok(Self {
                offsets: [content, next.unwrap_or(text.len())],
                indent: 0,
                new_list: true,
            }),
        }
    }
}

/// The plain key that a line at the left edge starts with.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    (!key.starts_with([' ', '#', '-', '"', '\''])).then(|| key.trim_end())
}

/// A line that ends a document or starts the next.
fn is_document_end(line: &str) -> bool {
    let line = line.trim_end();
    line == "---" || line == "..." || line.starts_with("--- ")
}
