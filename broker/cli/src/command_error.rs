//! The error with which a command ends.

use std::fmt;

use keyferry_client::ClientError;

use super::access;

/// What a command tried and on what, and how to fix it. Only [`ui`](super::ui) prints it. Where the
/// caller of a function decides by its error, that error is an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    pub(crate) problem: String,
    pub(crate) fix: Option<&'static str>,
}

impl CommandError {
    /// Creates an error whose text says everything.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: None,
        }
    }

    /// Creates an error with its fix.
    pub(crate) fn with_fix(problem: impl Into<String>, fix: &'static str) -> Self {
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
        }
    }
}

/// Errors whose text names the operation and its object.
macro_rules! from_errors {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for CommandError {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        })+
    };
}

from_errors!(
    keyferry_doctor::DoctorError,
    keyferry_doctor::apply::ManifestError,
    keyferry_doctor::identity::IdentityError,
    keyferry_client::key_records::KeysError,
    keyferry_trust_changes::onboarding::target_facts::TargetFactsError,
    keyferry_client::token_directory::TokenDirectoryError,
    keyferry_hub::client::ClientError,
    keyferry_hub::config_file::ConfigFileError,
    keyferry_issuer::export::ExportError,
    super::local_file::ReadError,
    super::revoke::WitnessError,
    super::target_way::StartError,
    super::trust::CertificatesError,
    super::trust::DiffError,
    super::trust::MergeError,
    super::trust::OidcFlagsError,
    super::trust::OutputDirError,
    super::trust::DistributionError,
    super::verify::SubjectError,
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
