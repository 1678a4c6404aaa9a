//! Checks `claimValidationRules` and `userValidationRules`.

use std::collections::BTreeSet;

use keyferry_cel_kubernetes::{Expression, Scope};

use super::expression::{ExpectedType, compile_expression};
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
            (false, false) => check.add_invalid(
                Code::ClaimAndExpression,
                &path,
                &rule.claim,
                "claim and expression can't both be set",
            ),
            (true, true) => check.add_required(
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
                    check.add_invalid(
                        Code::MessageWithClaim,
                        &format!("{path}.message"),
                        &rule.message,
                        detail,
                    );
                }
                if !claims.insert(rule.claim.as_str()) {
                    check.add_duplicate(Code::DuplicateRule, &format!("{path}.claim"), &rule.claim);
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
                    check.add_invalid(
                        Code::RequiredValueWithExpression,
                        &path,
                        &rule.required_value,
                        detail,
                    );
                }
                let compiled = compile_rule(
                    check,
                    Scope::Claims,
                    &rule.expression,
                    &format!("{path}.expression"),
                    &mut expressions,
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
            let old_detail = "expression is required";
            check.required_with_old_detail(Code::ExpressionMissing, &path, old_detail);
            continue;
        }
        let compiled = compile_rule(
            check,
            Scope::User,
            &rule.expression,
            &path,
            &mut expressions,
        );
        out.user_rules
            .extend(compiled.map(|expression| (expression, rule.message.clone())));
    }
}

/// Compiles the expression of a rule, unless it repeats one of the `earlier` ones.
fn compile_rule<'a>(
    check: &mut Check,
    scope: Scope,
    expression: &'a str,
    path: &str,
    earlier: &mut BTreeSet<&'a str>,
) -> Option<Expression> {
    if !earlier.insert(expression) {
        check.add_duplicate(Code::DuplicateRule, path, expression);
        return None;
    }
    compile_expression(check, scope, expression, ExpectedType::Bool, path)
}
