//! Checks claim validation rules and user validation rules.

use keyferry_cel_kubernetes::{Expression, Input, UserInfo};
use keyferry_go_formats::json::Json;

use super::claims::ClaimsView;
use super::mapping::{evaluate_expression, reject_failed};
use super::{End, Rejection, Stage, User};
use crate::Code;
use crate::config::Undetermined;
use crate::validate::Authenticator;

/// Checks the rules by claim and value. The apiserver walks them in random order, so if several
/// fail, it may name any of them.
pub(super) fn check_required(authenticator: &Authenticator, payload: &Json) -> Result<(), End> {
    let rules = authenticator
        .config
        .claim_validation_rules
        .iter()
        .filter(|rule| !rule.claim.is_empty());
    let mut failures =
        rules.filter_map(|rule| required_fault(payload, &rule.claim, &rule.required_value));
    match failures.next() {
        None => Ok(()),
        Some((code, message)) => {
            let rejection = Rejection::new(Stage::RequiredClaims, code, message);
            Err(End::Rejected(Rejection {
                others: failures.collect(),
                ..rejection
            }))
        }
    }
}

fn required_fault(payload: &Json, claim: &str, wanted: &str) -> Option<(Code, String)> {
    let Some(value) = payload.member(claim) else {
        return Some((
            Code::RequiredClaimMissing,
            format!("oidc: required claim {claim} not present in ID token"),
        ));
    };
    match value.to_text() {
        Err(reason) => Some((
            Code::RequiredClaimNotString,
            format!("oidc: parse claim {claim}: {reason}"),
        )),
        Ok(text) if text != wanted => {
            let message = format!(
                "oidc: required claim {claim} value does not match. Got = {text}, want = {wanted}"
            );
            Some((Code::RequiredClaimDiffers, message))
        }
        Ok(_) => None,
    }
}

pub(super) fn check_claims(
    authenticator: &Authenticator,
    view: &ClaimsView<'_>,
) -> Result<(), End> {
    let words = Words {
        stage: Stage::ClaimRules,
        failed: Code::ClaimRuleFailed,
        is_false: Code::ClaimRuleFalse,
        before: "oidc: error evaluating claim validation expression: ",
    };
    check_rules(
        &authenticator.claim_rules,
        |expression| view.input(expression),
        &words,
    )
}

pub(super) fn check_user(authenticator: &Authenticator, user: &User) -> Result<(), End> {
    if authenticator.user_rules.is_empty() {
        return Ok(());
    }
    let words = Words {
        stage: Stage::UserRules,
        failed: Code::UserRuleFailed,
        is_false: Code::UserRuleFalse,
        before: "oidc: error evaluating user info validation rule: ",
    };
    let info = UserInfo {
        username: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
    };
    check_rules(
        &authenticator.user_rules,
        |_| Ok(Input::User(&info)),
        &words,
    )
}

struct Words {
    stage: Stage,
    failed: Code,
    is_false: Code,
    before: &'static str,
}

/// Evaluates every rule before any result counts, as the apiserver does.
fn check_rules<'a>(
    rules: &[(Expression, String)],
    input: impl Fn(&Expression) -> Result<Input<'a>, Undetermined>,
    words: &Words,
) -> Result<(), End> {
    let reject = |code, reason: &str| {
        End::Rejected(Rejection::new(
            words.stage,
            code,
            format!("{}{reason}", words.before),
        ))
    };
    let mut values = Vec::with_capacity(rules.len());
    for (expression, message) in rules {
        let value = evaluate_expression(expression, input(expression)?)?
            .map_err(|failure| reject_failed(words.stage, words.failed, words.before, &failure))?;
        values.push((expression, message, value));
    }
    for (expression, message, value) in values {
        match value.as_bool() {
            Some(true) => {}
            Some(false) => {
                let reason = format!(
                    "validation expression '{}' failed: {message}",
                    expression.text()
                );
                return Err(reject(words.is_false, &reason));
            }
            None => {
                return Err(reject(
                    words.failed,
                    "validation expression must return a boolean",
                ));
            }
        }
    }
    Ok(())
}
