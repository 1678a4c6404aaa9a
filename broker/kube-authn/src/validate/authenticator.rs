//! One entry of `jwt`, checked and compiled.

use keyferry_cel_kubernetes::Expression;

use super::{Check, issuer, mappings, rules};
use crate::config::JwtAuthenticator;

/// An authenticator whose expressions are compiled.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    pub(crate) config: JwtAuthenticator,
    /// `issuer.audiences`, sorted, each once.
    pub(crate) audiences: Vec<String>,
    pub(crate) username: Option<Expression>,
    pub(crate) groups: Option<Expression>,
    pub(crate) uid: Option<Expression>,
    /// Key and expression, in the order of the file.
    pub(crate) extra: Vec<(String, Expression)>,
    /// Expression and message, in the order of the file.
    pub(crate) claim_rules: Vec<(Expression, String)>,
    /// Expression and message, in the order of the file.
    pub(crate) user_rules: Vec<(Expression, String)>,
}

impl Authenticator {
    /// Whether any expression uses claims.
    pub(crate) fn evaluates_claims(&self) -> bool {
        self.username.is_some()
            || self.groups.is_some()
            || self.uid.is_some()
            || !self.extra.is_empty()
            || !self.claim_rules.is_empty()
    }
}

/// Checks an entry of `jwt` and compiles its expressions. The result is complete only if no error
/// was found.
pub(super) fn check_authenticator(
    check: &mut Check,
    config: &JwtAuthenticator,
    path: &str,
) -> Option<Authenticator> {
    issuer::check_issuer(check, &config.issuer, &format!("{path}.issuer"));
    let mut out = Authenticator {
        config: config.clone(),
        ..Authenticator::default()
    };
    rules::check_claims(
        check,
        config,
        &format!("{path}.claimValidationRules"),
        &mut out,
    );
    mappings::check_mappings(check, config, &format!("{path}.claimMappings"), &mut out);
    rules::check_user(
        check,
        config,
        &format!("{path}.userValidationRules"),
        &mut out,
    );
    out.audiences.clone_from(&config.issuer.audiences);
    out.audiences.sort();
    out.audiences.dedup();
    Some(out)
}
