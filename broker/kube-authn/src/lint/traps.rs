//! Traps that the apiserver does not report.

use keyferry_cel_kubernetes::{Expression, Input};
use serde_json::Map;

use super::audiences::find_many_audiences;
use super::expressions::{Shape, find_shapes, without_literals};
use super::prefixes::{self, Names};
use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::{AuthenticationConfiguration, JwtAuthenticator};
use crate::validate::Compiled;

/// The group that may do everything, because every authorizer allows it.
const MASTERS_GROUP: &str = "system:masters";

/// Finds the traps that a file without compiled expressions shows too. `compiled` is there if the
/// file is valid.
pub(super) fn find_traps(
    configuration: &AuthenticationConfiguration,
    compiled: Option<&Compiled>,
    findings: &mut Vec<Finding>,
) {
    if configuration.anonymous.is_none() {
        let code = Code::AnonymousNotStated;
        findings.push(make_finding(
            code,
            Severity::Note,
            "anonymous",
            code.cause(),
        ));
    }
    if configuration.jwt.len() > 1 {
        findings.push(make_finding(
            Code::ManyIssuers,
            Severity::Note,
            "jwt",
            Code::ManyIssuers.cause(),
        ));
    }
    for (index, jwt) in configuration.jwt.iter().enumerate() {
        let path = format!("jwt[{index}]");
        let authenticator = compiled.and_then(|compiled| compiled.authenticators.get(index));
        find_many_audiences(jwt, authenticator, &path, findings);
        for (name, names, mapping) in [
            ("username", Names::Users, &jwt.claim_mappings.username),
            ("groups", Names::Groups, &jwt.claim_mappings.groups),
        ] {
            let path = format!("{path}.claimMappings.{name}");
            prefixes::find_prefixes(mapping, names, authenticator, &path, findings);
        }
        find_in_rules(jwt, &path, findings);
        for (path, expression) in claim_expressions(jwt, &path) {
            find_in_expression(expression, &path, findings);
        }
    }
}

/// From when a rule may count the life of a token.
const STARTS: [&str; 2] = ["claims.iat", "claims.nbf"];

fn find_in_rules(jwt: &JwtAuthenticator, path: &str, findings: &mut Vec<Finding>) {
    let code: Vec<String> = jwt
        .claim_validation_rules
        .iter()
        .map(|rule| without_literals(&rule.expression))
        .collect();
    let path = format!("{path}.claimValidationRules");
    let bounded = code
        .iter()
        .any(|code| code.contains("claims.exp") && STARTS.iter().any(|start| code.contains(start)));
    if !bounded {
        findings.push(make_finding(
            Code::NoLifetimeBound,
            Severity::Warning,
            &path,
            Code::NoLifetimeBound.cause(),
        ));
    }
    if !code.iter().any(|code| code.contains("claims.aud")) {
        findings.push(make_finding(
            Code::NoAudienceCount,
            Severity::Warning,
            &path,
            Code::NoAudienceCount.cause(),
        ));
    }
}

/// Lists every expression over claims, with its field.
fn claim_expressions<'a>(jwt: &'a JwtAuthenticator, path: &str) -> Vec<(String, &'a str)> {
    let mappings = &jwt.claim_mappings;
    let mut out = vec![
        (
            format!("{path}.claimMappings.username.expression"),
            mappings.username.expression.as_str(),
        ),
        (
            format!("{path}.claimMappings.groups.expression"),
            mappings.groups.expression.as_str(),
        ),
        (
            format!("{path}.claimMappings.uid.expression"),
            mappings.uid.expression.as_str(),
        ),
    ];
    for (index, extra) in mappings.extra.iter().enumerate() {
        out.push((
            format!("{path}.claimMappings.extra[{index}].valueExpression"),
            &extra.value_expression,
        ));
    }
    for (index, rule) in jwt.claim_validation_rules.iter().enumerate() {
        out.push((
            format!("{path}.claimValidationRules[{index}].expression"),
            &rule.expression,
        ));
    }
    out.retain(|(_, expression)| !expression.is_empty());
    out
}

fn find_in_expression(expression: &str, path: &str, findings: &mut Vec<Finding>) {
    for shape in find_shapes(expression) {
        let code = match shape {
            // An email by index matters only in the username.
            Shape::EmailByIndex if !path.ends_with(".username.expression") => continue,
            Shape::EmailByIndex => Code::EmailByIndex,
            Shape::Arithmetic => Code::ArithmeticNotPortable,
            Shape::ClaimsAsMap => Code::ClaimsAsMapNotPortable,
            Shape::Escape => Code::EscapeNotPortable,
        };
        findings.push(make_finding(code, Severity::Warning, path, code.cause()));
    }
}

/// Finds expressions that give system:masters.
pub(super) fn find_constants(compiled: &Compiled, findings: &mut Vec<Finding>) {
    for (index, authenticator) in compiled.authenticators.iter().enumerate() {
        for (name, expression) in [
            ("username", &authenticator.username),
            ("groups", &authenticator.groups),
        ] {
            let Some(expression) = expression
                .as_ref()
                .filter(|expression| expression.text().contains(MASTERS_GROUP))
            else {
                continue;
            };
            let path = format!("jwt[{index}].claimMappings.{name}.expression");
            let (code, severity) = if gives_masters(expression) {
                (Code::ConstantSystemMasters, Severity::Error)
            } else {
                (Code::NamesSystemMasters, Severity::Warning)
            };
            findings.push(make_finding(code, severity, &path, code.cause()));
        }
    }
}

/// Whether an expression gives system:masters to a token without any claim.
fn gives_masters(expression: &Expression) -> bool {
    let Ok(value) = expression.evaluate(Input::Claims(&Map::new())) else {
        return false;
    };
    crate::verify::text_list(&value)
        .is_some_and(|texts| texts.iter().any(|text| text == MASTERS_GROUP))
}
