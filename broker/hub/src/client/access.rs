//! Where the hub is, and which identity to use there: a kubeconfig, or the Pod's own ServiceAccount.

use std::path::PathBuf;
use std::time::Duration;

use keyferry_core::import::join_base64_lines;
use keyferry_platform::regular_file;
use kube::config::{ExecAuthCluster, Kubeconfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;

use super::HubClient;
use super::error::ClientError;
use super::proxy::{self, ProxyVariables};

/// The longest time that one call may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// The largest kubeconfig that is read: more than a thousand clusters with their CA certificates
/// need.
const MAX_KUBECONFIG_BYTES: u64 = 16 * 1024 * 1024;

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
    /// The proxy of the environment, for a kubeconfig without one. Empty for the kubeconfig of a
    /// target: the environment never decides how a target is reached.
    pub proxy: ProxyVariables,
}

impl HubAccess {
    /// Builds the library's configuration, without retries. Addresses and identities come only from
    /// the kubeconfig or the Pod, and a proxy only from the kubeconfig or [`HubAccess::proxy`]. The
    /// library's own readers would use further variables, and refuse a `NO_PROXY` that others take.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn config(&self) -> Result<kube::Config, ClientError> {
        let mut config = match self.kubeconfig()? {
            Some((path, kubeconfig)) => {
                let config = self.context_config(&kubeconfig);
                let (mut config, proxy_url) = config.ok_or(ClientError::Context(path))?;
                config.proxy_url = match proxy_url {
                    Some(url) => Some(proxy::parse_proxy(&url, proxy::OF_KUBECONFIG)?),
                    None => self.proxy.proxy_of(&config.cluster_url)?,
                };
                config
            }
            // In the hub's own network: a proxy outside of it does not lead there.
            None => kube::Config::incluster_env().map_err(|_| ClientError::NotInCluster)?,
        };
        if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
            return Err(ClientError::Insecure);
        }
        config.default_retry = false;
        config.connect_timeout = Some(CALL_DEADLINE);
        Ok(config)
    }

    /// Connects with these rights. Nothing is called yet.
    ///
    /// # Errors
    /// [`ClientError`]: the configuration cannot be read, or it gives no client.
    pub async fn client(&self) -> Result<HubClient, ClientError> {
        HubClient::new(self.config().await?)
    }

    /// The configuration of the kubeconfig's context, with its `proxy-url` beside it; `None` if the
    /// context names no usable cluster and user.
    fn context_config(&self, kubeconfig: &Kubeconfig) -> Option<(kube::Config, Option<String>)> {
        let current = kubeconfig.current_context.as_ref();
        let name = self.context.as_ref().or(current)?;
        let mut contexts = kubeconfig.contexts.iter();
        let context = contexts.find(|named| named.name == *name)?;
        let context = context.context.as_ref()?;
        let mut clusters = kubeconfig.clusters.iter();
        let cluster = clusters.find(|named| named.name == context.cluster)?;
        let cluster = ExecAuthCluster::try_from(cluster.cluster.as_ref()?).ok()?;
        let mut users = kubeconfig.auth_infos.iter();
        // Without an entry, the user is anonymous, as in client-go.
        let user = users.find(|named| Some(&named.name) == context.user.as_ref());
        let user = user.and_then(|named| named.auth_info.clone());

        let mut config = kube::Config::new(cluster.server.as_ref()?.parse().ok()?);
        if let Some(namespace) = &context.namespace {
            config.default_namespace.clone_from(namespace);
        }
        if let Some(pem) = &cluster.certificate_authority_data {
            let roots = CertificateDer::pem_slice_iter(pem).map(|root| Some(root.ok()?.to_vec()));
            config.root_cert = Some(roots.collect::<Option<_>>()?);
        }
        config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
        config.tls_server_name.clone_from(&cluster.tls_server_name);
        config.auth_info = user.unwrap_or_default();
        let proxy_url = cluster.proxy_url.clone().filter(|url| !url.is_empty());
        if let Some(exec) = &mut config.auth_info.exec
            && exec.provide_cluster_info
        {
            exec.cluster = Some(cluster);
        }
        Some((config, proxy_url))
    }

    /// Describes the hub to a person: its address, with the kubeconfig files and the context or the
    /// Pod.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe_hub(&self) -> Result<String, ClientError> {
        let config = self.config().await?;
        let address = config.cluster_url;
        let Some((_, kubeconfig)) = self.kubeconfig()? else {
            return Ok(format!("{address}, as the Pod's own ServiceAccount"));
        };
        let context = self
            .context
            .clone()
            .or(kubeconfig.current_context)
            .unwrap_or_default();
        let proxy = config.proxy_url.as_ref().map(proxy::shown_proxy);
        let proxy = proxy.map(|proxy| format!(", through the proxy {proxy}"));
        Ok(format!(
            "{address}, by context {context:?} of {}{}",
            list_files(&self.kubeconfig_files()?),
            proxy.unwrap_or_default()
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
                    proxy: self.proxy.clone(),
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
        let proxy = text(", proxy-url: 'https://canary:secret@p:1'", "token: canary").await;
        assert!(
            proxy.contains("named by proxy-url of the kubeconfig, has a scheme other")
                && !proxy.contains("canary"),
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
