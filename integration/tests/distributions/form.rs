//! One printed form: YAML documents with instructions as comments.

use keyferry_integration::runner::TestError;

/// The output of `keyferry trust` for one distribution.
#[derive(Debug)]
pub(crate) struct Form {
    documents: Vec<String>,
}

impl Form {
    pub(crate) fn new(text: &str) -> Self {
        let documents = text.trim_end().split("\n---\n");
        Self {
            documents: documents.map(|one| format!("{one}\n")).collect(),
        }
    }

    /// The last document, which is for the distribution.
    pub(crate) fn configuration(&self) -> &str {
        self.documents.last().map_or("", String::as_str)
    }

    /// The path at which the instructions want the file, and the file.
    ///
    /// # Errors
    /// The first document has no such instruction.
    pub(crate) fn file(&self) -> Result<(&str, String), TestError> {
        let [first, _] = self.documents.as_slice() else {
            return Err(format!("these are not two documents: {self:?}").into());
        };
        let (_, rest) = first
            .split_once("Write this document as ")
            .ok_or_else(|| format!("no instruction says where it goes:\n{first}"))?;
        let path = rest.split([' ', ',']).next().unwrap_or_default();
        let lines = first.lines().skip_while(|line| line.starts_with('#'));
        Ok((path, lines.map(|line| format!("{line}\n")).collect()))
    }

    /// The configuration with another name of a field.
    ///
    /// # Errors
    /// The configuration has no such field, so that nothing would be misspelt.
    pub(crate) fn misspelt(&self, field: &str, wrong: &str) -> Result<String, TestError> {
        misspelt(self.configuration(), field, wrong)
    }
}

/// The text with another name of a field.
///
/// # Errors
/// The text has no such field.
pub(crate) fn misspelt(text: &str, field: &str, wrong: &str) -> Result<String, TestError> {
    let field = format!("{field}:");
    if !text.contains(&field) {
        return Err(format!("there is no {field} in\n{text}").into());
    }
    Ok(text.replacen(&field, &format!("{wrong}:"), 1))
}
