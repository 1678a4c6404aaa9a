//! Chooses the server to ask and the caller: from the user's own file, or from the flags.
//!
//! For the exec plugin, flags beside a file must agree with it: the author of the list of clusters
//! may have added the arguments.

use std::path::{Path, PathBuf};

use keyferry_api::name::AccessName;
use keyferry_client::caller_token::{self, CallerTokenSource};
use keyferry_client::ci_token::CiTokenSource;
use keyferry_client::client_file;
use keyferry_client::server::ServerAddress;
use keyferry_hub::client::HubAccess;

use crate::access::{CALLER_AUDIENCE, ServerArgs};
use crate::command_error::CommandError;

/// What flags may do if the user's file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// A person typed the flags: with `--server`, the flags replace the file. The two are never
    /// mixed, so that a token of one does not go to the server of the other.
    Flags,
    /// The flags may come from a list of clusters: only the file decides.
    File,
}

/// The server and the caller that the flags or the file name.
pub struct Reach {
    /// The server to ask.
    pub server: ServerAddress,
    /// Where the caller's proof is.
    pub caller: CallerTokenSource,
    /// Whether a client that does not name its target server still gets a token.
    pub allow_unpinned_server: bool,
    /// The file that these values come from.
    pub file: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns the server from the file or from the flags; `None` if neither names one.
    pub fn reach(&self, beside: Beside) -> Result<Option<Reach>, CommandError> {
        let by_flags = || {
            let calls = self.calls()?;
            Ok(calls.map(|(server, caller)| Reach {
                server,
                caller,
                allow_unpinned_server: false,
                file: None,
            }))
        };
        if beside == Beside::Flags && self.server.is_some() {
            return by_flags();
        }
        let path = self
            .client_config
            .clone()
            .or_else(|| home_folder("XDG_CONFIG_HOME", ".config").map(|it| it.join("client.yaml")));
        let file = path
            .as_deref()
            .map(|path| client_file::read(path, CALLER_AUDIENCE))
            .transpose();
        let hint = "see docs/clients.md for its form";
        let file = file
            .map_err(|error| CommandError::with_fix(error.to_string(), hint))?
            .flatten();
        let Some(mut file) = file else {
            if let Some(path) = &self.client_config {
                return Err(CommandError::with_fix(
                    format!("the client configuration {} is not there", path.display()),
                    hint,
                ));
            }
            return by_flags();
        };
        // The file does not name the hub, so the user's own kubeconfig is used, as in every
        // command.
        let open = beside == Beside::Flags && file.caller.hub.kubeconfig.is_none();
        if open {
            let flags = self.hub.access();
            file.caller.hub = HubAccess {
                context: file.caller.hub.context.or(flags.context),
                ..flags
            };
        }
        let reach = Reach {
            server: file.server,
            caller: file.caller,
            allow_unpinned_server: file.allow_unpinned_server,
            file: path,
        };
        reach.agrees_with(self)?;
        Ok(Some(reach))
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
                    Some(CiTokenSource::GithubOidc) => "--github-oidc",
                    Some(CiTokenSource::Variable(_)) | None => "--token-env",
                },
                ci.is_none() || ci == *own_ci,
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

    /// Returns the arguments with which an exec stanza reaches the same server and caller.
    ///
    /// # Errors
    /// The hub is reached by several merged kubeconfigs, which one argument cannot name.
    pub fn arguments(
        &self,
        access: &AccessName,
        named_file: Option<&Path>,
    ) -> Result<Vec<String>, CommandError> {
        let mut arguments = vec!["credential".to_owned(), access.to_string()];
        let mut add = |flag: &str, value: Option<String>| {
            arguments.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]))
        };
        if self.file.is_some() {
            add("--client-config", named_file.map(absolute));
            return Ok(arguments);
        }
        let CallerTokenSource {
            token_file,
            ci,
            service_account,
            audience,
            hub,
            client_certificate,
        } = &self.caller;
        add("--server", Some(self.server.url.clone()));
        add(
            "--certificate-authority",
            self.server.certificate_authority.as_deref().map(absolute),
        );
        add("--token-file", token_file.as_deref().map(absolute));
        if let Some(pair) = client_certificate {
            add("--client-certificate", Some(absolute(&pair.certificate)));
            add("--client-key", Some(absolute(&pair.key)));
        }
        let of_audience = || {
            audience
                .as_ref()
                .map(|audience| audience.as_str().to_owned())
        };
        match ci {
            Some(CiTokenSource::GithubOidc) => {
                add("--caller-audience", of_audience());
                arguments.push("--github-oidc".to_owned());
                return Ok(arguments);
            }
            Some(CiTokenSource::Variable(name)) => {
                add("--caller-audience", of_audience());
                add("--token-env", Some(name.clone()));
                return Ok(arguments);
            }
            None => {}
        }
        if let (None, Some(name)) = (token_file, service_account) {
            // The plugin does not read KUBECONFIG, where its client may have the target's own
            // kubeconfig.
            let hub = hub.pinned().map_err(|error| {
                CommandError::with_fix(error.to_string(), "or write it into client.yaml")
            })?;
            add("--service-account", Some(name.to_string()));
            add(
                "--caller-audience",
                audience
                    .as_ref()
                    .map(|audience| audience.as_str().to_owned()),
            );
            add("--kubeconfig", hub.kubeconfig.as_deref().map(absolute));
            add("--context", hub.context);
        }
        Ok(arguments)
    }

    /// Returns the file of the caller's token, if the token comes from a file.
    pub fn token_file(&self) -> Option<&Path> {
        let named = self.caller.service_account.is_some()
            || self.caller.ci.is_some()
            || self.caller.client_certificate.is_some();
        let default = Some(Path::new(caller_token::DEFAULT_TOKEN_FILE)).filter(|_| !named);
        self.caller.token_file.as_deref().or(default)
    }
}

/// Returns the folder `keyferry` in one of the user's folders. By the XDG Base Directory
/// Specification, a relative path in the variable is ignored.
pub fn home_folder(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = named(variable).or_else(|| named("HOME").map(|home| home.join(otherwise)))?;
    Some(folder.join("keyferry"))
}

/// Makes a path absolute, because kubectl runs the plugin in the user's current folder.
fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use keyferry_api::name::AccessName;

    use super::{Beside, Reach, ServerArgs};
    use crate::HubArgs;

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

    fn with_file(flags: ServerArgs, beside: Beside) -> Result<Reach, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.yaml");
        let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: \
            https://k.example\ntokenFile: /own/token\n";
        std::fs::write(&path, text).unwrap();
        let reach = ServerArgs {
            client_config: Some(path),
            ..flags
        }
        .reach(beside);
        reach.map(Option::unwrap).map_err(|usage| usage.problem)
    }

    #[test]
    fn arguments_lead_nowhere_else_than_the_users_file() {
        let plugin = |flags| with_file(flags, Beside::File);
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
        let person = |flags| with_file(flags, Beside::Flags);
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

    #[test]
    fn a_stanza_finds_the_same_again() {
        let access = AccessName::parse("tenant-a/prod").unwrap();
        let arguments = |reach: &Reach, file| {
            reach
                .arguments(&access, file)
                .map_err(|usage| usage.problem)
                .unwrap()
        };
        let named = ServerArgs {
            server: Some("https://k.example".to_owned()),
            token_file: Some("/own/token".into()),
            ..flags()
        };
        let (server, caller) = named
            .calls()
            .map_err(|usage| usage.problem)
            .unwrap()
            .unwrap();
        let reach = Reach {
            server,
            caller,
            allow_unpinned_server: false,
            file: None,
        };
        let expected = [
            "credential",
            "tenant-a/prod",
            "--server",
            "https://k.example",
            "--token-file",
            "/own/token",
        ];
        assert_eq!(arguments(&reach, None), expected);
        let reach = with_file(flags(), Beside::File).unwrap();
        assert_eq!(
            arguments(&reach, None),
            ["credential", "tenant-a/prod"],
            "the file that is found by itself"
        );
        let file = reach.file.clone().unwrap();
        assert_eq!(
            arguments(&reach, Some(&file)).last().map(String::as_str),
            file.to_str()
        );
    }

    /// The plugin does not read `KUBECONFIG`, so the stanza names the kubeconfig that was found
    /// when it was written.
    #[test]
    fn a_stanza_names_the_kubeconfig_that_was_found() {
        let access = AccessName::parse("tenant-a/prod").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(
            &path,
            "apiVersion: v1\nkind: Config\ncurrent-context: hub\n",
        )
        .unwrap();
        let named = ServerArgs {
            server: Some("https://k.example".to_owned()),
            service_account: Some("reconciler".to_owned()),
            ..flags()
        };
        let (server, mut caller) = named
            .calls()
            .map_err(|usage| usage.problem)
            .unwrap()
            .unwrap();
        caller.hub.search = vec![path.clone()];
        let mut reach = Reach {
            server,
            caller,
            allow_unpinned_server: false,
            file: None,
        };
        let arguments = reach
            .arguments(&access, None)
            .map_err(|usage| usage.problem)
            .unwrap();
        let tail = ["--kubeconfig", path.to_str().unwrap(), "--context", "hub"];
        assert!(
            arguments.ends_with(&tail.map(str::to_owned)),
            "{arguments:?}"
        );
        let second = folder.path().join("second");
        std::fs::copy(&path, &second).unwrap();
        reach.caller.hub.search.push(second);
        let problem = reach
            .arguments(&access, None)
            .err()
            .map(|usage| usage.problem)
            .unwrap_or_default();
        assert!(problem.contains("several files"), "{problem}");
    }
}
