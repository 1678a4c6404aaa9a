//! Texts that the apiserver takes literally although they are written as something else: a path, a
//! wildcard, or an issuer that many clusters have.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::{AuthenticationConfiguration, JwtAuthenticator};

/// Domains that end the name of a claim like `kubernetes.io`, which is no path.
const CLAIM_DOMAINS: [&str; 9] = [
    "io", "com", "org", "net", "dev", "cloud", "app", "ai", "local",
];

/// A comparison with a literal: `== 'x'` or `'x' ==`, and a list of literals after `in`.
static COMPARISON_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"==\s*(?:'([^']*)'|"([^"]*)")|(?:'([^']*)'|"([^"]*)")\s*==|\bin\s*\[([^\[\]]*)\]|\.(?:startsWith|endsWith|contains)\(\s*(?:'([^']*)'|"([^"]*)")"#,
    )
    .ok()
});
static LITERAL_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"'([^']*)'|"([^"]*)""#).ok());

/// Finds them in every entry. `own_issuers` are the target's own issuers, if they are known.
pub(super) fn find_literals(
    configuration: &AuthenticationConfiguration,
    own_issuers: &[String],
    findings: &mut Vec<Finding>,
) {
    for (index, jwt) in configuration.jwt.iter().enumerate() {
        let path = format!("jwt[{index}]");
        let url = jwt.issuer.url.as_str();
        // --own-issuer says which issuers the target has, and then this is an error or harmless.
        let shared = is_cluster_default(url);
        if shared && own_issuers.is_empty() {
            let code = Code::IssuerOfEveryCluster;
            let path = format!("{path}.issuer.url");
            findings.push(make_finding(code, Severity::Warning, &path, code.cause()));
        }
        find_paths(jwt, &path, findings);
        find_wildcards(jwt, &path, findings);
    }
    for (index, condition) in configuration
        .anonymous
        .iter()
        .flat_map(|one| &one.conditions)
        .enumerate()
    {
        let path = &condition.path;
        let shown = if !path.starts_with('/') {
            "does not begin with a slash"
        } else if path.contains(['*', '?', ' ']) {
            "contains a wildcard, a question mark or a blank"
        } else {
            continue;
        };
        let place = format!("anonymous.conditions[{index}].path");
        findings.push(never_matches(&place, path, shown, "the path of a request"));
    }
}

/// Whether distributions of Kubernetes give this issuer to every cluster.
fn is_cluster_default(issuer: &str) -> bool {
    const HTTPS_SCHEME: &str = "https://";
    let Some((scheme, rest)) = issuer.split_at_checked(HTTPS_SCHEME.len()) else {
        return false;
    };
    let authority = rest.split(['/', '\\']).next().unwrap_or_default();
    let host = authority.split(':').next().unwrap_or_default();
    let host = host.to_ascii_lowercase();
    scheme.eq_ignore_ascii_case(HTTPS_SCHEME)
        && rest.bytes().all(|byte| byte.is_ascii_graphic())
        && !rest.contains(['?', '#', '@'])
        && (["kubernetes", "kubernetes.default", "kubernetes.default.svc"].contains(&host.as_str())
            || host.starts_with("kubernetes.default.svc."))
}

/// Finds claims that are written as a path.
fn find_paths(jwt: &JwtAuthenticator, path: &str, findings: &mut Vec<Finding>) {
    let mappings = &jwt.claim_mappings;
    let prefix = |prefix: &Option<String>| prefix.clone().unwrap_or_default();
    let mapped = [
        (
            "username",
            &mappings.username.claim,
            prefix(&mappings.username.prefix),
            false,
        ),
        (
            "groups",
            &mappings.groups.claim,
            prefix(&mappings.groups.prefix),
            true,
        ),
        ("uid", &mappings.uid.claim, String::new(), false),
    ];
    for (name, claim, prefix, is_list) in mapped {
        let Some(selected) = selecting_expression(claim) else {
            continue;
        };
        let prefix = format!("'{}'", prefix.replace(['\\', '\''], ""));
        let expression = match (prefix.as_str(), is_list) {
            ("''", _) => selected,
            (prefix, true) => format!("{selected}.map(group, {prefix} + group)"),
            (prefix, false) => format!("{prefix} + {selected}"),
        };
        let place = format!("{path}.claimMappings.{name}.claim");
        findings.push(is_path(
            &place,
            claim,
            &format!("expression: \"{expression}\", without claim and prefix"),
        ));
    }
    for (index, rule) in jwt.claim_validation_rules.iter().enumerate() {
        let Some(selected) = selecting_expression(&rule.claim) else {
            continue;
        };
        let value = rule.required_value.replace(['\\', '\''], "");
        let place = format!("{path}.claimValidationRules[{index}].claim");
        let fix =
            format!("expression: \"{selected} == '{value}'\", without claim and requiredValue");
        findings.push(is_path(&place, &rule.claim, &fix));
    }
}

fn is_path(place: &str, claim: &str, instead: &str) -> Finding {
    let message = format!(
        "{} The token would need a claim that is named {claim:?} as a whole.",
        Code::ClaimIsPath.cause()
    );
    Finding {
        fix: Cow::Owned(format!("write {instead}")),
        ..make_finding(Code::ClaimIsPath, Severity::Warning, place, message)
    }
}

/// Returns the expression that selects a path, if a claim is written as one.
fn selecting_expression(claim: &str) -> Option<String> {
    let path = claim
        .strip_prefix("$.")
        .or_else(|| claim.strip_prefix("claims."))
        .or_else(|| claim.strip_prefix('.'));
    let written_as_path = path.is_some() || claim.starts_with('/') || claim.contains('[');
    let path = path.unwrap_or(claim).trim_start_matches('/');
    let names: Vec<&str> = path
        .split(['.', '/', '[', ']'])
        .map(|name| name.trim_matches(['\'', '"', '*']))
        .filter(|name| !name.is_empty())
        .collect();
    let is_name = |name: &&str| {
        name.chars()
            .all(|character| character.is_alphanumeric() || "_-".contains(character))
            && name.chars().any(char::is_alphabetic)
    };
    if !names.iter().all(is_name) || names.is_empty() {
        return None;
    }
    let is_domain = names
        .last()
        .is_some_and(|last| CLAIM_DOMAINS.contains(last));
    let dotted = names.len() > 1 && !claim.contains(['/', ':']) && !is_domain;
    if !written_as_path && !dotted {
        return None;
    }
    let mut selected = "claims".to_owned();
    for name in names {
        if name.contains('-') || name.starts_with(|first: char| first.is_ascii_digit()) {
            selected += &format!("['{name}']");
        } else {
            selected += &format!(".{name}");
        }
    }
    Some(selected)
}

/// Finds texts with a wildcard that are compared byte for byte.
fn find_wildcards(jwt: &JwtAuthenticator, path: &str, findings: &mut Vec<Finding>) {
    for (index, audience) in jwt.issuer.audiences.iter().enumerate() {
        let place = format!("{path}.issuer.audiences[{index}]");
        if let Some(why) = wildcard_reason(audience).or_else(|| several_reason(audience)) {
            findings.push(never_matches(
                &place,
                audience,
                why,
                "an audience of the token",
            ));
        }
    }
    if let Some(why) = wildcard_reason(&jwt.issuer.url) {
        let place = format!("{path}.issuer.url");
        findings.push(never_matches(
            &place,
            &jwt.issuer.url,
            why,
            "the iss of the token",
        ));
    }
    for (index, rule) in jwt.claim_validation_rules.iter().enumerate() {
        let place = format!("{path}.claimValidationRules[{index}]");
        if let Some(why) = wildcard_reason(&rule.required_value) {
            let place = format!("{place}.requiredValue");
            findings.push(never_matches(
                &place,
                &rule.required_value,
                why,
                "the claim",
            ));
        }
        find_compared(&rule.expression, &format!("{place}.expression"), findings);
    }
    for (index, rule) in jwt.user_validation_rules.iter().enumerate() {
        let place = format!("{path}.userValidationRules[{index}].expression");
        find_compared(&rule.expression, &place, findings);
    }
}

fn find_compared(expression: &str, place: &str, findings: &mut Vec<Finding>) {
    let (Some(compared), Some(literal)) = (COMPARISON_PATTERN.as_ref(), LITERAL_PATTERN.as_ref())
    else {
        return;
    };
    for comparison in compared.find_iter(expression) {
        for found in literal.captures_iter(comparison.as_str()) {
            let text = found
                .get(1)
                .or_else(|| found.get(2))
                .map_or("", |text| text.as_str());
            if let Some(why) = wildcard_reason(text) {
                findings.push(never_matches(place, text, why, "the value"));
                return;
            }
        }
    }
}

/// Says why a text is meant as a pattern.
fn wildcard_reason(text: &str) -> Option<&'static str> {
    if text.contains('*') {
        Some("contains a wildcard")
    } else if text.len() > 2 && text.starts_with('^') && text.ends_with('$') {
        Some("is written as a regular expression")
    } else if text != text.trim() {
        Some("begins or ends with a blank")
    } else {
        None
    }
}

/// Says why an audience is meant as several.
fn several_reason(audience: &str) -> Option<&'static str> {
    audience
        .contains([',', ' ', '\n'])
        .then_some("contains a comma or a blank, and is one audience as a whole")
}

fn never_matches(place: &str, text: &str, why: &str, with: &str) -> Finding {
    let message =
        format!("{text:?} {why}, and is compared byte for byte with {with}, so it never matches.");
    make_finding(Code::NeverMatches, Severity::Warning, place, message)
}
