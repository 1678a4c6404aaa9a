//! Checks `claimValidationRules` and `userValidationRules`.

use std::collections::BTreeSet;

use keyferry_cel_kubernetes::Scope;

use super::expression::{ExpectedType, compile};
use super::{Authenticator, Check};
use crate::Code;
use crate::config::JwtAuthenticator;

pub(super) fn check_claims(
    check: &mut Check,
    config: &JwtAuthenticator,
    path: &str,
    out: &mut Authenticator,
) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    let new = check.new_wording();
    for (index, rule) in config.claim_validation_rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => check.invalid(
                Code::ClaimAndExpression,
                &path,
                &rule.claim,
                "claim and expression can't both be set",
            ),
            (true, true) => check.required(
                Code::ClaimOrExpressionMissing,
                &path,
                "claim or expression is required",
            ),
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = if new {
                        "may not be specified when claim is set"
                    } else {
                        "message can't be set when claim is set"
                    };
                    check.invalid(
                        Code::MessageWithClaim,
                        &format!("{path}.message"),
                        &rule.message,
                        detail,
                    );
                }
                if !claims.insert(rule.claim.as_str()) {
                    check.duplicate(Code::DuplicateRule, &format!("{path}.claim"), &rule.claim);
                }
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let detail = if new {
                        "may not be specified when expression is set"
                    } else {
                        "requiredValue can't be set when expression is set"
                    };
                    let path = format!("{path}.requiredValue");
                    check.invalid(
                        Code::RequiredValueWithExpression,
                        &path,
                        &rule.required_value,
                        detail,
                    );
                }
                let path = format!("{path}.expression");
                if !expressions.insert(rule.expression.as_str()) {
                    check.duplicate(Code::DuplicateRule, &path, &rule.expression);
                    continue;
                }
                let compiled = compile(
                    check,
                    Scope::Claims,
                    &rule.expression,
                    ExpectedType::Bool,
                    &path,
                );
                out.claim_rules
                    .extend(compiled.map(|expression| (expression, rule.message.clone())));
            }
        }
    }
}

pub(super) fn check_user(
    check: &mut Check,
    config: &JwtAuthenticator,
    path: &str,
    out: &mut Authenticator,
) {
    let mut expressions = BTreeSet::new();
    for (index, rule) in config.user_validation_rules.iter().enumerate() {
        let path = format!("{path}[{index}].expression");
        if rule.expression.is_empty() {
            let detail = if check.new_wording() {
                ""
            } else {
                "expression is required"
            };
            check.required(Code::ExpressionMissing, &path, detail);
            continue;
        }
        if !expressions.insert(rule.expression.as_str()) {
            check.duplicate(Code::DuplicateRule, &path, &rule.expression);
            continue;
        }
        let compiled = compile(
            check,
            Scope::User,
            &rule.expression,
            ExpectedType::Bool,
            &path,
        );
        out.user_rules
            .extend(compiled.map(|expression| (expression, rule.message.clone())));
    }
}
