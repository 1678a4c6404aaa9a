//! Adds an entry to the `jwt` list of a file, or replaces the entry of the same issuer and
//! audience, and keeps the rest byte for byte.
//!
//! The text is changed at a place that is likely the right one. The result must load as the same
//! configuration with just this change, so a wrong place is never used.

mod block_list;
mod flow_text;

use std::path::PathBuf;

use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{
    self, Anonymous, AuthenticationConfiguration, JwtAuthenticator, LoadFault, Loaded,
};

use self::block_list::BlockText;
use self::flow_text::FlowText;
use crate::command_error::CommandError;
use crate::yaml_document::YamlError;

/// Entries cannot be added to a file.
#[derive(Debug, thiserror::Error)]
#[error("adding to {}: {problem}", path.display())]
pub(crate) struct MergeError {
    pub(super) path: PathBuf,
    pub(super) problem: MergeProblem,
}

impl From<MergeError> for CommandError {
    fn from(error: MergeError) -> Self {
        match error.problem {
            MergeProblem::OtherAudience { .. }
            | MergeProblem::Several(..)
            | MergeProblem::NotPlainList => Self::of_line(&error.to_string()),
            // These end with what the file has.
            _ => Self::new(error.to_string()),
        }
    }
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
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error(
        "jwt[{index}] is the entry of the issuer {issuer:?} for {audiences}, and an issuer has only \
         one; fix: if it is this hub's, remove it from the file, else give another --issuer"
    )]
    OtherAudience {
        index: usize,
        issuer: String,
        audiences: String,
    },
    #[error(
        "{0} entries of its jwt list name the issuer {1:?}, and the target refuses such a file; \
         fix: keep one of them"
    )]
    Several(usize, String),
    #[error(
        "its jwt list is not written so that text can be added at its end; fix: write it as a plain \
         block list, each entry after a dash"
    )]
    NotPlainList,
}

/// A file with its entries, and what changed besides an entry that was added.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) text: String,
    pub(super) notes: Vec<String>,
}

/// Returns the text with the entries.
///
/// # Errors
/// [`MergeProblem`].
pub(super) fn merge(text: &str, entries: &[String], minor: Minor) -> Result<Merged, MergeProblem> {
    let mut merged = Merged {
        text: text.to_owned(),
        notes: Vec::new(),
    };
    for entry in entries {
        merged.take(entry, minor)?;
    }
    Ok(merged)
}

impl Merged {
    /// Adds an entry, or replaces that of the same issuer and audience.
    fn take(&mut self, entry: &str, minor: Minor) -> Result<(), MergeProblem> {
        let before = load(&self.text, minor).map_err(MergeProblem::NotLoaded)?;
        let alone = load(&super::file(entry, minor), minor).map_err(MergeProblem::Entries)?;
        let new = alone
            .configuration
            .jwt
            .into_iter()
            .next()
            .ok_or(MergeProblem::NotPlainList)?;
        let entry = NewEntry {
            text: entry,
            new: &new,
        };
        let same: Vec<(usize, &JwtAuthenticator)> = before
            .configuration
            .jwt
            .iter()
            .enumerate()
            .filter(|(_, has)| has.issuer.url == new.issuer.url)
            .collect();
        match same.as_slice() {
            [] => self.text = entry.added_to(&self.text, &before, minor)?,
            [(index, has)] if **has == new => self.notes.push(format!(
                "jwt[{index}] is this entry already, so the file is as it was"
            )),
            [(index, has)] if is_for_same_audience(has, &new) => {
                let (text, changed) = entry.replacing(*index, &self.text, &before, minor)?;
                self.text = text;
                self.notes.push(format!(
                    "jwt[{index}] was the entry of this issuer and audience, and is replaced; what \
                     changed:\n{changed}"
                ));
            }
            [(index, has)] => {
                return Err(MergeProblem::OtherAudience {
                    index: *index,
                    issuer: new.issuer.url.clone(),
                    audiences: has.issuer.audiences.join(", "),
                });
            }
            several => {
                return Err(MergeProblem::Several(several.len(), new.issuer.url.clone()));
            }
        }
        Ok(())
    }
}

fn load(text: &str, minor: Minor) -> Result<Loaded, LoadFault> {
    config::load_configuration(text.as_bytes(), minor)
}

fn is_for_same_audience(has: &JwtAuthenticator, new: &JwtAuthenticator) -> bool {
    let audiences = &has.issuer.audiences;
    audiences.is_empty()
        || new
            .issuer
            .audiences
            .iter()
            .any(|one| audiences.contains(one))
}

/// An entry as text, and what it means.
struct NewEntry<'a> {
    text: &'a str,
    new: &'a JwtAuthenticator,
}

impl NewEntry<'_> {
    fn added_to(&self, text: &str, before: &Loaded, minor: Minor) -> Result<String, MergeProblem> {
        let mut jwt = before.configuration.jwt.clone();
        jwt.push(self.new.clone());
        let expected = AuthenticationConfiguration {
            jwt,
            ..before.configuration.clone()
        };
        let candidates = match FlowText::of_file(text) {
            Some(flow) => flow.with_item(&self.as_json()?),
            None => {
                let block = BlockText::of(text, before);
                let mut candidates = block.with_entry(self.text);
                if let Some(flow) = block.flow_list() {
                    candidates.extend(flow.with_item(&self.as_json()?));
                }
                candidates
            }
        };
        first_that_loads(candidates, &expected, before, minor)
    }

    /// Returns the file with this entry instead of another, and the lines that differ.
    fn replacing(
        &self,
        index: usize,
        text: &str,
        before: &Loaded,
        minor: Minor,
    ) -> Result<(String, String), MergeProblem> {
        let mut expected = before.configuration.clone();
        if let Some(entry) = expected.jwt.get_mut(index) {
            entry.clone_from(self.new);
        }
        let candidates = match FlowText::of_file(text) {
            Some(flow) => flow.replacing_item(index, &self.as_json()?),
            None => {
                let block = BlockText::of(text, before);
                let mut candidates = block.replacing_entry(index, self.text);
                if let Some(flow) = block.flow_list() {
                    candidates.extend(flow.replacing_item(index, &self.as_json()?));
                }
                candidates
            }
        };
        let merged = first_that_loads(candidates, &expected, before, minor)?;
        let changed = changed_lines(text, &merged);
        Ok((merged, changed))
    }

    /// Writes the entry in one line, for a list in flow style.
    fn as_json(&self) -> Result<String, MergeProblem> {
        let list: serde_json::Value =
            serde_saphyr::from_str(self.text).map_err(|_| MergeProblem::NotPlainList)?;
        list.get(0)
            .map(ToString::to_string)
            .ok_or(MergeProblem::NotPlainList)
    }
}

/// Returns the first text that loads as expected.
fn first_that_loads(
    candidates: Vec<String>,
    expected: &AuthenticationConfiguration,
    before: &Loaded,
    minor: Minor,
) -> Result<String, MergeProblem> {
    candidates
        .into_iter()
        .find(|candidate| {
            load(candidate, minor).is_ok_and(|after| {
                after.configuration == *expected
                    && after.version == before.version
                    && after.second_document == before.second_document
            })
        })
        .ok_or(MergeProblem::NotPlainList)
}

/// Returns the file with an `anonymous` section. `None` if it has one.
///
/// # Errors
/// [`MergeProblem`].
pub(super) fn with_anonymous(
    text: &str,
    section: &str,
    minor: Minor,
) -> Result<Option<String>, MergeProblem> {
    let before = load(text, minor).map_err(MergeProblem::NotLoaded)?;
    if before.configuration.anonymous.is_some() {
        return Ok(None);
    }
    let anonymous = anonymous_of(section, minor)?;
    let expected = AuthenticationConfiguration {
        anonymous: Some(anonymous),
        ..before.configuration.clone()
    };
    let candidates = match FlowText::of_file(text) {
        Some(flow) => {
            let value: serde_json::Value =
                serde_saphyr::from_str(section).map_err(|_| MergeProblem::NotPlainList)?;
            let member = value.get("anonymous").map(ToString::to_string);
            flow.with_member("anonymous", &member.unwrap_or_default())
        }
        None => BlockText::of(text, &before).with_section(section),
    };
    first_that_loads(candidates, &expected, &before, minor).map(Some)
}

fn anonymous_of(section: &str, minor: Minor) -> Result<Anonymous, MergeProblem> {
    let alone = format!("{}{section}", super::file("[]", minor));
    let alone = load(&alone, minor).map_err(MergeProblem::Entries)?;
    alone
        .configuration
        .anonymous
        .ok_or(MergeProblem::NotPlainList)
}

/// Lists the lines that differ between two texts, with `-` before those that are gone and `+`
/// before new ones.
fn changed_lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let start = old.iter().zip(&new).take_while(same).count();
    let (old, new) = (
        old.get(start..).unwrap_or(&[]),
        new.get(start..).unwrap_or(&[]),
    );
    let end = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    let old = old.get(..old.len() - end).unwrap_or(&[]);
    let new = new.get(..new.len() - end).unwrap_or(&[]);
    // A line that only moved is in both, and is left out.
    let gone = old
        .iter()
        .filter(|line| !new.contains(line))
        .map(|line| format!("  - {line}"));
    let added = new
        .iter()
        .filter(|line| !old.contains(line))
        .map(|line| format!("  + {line}"));
    let lines: Vec<String> = gone.chain(added).collect();
    if lines.is_empty() {
        "  only the order of lines".to_owned()
    } else {
        lines.join("\n")
    }
}
