//! The error with which a command ends.

use std::borrow::Cow;
use std::fmt;

use keyferry_client::ClientError;
use keyferry_client::doctor::DoctorError;
use keyferry_client::doctor::identity::IdentityError;
use keyferry_hub::client::ClientError as HubClientError;

use crate::args::access;

/// What a command tried and on what, and how to fix it. Only [`ui`](crate::ui) prints it. Where the
/// caller of a function decides by its error, that error is an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// What was tried, on what, and why it failed.
    pub(crate) problem: String,
    /// What to do about it.
    pub(crate) fix: Option<Cow<'static, str>>,
    /// The text of a file that the fix asks for. Printed below it, to be copied.
    pub(crate) file: Option<String>,
}

impl CommandError {
    /// Creates an error whose text says everything.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: None,
            file: None,
        }
    }

    /// Creates an error with its fix.
    pub(crate) fn with_fix(problem: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self {
            problem: problem.into(),
            fix: Some(fix.into()),
            file: None,
        }
    }

    /// Creates an error from the text of one of Keyferry's own errors, which a log has on one line:
    /// a fix at its end gets a line of its own. Not for a text that ends with what a server wrote,
    /// which would then read as Keyferry's advice.
    pub(crate) fn of_line(text: &str) -> Self {
        match text.rsplit_once("; fix: ") {
            Some((problem, fix)) => Self::with_fix(problem, fix.to_owned()),
            None => Self::new(text),
        }
    }

    /// Adds the text of the file that the fix asks for.
    #[must_use]
    pub(crate) fn with_file(self, text: String) -> Self {
        Self {
            file: Some(text),
            ..self
        }
    }

    /// Sets the fix, unless there is one.
    pub(crate) fn or_fix(self, fix: &'static str) -> Self {
        Self {
            fix: self.fix.or(Some(fix.into())),
            ..self
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for CommandError {}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        let own = match &error {
            ClientError::Server {
                server,
                problem,
                fix,
            } => Self {
                fix: fix.clone().map(Cow::Owned),
                ..Self::new(format!("calling {server}: {problem}"))
            },
            // The way without a hub is a server, which the hub's own error does not know.
            ClientError::Hub(error @ HubClientError::NotInCluster) => Self {
                fix: None,
                ..Self::from(error.clone())
            },
            ClientError::Hub(error) => Self::from(error.clone()),
            ClientError::CallerToken(_) | ClientError::Configuration(_) => {
                Self::of_line(&error.to_string())
            }
            _ => Self::new(error.to_string()),
        };
        match access::fix(&error) {
            Some(fix) => own.or_fix(fix),
            None => own,
        }
    }
}

impl From<HubClientError> for CommandError {
    fn from(error: HubClientError) -> Self {
        match &error {
            // Its end is the hint of the kubeconfig.
            HubClientError::CommandMissing { hint: Some(_), .. } => Self::new(error.to_string()),
            error => Self::of_line(&error.to_string()),
        }
    }
}

impl From<IdentityError> for CommandError {
    fn from(error: IdentityError) -> Self {
        let fix = match &error {
            IdentityError::Start { problem, .. } | IdentityError::Token(problem) => {
                Some(problem.fix())
            }
            _ => None,
        };
        Self {
            fix: fix.map(Cow::Borrowed),
            ..Self::new(error.to_string())
        }
    }
}

impl From<DoctorError> for CommandError {
    fn from(error: DoctorError) -> Self {
        let fix = matches!(error, DoctorError::Needs(_)).then_some(
            "write a resource as kubectl api-resources prints it, such as deployments.apps",
        );
        Self {
            fix: fix.map(Cow::Borrowed),
            ..Self::new(error.to_string())
        }
    }
}

/// Makes errors convertible into [`CommandError`], each by its text, which must name the operation
/// and its object. Errors `with fix` may end with their fix.
macro_rules! command_errors {
    (with fix: $($error:ty),+ $(,)?) => {
        $(impl From<$error> for $crate::command_error::CommandError {
            fn from(error: $error) -> Self {
                Self::of_line(&error.to_string())
            }
        })+
    };
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for $crate::command_error::CommandError {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        })+
    };
}

pub(crate) use command_errors;

command_errors!(
    keyferry_client::key_records::KeysError,
    keyferry_client::plugin_folders::ElsewhereError,
    keyferry_client::token_directory::TokenDirectoryError,
    keyferry_client::doctor::apply::ManifestError,
    keyferry_issuer::export::ExportError,
    crate::args::start_args::StartError,
);

command_errors!(
    with fix:
    keyferry_platform::config_file::ConfigFileError,
    crate::local_file::ReadError,
);

#[cfg(test)]
mod tests {
    use super::CommandError;

    #[test]
    fn a_fix_is_kept_and_has_its_own_line() {
        let error = CommandError::with_fix("reading a: it is not there", "create it");
        assert_eq!(error.or_fix("ask").fix.as_deref(), Some("create it"));
        assert_eq!(
            CommandError::new("a").or_fix("ask").fix.as_deref(),
            Some("ask")
        );
        assert_eq!(
            CommandError::of_line("reading \"; fix: b\": it is empty; fix: fill it"),
            CommandError::with_fix("reading \"; fix: b\": it is empty", "fill it")
        );
        assert_eq!(CommandError::of_line("a"), CommandError::new("a"));
    }
}
