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
    let before = load(text).map_err(|fault| format!("the file is not one that the target loads: {fault}"))?;
    let place = Place::find(text)?;
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let added = indented(entries, place.indent).replace('\n', line_end);
    let (head, tail) = text.split_at_checked(place.offset).ok_or("its end was not found")?;
    let head_end = if head.ends_with('\n') { "" } else { line_end };
    let list = if place.new_list { format!("jwt:{line_end}") } else { String::new() };
    let merged = format!("{head}{head_end}{list}{added}{tail}");
    let after = load(&merged).map_err(|_| UNFIT)?;
    let alone = load(&super::file(entries, minor)).map_err(|fault| fault.to_string())?;
    let expected = AuthenticationConfiguration {
        jwt: before.configuration.jwt.into_iter().chain(alone.configuration.jwt).collect(),
        ..before.configuration
    };
    if after.configuration == expected && after.version == before.version && after.second_document == before.second_document {
        Ok(merged)
    } else {
        Err(UNFIT.to_owned())
    }
}

const UNFIT: &str =
    "its jwt list is not written so that text can be added at its end; write it as a plain block list, each entry after a dash";

/// Where entries go.
struct Place {
    /// In bytes.
    offset: usize,
    /// Of the dash.
    indent: usize,
    /// Whether `jwt:` has to be written before them.
    new_list: bool,
}

impl Place {
    fn find(text: &str) -> Result<Place, &'static str> {
        if text.trim_start().starts_with('{') {
            return Err("it is JSON; write it as YAML with a plain block list");
        }
        let mut offset = 0;
        let mut list: Option<Option<usize>> = None;
        let mut end = 0;
        let mut content = 0;
        for line in text.split_inclusive('\n') {
            let start = offset;
            offset += line.len();
            let shown = line.trim();
            let indent = line.len() - line.trim_start_matches(' ').len();
            if shown.is_empty() {
                continue;
            }
            if is_document_end(line) && content > 0 {
                break;
            }
            if shown.starts_with('#') && list.flatten().is_none_or(|dash| indent <= dash) {
                continue;
            }
            match list {
                None if key(line) == Some("jwt") => match line.trim_start_matches("jwt").trim_start().trim_start_matches(':').trim() {
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
                    if end >= start || end < offset {
                        end = offset;
                    }
                }
                Some(Some(_)) => break,
            }
            content = offset;
        }
        match list {
            Some(Some(indent)) => Ok(Place { offset: end, indent, new_list: false }),
            Some(None) => Err(UNFIT),
            None => Ok(Place { offset: content, indent: 0, new_list: true }),
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
