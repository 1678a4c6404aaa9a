//! The flags that say where the hub is, and where Keyferry is on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_api::name::Namespace;
use keyferry_client::ClientError;
use keyferry_hub::client::{HubAccess, HubClient, ProxyVariables};

use crate::args::HUB;
use crate::args::names::keyferry_namespace;
use crate::command_error::CommandError;

/// Where the hub is.
#[derive(Args, Clone, Default)]
pub(crate) struct HubArgs {
    /// Kubeconfig of the hub [default: KUBECONFIG, ~/.kube/config, then the Pod's ServiceAccount]
    ///
    /// KUBECONFIG and ~/.kube/config are read as kubectl reads them; serve, approve-certificates
    /// and credential read neither.
    #[arg(long, env = "KEYFERRY_KUBECONFIG", value_name = "FILE", help_heading = HUB)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, env = "KEYFERRY_CONTEXT", value_name = "NAME", help_heading = HUB, hide_short_help = true)]
    pub(crate) context: Option<String>,
}

/// Where Keyferry is on the hub.
#[derive(Args, Clone)]
pub(crate) struct KeyferryArgs {
    /// Keyferry's own namespace on the hub.
    #[arg(
        long,
        alias = "namespace",
        short_alias = 'n',
        value_name = "NAMESPACE",
        default_value = "keyferry-system",
        help_heading = HUB
    )]
    pub(crate) keyferry_namespace: String,
}

impl KeyferryArgs {
    /// Parses the namespace.
    ///
    /// # Errors
    /// It is not the name of a namespace.
    pub(crate) fn namespace(&self) -> Result<Namespace, CommandError> {
        keyferry_namespace(&self.keyferry_namespace)
    }
}

impl HubArgs {
    /// Hub access for a person: the kubeconfig is found like kubectl finds it.
    pub(crate) fn access(&self) -> HubAccess {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let search = kubeconfig_files(std::env::var_os("KUBECONFIG").as_deref(), home.as_deref());
        HubAccess {
            search,
            ..self.named()
        }
    }

    /// A client of the hub for a person.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub(crate) async fn client(&self) -> Result<HubClient, ClientError> {
        Ok(self.access().client().await?)
    }

    /// Hub access for services and for the exec plugin: from the flags and their variables, else
    /// the Pod's. A client that runs the plugin may have the target's own kubeconfig in
    /// `KUBECONFIG`, and the user there is that plugin again.
    pub(crate) fn named(&self) -> HubAccess {
        HubAccess {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            search: Vec::new(),
            proxy: ProxyVariables::read(|name| std::env::var(name).ok()),
        }
    }
}

/// Returns the files that kubectl merges: those of `KUBECONFIG`, each once, or the default file if
/// it exists.
fn kubeconfig_files(variable: Option<&OsStr>, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for file in std::env::split_paths(variable.unwrap_or_default())
        .filter(|file| !file.as_os_str().is_empty())
    {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    if files.is_empty() {
        files.extend(
            home.filter(|home| home.is_absolute())
                .map(|home| home.join(".kube/config"))
                .filter(|file| file.exists()),
        );
    }
    files
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use super::kubeconfig_files;

    #[test]
    fn kubeconfigs_are_found_as_kubectl_finds_them() {
        let home = tempfile::tempdir().unwrap();
        let files =
            |variable: &str| kubeconfig_files(Some(OsStr::new(variable)), Some(home.path()));
        assert_eq!(
            files("/a:/b::/a"),
            [PathBuf::from("/a"), PathBuf::from("/b")]
        );
        assert!(files("").is_empty(), "the default file is not there");
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        let default = home.path().join(".kube/config");
        std::fs::write(&default, "").unwrap();
        assert_eq!(files(""), [default.as_path()]);
        assert_eq!(kubeconfig_files(None, Some(home.path())), [default]);
        assert_eq!(
            files("/a"),
            [PathBuf::from("/a")],
            "the variable replaces the default"
        );
        assert!(kubeconfig_files(None, None).is_empty());
    }
}
