//! Where the hub is, and which identity to use there: a kubeconfig, or the Pod's own ServiceAccount.

use std::path::PathBuf;
use std::time::Duration;

use keyferry_api::foreign_text;
use keyferry_core::import::join_base64_lines;
use keyferry_platform::regular_file;
use kube::client::AuthError;
use kube::config::{KubeConfigOptions, Kubeconfig};
use secrecy::ExposeSecret;

/// The longest time that one call may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// The largest kubeconfig that is read: more than a thousand clusters with their CA certificates
/// need.
const MAX_KUBECONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// The most characters of a text of the kubeconfig that a message repeats.
const MAX_NAMED_CHARS: usize = 200;

/// Where the hub is, and which identity to use there.
#[derive(Clone, Debug, Default)]
pub struct HubAccess {
    /// A kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig that replaces its current one.
    pub context: Option<String>,
    /// The kubeconfig files that the user's kubectl merges, used where `kubeconfig` is absent.
    /// Without any file, the Pod's own ServiceAccount is used. Empty for a server, which reads only
    /// its own environment variables.
    pub search: Vec<PathBuf>,
}

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
    /// The hub's proxy is of a kind that cannot be used.
    #[error(
        "preparing the client of the hub: its proxy-url has the scheme {0:?}, through which Keyferry \
         does not connect; fix: name an address that is reached without a proxy"
    )]
    Proxy(String),
    /// The user's token file cannot be read.
    #[error(
        "preparing the client of the hub: the token file {0} of the kubeconfig's user cannot be read"
    )]
    TokenFile(PathBuf),
    /// The TLS or authentication part of the configuration cannot be used.
    #[error("preparing the client of the hub: its certificates or credentials cannot be used")]
    Credentials,
}

impl HubAccess {
    /// Builds the library's configuration, without retries. Addresses and identities come only from
    /// the kubeconfig or the Pod. The library's own search would also use
    /// `KUBE_RS_DEBUG_OVERRIDE_URL` and `KUBE_RS_DEBUG_IMPERSONATE_*` from the environment.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn config(&self) -> Result<kube::Config, ClientError> {
        let mut config = match self.kubeconfig()? {
            Some((path, kubeconfig)) => {
                let options = KubeConfigOptions {
                    context: self.context.clone(),
                    cluster: None,
                    user: None,
                };
                let proxied = kubeconfig.clusters.iter().any(|named| {
                    named
                        .cluster
                        .as_ref()
                        .is_some_and(|cluster| cluster.proxy_url.is_some())
                });
                let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
                let mut config = config.map_err(|_| ClientError::Context(path))?;
                if !proxied {
                    // The library would take a proxy from the environment.
                    config.proxy_url = None;
                }
                config
            }
            None => kube::Config::incluster_env().map_err(|_| ClientError::NotInCluster)?,
        };
        if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
            return Err(ClientError::Insecure);
        }
        config.default_retry = false;
        config.connect_timeout = Some(CALL_DEADLINE);
        Ok(config)
    }

    /// Describes the hub to a person: its address, with the kubeconfig files and the context or the
    /// Pod.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe_hub(&self) -> Result<String, ClientError> {
        let address = self.config().await?.cluster_url;
        let Some((_, kubeconfig)) = self.kubeconfig()? else {
            return Ok(format!("{address}, as the Pod's own ServiceAccount"));
        };
        let context = self
            .context
            .clone()
            .or(kubeconfig.current_context)
            .unwrap_or_default();
        Ok(format!(
            "{address}, by context {context:?} of {}",
            list_files(&self.kubeconfig_files()?)
        ))
    }

    /// Pins the hub to one file and one context, so that neither `KUBECONFIG` nor `kubectl config
    /// use-context` can redirect it later.
    ///
    /// # Errors
    /// [`ClientError`]: several files would have to be merged.
    pub fn pin_context(&self) -> Result<Self, ClientError> {
        let files = self.kubeconfig_files()?;
        match (&self.kubeconfig, files.as_slice()) {
            (Some(_), _) | (None, []) => Ok(Self {
                search: Vec::new(),
                ..self.clone()
            }),
            (None, [file]) => {
                let current = self
                    .kubeconfig()?
                    .and_then(|(_, kubeconfig)| kubeconfig.current_context);
                Ok(Self {
                    kubeconfig: Some(file.clone()),
                    context: self.context.clone().or(current),
                    search: Vec::new(),
                })
            }
            (None, several) => Err(ClientError::Several(list_files(several))),
        }
    }

    /// Returns the kubeconfig files to use; empty for the Pod's own ServiceAccount.
    fn kubeconfig_files(&self) -> Result<Vec<PathBuf>, ClientError> {
        if let Some(path) = &self.kubeconfig {
            return Ok(vec![path.clone()]);
        }
        // Missing files of the list are ignored, as in kubectl.
        let there: Vec<PathBuf> = self
            .search
            .iter()
            .filter(|path| path.exists())
            .cloned()
            .collect();
        match &self.context {
            _ if there.is_empty() && !self.search.is_empty() => {
                Err(ClientError::NoneThere(list_files(&self.search)))
            }
            Some(context) if there.is_empty() => Err(ClientError::ContextAlone(context.clone())),
            _ => Ok(there),
        }
    }

    /// Reads the kubeconfig, merged as kubectl does: for each name, the first file that has it
    /// wins. Also returns the file to name in messages.
    fn kubeconfig(&self) -> Result<Option<(PathBuf, Kubeconfig)>, ClientError> {
        let mut merged: Option<(PathBuf, Kubeconfig)> = None;
        for path in self.kubeconfig_files()? {
            let wrong = || ClientError::Kubeconfig(path.clone());
            regular_file::check_regular_file(&path, MAX_KUBECONFIG_BYTES).map_err(|_| wrong())?;
            let mut next = Kubeconfig::read_from(&path).map_err(|_| wrong())?;
            unwrap_base64(&mut next);
            merged = Some(match merged {
                Some((first, kubeconfig)) => (first, kubeconfig.merge(next).map_err(|_| wrong())?),
                None => (path, next),
            });
        }
        Ok(merged)
    }
}

/// Joins base64 that is wrapped over several lines, which kubectl takes and the library refuses.
fn unwrap_base64(kubeconfig: &mut Kubeconfig) {
    let join = |data: &mut Option<String>| {
        if let Some(data) = data {
            *data = join_base64_lines(data);
        }
    };
    for named in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut named.cluster {
            join(&mut cluster.certificate_authority_data);
        }
    }
    for named in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut named.auth_info {
            join(&mut user.client_certificate_data);
            if let Some(key) = &mut user.client_key_data {
                *key = join_base64_lines(key.expose_secret()).into();
            }
        }
    }
}

/// The user's parts of a configuration that errors name.
pub(super) struct NamedParts {
    command: Option<String>,
    hint: Option<String>,
    proxy_scheme: String,
}

impl NamedParts {
    pub(super) fn of(config: &kube::Config) -> Self {
        let exec = config.auth_info.exec.as_ref();
        let short = |text: &String| foreign_text::one_line(text, MAX_NAMED_CHARS);
        let proxy = config.proxy_url.as_ref().and_then(|url| url.scheme_str());
        Self {
            command: exec.and_then(|exec| exec.command.as_ref()).map(short),
            hint: exec.and_then(|exec| exec.install_hint.as_ref()).map(short),
            proxy_scheme: proxy.unwrap_or_default().to_owned(),
        }
    }

    /// Names what cannot be used. The library's own texts are withheld, because they may quote
    /// credentials or the output of a command.
    pub(super) fn into_client_error(self, error: &kube::Error) -> ClientError {
        let command = self.command.unwrap_or_default();
        match error {
            kube::Error::ProxyProtocolUnsupported { .. }
            | kube::Error::ProxyProtocolDisabled { .. } => ClientError::Proxy(self.proxy_scheme),
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

fn list_files(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::{Path, PathBuf};

    use secrecy::ExposeSecret;

    use super::{ClientError, HubAccess};

    fn write(folder: &Path, name: &str, server: &str, context: &str, current: bool) -> PathBuf {
        let path = folder.join(name);
        let current = if current {
            format!("current-context: {context}\n")
        } else {
            String::new()
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\n{current}contexts: [{{name: {context}, context: {{cluster: {context}, user: {context}}}}}, \
             {{name: both, context: {{cluster: {context}, user: {context}}}}}]\n\
             clusters: [{{name: {context}, cluster: {{server: '{server}'}}}}]\nusers: [{{name: {context}, user: {{token: canary}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn address(access: &HubAccess) -> Result<String, ClientError> {
        access
            .config()
            .await
            .map(|config| config.cluster_url.host().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn the_list_of_kubeconfig_is_merged_as_kubectl_does() {
        let folder = tempfile::tempdir().unwrap();
        let first = write(
            folder.path(),
            "first",
            "https://first.example",
            "first",
            false,
        );
        let second = write(
            folder.path(),
            "second",
            "https://second.example",
            "second",
            true,
        );
        let missing = folder.path().join("missing");
        let access = HubAccess {
            search: vec![missing.clone(), first.clone(), second.clone()],
            ..HubAccess::default()
        };
        assert_eq!(
            address(&access).await.unwrap(),
            "second.example",
            "current-context of the first file that has one"
        );
        let named = |context: &str| HubAccess {
            context: Some(context.to_owned()),
            ..access.clone()
        };
        assert_eq!(address(&named("first")).await.unwrap(), "first.example");
        assert_eq!(
            address(&named("both")).await.unwrap(),
            "first.example",
            "the first file that has a name counts"
        );
        assert!(matches!(
            address(&named("third")).await,
            Err(ClientError::Context(_))
        ));
        let by_flag = HubAccess {
            kubeconfig: Some(second.clone()),
            ..named("second")
        };
        assert_eq!(
            address(&by_flag).await.unwrap(),
            "second.example",
            "a named file counts alone"
        );
        assert!(matches!(
            address(&HubAccess {
                kubeconfig: Some(second),
                ..named("first")
            })
            .await,
            Err(ClientError::Context(_))
        ));
        let nowhere = HubAccess {
            search: vec![missing],
            ..HubAccess::default()
        };
        assert!(
            matches!(address(&nowhere).await, Err(ClientError::NoneThere(_))),
            "and never another identity instead"
        );
        let alone = HubAccess {
            context: Some("prod".to_owned()),
            ..HubAccess::default()
        };
        assert_eq!(
            address(&alone).await.unwrap_err(),
            ClientError::ContextAlone("prod".to_owned())
        );
    }

    #[tokio::test]
    async fn a_pinned_hub_stays_what_it_is_and_a_description_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = write(folder.path(), "config", "https://hub.example", "hub", true);
        let access = HubAccess {
            search: vec![file.clone()],
            ..HubAccess::default()
        };
        let pinned = access.pin_context().unwrap();
        assert_eq!(
            (pinned.kubeconfig.as_ref(), pinned.context.as_deref()),
            (Some(&file), Some("hub"))
        );
        assert!(pinned.search.is_empty());
        let told = access.describe_hub().await.unwrap();
        assert_eq!(
            told,
            format!(
                "https://hub.example/, by context \"hub\" of {}",
                file.display()
            )
        );
        let other = write(
            folder.path(),
            "other",
            "https://other.example",
            "other",
            true,
        );
        let two = HubAccess {
            search: vec![file, other],
            ..HubAccess::default()
        };
        assert!(matches!(two.pin_context(), Err(ClientError::Several(_))));
    }

    /// All of them had one text: "its certificates or credentials cannot be used".
    #[tokio::test]
    async fn each_kubeconfig_that_cannot_be_used_has_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = async |cluster: &str, user: &str| {
            let kubeconfig = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
                 clusters: [{{name: a, cluster: {{server: 'https://hub.example'{cluster}}}}}]\nusers: [{{name: a, user: {{{user}}}}}]\n"
            );
            std::fs::write(&path, kubeconfig).unwrap();
            let access = HubAccess {
                kubeconfig: Some(path.clone()),
                ..HubAccess::default()
            };
            let made = access
                .config()
                .await
                .and_then(crate::client::HubClient::new);
            made.err().unwrap().to_string()
        };
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: COMMAND}";
        let missing = exec.replace(
            "COMMAND",
            "keyferry-no-such-command, installHint: brew install it",
        );
        let missing = text("", &missing).await;
        assert!(
            missing.contains("\"keyferry-no-such-command\""),
            "{missing}"
        );
        assert!(missing.ends_with("brew install it"), "{missing}");
        let failing = text("", &exec.replace("COMMAND", "'false'")).await;
        assert!(
            failing.contains("\"false\"") && failing.contains("gave no credentials"),
            "{failing}"
        );
        let proxy = text(", proxy-url: 'socks5://canary:secret@p:1'", "token: canary").await;
        assert!(
            proxy.contains("\"socks5\"") && !proxy.contains("canary"),
            "{proxy}"
        );
    }

    /// As `kubectl config view` of some platforms and `base64` without `-w0` write it.
    #[tokio::test]
    async fn base64_wrapped_over_lines_is_read_as_kubectl_reads_it() {
        use base64::Engine;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let authority = keyferry_testing::Authority::new("hub CA").unwrap();
        let client = authority.server_identity(&["client"]).unwrap();
        let wrapped = |pem: &str, end: &str| {
            let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
            let lines: Vec<&str> = encoded
                .as_bytes()
                .chunks(64)
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect();
            serde_json::Value::from(lines.join(end) + end).to_string()
        };
        let made = async |end: &str| {
            let ca = wrapped(authority.ca_pem(), end);
            let certificate = wrapped(&client.certificate_pem, end);
            let key = wrapped(client.key_pem.expose_secret(), end);
            let kubeconfig = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
                 clusters: [{{name: a, cluster: {{server: 'https://hub.example', certificate-authority-data: {ca}}}}}]\n\
                 users: [{{name: a, user: {{client-certificate-data: {certificate}, client-key-data: {key}}}}}]\n"
            );
            std::fs::write(&path, kubeconfig).unwrap();
            let access = HubAccess {
                kubeconfig: Some(path.clone()),
                ..HubAccess::default()
            };
            let config = access.config().await?;
            let roots = config.root_cert.clone();
            crate::client::HubClient::new(config).map(|_| roots)
        };
        let plain = made("").await.unwrap();
        assert_eq!(plain.as_ref().map(Vec::len), Some(1));
        assert_eq!(made("\n").await.unwrap(), plain);
        assert_eq!(made("\r\n").await.unwrap(), plain);
        // client-go refuses other white space too.
        assert!(matches!(made(" ").await, Err(ClientError::Context(_))));
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap();
        assert!(made.success());
        let access = HubAccess {
            kubeconfig: Some(pipe.clone()),
            ..HubAccess::default()
        };
        assert_eq!(
            address(&access).await.unwrap_err(),
            ClientError::Kubeconfig(pipe)
        );
    }
}
