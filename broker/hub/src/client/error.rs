//! Why no client of the hub could be created.

use std::path::PathBuf;

use keyferry_api::foreign_text;
use kube::client::AuthError;

/// The most characters of a text of the kubeconfig that a message repeats.
const MAX_NAMED_CHARS: usize = 200;

/// The client could not be created. The messages name the file and the step, never the file's
/// content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read. The library's own message is withheld, because it prints the
    /// lines around a fault, tokens included.
    #[error("reading the kubeconfig {0}: it is missing, no regular file, or not a kubeconfig")]
    Kubeconfig(PathBuf),
    /// The kubeconfig has no such context, or the context names no usable cluster or user.
    #[error("reading the kubeconfig {0}: its context names no usable cluster and user")]
    Context(PathBuf),
    /// There is no kubeconfig, and the process is not in a Pod.
    #[error(
        "finding the hub: no kubeconfig is named and this is not a Pod with a ServiceAccount; fix: give --kubeconfig FILE, or set \
         KEYFERRY_KUBECONFIG; commands other than serve and credential also read KUBECONFIG and ~/.kube/config"
    )]
    NotInCluster,
    /// A context is named, but there is no kubeconfig to contain it.
    #[error(
        "finding the hub: the context {0:?} is named, but no kubeconfig; fix: give --kubeconfig \
         FILE"
    )]
    ContextAlone(String),
    /// None of the files of `KUBECONFIG` exists. Falling back to the Pod's ServiceAccount would use
    /// another identity than the user meant.
    #[error(
        "finding the hub: KUBECONFIG names {0}, and no such file is there; fix: correct or unset \
         KUBECONFIG, or give --kubeconfig FILE"
    )]
    NoneThere(String),
    /// One file is needed, but `KUBECONFIG` names several.
    #[error(
        "finding the hub: KUBECONFIG names several files ({0}), but an exec stanza holds one; fix: \
         give --kubeconfig FILE"
    )]
    Several(String),
    /// The configuration does not verify that the server is the hub.
    #[error(
        "preparing the client of the hub: its address must be https and its certificate must be \
         verified; remove insecure-skip-tls-verify and give its CA"
    )]
    Insecure,
    /// The command of the user's credentials is not there. The kubeconfig may say how to install it.
    #[error(
        "preparing the client of the hub: the command {command:?} of the kubeconfig's user could not \
         be started{}",
        hint_text(hint)
    )]
    CommandMissing {
        /// The command.
        command: String,
        /// The kubeconfig's `installHint`.
        hint: Option<String>,
    },
    /// The command of the user's credentials gave none. Its output is withheld.
    #[error(
        "preparing the client of the hub: the command {0:?} of the kubeconfig's user gave no \
         credentials; fix: run it by itself"
    )]
    CommandFailed(String),
    /// The hub's proxy cannot be used. Its URL may hold a password, so no part of it is repeated.
    #[error(
        "preparing the client of the hub: its proxy, named by {named_by}, {problem}; fix: write \
         http://HOST:PORT or socks5://HOST:PORT"
    )]
    Proxy {
        /// `proxy-url` of the kubeconfig, or a variable.
        named_by: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The user's token file cannot be read.
    #[error(
        "preparing the client of the hub: the token file {0} of the kubeconfig's user cannot be read"
    )]
    TokenFile(PathBuf),
    /// The TLS or authentication part of the configuration cannot be used.
    #[error("preparing the client of the hub: its certificates or credentials cannot be used")]
    Credentials,
}

/// The user's parts of a configuration that errors name.
pub(super) struct NamedParts {
    command: Option<String>,
    hint: Option<String>,
}

impl NamedParts {
    pub(super) fn of(config: &kube::Config) -> Self {
        let exec = config.auth_info.exec.as_ref();
        let short = |text: &String| foreign_text::one_line(text, MAX_NAMED_CHARS);
        Self {
            command: exec.and_then(|exec| exec.command.as_ref()).map(short),
            hint: exec.and_then(|exec| exec.install_hint.as_ref()).map(short),
        }
    }

    /// Names what cannot be used. The library's own texts are withheld, because they may quote
    /// credentials or the output of a command.
    pub(super) fn into_client_error(self, error: &kube::Error) -> ClientError {
        let command = self.command.unwrap_or_default();
        match error {
            kube::Error::Auth(AuthError::AuthExecStart(_)) => ClientError::CommandMissing {
                command,
                hint: self.hint,
            },
            kube::Error::Auth(
                AuthError::AuthExecRun { .. }
                | AuthError::AuthExecParse(_)
                | AuthError::AuthExec(_)
                | AuthError::ExecPluginFailed,
            ) => ClientError::CommandFailed(command),
            kube::Error::Auth(AuthError::ReadTokenFile(_, path)) => {
                ClientError::TokenFile(path.clone())
            }
            _ => ClientError::Credentials,
        }
    }
}

fn hint_text(hint: &Option<String>) -> String {
    match hint {
        Some(hint) => format!("; the kubeconfig says how to install it: {hint}"),
        None => "; fix: install it, or correct its path".to_owned(),
    }
}
