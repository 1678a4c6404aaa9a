//! Checks `claimMappings`.

use std::collections::BTreeSet;

use keyferry_cel_kubernetes::{Expression, Scope};

use super::expression::{ExpectedType, compile_expression};
use super::{Authenticator, Check, extra_key};
use crate::Code;
use crate::config::{JwtAuthenticator, PrefixedClaimOrExpression};

const EMAIL_DETAIL: &str = "claims.email_verified must be used in claimMappings.username.expression or \
                            claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
                            claimMappings.username.expression";

pub(super) fn check_mappings(
    check: &mut Check,
    config: &JwtAuthenticator,
    path: &str,
    out: &mut Authenticator,
) {
    let mappings = &config.claim_mappings;
    out.username = check_prefixed(
        check,
        &mappings.username,
        &format!("{path}.username"),
        Presence::Required,
    );
    out.groups = check_prefixed(
        check,
        &mappings.groups,
        &format!("{path}.groups"),
        Presence::Optional,
    );
    let uid = format!("{path}.uid");
    if !mappings.uid.claim.is_empty() && !mappings.uid.expression.is_empty() {
        check.add_invalid(
            Code::ClaimAndExpression,
            &uid,
            "",
            "claim and expression can't both be set",
        );
    } else if !mappings.uid.expression.is_empty() {
        out.uid = compile_expression(
            check,
            Scope::Claims,
            &mappings.uid.expression,
            ExpectedType::Anything,
            &format!("{uid}.expression"),
        );
    }
    check_extra(check, config, path, out);
    check_email(check, config, path, out);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// Returns the compiled expression, if there is one and its field has no error.
fn check_prefixed(
    check: &mut Check,
    mapping: &PrefixedClaimOrExpression,
    path: &str,
    need: Presence,
) -> Option<Expression> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => check.add_invalid(
            Code::ClaimAndExpression,
            path,
            "",
            "claim and expression can't both be set",
        ),
        (true, true) if need == Presence::Required => {
            check.add_required(
                Code::ClaimOrExpressionMissing,
                path,
                "claim or expression is required",
            );
        }
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = if check.new_wording() {
                    "may not be specified when expression is set"
                } else {
                    "prefix can't be set when expression is set"
                };
                check.add_invalid(
                    Code::PrefixWithExpression,
                    &format!("{path}.prefix"),
                    prefix,
                    detail,
                );
            }
            let compiled = compile_expression(
                check,
                Scope::Claims,
                &mapping.expression,
                ExpectedType::Anything,
                &format!("{path}.expression"),
            );
            return compiled.filter(|_| mapping.prefix.is_none());
        }
        (false, true) => {
            if mapping.prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty \
                    string to disable prefixing";
                check.add_required(Code::PrefixMissing, &format!("{path}.prefix"), detail);
            }
        }
    }
    None
}

fn check_extra(check: &mut Check, config: &JwtAuthenticator, path: &str, out: &mut Authenticator) {
    let mut keys = BTreeSet::new();
    for (index, mapping) in config.claim_mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{index}]");
        let key_path = format!("{path}.key");
        extra_key::check_extra_key(check, &mapping.key, &key_path);
        if !keys.insert(mapping.key.as_str()) {
            check.add_duplicate(Code::DuplicateExtraKey, &key_path, &mapping.key);
            continue;
        }
        let path = format!("{path}.valueExpression");
        if mapping.value_expression.is_empty() {
            let old_detail = "valueExpression is required";
            check.required_with_old_detail(Code::ExpressionMissing, &path, old_detail);
            continue;
        }
        let compiled = compile_expression(
            check,
            Scope::Claims,
            &mapping.value_expression,
            ExpectedType::Anything,
            &path,
        );
        out.extra
            .extend(compiled.map(|expression| (mapping.key.clone(), expression)));
    }
}

/// A username expression that uses `claims.email` must also check `claims.email_verified`. Uses in
/// groups and UID do not count.
fn check_email(check: &mut Check, config: &JwtAuthenticator, path: &str, out: &Authenticator) {
    let verified = |expression: &Expression| expression.selects("claims", "email_verified");
    let takes = out
        .username
        .as_ref()
        .is_some_and(|expression| expression.selects("claims", "email"));
    let looks = out.username.as_ref().is_some_and(verified)
        || out.extra.iter().any(|(_, expression)| verified(expression))
        || out
            .claim_rules
            .iter()
            .any(|(expression, _)| verified(expression));
    if takes && !looks {
        let expression = &config.claim_mappings.username.expression;
        check.add_invalid(
            Code::EmailVerifiedUnused,
            &format!("{path}.username.expression"),
            expression,
            EMAIL_DETAIL,
        );
    }
}
