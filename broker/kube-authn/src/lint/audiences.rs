//! Several audiences of one entry: whether each has rules and names of its own, as roles have.

use std::collections::BTreeSet;

use keyferry_cel_kubernetes::{Expression, Input};
use serde_json::{Map, Value, json};

use super::expressions::without_literals;
use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::JwtAuthenticator;
use crate::validate::Authenticator;
use crate::verify::text_list;

/// What the rules and mappings of an entry make of its audiences.
enum AudienceSeparation {
    /// Each audience has rules and names of its own.
    Separate,
    /// The username depends on the audience, and these two give the same one.
    SameUser(String, String),
    /// A token for one audience may be what a token for another one is.
    Mixed,
}

/// Finds an entry with several audiences that are not kept apart. `authenticator` is the compiled
/// entry, if the file is valid.
pub(super) fn find_many_audiences(
    jwt: &JwtAuthenticator,
    authenticator: Option<&Authenticator>,
    path: &str,
    findings: &mut Vec<Finding>,
) {
    if jwt.issuer.audiences.len() < 2 {
        return;
    }
    let code = Code::ManyAudiences;
    let (severity, message) = match authenticator.map_or(AudienceSeparation::Mixed, separation) {
        AudienceSeparation::Separate => return,
        AudienceSeparation::Mixed => (Severity::Warning, code.cause().to_owned()),
        AudienceSeparation::SameUser(one, other) => (
            Severity::Error,
            format!(
                "The username depends on the audience, but {one:?} and {other:?} give the same one, \
                 so what is bound to one role is bound to the other."
            ),
        ),
    };
    let path = format!("{path}.issuer.audiences");
    findings.push(make_finding(code, severity, &path, message));
}

/// Tries the expressions with the claims of a ServiceAccount that no rule names.
fn separation(authenticator: &Authenticator) -> AudienceSeparation {
    let audiences = &authenticator.audiences;
    let names = authenticator.username.as_ref();
    let Some(names) = names.filter(|it| without_literals(it.text()).contains("claims.aud")) else {
        return AudienceSeparation::Mixed;
    };
    let (mut users, mut groups) = (Vec::<(String, &String)>::new(), BTreeSet::new());
    for audience in audiences {
        let claims = claims_for(std::slice::from_ref(audience));
        let user = names.evaluate(Input::Claims(&claims)).ok();
        let Some(user) = user.as_ref().and_then(|user| user.as_str()) else {
            return AudienceSeparation::Mixed;
        };
        if let Some((_, other)) = users.iter().find(|(known, _)| known == user) {
            return AudienceSeparation::SameUser((*other).clone(), audience.clone());
        }
        users.push((user.to_owned(), audience));
        let own = match &authenticator.groups {
            Some(groups) => groups_of(groups, &claims),
            // A claim with groups does not depend on the audience.
            None => authenticator
                .config
                .claim_mappings
                .groups
                .claim
                .is_empty()
                .then(Vec::new),
        };
        let is_separate = own.is_some_and(|own| own.into_iter().all(|group| groups.insert(group)));
        if !is_separate || !is_refused_by_a_rule(authenticator, &claims) {
            return AudienceSeparation::Mixed;
        }
    }
    match admits_one_audience_only(authenticator) {
        true => AudienceSeparation::Separate,
        false => AudienceSeparation::Mixed,
    }
}

fn groups_of(groups: &Expression, claims: &Map<String, Value>) -> Option<Vec<String>> {
    text_list(&groups.evaluate(Input::Claims(claims)).ok()?)
}

/// Whether a rule surely refuses the claims.
fn is_refused_by_a_rule(authenticator: &Authenticator, claims: &Map<String, Value>) -> bool {
    let mut rules = authenticator.claim_rules.iter();
    rules.any(|(rule, _)| decides(rule, claims) == Some(false))
}

/// Whether a rule refuses a token for all audiences, which it admits for each of them alone.
fn admits_one_audience_only(authenticator: &Authenticator) -> bool {
    let audiences = &authenticator.audiences;
    authenticator.claim_rules.iter().any(|(rule, _)| {
        decides(rule, &claims_for(audiences)) == Some(false)
            && audiences
                .iter()
                .all(|one| decides(rule, &claims_for(std::slice::from_ref(one))) == Some(true))
    })
}

fn decides(rule: &Expression, claims: &Map<String, Value>) -> Option<bool> {
    rule.evaluate(Input::Claims(claims)).ok()?.as_bool()
}

fn claims_for(audiences: &[String]) -> Map<String, Value> {
    let claims = json!({
        "aud": audiences,
        "sub": "system:serviceaccount:keyferry-lint:nobody",
        "iat": 1, "nbf": 1, "exp": 2,
        "kubernetes.io": {
            "namespace": "keyferry-lint",
            "serviceaccount": { "name": "nobody", "uid": "u" },
        },
    });
    match claims {
        Value::Object(claims) => claims,
        _ => Map::new(),
    }
}
