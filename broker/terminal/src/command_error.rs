//! The error with which a command ends.

use std::fmt;

use keyferry_client::ClientError;

use crate::access;

/// What a command tried and on what, and how to fix it. Only [`ui`](crate::ui) prints it. Where the
/// caller of a function decides by its error, that error is an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// What was tried, on what, and why it failed.
    pub problem: String,
    /// What to do about it.
    pub fix: Option<&'static str>,
}

impl CommandError {
    /// Creates an error whose text says everything.
    pub fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: None,
        }
    }

    /// Creates an error with its fix.
    pub fn with_fix(problem: impl Into<String>, fix: &'static str) -> Self {
        Self {
            problem: problem.into(),
            fix: Some(fix),
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
    pub fn or_fix(self, fix: &'static str) -> Self {
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
        }
    }
}

/// Makes errors convertible into [`CommandError`], each by its text, which must name the operation
/// and its object.
///
/// A crate of commands calls it for its own errors:
///
/// ```
/// #[derive(Debug, thiserror::Error)]
/// #[error("reading the file a.yaml: it is empty")]
/// struct Empty;
/// keyferry_terminal::command_errors!(Empty);
///
/// let error: keyferry_terminal::command_error::CommandError = Empty.into();
/// assert_eq!(error.problem, "reading the file a.yaml: it is empty");
/// ```
#[macro_export]
macro_rules! command_errors {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for $crate::command_error::CommandError {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        })+
    };
}

command_errors!(
    keyferry_client::key_records::KeysError,
    keyferry_client::token_directory::TokenDirectoryError,
    keyferry_doctor::DoctorError,
    keyferry_doctor::apply::ManifestError,
    keyferry_doctor::identity::IdentityError,
    keyferry_hub::client::ClientError,
    keyferry_hub::config_file::ConfigFileError,
    keyferry_issuer::export::ExportError,
    crate::local_file::ReadError,
    crate::start_args::StartError,
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
