//! Verifies many cases, one JSON object per line: a case in, a report out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config;
use crate::report::{Report, SCHEMA_VERSION};
use crate::token::{ServiceAccountToken, Token};
use crate::validate::{self, Compiled};
use crate::verify::{Keys, verify_token};
use crate::{Code, Minor, Release};

/// One case, as a line of the input gives it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BatchCase {
    /// Any value; copied into the report.
    #[serde(default)]
    id: Value,
    /// The target's release, like `1.33`.
    minor: String,
    /// The text of the AuthenticationConfiguration.
    config: String,
    /// The target's own ServiceAccount issuers.
    #[serde(default)]
    disallowed_issuers: Vec<String>,
    /// The time of the verification, in seconds since 1970.
    now: i64,
    /// The token to verify; exactly one of this and `serviceAccount` is given.
    #[serde(default)]
    token: Option<String>,
    /// A ServiceAccount whose token does not exist yet, instead of `token`.
    #[serde(default)]
    service_account: Option<CaseServiceAccount>,
    /// The key set for every issuer, as text. Without keys, signatures are not checked.
    #[serde(default)]
    keys: Option<String>,
    /// Key sets by issuer URL, as text.
    #[serde(default)]
    keys_by_issuer: BTreeMap<String, String>,
}

/// A ServiceAccount whose token does not exist yet.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaseServiceAccount {
    /// The namespace of the ServiceAccount.
    namespace: String,
    /// The name of the ServiceAccount.
    name: String,
    /// The UID of the ServiceAccount, if known.
    #[serde(default)]
    uid: Option<String>,
    /// The issuer of the ServiceAccount's cluster.
    issuer: String,
    /// The only audience of the token.
    audience: String,
    /// The lifetime of the token in seconds; 3600 by default.
    #[serde(default)]
    lifetime: Option<i64>,
}

/// Verifies cases. It caches the last compiled configuration, because cases often share one.
#[derive(Debug, Default)]
pub struct Batch {
    last: Option<(Minor, String, Vec<String>, Compiled)>,
}

impl Batch {
    /// Creates a batch without a cached configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the report on one line of input, without a line end. A line that is not a case gives
    /// a report that says so.
    #[must_use]
    pub fn report_line(&mut self, line: &str) -> String {
        let wrong = |id: Value, reason: String| {
            let reason = json!({"code": Code::NotACase, "message": reason, "exact": false, "fix": Code::NotACase.fix()});
            json!({"id": id, "schema": SCHEMA_VERSION, "verdict": "Undetermined", "reason": reason})
                .to_string()
        };
        let case: BatchCase = match serde_json::from_str(line) {
            Ok(case) => case,
            Err(error) => return wrong(Value::Null, error.to_string()),
        };
        let (release, now) = match (
            case.minor.parse::<Release>(),
            Timestamp::from_second(case.now),
        ) {
            (Ok(release), Ok(now)) => (release, now),
            (Err(error), _) => return wrong(case.id, error.to_string()),
            (_, Err(error)) => return wrong(case.id, error.to_string()),
        };
        if case.token.is_some() == case.service_account.is_some() {
            return wrong(
                case.id,
                "a case needs either token or serviceAccount".to_owned(),
            );
        }
        let report = self.report_case(&case, release.nearest_minor(), now);
        let mut report = serde_json::to_value(report.for_release(release)).unwrap_or_default();
        if let Some(members) = report.as_object_mut() {
            members.insert("id".to_owned(), case.id);
        }
        report.to_string()
    }

    fn report_case(&mut self, case: &BatchCase, minor: Minor, now: Timestamp) -> Report {
        let (token, assumed) = match (&case.token, &case.service_account) {
            (Some(token), _) => match Token::read(token.as_bytes()) {
                Ok(token) => (token, Vec::new()),
                Err(undetermined) => return Report::of_undetermined(minor, &undetermined),
            },
            (None, Some(account)) => {
                let account = account.token(case.now);
                (Token::of_service_account(&account), account.assumed())
            }
            (None, None) => {
                return Report::of_undetermined(
                    minor,
                    &config::Undetermined::new(Code::NotACase, "there is no token"),
                );
            }
        };
        let compiled = match self.compiled_case(case, minor) {
            Ok(compiled) => compiled,
            Err(report) => return *report,
        };
        let keys = case
            .keys
            .as_ref()
            .map_or_else(Keys::none, |body| Keys::for_all(body.as_bytes()));
        let keys = case
            .keys_by_issuer
            .iter()
            .fold(keys, |keys, (issuer, body)| {
                keys.with_key_set(issuer, body.as_bytes())
            });
        Report::of_verdict(
            compiled,
            &verify_token(compiled, &token, &keys, now),
            assumed,
        )
    }

    fn compiled_case(&mut self, case: &BatchCase, minor: Minor) -> Result<&Compiled, Box<Report>> {
        let known = self
            .last
            .as_ref()
            .is_some_and(|(last_minor, config, disallowed, _)| {
                *last_minor == minor
                    && *config == case.config
                    && *disallowed == case.disallowed_issuers
            });
        if !known {
            self.last = None;
        }
        match &mut self.last {
            Some((.., compiled)) => Ok(compiled),
            none @ None => {
                let compiled =
                    compile_configuration(&case.config, minor, &case.disallowed_issuers)?;
                let (.., compiled) = none.insert((
                    minor,
                    case.config.clone(),
                    case.disallowed_issuers.clone(),
                    compiled,
                ));
                Ok(compiled)
            }
        }
    }
}

fn compile_configuration(
    text: &str,
    minor: Minor,
    disallowed: &[String],
) -> Result<Compiled, Box<Report>> {
    let loaded = config::load_configuration(text.as_bytes(), minor)
        .map_err(|fault| Report::of_load_fault(minor, &fault))?;
    validate::validate_configuration(&loaded.configuration, minor, disallowed)
        .map_err(|invalid| Box::new(Report::of_invalid(minor, &invalid)))
}

impl CaseServiceAccount {
    fn token(&self, now: i64) -> ServiceAccountToken {
        ServiceAccountToken {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            issued_at: now,
            lifetime: self.lifetime.unwrap_or(3600),
        }
    }
}

#[cfg(test)]
mod tests;
