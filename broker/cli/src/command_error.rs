//! The error with which a command ends.

use std::fmt;

use keyferry_client::ClientError;
use keyferry_client::doctor::DoctorError;
use keyferry_client::doctor::identity::IdentityError;

use crate::args::access;

/// What a command tried and on what, and how to fix it. Only [`ui`](crate::ui) prints it. Where the
/// caller of a function decides by its error, that error is an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// What was tried, on what, and why it failed.
    pub(crate) problem: String,
    /// What to do about it.
    pub(crate) fix: Option<&'static str>,
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
    pub(crate) fn with_fix(problem: impl Into<String>, fix: &'static str) -> Self {
        Self {
            problem: problem.into(),
            fix: Some(fix),
            file: None,
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

    /// Moves the fix into the text, for a command that suggests something else next.
    pub(crate) fn in_one_line(self) -> Self {
        match self.fix {
            Some(fix) => Self::new(format!("{}; {fix}", self.problem)),
            None => self,
        }
    }

    /// Sets the fix, unless there is one.
    pub(crate) fn or_fix(self, fix: &'static str) -> Self {
        Self {
            fix: self.fix.or(Some(fix)),
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
        Self {
            problem: error.to_string(),
            fix: access::fix(&error),
            file: None,
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
            problem: error.to_string(),
            fix,
            file: None,
        }
    }
}

impl From<DoctorError> for CommandError {
    fn from(error: DoctorError) -> Self {
        let fix = matches!(error, DoctorError::Needs(_)).then_some(
            "write a resource as kubectl api-resources prints it, such as deployments.apps",
        );
        Self {
            problem: error.to_string(),
            fix,
            file: None,
        }
    }
}

/// Makes errors convertible into [`CommandError`], each by its text, which must name the operation
/// and its object.
macro_rules! command_errors {
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
    keyferry_hub::client::ClientError,
    keyferry_platform::config_file::ConfigFileError,
    keyferry_issuer::export::ExportError,
    crate::local_file::ReadError,
    crate::args::start_args::StartError,
);

#[cfg(test)]
mod tests {
    use super::CommandError;

    #[test]
    fn a_fix_is_kept_or_moved_into_the_text() {
        let error = CommandError::with_fix("reading a: it is not there", "create it");
        assert_eq!(
            error.clone().in_one_line(),
            CommandError::new("reading a: it is not there; create it")
        );
        assert_eq!(error.or_fix("ask").fix, Some("create it"));
        assert_eq!(CommandError::new("a").or_fix("ask").fix, Some("ask"));
    }
}
