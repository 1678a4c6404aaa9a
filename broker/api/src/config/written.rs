//! The objects of a configuration file as written, with their lines, for commands that print what
//! to change in the file.

use serde_json::Value;

use super::document::{self, Document};
use super::mistake::ConfigError;

/// One object of a configuration file, and where it is.
#[derive(Debug)]
pub struct WrittenObject {
    document: Document,
    last: u64,
}

/// Reads the objects of a file's text, in order. Whether they are correct is not checked.
///
/// # Errors
/// [`ConfigError`]: the text is too large or is not YAML.
pub fn written_objects(text: &str) -> Result<Vec<WrittenObject>, ConfigError> {
    let lines: Vec<&str> = text.lines().collect();
    let documents = document::documents(text)?;
    let written = |document: Document| WrittenObject {
        last: last_line(&lines, document.line("")),
        document,
    };
    Ok(documents.into_iter().map(written).collect())
}

impl WrittenObject {
    /// Its kind; empty if it states none.
    pub fn kind(&self) -> &str {
        self.document.kind()
    }

    /// Its name; empty if it states none.
    pub fn name(&self) -> &str {
        self.document.text("/metadata/name")
    }

    /// Its namespace; empty if it states none.
    pub fn namespace(&self) -> &str {
        self.document.text("/metadata/namespace")
    }

    /// The whole object.
    pub fn value(&self) -> &Value {
        self.document.value()
    }

    /// The line of a field, like `spec.allow`, or of the nearest field around it.
    pub fn line(&self, path: &str) -> u64 {
        self.document.line(path)
    }

    /// Its first and last line, without the separators around it and comments behind it.
    pub fn lines(&self) -> (u64, u64) {
        (self.document.line(""), self.last)
    }
}

/// Returns the last line of the document that begins in the line `first`. A line of a document that
/// begins with `---` or `...` ends it (YAML 1.2, section 9.1.4), also within a block scalar.
fn last_line(lines: &[&str], first: u64) -> u64 {
    let begin = usize::try_from(first).unwrap_or(usize::MAX);
    let is_marker = |line: &&str| {
        ["---", "..."].iter().any(|marker| {
            line.strip_prefix(marker)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
        })
    };
    let rest = lines.get(begin..).unwrap_or_default();
    let own: Vec<&&str> = rest.iter().take_while(|line| !is_marker(line)).collect();
    let content = |line: &&&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    };
    let count = own.iter().rposition(content).map_or(0, |last| last + 1);
    first + u64::try_from(count).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::written_objects;

    #[test]
    fn an_object_is_found_by_its_lines() {
        let text = "# the server\nkind: ServerConfiguration\nhubName: hub\n\n---\n# the target\nkind: \
            TargetCluster\nmetadata:\n  name: prod\nspec:\n  caBundle: |\n    ---\n    a\n  allow:\n  \
            - namespaces: [a]\n# behind it\n\n---\nkind: TargetAccess\nmetadata: {name: prod, \
            namespace: a}\n---\n# nothing\n--- {kind: TargetAccess, metadata: {name: b}}\n...\n";
        let objects = written_objects(text).unwrap();
        let found: Vec<_> = objects
            .iter()
            .map(|object| {
                (
                    object.kind(),
                    object.namespace(),
                    object.name(),
                    object.lines(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("ServerConfiguration", "", "", (2, 3)),
                ("TargetCluster", "", "prod", (7, 15)),
                ("TargetAccess", "a", "prod", (19, 20)),
                ("TargetAccess", "", "b", (23, 23)),
            ]
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[6], "kind: TargetCluster");
        assert_eq!(lines[14], "  - namespaces: [a]");
        assert!(objects[1].line("spec.allow") > 10);
        assert_eq!(objects[1].value()["spec"]["allow"][0]["namespaces"][0], "a");
        assert!(written_objects("a: [").is_err());
    }
}
