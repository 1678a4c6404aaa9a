//! A verdict as JSON in a stable format, as `-o json` and the batch print it.

use std::borrow::Cow;

use serde::Serialize;

use crate::config::{LoadFault, Refusal, Undetermined};
use crate::validate::{Compiled, FieldError, Invalid};
use crate::verify::{Outcome, SignatureCheck, Stage, Union, User, Verdict};
use crate::{Code, Minor, Release};

/// The version of the [`Report`] format. Fields may be added; existing ones keep their meaning.
pub(crate) const SCHEMA_VERSION: &str = "keyferry.dev/trust-report/v1";

/// What a target does with a token, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Always `keyferry.dev/trust-report/v1`.
    pub schema: &'static str,
    /// The target's release, like `1.33`.
    pub minor: String,
    /// `Accepted`, `Rejected`, `Skipped` (by all), `Undetermined` or `ConfigurationRefused`.
    pub verdict: Answer,
    /// The reason, unless the verdict is `Accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The user, if the verdict is `Accepted`. The apiserver adds `system:authenticated` later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Whether the signature was verified. If not, the verdict assumes that it is valid.
    pub signature: SignatureCheck,
    /// Claims whose values were assumed because the token does not exist yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<&'static str>,
    /// The errors of a refused configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ConfigurationError>,
    /// The verdict of each entry of `jwt`, in the order of the file.
    pub authenticators: Vec<AuthenticatorReport>,
    /// Dangers although the target accepts the token: errors of lint, and a user name that is not
    /// one of the hub's. Empty in a batch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Danger>,
}

/// A dangerous setting, which gives rights away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Danger {
    /// The stable name of the reason.
    pub code: &'static str,
    /// What was found, and where.
    pub message: String,
    /// What to do.
    pub fix: &'static str,
}

/// The verdict, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Answer {
    /// An authenticator accepts the token and names its user.
    Accepted,
    /// An authenticator rejects the token.
    Rejected,
    /// Every authenticator skips the token, mostly because its issuer is another one.
    Skipped,
    /// The verdict cannot be decided offline.
    Undetermined,
    /// The apiserver refuses the configuration.
    ConfigurationRefused,
}

/// The reason for a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The stable name of the reason.
    pub code: Code,
    /// The step at which the token fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The apiserver's message, or our own if it gives none.
    pub message: String,
    /// Whether the message is exactly the apiserver's.
    pub exact: bool,
    /// Other messages that the apiserver may give, at random.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// What to do.
    pub fix: Cow<'static, str>,
}

/// Another message that the apiserver may give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// The stable name of the reason.
    pub code: Code,
    /// The apiserver's message.
    pub message: String,
}

/// One error of a refused configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigurationError {
    /// The stable name of the rule.
    pub code: Code,
    /// The field; empty if the file as a whole is refused.
    pub field: String,
    /// `FieldValueInvalid` and the like; empty if the file as a whole is refused.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The apiserver's message.
    pub message: String,
    /// Whether the message is exactly the apiserver's.
    pub exact: bool,
}

/// The verdict of one entry of `jwt`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuthenticatorReport {
    /// `issuer.url` of the entry.
    pub issuer: String,
    /// The entry's own verdict.
    pub verdict: Answer,
    /// The reason, unless the entry accepts the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The user, if the entry accepts the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
}

impl Reason {
    fn of_keyferry(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            stage: None,
            message: message.into(),
            exact: false,
            alternatives: Vec::new(),
            fix: code.fix().into(),
        }
    }
}

impl Report {
    fn new(minor: Minor, verdict: Answer) -> Self {
        Self {
            schema: SCHEMA_VERSION,
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

    /// Reports a file that the apiserver does not load.
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
                    ..Reason::of_keyferry(*code, message)
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

    /// Reports something that cannot be decided offline.
    #[must_use]
    pub fn of_undetermined(minor: Minor, undetermined: &Undetermined) -> Self {
        let reason = Some(Reason::of_keyferry(undetermined.code, &undetermined.reason));
        Self {
            reason,
            ..Self::new(minor, Answer::Undetermined)
        }
    }

    /// Reports a configuration that is not valid.
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
            ..Reason::of_keyferry(Code::ConfigurationRefused, invalid.message())
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

    /// Turns the report for the newest known release into the one for `release`. If that is newer,
    /// nothing is decided, and the message says what the known release would do.
    #[must_use]
    pub fn for_release(self, release: Release) -> Self {
        let Some(undetermined) = release.undetermined() else {
            return self;
        };
        let would = match (&self.verdict, &self.user, &self.reason) {
            (Answer::Accepted, Some(user), _) => {
                format!("accept the token, as {:?}", user.username)
            }
            (Answer::ConfigurationRefused, _, Some(reason)) => {
                format!("refuse the file: {}", reason.code)
            }
            (Answer::Rejected | Answer::Skipped, _, Some(reason)) => {
                format!("refuse the token: {}", reason.code)
            }
            _ => "be undetermined too".to_owned(),
        };
        let message = format!("{}; {} would {would}", undetermined.reason, self.minor);
        Self {
            schema: SCHEMA_VERSION,
            minor: release.to_string(),
            verdict: Answer::Undetermined,
            reason: Some(Reason::of_keyferry(undetermined.code, message)),
            user: None,
            signature: SignatureCheck::NotChecked,
            assumed: Vec::new(),
            errors: Vec::new(),
            authenticators: Vec::new(),
            problems: self.problems,
        }
    }

    /// Reports the verdict on a token.
    #[must_use]
    pub fn of_verdict(compiled: &Compiled, verdict: &Verdict, assumed: Vec<&'static str>) -> Self {
        let authenticators: Vec<AuthenticatorReport> = compiled
            .issuers()
            .zip(&verdict.outcomes)
            .map(|(issuer, outcome)| {
                let (answer, reason, user) = split_outcome(outcome);
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
                    Some(skipped_reason(code.unwrap_or(Code::IssuerDiffers))),
                    None,
                )
            }
            Union::Accepted(user) => (Answer::Accepted, None, Some(user.clone())),
            Union::Rejected(rejection) => split_outcome(&Outcome::Rejected(rejection.clone())),
            Union::Undetermined(undetermined) => {
                split_outcome(&Outcome::Undetermined(undetermined.clone()))
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

/// For a skipped token the apiserver's log says only that no authenticator accepted it.
fn skipped_reason(code: Code) -> Reason {
    Reason::of_keyferry(code, "invalid bearer token")
}

fn split_outcome(outcome: &Outcome) -> (Answer, Option<Reason>, Option<User>) {
    match outcome {
        Outcome::Skipped(code) => (Answer::Skipped, Some(skipped_reason(*code)), None),
        Outcome::Accepted(user) => (Answer::Accepted, None, Some(user.clone())),
        Outcome::Undetermined(undetermined) => (
            Answer::Undetermined,
            Some(Reason::of_keyferry(undetermined.code, &undetermined.reason)),
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
            let own = Reason::of_keyferry(rejection.code, &rejection.message);
            let reason = Reason {
                stage: Some(rejection.stage),
                exact: rejection.exact,
                alternatives,
                fix: rejection.fix.clone().map_or(own.fix, Cow::Owned),
                ..own
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
