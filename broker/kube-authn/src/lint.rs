//! Finds what is wrong or dangerous in a configuration: every error of the apiserver, and traps
//! that it does not report.

mod audiences;
mod expressions;
mod finding;
mod literals;
mod prefixes;
mod public_issuers;
mod published;
mod sarif;
mod template;
mod traps;

pub use finding::{Finding, Severity};
pub use published::{Published, PublishedDocuments, document_places, jwks_uri, not_read};
pub use sarif::to_sarif;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::finding::make_finding;
use crate::config::{self, LoadFault, Position, Refusal};
use crate::validate::{Invalid, validate_configuration};
use crate::{Code, Minor, Release};

/// The version of the [`to_json`] format.
const SCHEMA_VERSION: &str = "keyferry.dev/trust-lint/v1";

/// Checks a file for a target of that minor. `own_issuers` are the target's own ServiceAccount
/// issuers.
#[must_use]
pub fn lint_file(bytes: &[u8], minor: Minor, own_issuers: &[String]) -> Vec<Finding> {
    lint_published(bytes, minor, own_issuers, &[])
}

/// Checks a file as [`lint_file`] does, and also what its issuers publish. `published` follows the
/// order of [`document_places`].
#[must_use]
pub fn lint_published(
    bytes: &[u8],
    minor: Minor,
    own_issuers: &[String],
    published: &[Published],
) -> Vec<Finding> {
    collect_findings(bytes, minor, own_issuers, published, Severity::Error)
}

/// Checks a file as [`lint_published`] does, for a release that may be newer than the known ones.
/// What the newest known release would refuse is then only a warning. What gives rights away, or
/// what is wrong with the issuers' documents, stays an error.
#[must_use]
pub fn lint_release(
    bytes: &[u8],
    release: Release,
    own_issuers: &[String],
    published: &[Published],
) -> Vec<Finding> {
    let minor = release.nearest_minor();
    let Some(undetermined) = release.undetermined() else {
        return lint_published(bytes, minor, own_issuers, published);
    };
    let first = make_finding(
        undetermined.code,
        Severity::Warning,
        "",
        format!("{undetermined}; the other findings are those of {minor}"),
    );
    let known = collect_findings(bytes, minor, own_issuers, published, Severity::Warning);
    [first].into_iter().chain(known).collect()
}

/// Checks a file. What the apiserver would refuse has the severity `refusal`.
fn collect_findings(
    bytes: &[u8],
    minor: Minor,
    own_issuers: &[String],
    published: &[Published],
    refusal: Severity,
) -> Vec<Finding> {
    let loaded = match config::load_configuration(bytes, minor) {
        Ok(loaded) => loaded,
        Err(fault) => return of_load_fault(fault, bytes, refusal),
    };
    let mut findings = Vec::new();
    let compiled = validate_configuration(&loaded.configuration, minor, own_issuers);
    if let Err(invalid) = &compiled {
        findings.extend(of_invalid(invalid, refusal));
    }
    for (index, jwt) in loaded.configuration.jwt.iter().enumerate() {
        if let Some(fix) = fix_of_authority(&jwt.issuer.certificate_authority) {
            let path = format!("jwt[{index}].issuer.certificateAuthority");
            findings
                .iter_mut()
                .filter(|finding| finding.path == path)
                .for_each(|finding| finding.fix = fix.clone());
        }
    }
    if loaded.second_document {
        findings.push(make_finding(
            Code::SecondDocument,
            Severity::Warning,
            "",
            Code::SecondDocument.cause(),
        ));
    }
    traps::find_traps(&loaded.configuration, compiled.as_ref().ok(), &mut findings);
    literals::find_literals(&loaded.configuration, own_issuers, &mut findings);
    template::in_values(&loaded.configuration, &mut findings);
    if let Ok(compiled) = &compiled {
        traps::find_constants(compiled, &mut findings);
        public_issuers::find_public_issuers(compiled, &mut findings);
    }
    for ((index, jwt), published) in loaded.configuration.jwt.iter().enumerate().zip(published) {
        published::find_published_faults(
            &jwt.issuer,
            published,
            minor,
            &format!("jwt[{index}]"),
            &mut findings,
        );
    }
    for finding in &mut findings {
        let position = position_of(&loaded.positions, &finding.path);
        finding.line = position.map(|position| position.line);
        finding.column = position.map(|position| position.column);
    }
    sort_findings(&mut findings);
    findings
}

/// Sorts by line, then by severity. A note about the file as a whole comes last.
fn sort_findings(findings: &mut [Finding]) {
    let order = |one: &Finding| {
        (
            one.line.is_none() && one.severity == Severity::Note,
            one.line,
        )
    };
    findings.sort_by(|a, b| {
        (order(a), a.severity, &a.path, a.code).cmp(&(order(b), b.severity, &b.path, b.code))
    });
}

/// Returns the findings of a file that the apiserver does not load. A placeholder that was left in
/// its text is the likely cause, so it comes first.
fn of_load_fault(fault: LoadFault, bytes: &[u8], refusal: Severity) -> Vec<Finding> {
    let placeholder = template::in_text(&String::from_utf8_lossy(bytes));
    let further = match fault {
        LoadFault::Refused(refused) => of_refusal(refused, refusal),
        LoadFault::Undetermined(undetermined) => vec![make_finding(
            undetermined.code,
            Severity::Warning,
            "",
            undetermined.to_string(),
        )],
    };
    placeholder.into_iter().chain(further).collect()
}

/// Returns the findings of a configuration that the apiserver refuses: one for each error, and one
/// for each part that could not be judged here.
fn of_invalid(invalid: &Invalid, refusal: Severity) -> Vec<Finding> {
    let errors = invalid
        .errors
        .iter()
        .map(|error| make_finding(error.code, refusal, &error.path, error.to_string()));
    let undetermined = invalid.undetermined.iter().map(|undetermined| {
        let path = undetermined.reason.split(": ").next().unwrap_or_default();
        make_finding(
            undetermined.code,
            Severity::Warning,
            path,
            undetermined.to_string(),
        )
    });
    errors.chain(undetermined).collect()
}

/// Returns a finding for each field that the strict decoder does not accept, or one for the file as
/// a whole. The first has the apiserver's text, and the others their parts of it.
fn of_refusal(refusal: Refusal, severity: Severity) -> Vec<Finding> {
    if refusal.fields.is_empty() {
        return vec![Finding {
            line: refusal.line,
            ..make_finding(refusal.code, severity, "", refusal.message)
        }];
    }
    let mut whole = Some(refusal.message);
    let fields = refusal.fields.into_iter().map(|field| Finding {
        line: field.position.map(|position| position.line),
        column: field.position.map(|position| position.column),
        fix: field
            .fix
            .map_or_else(|| field.code.fix().into(), Cow::Owned),
        ..make_finding(
            field.code,
            severity,
            &field.path,
            whole.take().unwrap_or(field.message),
        )
    });
    fields.collect()
}

/// Returns what to do about CA certificates that are none: a placeholder of an example, a path, or
/// PEM in base64 once more.
fn fix_of_authority(authority: &str) -> Option<Cow<'static, str>> {
    let text = authority.trim();
    if is_placeholder(text) {
        return Some("replace the placeholder with the PEM of the CA".into());
    }
    let is_path = !text.is_empty()
        && text.lines().count() == 1
        && text.len() <= 256
        && (text.starts_with(['/', '~', '.']) || text.starts_with("file:") || has_suffix(text));
    if is_path {
        return Some(
            format!(
                "this is the path {text:?}; write the certificates themselves: \
                 certificateAuthority: | and below it the content of that file"
            )
            .into(),
        );
    }
    // base64 of "-----BEGIN".
    text.starts_with("LS0tLS1CRUdJTi")
        .then(|| "this is base64 of PEM, as in a kubeconfig; write the decoded PEM".into())
}

/// Whether a text ends like the name of a file with certificates.
fn has_suffix(text: &str) -> bool {
    [".pem", ".crt", ".cer", ".ca"]
        .iter()
        .any(|suffix| text.to_ascii_lowercase().ends_with(suffix))
}

/// Whether a line of the PEM is text in parentheses or angle brackets, as examples have it.
fn is_placeholder(pem: &str) -> bool {
    pem.lines()
        .map(str::trim)
        .any(|line| line.starts_with(['(', '<']) && line.ends_with([')', '>']))
}

/// Returns the position of a field, or of the nearest one above it that exists.
fn position_of(positions: &BTreeMap<String, Position>, path: &str) -> Option<Position> {
    let mut path = path;
    while !path.is_empty() {
        if let Some(position) = positions.get(path) {
            return Some(*position);
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
pub fn to_json(release: Release, findings: &[Finding]) -> Value {
    json!({"schema": SCHEMA_VERSION, "minor": release.to_string(), "findings": findings})
}

#[cfg(test)]
mod tests;
