//! Chooses the server to ask and the caller: from the user's own file, or from the flags.
//!
//! For the exec plugin, only the file decides, and flags must agree with it: the author of a
//! kubeconfig or of the list of clusters may have written them.

use std::path::{Path, PathBuf};

use keyferry_client::caller_token::{self, CallerTokenSource};
use keyferry_client::ci_token::CiTokenSource;
use keyferry_client::client_file;
use keyferry_client::plugin_folders::{FILE_NAME, PluginFolders};
use keyferry_client::server::ServerAddress;
use keyferry_hub::client::HubAccess;

use crate::args::access::{CALLER_AUDIENCE, ServerArgs};
use crate::command_error::CommandError;

/// Where the form of the file is described.
const FORM: &str = "see docs/guides/tenant.md for its form";

/// The server and the caller that the flags or the file name.
pub(crate) struct Reach {
    /// The server to ask.
    pub(crate) server: ServerAddress,
    /// Where the caller's proof is.
    pub(crate) caller: CallerTokenSource,
    /// Whether a client that does not name its target server still gets a token.
    pub(crate) allow_unpinned_server: bool,
    /// The folder in which the exec plugin keeps tokens between calls, if the file names one.
    pub(crate) cache_dir: Option<PathBuf>,
    /// The file that these values come from.
    pub(crate) file: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns the server for a person, who typed the flags; `None` if neither flags nor the file
    /// name one. With `--server`, the flags replace the file. The two are never mixed, so that a
    /// token of one does not go to the server of the other.
    pub(crate) fn reach(&self) -> Result<Option<Reach>, CommandError> {
        if self.server.is_some() {
            return self.reach_by_flags();
        }
        let files = match &self.client_config {
            Some(named) => vec![named.clone()],
            None => home_folder("XDG_CONFIG_HOME", ".config")
                .map(|folder| folder.join(FILE_NAME))
                .into_iter()
                .chain(PluginFolders::of_this_user().files(None)?)
                .collect(),
        };
        let Some(mut reach) = self.reach_by_files(&files)? else {
            return self.reach_by_flags();
        };
        // The file does not name the hub, so the user's own kubeconfig is used, as in every
        // command.
        if reach.caller.hub.kubeconfig.is_none() {
            let flags = self.hub.access();
            reach.caller.hub = HubAccess {
                context: reach.caller.hub.context.or(flags.context),
                ..flags
            };
        }
        reach.agrees_with(self)?;
        Ok(Some(reach))
    }

    /// Returns the server for the exec plugin: of the user's own file in one of `folders`; `None`
    /// if there is no file. Flags may only repeat what the file says.
    pub(crate) fn reach_of_plugin(
        &self,
        folders: &PluginFolders,
    ) -> Result<Option<Reach>, CommandError> {
        let files = folders.files(self.client_config.as_deref())?;
        let reach = self.reach_by_files(&files)?;
        if let Some(reach) = &reach {
            reach.agrees_with(self)?;
        }
        Ok(reach)
    }

    /// Returns the server that the flags alone name.
    pub(crate) fn reach_by_flags(&self) -> Result<Option<Reach>, CommandError> {
        let calls = self.calls()?;
        Ok(calls.map(|(server, caller)| Reach {
            server,
            caller,
            allow_unpinned_server: false,
            cache_dir: None,
            file: None,
        }))
    }

    /// Reads the first of the files that exists.
    fn reach_by_files(&self, files: &[PathBuf]) -> Result<Option<Reach>, CommandError> {
        for path in files {
            let file = client_file::read_client_file(path, CALLER_AUDIENCE)
                .map_err(|error| CommandError::with_fix(error.to_string(), FORM))?;
            if let Some(mut file) = file {
                file.caller.hub.proxy = self.hub.named().proxy;
                return Ok(Some(Reach {
                    server: file.server,
                    caller: file.caller,
                    allow_unpinned_server: file.allow_unpinned_server,
                    cache_dir: file.cache_dir,
                    file: Some(path.clone()),
                }));
            }
        }
        match &self.client_config {
            Some(path) => Err(CommandError::with_fix(
                format!("the client configuration {} is not there", path.display()),
                FORM,
            )),
            None => Ok(None),
        }
    }
}

impl Reach {
    /// Checks that each flag repeats the file's value.
    fn agrees_with(&self, flags: &ServerArgs) -> Result<(), CommandError> {
        let same_path =
            |flag: &Option<PathBuf>, own: &Option<PathBuf>| flag.is_none() || flag == own;
        let same_text =
            |flag: &Option<String>, own: Option<&str>| flag.is_none() || flag.as_deref() == own;
        let ServerArgs {
            server,
            certificate_authority,
            token_file,
            github_oidc: _,
            token_env: _,
            service_account,
            caller_audience,
            client_certificate,
            client_key,
            client_config: _,
            hub,
        } = flags;
        let ci = flags.ci();
        let CallerTokenSource {
            token_file: own_file,
            ci: own_ci,
            service_account: own_account,
            audience,
            hub: own_hub,
            client_certificate: own_pair,
        } = &self.caller;
        let own_pair = own_pair.as_ref();
        let flags = [
            ("--server", same_text(server, Some(&self.server.url))),
            (
                "--certificate-authority",
                same_path(certificate_authority, &self.server.certificate_authority),
            ),
            ("--token-file", same_path(token_file, own_file)),
            (
                match ci {
                    Some(CiTokenSource::GithubOidc { .. }) => "--github-oidc",
                    Some(CiTokenSource::Variable(_)) | None => "--token-env",
                },
                match (&ci, own_ci) {
                    (None, _) => true,
                    (Some(ci), Some(own)) => ci.is_same_place(own),
                    (Some(_), None) => false,
                },
            ),
            (
                "--service-account",
                same_text(
                    service_account,
                    own_account.as_ref().map(|name| name.as_str()),
                ),
            ),
            (
                "--caller-audience",
                same_text(
                    caller_audience,
                    audience.as_ref().map(|audience| audience.as_str()),
                ),
            ),
            (
                "--client-certificate",
                client_certificate.is_none()
                    || client_certificate.as_ref() == own_pair.map(|pair| &pair.certificate),
            ),
            (
                "--client-key",
                client_key.is_none() || client_key.as_ref() == own_pair.map(|pair| &pair.key),
            ),
            (
                "--kubeconfig",
                same_path(&hub.kubeconfig, &own_hub.kubeconfig),
            ),
            (
                "--context",
                same_text(&hub.context, own_hub.context.as_deref()),
            ),
        ];
        match flags.iter().find(|(_, agrees)| !agrees) {
            None => Ok(()),
            Some((flag, _)) => {
                let path = self.file.as_deref().unwrap_or(Path::new("")).display();
                Err(CommandError::with_fix(
                    format!(
                        "{flag}, or its KEYFERRY_ variable, contradicts the client \
                         configuration {path}"
                    ),
                    "that file sets the server and the caller; change it there, or name another \
                     file with --client-config",
                ))
            }
        }
    }

    /// Returns the client file that names the same server and caller, to be written by the user.
    ///
    /// # Errors
    /// The hub is reached by several merged kubeconfigs, which the file cannot name.
    pub(crate) fn client_file(&self) -> Result<String, CommandError> {
        let mut caller = self.caller.clone();
        if caller.token_file.is_none() && caller.service_account.is_some() {
            // The plugin does not read KUBECONFIG, where its client may have the target's own
            // kubeconfig.
            caller.hub = caller.hub.pin_context().map_err(|error| {
                CommandError::with_fix(error.to_string(), "give --kubeconfig FILE")
            })?;
        }
        Ok(client_file::write_client_file(
            &self.server,
            &caller,
            CALLER_AUDIENCE,
        ))
    }

    /// Returns the file of the caller's token, if the token comes from a file.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        let named = self.caller.service_account.is_some()
            || self.caller.ci.is_some()
            || self.caller.client_certificate.is_some();
        let default = Some(Path::new(caller_token::DEFAULT_TOKEN_FILE)).filter(|_| !named);
        self.caller.token_file.as_deref().or(default)
    }
}

/// Returns the folder `keyferry` in one of the user's folders. By the XDG Base Directory
/// Specification, a relative path in the variable is ignored.
pub(crate) fn home_folder(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = named(variable).or_else(|| named("HOME").map(|home| home.join(otherwise)))?;
    Some(folder.join("keyferry"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use keyferry_client::plugin_folders::PluginFolders;

    use super::{Reach, ServerArgs};
    use crate::args::HubArgs;

    /// Who passes the flags.
    enum By {
        Person,
        Plugin,
    }

    fn flags() -> ServerArgs {
        ServerArgs {
            server: None,
            certificate_authority: None,
            token_file: None,
            github_oidc: false,
            token_env: None,
            service_account: None,
            caller_audience: None,
            client_certificate: None,
            client_key: None,
            client_config: None,
            hub: HubArgs {
                kubeconfig: None,
                context: None,
            },
        }
    }

    fn with_file(flags: ServerArgs, by: By) -> Result<Reach, String> {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/keyferry");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("client.yaml");
        let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: \
            https://k.example\ntokenFile: /own/token\n";
        std::fs::write(&path, text).unwrap();
        let flags = ServerArgs {
            client_config: Some(path),
            ..flags
        };
        let reach = match by {
            By::Person => flags.reach(),
            By::Plugin => flags.reach_of_plugin(&PluginFolders::of_home(Some(home.path()))),
        };
        reach.map(Option::unwrap).map_err(|usage| usage.problem)
    }

    #[test]
    fn without_a_file_no_flag_names_the_plugins_server() {
        let home = tempfile::tempdir().unwrap();
        let folders = PluginFolders::of_home(Some(home.path()));
        let named = ServerArgs {
            server: Some("https://evil.example".to_owned()),
            ..flags()
        };
        let plugin = |flags: &ServerArgs| flags.reach_of_plugin(&folders);
        assert!(plugin(&named).is_ok_and(|reach| reach.is_none()));
        // Nor does a file elsewhere.
        let elsewhere = home.path().join("client.yaml");
        std::fs::write(
            &elsewhere,
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: https://evil.example\n",
        )
        .unwrap();
        let named = ServerArgs {
            client_config: Some(elsewhere),
            ..flags()
        };
        let problem = plugin(&named).err().unwrap().problem;
        assert!(
            problem.contains("the exec plugin reads no other folder"),
            "{problem}"
        );
    }

    #[test]
    fn arguments_lead_nowhere_else_than_the_users_file() {
        let plugin = |flags| with_file(flags, By::Plugin);
        assert_eq!(plugin(flags()).unwrap().server.url, "https://k.example");
        let same = ServerArgs {
            server: Some("https://k.example".to_owned()),
            token_file: Some("/own/token".into()),
            ..flags()
        };
        assert!(plugin(same).is_ok());
        let path = |path: &str| Some(PathBuf::from(path));
        let text = |text: &str| Some(text.to_owned());
        for (flag, other) in [
            (
                "--server",
                ServerArgs {
                    server: text("https://evil"),
                    ..flags()
                },
            ),
            (
                "--certificate-authority",
                ServerArgs {
                    certificate_authority: path("/evil"),
                    ..flags()
                },
            ),
            (
                "--token-file",
                ServerArgs {
                    token_file: path("/etc/shadow"),
                    ..flags()
                },
            ),
            (
                "--github-oidc",
                ServerArgs {
                    github_oidc: true,
                    ..flags()
                },
            ),
            (
                "--token-env",
                ServerArgs {
                    token_env: text("evil"),
                    ..flags()
                },
            ),
            (
                "--service-account",
                ServerArgs {
                    service_account: text("other"),
                    ..flags()
                },
            ),
            (
                "--caller-audience",
                ServerArgs {
                    caller_audience: text("other"),
                    ..flags()
                },
            ),
            (
                "--kubeconfig",
                ServerArgs {
                    hub: HubArgs {
                        kubeconfig: path("/evil"),
                        context: None,
                    },
                    ..flags()
                },
            ),
            (
                "--context",
                ServerArgs {
                    hub: HubArgs {
                        kubeconfig: None,
                        context: text("evil"),
                    },
                    ..flags()
                },
            ),
        ] {
            let problem = plugin(other)
                .err()
                .unwrap_or_else(|| panic!("{flag} is let through"));
            assert!(
                problem.starts_with(flag)
                    && !problem.contains("evil")
                    && !problem.contains("shadow"),
                "{problem}"
            );
        }
    }

    #[test]
    fn for_a_person_server_leaves_the_file_aside_and_nothing_is_mixed() {
        let person = |flags| with_file(flags, By::Person);
        assert_eq!(person(flags()).unwrap().server.url, "https://k.example");
        let reach = person(ServerArgs {
            server: Some("https://other.example".to_owned()),
            ..flags()
        })
        .unwrap();
        assert_eq!(
            (reach.server.url.as_str(), &reach.caller.token_file),
            ("https://other.example", &None),
            "not the file's token"
        );
        let problem = person(ServerArgs {
            token_file: Some("/other/token".into()),
            ..flags()
        })
        .err()
        .unwrap();
        assert!(
            problem.starts_with("--token-file"),
            "another token does not go to the file's server: {problem}"
        );
        let hub = HubArgs {
            kubeconfig: Some("/hub".into()),
            context: None,
        };
        let reach = person(ServerArgs { hub, ..flags() }).unwrap();
        assert_eq!(
            reach.caller.hub.kubeconfig,
            Some("/hub".into()),
            "the file names no kubeconfig"
        );
    }

    /// The plugin does not read `KUBECONFIG`, so the file names the kubeconfig that was found when
    /// it was written.
    #[test]
    fn the_file_to_write_names_the_kubeconfig_that_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: hub\n";
        std::fs::write(&path, text).unwrap();
        let named = ServerArgs {
            server: Some("https://k.example".to_owned()),
            service_account: Some("reconciler".to_owned()),
            ..flags()
        };
        let reach = named.reach_by_flags().map_err(|usage| usage.problem);
        let mut reach = reach.unwrap().unwrap();
        reach.caller.hub.search = vec![path.clone()];
        let text = reach.client_file().map_err(|usage| usage.problem).unwrap();
        let kubeconfig = format!(
            "kubeconfig: {:?}\ncontext: \"hub\"\n",
            path.display().to_string()
        );
        assert!(text.ends_with(&kubeconfig), "{text}");
        let second = folder.path().join("second");
        std::fs::copy(&path, &second).unwrap();
        reach.caller.hub.search.push(second);
        let problem = reach.client_file().err().map(|usage| usage.problem);
        assert!(problem.unwrap_or_default().contains("several files"));
    }
}
