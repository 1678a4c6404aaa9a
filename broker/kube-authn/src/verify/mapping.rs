//! Maps claims to a user: name, then groups, then UID, then extra.

use std::collections::BTreeMap;

use keyferry_cel_kubernetes::{EvaluateFault, Expression, Input, UndeterminedKind, Value};
use keyferry_go_formats::json::Json;
use keyferry_go_formats::quote::quote;

use super::claims::ClaimsView;
use super::{End, Rejection, Stage, User, text_list};
use crate::config::{PrefixedClaimOrExpression, Undetermined};
use crate::validate::Authenticator;
use crate::{Code, Minor};

/// The extra key for the token's `jti`, from 1.32.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

pub(super) fn map_claims(
    authenticator: &Authenticator,
    view: &ClaimsView<'_>,
    minor: Minor,
) -> Result<User, End> {
    Ok(User {
        username: map_username(authenticator, view)?,
        groups: map_groups(authenticator, view)?,
        uid: map_uid(authenticator, view)?,
        extra: map_extra(authenticator, view, minor)?,
    })
}

fn reject_token(stage: Stage, code: Code, message: impl Into<String>) -> End {
    End::Rejected(Rejection::new(stage, code, message))
}

/// The failure of an expression.
pub(super) struct Failure {
    /// The apiserver's message, without its prefix.
    pub(super) message: String,
    /// Whether the message is exactly the apiserver's.
    pub(super) exact: bool,
}

/// Rejects the token because an expression failed. `before` is the prefix of the apiserver's
/// message.
pub(super) fn reject_failed(stage: Stage, code: Code, before: &str, failure: &Failure) -> End {
    let rejection = Rejection::new(stage, code, format!("{before}{}", failure.message));
    End::Rejected(if failure.exact {
        rejection
    } else {
        rejection.near()
    })
}

/// Evaluates an expression. The inner error rejects the token, the outer one leaves it
/// undetermined.
pub(super) fn evaluate_expression(
    expression: &Expression,
    input: Input<'_>,
) -> Result<Result<Value, Failure>, Undetermined> {
    let (reason, exact) = match expression.evaluate(input) {
        Ok(value) => return Ok(Ok(value)),
        Err(EvaluateFault::Failed { message, exact }) => (message, exact),
        Err(EvaluateFault::CostLimit) => (
            "operation cancelled: actual cost limit exceeded".to_owned(),
            true,
        ),
        Err(EvaluateFault::Undetermined(undetermined)) => {
            let code = match undetermined.kind {
                UndeterminedKind::ClaimTooDeep => Code::TooDeep,
                UndeterminedKind::Expression => Code::ExpressionUndetermined,
            };
            return Err(Undetermined::new(
                code,
                format!("{}: {}", undetermined.expression, undetermined.reason),
            ));
        }
    };
    Ok(Err(Failure {
        message: format!(
            "expression '{}' resulted in error: {reason}",
            expression.text()
        ),
        exact,
    }))
}

fn map_username(authenticator: &Authenticator, view: &ClaimsView<'_>) -> Result<String, End> {
    const ERROR_PREFIX: &str = "oidc: error evaluating username claim expression: ";
    if let Some(expression) = &authenticator.username {
        let value =
            evaluate_expression(expression, view.input(expression)?)?.map_err(|failure| {
                reject_failed(
                    Stage::Username,
                    Code::UsernameExpressionFailed,
                    ERROR_PREFIX,
                    &failure,
                )
            })?;
        let Some(name) = value.as_str() else {
            let message = format!("{ERROR_PREFIX}username claim expression must return a string");
            return Err(reject_token(
                Stage::Username,
                Code::UsernameNotString,
                message,
            ));
        };
        if name.is_empty() {
            let message = "oidc: empty username via CEL expression is not allowed";
            return Err(reject_token(Stage::Username, Code::UsernameEmpty, message));
        }
        return Ok(name.to_owned());
    }
    let mapping = &authenticator.config.claim_mappings.username;
    let before = format!("oidc: parse username claims {}: ", quote(&mapping.claim));
    let Some(claim) = view.payload.member(&mapping.claim) else {
        return Err(reject_token(
            Stage::Username,
            Code::UsernameClaimMissing,
            format!("{before}claim not present"),
        ));
    };
    let name = claim.to_text().map_err(|reason| {
        reject_token(
            Stage::Username,
            Code::UsernameClaimNotString,
            format!("{before}{reason}"),
        )
    })?;
    if mapping.claim == "email" {
        check_email(view.payload)?;
    }
    Ok(add_prefix(mapping, &name))
}

fn check_email(payload: &Json) -> Result<(), End> {
    let Some(verified) = payload.member("email_verified") else {
        return Ok(());
    };
    match verified.to_bool() {
        Ok(true) => Ok(()),
        Ok(false) => Err(reject_token(
            Stage::Username,
            Code::EmailNotVerified,
            "oidc: email not verified",
        )),
        Err(reason) => {
            let message = format!("oidc: parse 'email_verified' claim: {reason}");
            Err(reject_token(
                Stage::Username,
                Code::EmailVerifiedNotBool,
                message,
            ))
        }
    }
}

fn add_prefix(mapping: &PrefixedClaimOrExpression, text: &str) -> String {
    format!("{}{text}", mapping.prefix.as_deref().unwrap_or_default())
}

fn map_groups(authenticator: &Authenticator, view: &ClaimsView<'_>) -> Result<Vec<String>, End> {
    let mapping = &authenticator.config.claim_mappings.groups;
    if let Some(claim) = view
        .payload
        .member(&mapping.claim)
        .filter(|_| !mapping.claim.is_empty())
    {
        let groups = claim
            .to_texts()
            .or_else(|_| claim.to_text().map(|text| vec![text]))
            .map_err(|reason| {
                let message = format!(
                    "oidc: parse groups claim {}: {reason}",
                    quote(&mapping.claim)
                );
                reject_token(Stage::Groups, Code::GroupsClaimMalformed, message)
            })?;
        return Ok(groups
            .iter()
            .map(|group| add_prefix(mapping, group))
            .collect());
    }
    const ERROR_PREFIX: &str = "oidc: error evaluating group claim expression: ";
    let Some(expression) = &authenticator.groups else {
        return Ok(Vec::new());
    };
    let value = evaluate_expression(expression, view.input(expression)?)?.map_err(|failure| {
        reject_failed(
            Stage::Groups,
            Code::GroupsExpressionFailed,
            ERROR_PREFIX,
            &failure,
        )
    })?;
    text_list::read_text_list(&value).ok_or_else(|| {
        let message = format!("{ERROR_PREFIX}expression must return a string or a list of strings");
        reject_token(Stage::Groups, Code::GroupsNotStrings, message)
    })
}

fn map_uid(authenticator: &Authenticator, view: &ClaimsView<'_>) -> Result<String, End> {
    let name = &authenticator.config.claim_mappings.uid.claim;
    if !name.is_empty() {
        let before = format!("oidc: parse uid claim {}: ", quote(name));
        let Some(claim) = view.payload.member(name) else {
            return Err(reject_token(
                Stage::Uid,
                Code::UidClaimMissing,
                format!("{before}claim not present"),
            ));
        };
        return claim.to_text().map_err(|reason| {
            reject_token(
                Stage::Uid,
                Code::UidClaimNotString,
                format!("{before}{reason}"),
            )
        });
    }
    const ERROR_PREFIX: &str = "oidc: error evaluating uid claim expression: ";
    let Some(expression) = &authenticator.uid else {
        return Ok(String::new());
    };
    let value = evaluate_expression(expression, view.input(expression)?)?.map_err(|failure| {
        reject_failed(
            Stage::Uid,
            Code::UidExpressionFailed,
            ERROR_PREFIX,
            &failure,
        )
    })?;
    value.as_str().map(str::to_owned).ok_or_else(|| {
        reject_token(
            Stage::Uid,
            Code::UidNotString,
            format!("{ERROR_PREFIX}uid claim expression must return a string"),
        )
    })
}

fn map_extra(
    authenticator: &Authenticator,
    view: &ClaimsView<'_>,
    minor: Minor,
) -> Result<BTreeMap<String, Vec<String>>, End> {
    let mut extra = BTreeMap::new();
    if let (true, Some(Json::Text(id))) = (minor >= Minor::V1_32, view.payload.member("jti"))
        && !id.is_empty()
    {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    // All are evaluated before any result counts, and a failure has no `oidc:` prefix.
    let mut values = Vec::new();
    for (key, expression) in &authenticator.extra {
        let value =
            evaluate_expression(expression, view.input(expression)?)?.map_err(|failure| {
                reject_failed(Stage::Extra, Code::ExtraExpressionFailed, "", &failure)
            })?;
        values.push((key, expression, value));
    }
    for (key, expression, value) in values {
        let Some(texts) = text_list::read_text_list(&value) else {
            let message = format!(
                "oidc: error evaluating extra claim expression: {}: expression must return a \
                 string or a list of strings",
                expression.text()
            );
            return Err(reject_token(Stage::Extra, Code::ExtraNotStrings, message));
        };
        if !texts.is_empty() {
            extra.insert(key.clone(), texts);
        }
    }
    Ok(extra)
}
