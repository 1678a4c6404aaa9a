//! Placeholders of a template that nobody rendered.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::AuthenticationConfiguration;

/// What template engines replace: Go, Helm and Jinja, shells and Terraform, and ERB.
static PLACEHOLDER_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\{\{.*?\}\}|\{%.*?%\}|\$\{[A-Za-z_][^{}\s]*\}|<%.*?%>").ok());
/// What people write where a reader is to fill something in.
static BLANK_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"<[A-Za-z][A-Za-z0-9 _.-]*>").ok());

/// Finds the first placeholder in a file that does not load.
pub(super) fn in_text(text: &str) -> Option<Finding> {
    let pattern = PLACEHOLDER_PATTERN.as_ref()?;
    text.lines().enumerate().find_map(|(index, line)| {
        if line.trim_start().starts_with('#') {
            return None;
        }
        let found = pattern.find(line)?;
        Some(Finding {
            line: u64::try_from(index + 1).ok(),
            ..placeholder_finding(found.as_str(), "")
        })
    })
}

/// Finds a placeholder in the values of a file that loads.
pub(super) fn in_values(configuration: &AuthenticationConfiguration, findings: &mut Vec<Finding>) {
    let (Some(pattern), Some(blank)) = (PLACEHOLDER_PATTERN.as_ref(), BLANK_PATTERN.as_ref())
    else {
        return;
    };
    for (index, jwt) in configuration.jwt.iter().enumerate() {
        let issuer = format!("jwt[{index}].issuer");
        let mappings = &jwt.claim_mappings;
        let of_audiences = jwt.issuer.audiences.iter().enumerate();
        let prefix = |prefix: &Option<String>| prefix.clone().unwrap_or_default();
        let values = [
            (format!("{issuer}.url"), jwt.issuer.url.clone()),
            (
                format!("{issuer}.discoveryURL"),
                jwt.issuer.discovery_url.clone(),
            ),
            (
                format!("jwt[{index}].claimMappings.username.prefix"),
                prefix(&mappings.username.prefix),
            ),
            (
                format!("jwt[{index}].claimMappings.groups.prefix"),
                prefix(&mappings.groups.prefix),
            ),
        ]
        .into_iter()
        .chain(of_audiences.map(|(at, one)| (format!("{issuer}.audiences[{at}]"), one.clone())));
        for (path, value) in values {
            if let Some(found) = pattern.find(&value).or_else(|| blank.find(&value)) {
                findings.push(placeholder_finding(found.as_str(), &path));
            }
        }
        let authority = &jwt.issuer.certificate_authority;
        if let Some(found) = pattern.find(authority) {
            findings.push(placeholder_finding(
                found.as_str(),
                &format!("{issuer}.certificateAuthority"),
            ));
        }
    }
}

fn placeholder_finding(placeholder: &str, path: &str) -> Finding {
    let code = Code::TemplateNotRendered;
    let message = format!("{} The first is {placeholder:?}.", code.cause());
    make_finding(code, Severity::Error, path, message)
}
