//! Replaces where a file says that its issuers' documents are. It edits the text instead of writing
//! new YAML, so that tests run exactly what is shipped.

use serde_json::Value;

use crate::runner::TestError;

const URL: &str = "      url: ";
const DISCOVERY_URL: &str = "      discoveryURL: ";
const AUTHORITY: &str = "      certificateAuthority: |";
/// The indentation of the lines below [`AUTHORITY`].
const BELOW: &str = "        ";

pub(super) fn issuers(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix(URL))
        .map(|url| url.trim_matches('"').to_owned())
        .collect()
}

pub(super) fn discovery_urls(text: &str) -> Result<Vec<Option<String>>, TestError> {
    let tree: Value = serde_saphyr::from_str(text)?;
    let entries = tree["jwt"].as_array().ok_or("the file has no jwt")?;
    Ok(entries
        .iter()
        .map(|entry| entry["issuer"]["discoveryURL"].as_str().map(str::to_owned))
        .collect())
}

pub(super) fn with_certificate(text: &str, pem: &str) -> String {
    let mut lines = Lines { below: false };
    text.lines()
        .map(|line| {
            if lines.is_authority(line) {
                authority(line, pem)
            } else {
                format!("{line}\n")
            }
        })
        .collect()
}

pub(super) fn served_at(
    text: &str,
    pem: &str,
    discovery_url: impl Fn(usize) -> String,
) -> Result<String, TestError> {
    let (mut lines, mut entry, mut changed) = (Lines { below: false }, 0, String::new());
    for line in text.lines() {
        if lines.is_authority(line) || line.starts_with(DISCOVERY_URL) {
            continue;
        }
        changed.push_str(&format!("{line}\n"));
        if line.starts_with(URL) {
            changed.push_str(&format!(
                "{DISCOVERY_URL}{}\n{}",
                discovery_url(entry),
                authority(AUTHORITY, pem)
            ));
            entry += 1;
        }
    }
    let (before, after) = (without_places(text)?, without_places(&changed)?);
    if before != after || discovery_urls(&changed)?.iter().any(Option::is_none) {
        return Err("the places of the documents cannot be replaced without changing more".into());
    }
    Ok(changed)
}

/// Finds the lines of `certificateAuthority`.
struct Lines {
    below: bool,
}

impl Lines {
    fn is_authority(&mut self, line: &str) -> bool {
        self.below = line == AUTHORITY || (self.below && line.starts_with(BELOW));
        self.below
    }
}

/// The certificate block for its first line; nothing for the lines below, which the block replaces.
fn authority(line: &str, pem: &str) -> String {
    if line != AUTHORITY {
        return String::new();
    }
    let below: String = pem
        .trim()
        .lines()
        .map(|line| format!("{BELOW}{line}\n"))
        .collect();
    format!("{AUTHORITY}\n{below}")
}

/// The file without `discoveryURL` and `certificateAuthority`.
fn without_places(text: &str) -> Result<Value, TestError> {
    let mut tree: Value = serde_saphyr::from_str(text)?;
    for entry in tree["jwt"].as_array_mut().ok_or("the file has no jwt")? {
        let issuer = entry["issuer"]
            .as_object_mut()
            .ok_or("an entry has no issuer")?;
        issuer.remove("discoveryURL");
        issuer.remove("certificateAuthority");
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const TEXT: &str = "jwt:\n  - issuer:\n      url: \"https://a\"\n      certificateAuthority: \
        |\n        x\n        y\n      audiences:\n        - b\n";

    #[test]
    fn only_the_places_are_replaced() {
        let changed = served_at(TEXT, "p\nq\n", |entry| format!("https://s/{entry}")).unwrap();
        let expected = "jwt:\n  - issuer:\n      url: \"https://a\"\n      discoveryURL: \
            https://s/0\n      certificateAuthority: \
            |\n        p\n        q\n      audiences:\n        - b\n";
        assert_eq!(changed, expected);
        assert_eq!(issuers(TEXT), ["https://a"]);
        assert_eq!(
            with_certificate(TEXT, "p"),
            TEXT.replace("        x\n        y\n", "        p\n")
        );
    }

    #[test]
    fn a_file_of_another_form_is_not_changed_in_part() {
        assert!(
            served_at(&TEXT.replace("      url", "      \"url\""), "p", |_| {
                String::new()
            })
            .is_err()
        );
    }
}
