//! Finds what is wrong or dangerous in a configuration: every error of the apiserver, and traps
//! that it does not report.

mod expressions;
mod published;
mod sarif;
mod traps;

pub use published::{Published, PublishedDocuments, jwks_uri, places};
pub use sarif::sarif;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::{self, LoadFault};
use crate::validate::validate;
use crate::{Code, Minor};

/// The version of the [`to_json`] format.
const SCHEMA: &str = "keyferry.dev/trust-lint/v1";

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Severity {
    /// The apiserver refuses the configuration, or it gives rights away.
    Error,
    /// The configuration works, but will cause trouble.
    Warning,
    /// Good to know; nothing needs to change.
    Note,
}

/// One problem in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stable name of the problem.
    pub code: Code,
    /// How severe it is.
    pub severity: Severity,
    /// The field, like `jwt[0].issuer.url`; empty for the file as a whole.
    pub path: String,
    /// The line of the field, or of the nearest one above it that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong; for errors, in the apiserver's words.
    pub message: String,
    /// What to do.
    pub fix: &'static str,
}

/// Checks a file for a target of that minor. `own_issuers` are the target's own ServiceAccount
/// issuers.
#[must_use]
pub fn lint(bytes: &[u8], minor: Minor, own_issuers: &[String]) -> Vec<Finding> {
    lint_published(bytes, minor, own_issuers, &[])
}

/// Checks a file as [`lint`] does, and also what its issuers publish. `published` follows the order
/// of [`places`].
#[must_use]
pub fn lint_published(
    bytes: &[u8],
    minor: Minor,
    own_issuers: &[String],
    published: &[Published],
) -> Vec<Finding> {
    let loaded = match config::load(bytes, minor) {
        Ok(loaded) => loaded,
        Err(LoadFault::Refused(refusal)) => {
            let line = refusal.line;
            return vec![Finding {
                line,
                ..finding(refusal.code, Severity::Error, "", refusal.message)
            }];
        }
        Err(LoadFault::Undetermined(undetermined)) => {
            return vec![finding(
                undetermined.code,
                Severity::Warning,
                "",
                undetermined.to_string(),
            )];
        }
    };
    let mut findings = Vec::new();
    let compiled = validate(&loaded.configuration, minor, own_issuers);
    if let Err(invalid) = &compiled {
        findings.extend(
            invalid
                .errors
                .iter()
                .map(|error| finding(error.code, Severity::Error, &error.path, error.to_string())),
        );
        findings.extend(invalid.undetermined.iter().map(|undetermined| {
            let path = undetermined
                .reason
                .split(": ")
                .next()
                .unwrap_or_default()
                .to_owned();
            finding(
                undetermined.code,
                Severity::Warning,
                &path,
                undetermined.to_string(),
            )
        }));
    }
    for (index, jwt) in loaded.configuration.jwt.iter().enumerate() {
        if is_placeholder(&jwt.issuer.certificate_authority) {
            let path = format!("jwt[{index}].issuer.certificateAuthority");
            findings
                .iter_mut()
                .filter(|finding| finding.path == path)
                .for_each(|finding| finding.fix = PLACEHOLDER);
        }
    }
    if loaded.second_document {
        findings.push(finding(
            Code::SecondDocument,
            Severity::Warning,
            "",
            Code::SecondDocument.cause(),
        ));
    }
    traps::find(&loaded.configuration, &mut findings);
    if let Ok(compiled) = &compiled {
        traps::find_constants(compiled, &mut findings);
    }
    for ((index, jwt), published) in loaded.configuration.jwt.iter().enumerate().zip(published) {
        published::find(
            &jwt.issuer,
            published,
            &format!("jwt[{index}]"),
            &mut findings,
        );
    }
    for finding in &mut findings {
        finding.line = line_of(&loaded.lines, &finding.path);
    }
    findings.sort_by(|a, b| {
        (a.line, a.severity, &a.path, a.code).cmp(&(b.line, b.severity, &b.path, b.code))
    });
    findings
}

/// The fix for a certificate that still contains the example's placeholder.
const PLACEHOLDER: &str = "replace the placeholder with the PEM of the CA";

/// Whether a line of the PEM is text in parentheses or angle brackets, as examples have it.
fn is_placeholder(pem: &str) -> bool {
    pem.lines()
        .map(str::trim)
        .any(|line| line.starts_with(['(', '<']) && line.ends_with([')', '>']))
}

fn finding(code: Code, severity: Severity, path: &str, message: impl Into<String>) -> Finding {
    Finding {
        code,
        severity,
        path: path.to_owned(),
        line: None,
        message: message.into(),
        fix: code.fix(),
    }
}

/// Returns the line of a field, or of the nearest one above it that exists.
fn line_of(lines: &BTreeMap<String, u64>, path: &str) -> Option<u64> {
    let mut path = path;
    while !path.is_empty() {
        if let Some(line) = lines.get(path) {
            return Some(*line);
        }
        path = path
            .rfind(['.', '['])
            .and_then(|end| path.get(..end))
            .unwrap_or_default();
    }
    None
}

/// Returns the findings as JSON, in the format `keyferry.dev/trust-lint/v1`.
#[must_use]
pub fn to_json(minor: Minor, findings: &[Finding]) -> Value {
    json!({"schema": SCHEMA, "minor": minor.to_string(), "findings": findings})
}

#[cfg(test)]
mod tests;
