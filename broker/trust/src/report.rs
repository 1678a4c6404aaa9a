//! A verdict as JSON, in a form that stays: what `-o json` and the batch print.

use serde::Serialize;

use crate::config::{LoadFault, Refusal, Undetermined};
use crate::doctor::Cause;
use crate::validate::{Compiled, FieldError, Invalid};
use crate::verify::{Outcome, SignatureCheck, Stage, Union, User, Verdict};
use crate::{Code, Minor};

/// The form of [`Report`]. Fields may be added to it; none changes its meaning.
pub const SCHEMA: &str = "keyferry.dev/trust-report/v1";

/// What a target makes of a token.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The target's release, like `1.33`.
    pub minor: String,
    /// `Accepted`, `Rejected`, `Skipped` (by all), `Undetermined` or `ConfigurationRefused`.
    pub verdict: Answer,
    /// Why, where the verdict is not `Accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The user, where the verdict is `Accepted`. `system:authenticated` is added by the apiserver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Whether the signature was verified; if not, the verdict holds only if it is good.
    pub signature: SignatureCheck,
    /// Claims whose values were assumed, for a token that does not exist yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<&'static str>,
    /// The errors of a configuration that is refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ConfigurationError>,
    /// What each entry of `jwt` says, in the order of the file.
    pub authenticators: Vec<AuthenticatorReport>,
    /// What is dangerous though the target takes it: errors of lint, and a user name that is not
    /// the hub's. Not part of a batch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Danger>,
}

/// Something that gives rights away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Danger {
    /// The name of the reason.
    pub code: Cause,
    /// What was found, and where.
    pub message: String,
    /// What to do.
    pub fix: &'static str,
}

/// The verdict in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Answer {
    /// An authenticator names the user.
    Accepted,
    /// An authenticator refuses the token.
    Rejected,
    /// No authenticator feels responsible.
    Skipped,
    /// It cannot be said here.
    Undetermined,
    /// The apiserver does not take the configuration.
    ConfigurationRefused,
}

/// Why a verdict is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The name of the reason.
    pub code: Code,
    /// Where the token fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The apiserver's words, or ours where it says nothing.
    pub message: String,
    /// Whether the words are the apiserver's, exactly.
    pub exact: bool,
    /// What it may say instead, by chance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// What to do.
    pub fix: &'static str,
}

/// Another thing that the apiserver may say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// The name of the reason.
    pub code: Code,
    /// The apiserver's words.
    pub message: String,
}

/// One error of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigurationError {
    /// The name of the rule.
    pub code: Code,
    /// The field; empty where the file as a whole is refused.
    pub field: String,
    /// `FieldValueInvalid` and the like; empty where the file as a whole is refused.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The apiserver's words.
    pub message: String,
    /// Whether they are the apiserver's, exactly.
    pub exact: bool,
}

/// What one entry of `jwt` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuthenticatorReport {
    /// `issuer.url`.
    pub issuer: String,
    /// Its verdict.
    pub verdict: Answer,
    /// Why, where it does not accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The user, where it accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
}

impl Reason {
    fn own(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            stage: None,
            message: message.into(),
            exact: false,
            alternatives: Vec::new(),
            fix: code.fix(),
        }
    }
}

impl Report {
    fn new(minor: Minor, verdict: Answer) -> Self {
        Self {
            schema: SCHEMA,
            minor: minor.to_string(),
            verdict,
            reason: None,
            user: None,
            signature: SignatureCheck::NotChecked,
            assumed: Vec::new(),
            errors: Vec::new(),
            authenticators: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Of a file that is not loaded.
    #[must_use]
    pub fn of_load_fault(minor: Minor, fault: &LoadFault) -> Self {
        match fault {
            LoadFault::Undetermined(undetermined) => Self::of_undetermined(minor, undetermined),
            LoadFault::Refused(Refusal {
                code,
                message,
                exact,
                ..
            }) => Self {
                reason: Some(Reason {
                    exact: *exact,
                    ..Reason::own(*code, message)
                }),
                errors: vec![ConfigurationError {
                    code: *code,
                    field: String::new(),
                    kind: "",
                    message: message.clone(),
                    exact: *exact,
                }],
                ..Self::new(minor, Answer::ConfigurationRefused)
            },
        }
    }

    /// Of something that cannot be said here.
    #[must_use]
    pub fn of_undetermined(minor: Minor, undetermined: &Undetermined) -> Self {
        let reason = Some(Reason::own(undetermined.code, &undetermined.reason));
        Self {
            reason,
            ..Self::new(minor, Answer::Undetermined)
        }
    }

    /// Of a configuration that is not valid.
    #[must_use]
    pub fn of_invalid(minor: Minor, invalid: &Invalid) -> Self {
        if let ([], [undetermined, ..]) =
            (invalid.errors.as_slice(), invalid.undetermined.as_slice())
        {
            return Self::of_undetermined(minor, undetermined);
        }
        let exact =
            invalid.undetermined.is_empty() && invalid.errors.iter().all(FieldError::is_exact);
        let reason = Some(Reason {
            exact,
            ..Reason::own(Code::ConfigurationRefused, invalid.message())
        });
        let errors = invalid
            .errors
            .iter()
            .map(ConfigurationError::from)
            .collect();
        Self {
            reason,
            errors,
            ..Self::new(minor, Answer::ConfigurationRefused)
        }
    }

    /// Of a token that was verified.
    #[must_use]
    pub fn of_verdict(compiled: &Compiled, verdict: &Verdict, assumed: Vec<&'static str>) -> Self {
        let authenticators: Vec<AuthenticatorReport> = compiled
            .issuers()
            .zip(&verdict.outcomes)
            .map(|(issuer, outcome)| {
                let (answer, reason, user) = split(outcome);
                AuthenticatorReport {
                    issuer: issuer.to_owned(),
                    verdict: answer,
                    reason,
                    user,
                }
            })
            .collect();
        let (answer, reason, user) = match verdict.union() {
            Union::Skipped => {
                let code = verdict.outcomes.iter().find_map(|outcome| match outcome {
                    Outcome::Skipped(code) => Some(*code),
                    _ => None,
                });
                (
                    Answer::Skipped,
                    Some(skipped(code.unwrap_or(Code::IssuerDiffers))),
                    None,
                )
            }
            Union::Accepted(user) => (Answer::Accepted, None, Some(user.clone())),
            Union::Rejected(rejection) => split(&Outcome::Rejected(rejection.clone())),
            Union::Undetermined(undetermined) => {
                split(&Outcome::Undetermined(undetermined.clone()))
            }
        };
        let signature = verdict.signature;
        Self {
            reason,
            user,
            signature,
            assumed,
            authenticators,
            ..Self::new(compiled.minor(), answer)
        }
    }
}

/// A skip leaves no trace in the apiserver's log but that nobody took the token.
fn skipped(code: Code) -> Reason {
    Reason::own(code, "invalid bearer token")
}

fn split(outcome: &Outcome) -> (Answer, Option<Reason>, Option<User>) {
    match outcome {
        Outcome::Skipped(code) => (Answer::Skipped, Some(skipped(*code)), None),
        Outcome::Accepted(user) => (Answer::Accepted, None, Some(user.clone())),
        Outcome::Undetermined(undetermined) => (
            Answer::Undetermined,
            Some(Reason::own(undetermined.code, &undetermined.reason)),
            None,
        ),
        Outcome::Rejected(rejection) => {
            let alternatives = rejection
                .others
                .iter()
                .map(|(code, message)| Alternative {
                    code: *code,
                    message: message.clone(),
                })
                .collect();
            let reason = Reason {
                stage: Some(rejection.stage),
                exact: rejection.exact,
                alternatives,
                ..Reason::own(rejection.code, &rejection.message)
            };
            (Answer::Rejected, Some(reason), None)
        }
    }
}

impl From<&FieldError> for ConfigurationError {
    fn from(error: &FieldError) -> Self {
        Self {
            code: error.code,
            field: error.path.clone(),
            kind: error.kind.name(),
            message: error.to_string(),
            exact: error.is_exact(),
        }
    }
}
