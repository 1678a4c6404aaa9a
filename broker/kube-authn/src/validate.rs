//! Validates a loaded configuration as an apiserver of that minor does: every rule, all errors at
//! once, in its own words.

mod authenticator;
mod expression;
mod extra_key;
mod field_error;
mod issuer;
mod mappings;
mod rules;

pub use field_error::{ErrorType, FieldError};

use std::collections::BTreeSet;

use keyferry_cel_kubernetes::Environment;

use crate::config::{AuthenticationConfiguration, Undetermined};
use crate::{Code, Minor};

pub(crate) use authenticator::Authenticator;

/// A configuration that the apiserver accepts, with its expressions compiled. Compile once, verify
/// many tokens.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) minor: Minor,
    pub(crate) authenticators: Vec<Authenticator>,
}

impl Compiled {
    /// The minor release that it was compiled for.
    #[must_use]
    pub fn minor(&self) -> Minor {
        self.minor
    }

    /// Returns the issuer URLs, in the order of the file.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.authenticators
            .iter()
            .map(|authenticator| authenticator.config.issuer.url.as_str())
    }
}

/// Why a configuration is not accepted. With an error it is surely refused; with undetermined parts
/// only, the result is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalid {
    /// The errors, in the apiserver's order.
    pub errors: Vec<FieldError>,
    /// The parts that could not be judged here.
    pub undetermined: Vec<Undetermined>,
}

impl Invalid {
    /// Returns all errors as the apiserver prints them: `a`, or `[a, b]` with each text once.
    #[must_use]
    pub fn message(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for error in &self.errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

/// Validates a configuration as a reload does. `disallowed` are the target's own ServiceAccount
/// issuers.
///
/// # Errors
/// [`Invalid`] with every error.
pub fn validate_configuration(
    configuration: &AuthenticationConfiguration,
    minor: Minor,
    disallowed: &[String],
) -> Result<Compiled, Invalid> {
    let mut check = Check {
        minor,
        disallowed: disallowed.iter().cloned().collect(),
        environment: Environment::new(minor),
        invalid: Invalid::default(),
    };
    if configuration.jwt.len() > 64 {
        let detail = "must have at most 64 items".to_owned();
        check.push_error(
            Code::TooManyAuthenticators,
            ErrorType::TooMany,
            "jwt",
            Some(configuration.jwt.len().to_string()),
            &detail,
        );
        return Err(check.invalid);
    }
    let (mut issuers, mut discovery) = (BTreeSet::new(), BTreeSet::new());
    let mut authenticators = Vec::new();
    for (index, authenticator) in configuration.jwt.iter().enumerate() {
        let path = format!("jwt[{index}]");
        authenticators.extend(authenticator::check_authenticator(
            &mut check,
            authenticator,
            &path,
        ));
        let issuer = &authenticator.issuer;
        if !issuers.insert(issuer.url.as_str()) {
            check.add_duplicate(
                Code::DuplicateIssuer,
                &format!("{path}.issuer.url"),
                &issuer.url,
            );
        }
        if !issuer.discovery_url.is_empty() && !discovery.insert(issuer.discovery_url.as_str()) {
            check.add_duplicate(
                Code::DuplicateDiscoveryUrl,
                &format!("{path}.issuer.discoveryURL"),
                &issuer.discovery_url,
            );
        }
    }
    check_anonymous(&mut check, configuration);
    if check.invalid.errors.is_empty() && check.invalid.undetermined.is_empty() {
        return Ok(Compiled {
            minor,
            authenticators,
        });
    }
    Err(check.invalid)
}

fn check_anonymous(check: &mut Check, configuration: &AuthenticationConfiguration) {
    let Some(anonymous) = &configuration.anonymous else {
        return;
    };
    if check.minor == Minor::V1_31 {
        let detail = "anonymous is not supported when AnonymousAuthConfigurableEnpoints feature \
            gate is disabled";
        check.push_error(
            Code::UnknownField,
            ErrorType::Forbidden,
            "anonymous",
            None,
            detail,
        );
    }
    if !anonymous.enabled && !anonymous.conditions.is_empty() {
        let paths: Vec<String> = anonymous
            .conditions
            .iter()
            .map(|condition| keyferry_go_formats::quote::quote(&condition.path))
            .collect();
        let value = if check.minor <= Minor::V1_33 {
            let items: Vec<String> = paths
                .iter()
                .map(|path| format!("apiserver.AnonymousAuthCondition{{Path:{path}}}"))
                .collect();
            format!("[]apiserver.AnonymousAuthCondition{{{}}}", items.join(", "))
        } else {
            let items: Vec<String> = paths
                .iter()
                .map(|path| format!("{{\"Path\":{path}}}"))
                .collect();
            format!("[{}]", items.join(","))
        };
        let detail = "enabled should be set to true when conditions are defined";
        check.push_error(
            Code::ConditionsWithoutAnonymous,
            ErrorType::Invalid,
            "anonymous.conditions",
            Some(value),
            detail,
        );
    }
}

/// The state of a validation: its inputs, and the faults found so far.
pub(crate) struct Check {
    minor: Minor,
    disallowed: BTreeSet<String>,
    environment: Environment,
    invalid: Invalid,
}

impl Check {
    /// Whether this minor uses the error texts of 1.34 and later.
    fn new_wording(&self) -> bool {
        self.minor >= Minor::V1_34
    }

    fn push_error(
        &mut self,
        code: Code,
        kind: ErrorType,
        path: &str,
        value: Option<String>,
        detail: &str,
    ) {
        self.invalid.errors.push(FieldError {
            code,
            kind,
            path: path.to_owned(),
            value,
            detail: detail.to_owned(),
            exact: true,
        });
    }

    /// As [`Self::add_invalid`], with a value that the apiserver does not print.
    fn invalid_omitted(&mut self, code: Code, path: &str, detail: String, exact: bool) {
        self.invalid.errors.push(FieldError {
            code,
            kind: ErrorType::Invalid,
            path: path.to_owned(),
            value: Some(keyferry_go_formats::quote::quote("<omitted>")),
            detail,
            exact,
        });
    }

    fn add_required(&mut self, code: Code, path: &str, detail: &str) {
        self.push_error(code, ErrorType::Required, path, None, detail);
    }

    /// As [`Self::add_required`]. From 1.34 on, the error has no detail.
    fn required_with_old_detail(&mut self, code: Code, path: &str, old_detail: &str) {
        let detail = if self.new_wording() { "" } else { old_detail };
        self.add_required(code, path, detail);
    }

    fn add_invalid(&mut self, code: Code, path: &str, value: &str, detail: &str) {
        self.push_error(
            code,
            ErrorType::Invalid,
            path,
            Some(keyferry_go_formats::quote::quote(value)),
            detail,
        );
    }

    /// As [`Self::add_invalid`], for a value whose Go type is not `string` itself. From 1.34 on,
    /// such a value is printed as JSON.
    fn invalid_named(&mut self, code: Code, path: &str, value: &str, detail: &str) {
        let shown = if self.new_wording() {
            keyferry_go_formats::quote::quote_json(value)
        } else {
            keyferry_go_formats::quote::quote(value)
        };
        self.push_error(code, ErrorType::Invalid, path, Some(shown), detail);
    }

    fn add_duplicate(&mut self, code: Code, path: &str, value: &str) {
        self.push_error(
            code,
            ErrorType::Duplicate,
            path,
            Some(keyferry_go_formats::quote::quote(value)),
            "",
        );
    }

    fn add_undetermined(&mut self, code: Code, path: &str, reason: &str) {
        self.invalid
            .undetermined
            .push(Undetermined::new(code, format!("{path}: {reason}")));
    }
}

#[cfg(test)]
mod tests;
