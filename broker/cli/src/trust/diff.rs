//! `keyferry trust --diff`: compares the hub's entry in a target's AuthenticationConfiguration with
//! the entry that the target should have, by the values that the apiserver reads.

mod entry;
mod expression;

use std::path::{Path, PathBuf};

use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{self, JwtAuthenticator, LoadFault, Loaded, MAX_BYTES};
use keyferry_kube_authn::validate::validate_configuration;

use super::TrustArgs;
use super::inputs::{self, TrustInputs};
use super::known_hub::KnownHub;
use super::target_rules::TargetRules;
use crate::command_error::CommandError;
use crate::{inner_file, local_file};

/// A file cannot be compared.
#[derive(Debug, thiserror::Error)]
#[error("comparing {}: {problem}", path.display())]
pub(crate) struct DiffError {
    path: PathBuf,
    problem: DiffProblem,
}

impl From<DiffError> for CommandError {
    fn from(error: DiffError) -> Self {
        match error.problem {
            DiffProblem::Several { .. } => Self::of_line(&error.to_string()),
            // These end with what the file has.
            DiffProblem::NotLoaded(_) | DiffProblem::Expected(_) => Self::new(error.to_string()),
        }
    }
}

/// Why a file cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiffProblem {
    #[error("the file is not one that the target loads: {0}")]
    NotLoaded(LoadFault),
    /// The entry that the target should have does not load.
    #[error(transparent)]
    Expected(LoadFault),
    #[error(
        "{} name the issuer {issuer:?}, and the target refuses such a file; fix: keep one of them",
        entries.join(" and ")
    )]
    Several {
        entries: Vec<String>,
        issuer: String,
    },
}

/// What differs at one field of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// The file should have this value.
    Lacks(String),
    /// The file should not have this value.
    TooMuch(String),
    /// The file has another value than it should have.
    Differs { has: String, should: String },
}

/// One difference, at the path of its field in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    /// The TargetCluster whose tokens it concerns, if the entry has several and it concerns not all.
    target: Option<String>,
    path: String,
    change: Change,
}

/// The result of a comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) text: String,
    /// One line for each difference.
    pub(super) differences: Vec<String>,
    /// What was not compared.
    pub(super) notes: Vec<String>,
}

/// Reads the target's file and compares it with what it should have.
///
/// # Errors
/// What is missing, wrong, or cannot be read.
pub(super) fn of_file(
    args: &TrustArgs,
    known: Option<&KnownHub>,
    path: &Path,
) -> Result<Comparison, CommandError> {
    let expected = inputs::read(args, known)?;
    let file = local_file::read(path, "the AuthenticationConfiguration", MAX_BYTES)?;
    let file = inner_file::only(&file, path)?.bytes;
    let compared =
        compare(&file, &expected, args.shape.minor.known_minor()?).map_err(|problem| {
            DiffError {
                path: path.to_owned(),
                problem,
            }
        })?;
    let notes = [format!("for {}", args.shape.minor.description())]
        .into_iter()
        .chain(expected.notes)
        .chain(compared.notes);
    Ok(Comparison {
        notes: notes.collect(),
        ..compared
    })
}

/// Compares the entry of a file that names our issuer with the entry that it should be. Other
/// entries are named and left alone.
///
/// # Errors
/// [`DiffProblem`].
pub(super) fn compare(
    file: &[u8],
    expected: &TrustInputs,
    minor: Minor,
) -> Result<Comparison, DiffProblem> {
    let loaded = config::load_configuration(file, minor).map_err(DiffProblem::NotLoaded)?;
    let (mut lines, mut differences, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for rules in &expected.entries {
        let compared = compare_entry(rules, &loaded, minor)?;
        lines.extend(compared.first_line);
        lines.extend_from_slice(&compared.differences);
        differences.extend(compared.differences);
        notes.extend(compared.note);
    }
    let refusal = refusal(&loaded, minor, expected, &mut notes);
    lines.extend(refusal.clone());
    differences.extend(refusal);
    for (index, other) in loaded.configuration.jwt.iter().enumerate() {
        let url = &other.issuer.url;
        if !expected.entries.iter().any(|rules| rules.issuer == *url) {
            lines.push(format!(
                "left alone jwt[{index}], the entry of the issuer {url:?}"
            ));
        }
    }
    lines.push(match differences.len() {
        0 => "the file has what it should have".to_owned(),
        1 => "1 difference".to_owned(),
        count => format!("{count} differences"),
    });
    Ok(Comparison {
        text: lines.join("\n"),
        differences,
        notes,
    })
}

/// The comparison of one entry.
struct ComparedEntry {
    /// Which entry of the file it is, if there is one.
    first_line: Option<String>,
    differences: Vec<String>,
    note: Option<String>,
}

fn compare_entry(
    rules: &TargetRules,
    loaded: &Loaded,
    minor: Minor,
) -> Result<ComparedEntry, DiffProblem> {
    let alone = super::file(&rules.entry(), minor);
    let alone =
        config::load_configuration(alone.as_bytes(), minor).map_err(DiffProblem::Expected)?;
    let should = alone
        .configuration
        .jwt
        .into_iter()
        .next()
        .unwrap_or_default();
    let issuer = &rules.issuer;
    let entries = loaded.configuration.jwt.iter().enumerate();
    let (ours, others): (Vec<_>, Vec<_>) =
        entries.partition(|(_, entry)| entry.issuer.url == *issuer);
    match ours.as_slice() {
        [] => Ok(ComparedEntry {
            first_line: None,
            differences: vec![lacking(issuer, &others)],
            note: None,
        }),
        [(index, has)] => {
            let targets: Vec<(&str, &str)> = rules
                .audiences
                .iter()
                .map(|one| (one.audience.as_str(), one.target.as_str()))
                .collect();
            let differences = entry::differences(&format!("jwt[{index}]"), has, &should, &targets);
            Ok(ComparedEntry {
                first_line: Some(format!(
                    "jwt[{index}] is the entry of the issuer {issuer:?}"
                )),
                differences: differences.iter().map(|one| line_of(one, loaded)).collect(),
                note: not_compared(has, &should),
            })
        }
        several => Err(DiffProblem::Several {
            entries: several
                .iter()
                .map(|(index, _)| format!("jwt[{index}]"))
                .collect(),
            issuer: issuer.clone(),
        }),
    }
}

/// A file that the target refuses is not what it should be, even if our entry is.
fn refusal(
    loaded: &Loaded,
    minor: Minor,
    expected: &TrustInputs,
    notes: &mut Vec<String>,
) -> Option<String> {
    let own_issuers: Vec<String> = expected.own_issuer.iter().cloned().collect();
    let invalid = validate_configuration(&loaded.configuration, minor, &own_issuers).err()?;
    let undetermined = invalid.undetermined.first();
    notes.extend(undetermined.map(|undetermined| format!("of the file: {undetermined}")));
    let is_refused = !invalid.errors.is_empty();
    is_refused.then(|| format!("refused    by the target: {}", invalid.message()))
}

/// Describes a file that has no entry of our issuer, and an entry whose issuer is nearly ours.
fn lacking(issuer: &str, others: &[(usize, &JwtAuthenticator)]) -> String {
    let near = others
        .iter()
        .find(|(_, other)| other.issuer.url.trim_end_matches('/') == issuer.trim_end_matches('/'));
    let (path, change) = match near {
        Some((index, other)) => (
            format!("jwt[{index}].issuer.url"),
            Change::Differs {
                has: quoted(&other.issuer.url),
                should: quoted(issuer),
            },
        ),
        None => (
            "jwt".to_owned(),
            Change::Lacks(format!("an entry of the issuer {issuer:?}")),
        ),
    };
    let target = None;
    shown(
        &Difference {
            target,
            path,
            change,
        },
        "",
    )
}

/// Without known CA certificates, it is unknown which ones the file should have.
fn not_compared(has: &JwtAuthenticator, should: &JwtAuthenticator) -> Option<String> {
    let unknown = should.issuer.certificate_authority.is_empty()
        && !has.issuer.certificate_authority.is_empty();
    unknown.then(|| {
        "issuer.certificateAuthority of the file is not compared, because no CA of the discovery \
         documents is known; give --discovery-ca FILE"
            .to_owned()
    })
}

fn line_of(difference: &Difference, loaded: &Loaded) -> String {
    let line = loaded
        .positions
        .get(&difference.path)
        .map_or_else(String::new, |position| format!(" (line {})", position.line));
    shown(difference, &line)
}

fn shown(difference: &Difference, line: &str) -> String {
    let path = &difference.path;
    let shown = match &difference.change {
        Change::Lacks(should) => format!("lacks      {path}{line}: {should}"),
        Change::TooMuch(has) => format!("too much   {path}{line}: {has}"),
        Change::Differs { has, should } => {
            format!("different  {path}{line}: has {has}, should have {should}")
        }
    };
    match &difference.target {
        Some(target) => format!("{target} {shown}"),
        None => shown,
    }
}

/// Quotes a value of the file on one line.
fn quoted(text: &str) -> String {
    super::quoted(text)
}

#[cfg(test)]
mod tests;
