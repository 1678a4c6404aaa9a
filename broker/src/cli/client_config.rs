//! Where the exec plugin asks, and as whom: the user's own file, or the flags of the user's own exec stanza.
//!
//! With a file, the flags must say the same: arguments may have been added by whoever wrote the list of clusters.

use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_core::name::AccessName;

use super::access::{CALLER_AUDIENCE, ServerArgs, UsageError};
use crate::client::caller_token::{self, CallerTokenSource};
use crate::client::client_file;
use crate::client::server::ServerAddress;

/// Flags of the exec plugin.
#[derive(Args)]
pub(super) struct ClientConfigArgs {
    /// Your own file with the server, its CA and your token's file [default: $XDG_CONFIG_HOME/keyferry/client.yaml].
    #[arg(long, env = "KEYFERRY_CLIENT_CONFIG", value_name = "FILE")]
    pub(super) client_config: Option<PathBuf>,
}

/// What they mean.
pub(super) struct Reach {
    pub(super) server: ServerAddress,
    pub(super) caller: CallerTokenSource,
    /// Whether a client that does not name its server is served.
    pub(super) allow_unpinned_server: bool,
    /// The file that says so.
    pub(super) file: Option<PathBuf>,
}

impl ClientConfigArgs {
    pub(super) fn reach(&self, flags: &ServerArgs) -> Result<Reach, UsageError> {
        let path = self.client_config.clone().or_else(|| home_folder("XDG_CONFIG_HOME", ".config").map(|it| it.join("client.yaml")));
        let file = path.as_deref().map(|path| client_file::read(path, CALLER_AUDIENCE)).transpose();
        let hint = "see docs/clients.md for its form";
        let file = file.map_err(|error| UsageError { problem: error.to_string(), hint })?.flatten();
        let Some(file) = file else {
            if let Some(path) = &self.client_config {
                return Err(UsageError { problem: format!("the client configuration {} is not there", path.display()), hint });
            }
            let (server, caller) = flags.calls()?;
            return Ok(Reach { server, caller, allow_unpinned_server: false, file: None });
        };
        let reach = Reach { server: file.server, caller: file.caller, allow_unpinned_server: file.allow_unpinned_server, file: path };
        reach.agrees_with(flags)?;
        Ok(reach)
    }
}

impl Reach {
    /// A flag beside the file may repeat it and nothing else.
    fn agrees_with(&self, flags: &ServerArgs) -> Result<(), UsageError> {
        let same_path = |flag: &Option<PathBuf>, own: &Option<PathBuf>| flag.is_none() || flag == own;
        let same_text = |flag: &Option<String>, own: Option<&str>| flag.is_none() || flag.as_deref() == own;
        let ServerArgs { server, certificate_authority, token_file, service_account, caller_audience, hub } = flags;
        let CallerTokenSource { token_file: own_file, service_account: own_account, audience, hub: own_hub } = &self.caller;
        let flags = [
            ("--server", same_text(server, Some(&self.server.url))),
            ("--certificate-authority", same_path(certificate_authority, &self.server.certificate_authority)),
            ("--token-file", same_path(token_file, own_file)),
            ("--service-account", same_text(service_account, own_account.as_ref().map(|name| name.as_str()))),
            ("--caller-audience", same_text(caller_audience, audience.as_ref().map(|audience| audience.as_str()))),
            ("--kubeconfig", same_path(&hub.kubeconfig, &own_hub.kubeconfig)),
            ("--context", same_text(&hub.context, own_hub.context.as_deref())),
        ];
        match flags.iter().find(|(_, agrees)| !agrees) {
            None => Ok(()),
            Some((flag, _)) => {
                let path = self.file.as_deref().unwrap_or(Path::new("")).display();
                Err(UsageError {
                    problem: format!("{flag}, or its KEYFERRY_ variable, says otherwise than the client configuration {path}"),
                    hint: "that file decides which server is asked and as whom; change it there, or name another file by --client-config",
                })
            }
        }
    }

    /// The arguments by which an exec stanza finds the same again.
    pub(super) fn arguments(&self, access: &AccessName, named_file: Option<&Path>) -> Vec<String> {
        let mut arguments = vec!["credential".to_owned(), access.to_string()];
        let mut add = |flag: &str, value: Option<String>| arguments.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        if self.file.is_some() {
            add("--client-config", named_file.map(absolute));
            return arguments;
        }
        let CallerTokenSource { token_file, service_account, audience, hub } = &self.caller;
        add("--server", Some(self.server.url.clone()));
        add("--certificate-authority", self.server.certificate_authority.as_deref().map(absolute));
        add("--token-file", token_file.as_deref().map(absolute));
        if let (None, Some(name)) = (token_file, service_account) {
            add("--service-account", Some(name.to_string()));
            add("--caller-audience", audience.as_ref().map(|audience| audience.as_str().to_owned()));
            add("--kubeconfig", hub.kubeconfig.as_deref().map(absolute));
            add("--context", hub.context.clone());
        }
        arguments
    }

    /// The file of the caller's token, where it is one.
    pub(super) fn token_file(&self) -> Option<&Path> {
        let default = Some(Path::new(caller_token::DEFAULT_TOKEN_FILE)).filter(|_| self.caller.service_account.is_none());
        self.caller.token_file.as_deref().or(default)
    }
}

/// `keyferry` in a folder of the user's, by the XDG Base Directory Specification: a relative path in the variable does not count.
pub(super) fn home_folder(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = named(variable).or_else(|| named("HOME").map(|home| home.join(otherwise)))?;
    Some(folder.join("keyferry"))
}

/// kubectl runs the plugin wherever the user happens to be.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use keyferry_core::name::AccessName;

    use super::{ClientConfigArgs, Reach, ServerArgs};
    use crate::cli::HubArgs;

    fn flags() -> ServerArgs {
        ServerArgs {
            server: None,
            certificate_authority: None,
            token_file: None,
            service_account: None,
            caller_audience: None,
            hub: HubArgs { kubeconfig: None, context: None },
        }
    }

    fn with_file(flags: &ServerArgs) -> Result<Reach, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.yaml");
        let text =
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: https://k.example\ntokenFile: /own/token\n";
        std::fs::write(&path, text).unwrap();
        ClientConfigArgs { client_config: Some(path) }.reach(flags).map_err(|usage| usage.problem)
    }

    #[test]
    fn arguments_lead_nowhere_else_than_the_users_file() {
        assert_eq!(with_file(&flags()).unwrap().server.url, "https://k.example");
        let same = ServerArgs { server: Some("https://k.example".to_owned()), token_file: Some("/own/token".into()), ..flags() };
        assert!(with_file(&same).is_ok());
        let path = |path: &str| Some(PathBuf::from(path));
        let text = |text: &str| Some(text.to_owned());
        for (flag, other) in [
            ("--server", ServerArgs { server: text("https://evil"), ..flags() }),
            ("--certificate-authority", ServerArgs { certificate_authority: path("/evil"), ..flags() }),
            ("--token-file", ServerArgs { token_file: path("/etc/shadow"), ..flags() }),
            ("--service-account", ServerArgs { service_account: text("other"), ..flags() }),
            ("--caller-audience", ServerArgs { caller_audience: text("other"), ..flags() }),
            ("--kubeconfig", ServerArgs { hub: HubArgs { kubeconfig: path("/evil"), context: None }, ..flags() }),
            ("--context", ServerArgs { hub: HubArgs { kubeconfig: None, context: text("evil") }, ..flags() }),
        ] {
            let problem = with_file(&other).err().unwrap_or_else(|| panic!("{flag} is let through"));
            assert!(problem.starts_with(flag) && !problem.contains("evil") && !problem.contains("shadow"), "{problem}");
        }
    }

    #[test]
    fn a_stanza_finds_the_same_again() {
        let access = AccessName::parse("tenant-a/prod").unwrap();
        let named = ServerArgs { server: Some("https://k.example".to_owned()), token_file: Some("/own/token".into()), ..flags() };
        let (server, caller) = named.calls().map_err(|usage| usage.problem).unwrap();
        let reach = Reach { server, caller, allow_unpinned_server: false, file: None };
        let expected = ["credential", "tenant-a/prod", "--server", "https://k.example", "--token-file", "/own/token"];
        assert_eq!(reach.arguments(&access, None), expected);
        let reach = with_file(&flags()).unwrap();
        assert_eq!(reach.arguments(&access, None), ["credential", "tenant-a/prod"], "the file that is found by itself");
        let file = reach.file.clone().unwrap();
        let arguments = reach.arguments(&access, Some(&file));
        assert_eq!(arguments.last().map(String::as_str), file.to_str());
    }
}
