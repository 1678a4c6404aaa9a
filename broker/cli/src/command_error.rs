//! The error with which a command ends.

use std::borrow::Cow;
use std::fmt;

use keyferry_api::config::Mistake;
#[cfg(feature = "view")]
use keyferry_api::foreign_text::one_line;
use keyferry_client::ClientError;
use keyferry_client::doctor::DoctorError;
use keyferry_client::doctor::identity::IdentityError;
use keyferry_client::key_records::KeysError;
use keyferry_client::objects_file::{ObjectsFileError, ObjectsProblem};
use keyferry_hub::client::ClientError as HubClientError;
use keyferry_hub::ports::HubError;
use keyferry_platform::config_file::ConfigFileError;

use crate::wiring::ServeError;

/// The most characters of an error that quotes names of objects.
#[cfg(feature = "view")]
const MAX_QUOTING_CHARS: usize = 1_000;

/// What a command tried and on what, and how to fix it. Only [`ui`](crate::ui) prints it. Where the
/// caller of a function decides by its error, that error is an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// What was tried, on what, and why it failed.
    pub(crate) problem: String,
    /// Several causes, each on a line of its own below the problem.
    pub(crate) causes: Vec<String>,
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
            causes: Vec::new(),
            fix: None,
            file: None,
        }
    }

    /// Creates an error with its fix.
    pub(crate) fn with_fix(problem: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..Self::new(problem)
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

    /// As [`CommandError::of_line`], for a text that quotes names which a tenant chose: they may have
    /// any length, and what they call a fix is none. Keyferry's own fixes quote nothing.
    #[cfg(feature = "view")]
    pub(crate) fn of_quoting_line(text: &str) -> Self {
        let shorten = |text: &str| one_line(text, MAX_QUOTING_CHARS);
        match text.rsplit_once("; fix: ") {
            Some((problem, fix)) if !fix.contains(['"', '`']) => {
                Self::with_fix(shorten(problem), fix.to_owned())
            }
            _ => Self::new(shorten(text)),
        }
    }

    /// Creates an error from what is wrong with Keyferry's configuration file.
    pub(crate) fn of_configuration(error: &ConfigFileError) -> Self {
        match error {
            ConfigFileError::Mistakes { path, error } => Self::of_mistakes(
                format!("reading the configuration file {}", path.display()),
                &error.mistakes,
            ),
            error => Self::of_line(&error.to_string()),
        }
    }

    fn of_objects(error: &ObjectsFileError) -> Self {
        match &error.problem {
            ObjectsProblem::Mistakes(mistakes) => Self::of_mistakes(
                format!("reading the hub's objects from {}", error.path.display()),
                &mistakes.mistakes,
            ),
            _ => Self::new(error.to_string()),
        }
    }

    fn of_mistakes(operation: String, mistakes: &[Mistake]) -> Self {
        let count = match mistakes.len() {
            1 => "1 mistake".to_owned(),
            many => format!("{many} mistakes"),
        };
        Self {
            causes: mistakes.iter().map(Mistake::to_string).collect(),
            ..Self::new(format!("{operation}: it has {count}"))
        }
    }

    /// Creates an error about a call to the hub. `without_right` is the fix if the hub refused the
    /// caller.
    pub(crate) fn of_hub_call(
        problem: impl Into<String>,
        error: &HubError,
        without_right: &'static str,
    ) -> Self {
        let fix = match error {
            HubError::Unreachable(_) => {
                "check that the hub's apiserver runs and that the kubeconfig has its address and CA"
            }
            HubError::Unauthenticated(_) => "use credentials that the hub accepts",
            HubError::Forbidden(_) | HubError::NotFound(_) => without_right,
            _ => "try again, and if it lasts, read the log of the hub's apiserver",
        };
        Self::with_fix(problem, fix)
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
        f.write_str(&self.problem)?;
        match self.causes.as_slice() {
            [] => Ok(()),
            causes => write!(f, ": {}", causes.join("; ")),
        }
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
            ClientError::Configuration(error) => Self::of_configuration(error),
            ClientError::Objects(error) => Self::of_objects(error),
            ClientError::CallerToken(_) => Self::of_line(&error.to_string()),
            _ => Self::new(error.to_string()),
        };
        match fix_of_client_error(&error) {
            Some(fix) => own.or_fix(fix),
            None => own,
        }
    }
}

/// Suggests what to try next.
pub(crate) fn fix_of_client_error(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Answer { error, .. }
            if *error == *"invalid_target" || *error == *"access_denied" =>
        {
            Some(
                "an access without the delivery HTTP or Exec gives no token on request: keyferry \
                 targets lists deliveries; else ask the server's admin for the audit record of this \
                 request, since the answer is the same whether or not the access exists",
            )
        }
        ClientError::Answer { error, .. }
            if *error == *"invalid_request" || *error == *"invalid_token" =>
        {
            Some(
                "the caller's token must be for Keyferry's audience alone (default keyferry.dev), \
                 unexpired, and of a live ServiceAccount, or of a CI job that a rule of \
                 externalIssuers admits; the server's audit record of this request has the reason",
            )
        }
        ClientError::ObjectTooLarge { .. } => Some("make it smaller"),
        // Without a server, the hub is asked.
        ClientError::Hub(_) => Some(
            "give --server URL, or a kubeconfig of the hub (--kubeconfig, KUBECONFIG) to work with \
             your own rights there",
        ),
        ClientError::HubCall {
            error: HubError::Forbidden(_),
            ..
        } => Some(
            "use a user of the hub with this right; token, kubeconfig and exec need none with \
             --server URL, where Keyferry decides",
        ),
        ClientError::Objects(error) => error.problem.fix(),
        ClientError::StaleTarget(_) => {
            Some("wait until Keyferry has written its status: kubectl get targetclusters")
        }
        ClientError::NoSettings => Some(
            "wait until Keyferry has written the status of its TargetClusters, or give --config \
             FILE, the server's configuration",
        ),
        _ => None,
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
    keyferry_client::plugin_folders::ElsewhereError,
    keyferry_client::token_directory::TokenDirectoryError,
    keyferry_client::doctor::apply::ManifestError,
    keyferry_issuer::export::ExportError,
);

impl From<ConfigFileError> for CommandError {
    fn from(error: ConfigFileError) -> Self {
        Self::of_configuration(&error)
    }
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Configuration(error) => error.into(),
            ServeError::Client(error) => error.into(),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<KeysError> for CommandError {
    fn from(error: KeysError) -> Self {
        match error {
            KeysError::Hub(error) => error.into(),
            error => Self::new(error.to_string()),
        }
    }
}

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
        for (quoting, problem, fix) in [
            ("Role \"a\": b; fix: c", "Role \"a\": b", Some("c")),
            ("Role \"a; fix: b\": c", "Role \"a; fix: b\": c", None),
            ("no `a; fix: b`, c", "no `a; fix: b`, c", None),
            (
                "Role \"a; fix: b\": c; fix: d",
                "Role \"a; fix: b\": c",
                Some("d"),
            ),
        ] {
            let error = CommandError::of_quoting_line(quoting);
            assert_eq!(
                (error.problem.as_str(), error.fix.as_deref()),
                (problem, fix)
            );
        }
        let long = format!("Role {}; fix: d", "a".repeat(1 << 20));
        let error = CommandError::of_quoting_line(&long);
        assert!(error.problem.len() < 2_000 && error.fix.as_deref() == Some("d"));
    }

    #[test]
    fn each_mistake_is_a_cause_of_its_own() {
        let mistakes = keyferry_api::config::read("kind: {").unwrap_err().mistakes;
        let error = CommandError::of_mistakes("reading a".to_owned(), &mistakes);
        assert_eq!(error.problem, "reading a: it has 1 mistake");
        assert_eq!(error.causes.len(), 1);
    }
}
