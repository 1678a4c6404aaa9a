//! Reloads the configuration file whenever its bytes change. An invalid file changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{
    self, ConfigError, Configuration, InputCredential, MAX_CONFIG_BYTES, Mistake, Overrides,
    ServerConfiguration, WrittenObject,
};
use keyferry_api::reason::Reason;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::policy_store::PolicyWriter;
use crate::regular_file::{self, FileError};
use crate::reload_signal::ReloadSignal;

/// How long a file must stay unchanged before it is used.
const UNCHANGED_FOR: Duration = Duration::from_millis(100);
/// How often the file is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// The file cannot be read.
    #[error("reading the configuration file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file has mistakes.
    #[error("the configuration file {path} has {count} mistake(s):\n{error}", count = error.mistakes.len())]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All mistakes.
        error: ConfigError,
    },
}

/// Reads the file once.
///
/// # Errors
/// [`ConfigFileError`].
pub fn read_config_file(
    path: &Path,
    overrides: Overrides,
) -> Result<Configuration, ConfigFileError> {
    parse_config_file(path, &read_text(path)?, overrides)
}

/// Reads the file once, with its objects as they are written.
///
/// # Errors
/// [`ConfigFileError`].
pub fn read_written(
    path: &Path,
    overrides: Overrides,
) -> Result<(Configuration, Vec<WrittenObject>), ConfigFileError> {
    let text = read_text(path)?;
    let configuration = parse_config_file(path, &text, overrides)?;
    let written = config::written_objects(&text).map_err(|error| ConfigFileError::Mistakes {
        path: path.to_owned(),
        error,
    })?;
    Ok((configuration, written))
}

fn read_text(path: &Path) -> Result<String, ConfigFileError> {
    let wrong = |source| ConfigFileError::Read {
        path: path.to_owned(),
        source,
    };
    let bytes =
        regular_file::read_regular_file(path, MAX_CONFIG_BYTES as u64).map_err(|error| {
            wrong(match error {
                FileError::System(error) => error,
                FileError::NotRegular => std::io::Error::other("it is not a regular file"),
                FileError::TooLong(_) => std::io::ErrorKind::FileTooLarge.into(),
            })
        })?;
    String::from_utf8(bytes).map_err(|_| wrong(std::io::ErrorKind::InvalidData.into()))
}

/// Reads the file twice, and returns its text if both are equal: half of a file can be a complete
/// YAML stream that allows more.
async fn read_unchanged(path: &Path) -> Result<Option<String>, ConfigFileError> {
    let text = read_text(path)?;
    tokio::time::sleep(UNCHANGED_FOR).await;
    Ok(Some(read_text(path)?).filter(|again| *again == text))
}

fn parse_config_file(
    path: &Path,
    text: &str,
    overrides: Overrides,
) -> Result<Configuration, ConfigFileError> {
    config::read_with(text, overrides).map_err(|error| ConfigFileError::Mistakes {
        path: path.to_owned(),
        error,
    })
}

/// The credentials for fleet inputs, as the file last stated them.
pub type InputCredentials = Arc<[Arc<InputCredential>]>;

/// Returns the credentials of a configuration.
pub fn input_credentials(server: &ServerConfiguration) -> InputCredentials {
    let credentials = server.inputs.credentials.iter().cloned();
    credentials.map(Arc::new).collect()
}

/// What a changed file takes effect on.
pub struct FileUse {
    /// The policy; `None` if objects are on the hub.
    pub policy: Option<PolicyWriter>,
    /// The credentials for fleet inputs.
    pub input_credentials: watch::Sender<InputCredentials>,
}

/// Reloads the file until the task is dropped. `overrides` are those of the start.
pub async fn run_config_reload(
    path: PathBuf,
    active: ServerConfiguration,
    overrides: Overrides,
    file_use: FileUse,
    metrics: Metrics,
    mut reload_signal: ReloadSignal,
) {
    // These settings stay as at the start: only a restart enables or disables managed issuers.
    let overrides = Overrides {
        enable_managed_issuers: Some(active.managed_issuers.enabled),
        cluster_resource_namespace: Some(active.cluster_resource_namespace.clone()),
        ..overrides
    };
    // The file may have changed since it was first read, so the first check reads it again.
    let mut last = None;
    let mut is_start = true;
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = reload_signal.received() => {}
        }
        let text = match read_unchanged(&path).await {
            Ok(Some(text)) => text,
            // The file is still being written; the next check reads it whole.
            Ok(None) => continue,
            Err(error) => {
                if last.take().is_some() {
                    tracing::error!(reason = %Reason::ConfigurationInvalid, %error, "the active configuration stays");
                    metrics.count_reload(false);
                }
                continue;
            }
        };
        if last.as_deref() == Some(text.as_str()) {
            continue;
        }
        match parse_config_file(&path, &text, overrides.clone())
            .and_then(|configuration| check_against_active(&path, configuration, &active))
        {
            Ok(configuration) => {
                report_server_changes(&active, &configuration.server);
                let mut policy_read = configuration.policy;
                policy_read.own_namespace = Some(active.cluster_resource_namespace.clone());
                if let Some(policy) = &file_use.policy {
                    policy.replace(policy_read);
                }
                let credentials = input_credentials(&configuration.server);
                file_use.input_credentials.send_if_modified(|known| {
                    let is_changed = *known != credentials;
                    *known = credentials;
                    is_changed
                });
                // At the start, the file is the one that the process has just read.
                if !std::mem::take(&mut is_start) {
                    tracing::info!("a changed configuration file was read");
                }
                metrics.count_reload(true);
            }
            Err(error) => {
                tracing::error!(reason = %Reason::ConfigurationInvalid, %error, "the active configuration stays");
                metrics.count_reload(false);
            }
        }
        last = Some(text);
    }
}

/// Checks a new configuration against the running one. callerAudience changes only with a restart.
/// Until then no target may use the active one, or the target's tokens would authenticate to
/// Keyferry.
fn check_against_active(
    path: &Path,
    configuration: Configuration,
    active: &ServerConfiguration,
) -> Result<Configuration, ConfigFileError> {
    if configuration.server.objects != active.objects {
        let mistake = Mistake {
            object: "ServerConfiguration".to_owned(),
            path: "objects".to_owned(),
            line: 0,
            problem: "names a different source of TargetClusters and TargetAccesses than the \
                running process reads"
                .to_owned(),
            fix: "restart Keyferry".to_owned(),
        };
        return Err(ConfigFileError::Mistakes {
            path: path.to_owned(),
            error: ConfigError {
                mistakes: vec![mistake],
            },
        });
    }
    let inputs = &configuration.server.inputs;
    let mistake = configuration
        .policy
        .mistake_of_caller_audience(&active.caller_audience)
        .or_else(|| {
            // Credentials for inputs change at once, and the callers of tokens only with a restart.
            let uri = inputs.uri_of_a_caller(&active.client_certificates)?;
            Some(Mistake {
                object: "ServerConfiguration".to_owned(),
                path: "inputs.credentials".to_owned(),
                line: 0,
                problem: format!(
                    "has the URI {uri}, which is also in api.clientCertificates of the running \
                     process"
                ),
                fix: "restart Keyferry".to_owned(),
            })
        });
    match mistake {
        None => Ok(configuration),
        Some(mistake) => Err(ConfigFileError::Mistakes {
            path: path.to_owned(),
            error: ConfigError {
                mistakes: vec![mistake],
            },
        }),
    }
}

fn report_server_changes(active: &ServerConfiguration, read: &ServerConfiguration) {
    if active.public_url != read.public_url || active.hub_name != read.hub_name {
        tracing::error!(
            reason = %Reason::ConfigurationInvalid,
            "publicURL or hubName changed: every target pins them, so the change takes effect only \
             after a restart and breaks each target until its own configuration follows"
        );
    } else if !differs_in_credentials_alone(active, read) {
        tracing::warn!("the ServerConfiguration changed: it takes effect after a restart");
    } else if let watched = active.caller_authority_secrets()
        && let Some(secret) = read.caller_authority_secrets().difference(&watched).next()
    {
        tracing::warn!(
            %secret,
            "a credential for fleet inputs names a Secret with a CA that is not watched: it takes \
             effect after a restart"
        );
    }
}

/// Whether only credentials for fleet inputs differ, if anything: those take effect at once.
fn differs_in_credentials_alone(active: &ServerConfiguration, read: &ServerConfiguration) -> bool {
    let mut read = read.clone();
    read.inputs
        .credentials
        .clone_from(&active.inputs.credentials);
    *active == read
}
