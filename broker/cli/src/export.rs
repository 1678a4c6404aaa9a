//! `keyferry export`: writes the discovery documents as files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use keyferry_api::config::{Overrides, ServerConfiguration, TokenIssuer};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::lifetime;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_client::ClientError;
use keyferry_client::configuration_source::{ConfigurationSource, server_of_hub};
use keyferry_client::wanted_objects::Wanted;
use keyferry_controller::key_refresh::READ_INTERVAL;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::issuer_keys::KubeIssuerKeys;
use keyferry_hub::key_record_store::{KeyRecordStore, RecordError};
use keyferry_hub::secret_store::KubeSecretStore;
use keyferry_issuer::export::{Export, ExportError, ExportScope, ManagedIssuerFiles};
use keyferry_issuer::managed_issuer::{KeySetMaintainer, KeySetMaintainerParts, ManagedIssuers};
use keyferry_issuer::publication::{KeyRecords, PublishError, Publisher, PublisherParts};
use keyferry_keys::managed_issuer::RotationPolicy;
use keyferry_platform::clock::SystemClock;
use keyferry_platform::config_file;
use keyferry_platform::metrics::Metrics;
use tokio::sync::Mutex;

use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::{serve, ui};

/// The seconds that `discovery.maxAge` may have.
const MAX_AGES: std::ops::RangeInclusive<u64> = 30..=3600;
/// The `max-age` of the files if nothing states the server's: the shortest that a server can have,
/// so it never exceeds that of the server.
const UNSTATED_MAX_AGE: Duration = Duration::from_secs(*MAX_AGES.start());

#[derive(Args)]
pub(super) struct ExportArgs {
    /// Folder to write to.
    ///
    /// It is created if missing, and holds the documents of one issuer only.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Keyferry's configuration file.
    ///
    /// publicURL, hub.issuer, hub.endpoints and discovery.maxAge of its ServerConfiguration are
    /// used. Without it, the statuses of the hub's TargetClusters, and --max-age.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long targets may cache the files, from 30s to 1h [default: that of --config, else 30s]
    ///
    /// It is discovery.maxAge of the server or less.
    #[arg(long, value_name = "DURATION", value_parser = crate::args::names::lifetime, hide_short_help = true)]
    max_age: Option<Duration>,
    /// The https origin under which targets will reach the files, instead of publicURL.
    #[arg(long, env = "KEYFERRY_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Keep running until a signal: read the hub every 15 s and write changes.
    ///
    /// A failure does not change the files.
    #[arg(long)]
    watch: bool,
    /// Also write the documents of the managed issuers, below issuers/TARGET.
    ///
    /// This reads the Secrets that hold their private keys.
    #[arg(long, conflicts_with_all = ["public_url", "path"], hide_short_help = true)]
    managed_issuers: bool,
    /// The path below the origin at which the folder is served, such as /hubs/a.
    ///
    /// For several hubs that share one origin.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true, value_parser = prefix, hide_short_help = true)]
    path: String,
    /// Write what the hub lists now, without the key journal of a running Keyferry.
    ///
    /// Revoked keys, and withdrawn keys that are still needed, are then unknown.
    #[arg(long, hide_short_help = true)]
    without_record: bool,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Debug, thiserror::Error)]
enum ExportRoundError {
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Objects(#[from] ClientError),
    #[error(
        "reading the keys of the managed issuer of TargetCluster {0}: there are none that can be \
         used; nothing was written"
    )]
    ManagedIssuer(ObjectName),
}

/// Files cannot be served below this path.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a path such as /hubs/a: small letters, digits, '-' and '/', and no '/' at its end")]
struct PrefixError;

fn prefix(text: &str) -> Result<String, PrefixError> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    match text.strip_prefix('/') {
        Some(path) if path.split('/').all(is_plain) => Ok(text.to_owned()),
        None if text.is_empty() => Ok(String::new()),
        _ => Err(PrefixError),
    }
}

pub(super) async fn run(args: ExportArgs) -> ExitCode {
    let exporter = match Exporter::of(&args).await {
        Ok(exporter) => exporter,
        Err(error) => return ui::command_failed(&error),
    };
    if args.watch {
        serve::start_log();
        tokio::select! {
            () = exporter.export_repeatedly() => ExitCode::FAILURE,
            () = crate::signals::stop_signal() => ExitCode::SUCCESS,
        }
    } else {
        match exporter.export_once().await {
            Ok(changed) => ui::finish(&summary(&args.folder, &changed)),
            Err(error) => ui::fail(&error.to_string(), hint(&error)),
        }
    }
}

/// Everything that one round of the export needs.
struct Exporter {
    export: Export,
    publisher: Publisher,
    public_url: PublicUrl,
    server: ServerConfiguration,
    prefix: String,
    managed: Option<ManagedReader>,
}

/// Reads the documents of the managed issuers, as a replica does that may not write.
struct ManagedReader {
    objects: ConfigurationSource,
    hub: HubAccess,
    maintainer: Mutex<KeySetMaintainer>,
    issuers: ManagedIssuers,
}

impl ManagedReader {
    fn new(args: &ExportArgs, client: HubClient, server: &ServerConfiguration) -> Self {
        let issuers = ManagedIssuers::default();
        let maintainer = KeySetMaintainer::new(KeySetMaintainerParts {
            store: Arc::new(KubeIssuerKeys::new(
                client,
                server.cluster_resource_namespace.clone(),
            )),
            issuers: issuers.clone(),
            clock: Arc::new(SystemClock::start()),
            metrics: Metrics::default(),
            public_url: server.public_url.clone(),
            rotation: RotationPolicy {
                active_after: lifetime::activation_delay(server.max_age),
                every: server.managed_issuers.rotate_every,
            },
            may_write: Arc::default(),
        });
        Self {
            objects: ConfigurationSource::file_or_hub(args.config.clone()),
            hub: args.hub.access(),
            maintainer: Mutex::new(maintainer),
            issuers,
        }
    }

    async fn read(&self) -> Result<Vec<ManagedIssuerFiles>, ExportRoundError> {
        let client = || async { Ok(self.hub.client().await?) };
        let policy = self
            .objects
            .read_configuration(client, Wanted::All)
            .await?
            .policy;
        self.maintainer.lock().await.run_round(&policy).await;
        let managed = policy
            .targets
            .values()
            .filter(|target| target.issuer == TokenIssuer::Keyferry);
        managed
            .map(|target| {
                let known = self.issuers.get(&target.name);
                let files = known.and_then(|known| {
                    Some(ManagedIssuerFiles {
                        target: target.name.clone(),
                        issuer: known.issuer.clone(),
                        documents: known.documents.clone()?,
                    })
                });
                files.ok_or_else(|| ExportRoundError::ManagedIssuer(target.name.clone()))
            })
            .collect()
    }
}

impl Exporter {
    async fn of(args: &ExportArgs) -> Result<Self, CommandError> {
        let server = server(args).await?;
        let public_url = match &args.public_url {
            Some(text) => PublicUrl::new(text)
                .map_err(|error| CommandError::new(format!("--public-url {error}")))?,
            None => server.public_url.clone(),
        };
        let export = Export::open(&args.folder)?;
        let records = if args.without_record {
            KeyRecords::none()
        } else {
            let client = args.hub.access().client().await?;
            let secrets = KubeSecretStore::new(client, server.cluster_resource_namespace.clone());
            KeyRecords::shared(KeyRecordStore::read_only(Arc::new(secrets)))
        };
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                args.hub.access(),
                server.hub_endpoints.clone(),
                HubCaller::User,
            )),
            public_url: public_url.clone(),
            pinned: server.hub_issuer.clone(),
            activation_delay: lifetime::activation_delay(server.max_age),
            records,
            clock: Arc::new(SystemClock::start()),
            metrics: Metrics::default(),
        });
        let managed = match args.managed_issuers {
            true => {
                let client = args.hub.access().client().await?;
                Some(ManagedReader::new(args, client, &server))
            }
            false => None,
        };
        Ok(Self {
            export,
            publisher,
            public_url,
            server,
            prefix: args.path.clone(),
            managed,
        })
    }

    /// Reads the hub once and writes what changed.
    async fn export_once(&self) -> Result<Vec<String>, ExportRoundError> {
        self.publisher.refresh().await?;
        self.publisher.sync_journal().await?;
        let published = self
            .publisher
            .reader()
            .current()
            .ok_or(PublishError::SharedCallLost)?;
        let scope = ExportScope {
            prefix: self.prefix.clone(),
            managed: match &self.managed {
                Some(managed) => managed.read().await?,
                None => Vec::new(),
            },
        };
        let max_age = self.server.max_age;
        Ok(self
            .export
            .write(&published, &self.public_url, max_age, &scope)?)
    }

    /// Repeats rounds for ever. Logs each cause of failure once, until a round succeeds.
    async fn export_repeatedly(&self) {
        let mut failing = None;
        loop {
            match self.export_once().await {
                Ok(changed) => {
                    if failing.take().is_some() {
                        tracing::info!("the export goes on");
                    }
                    if !changed.is_empty() {
                        tracing::info!(?changed, "files were written");
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    if failing.as_ref() != Some(&message) {
                        tracing::error!(%error, hint = hint(&error), "the files stay as they are");
                    }
                    failing = Some(message);
                }
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }
}

/// Returns the settings of the file, else those that the hub's objects state.
async fn server(args: &ExportArgs) -> Result<ServerConfiguration, CommandError> {
    let Some(path) = &args.config else {
        let max_age = checked_max_age(args.max_age, None)?;
        let server = server_of_hub(&args.hub.client().await?).await?;
        if server.hub_issuer.is_none() {
            return Err(CommandError::with_fix(
                "finding the hub's issuer: no TargetCluster's status states it, or two state \
                 different ones",
                "give --config FILE, the server's configuration",
            ));
        }
        ui::note(
            "without --config, hub.endpoints is unknown: the keys are read at each apiserver that \
             the hub lists",
        );
        return Ok(ServerConfiguration { max_age, ..server });
    };
    let server = config_file::read_config_file(path, Overrides::of_a_reader())?.server;
    let max_age = checked_max_age(args.max_age, Some(server.max_age))?;
    Ok(ServerConfiguration { max_age, ..server })
}

/// Returns the `max-age` of the files. The server issues tokens of a new key once targets must have
/// reloaded by its own `max-age`: with a longer one here, a target would refuse them.
fn checked_max_age(
    flag: Option<Duration>,
    of_server: Option<Duration>,
) -> Result<Duration, CommandError> {
    match (flag, of_server) {
        (None, Some(max_age)) => Ok(max_age),
        (None, None) => Ok(UNSTATED_MAX_AGE),
        (Some(flag), _) if !MAX_AGES.contains(&flag.as_secs()) => {
            Err(CommandError::new("--max-age must be from 30s to 1h"))
        }
        (Some(flag), Some(max_age)) if flag > max_age => Err(CommandError::new(format!(
            "--max-age is longer than discovery.maxAge, {} s: targets would refuse tokens of a \
             new key",
            max_age.as_secs()
        ))),
        (Some(flag), _) => Ok(flag),
    }
}

fn summary(folder: &Path, changed: &[String]) -> String {
    if changed.is_empty() {
        format!("{}: nothing changed", folder.display())
    } else {
        format!("{}: wrote {}", folder.display(), changed.join(", "))
    }
}

fn hint(error: &ExportRoundError) -> Option<&'static str> {
    match error {
        ExportRoundError::Publish(error) if error.reason() == Reason::HubDiscoveryForbidden => {
            Some("bind ClusterRole system:service-account-issuer-discovery to this user of the hub")
        }
        ExportRoundError::Record(_) => Some(
            "the key journal names revoked keys; --without-record exports what the hub lists now, \
             including revoked keys",
        ),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::{checked_max_age, prefix};

    #[test]
    fn a_path_is_plain() {
        for good in ["", "/hubs", "/hubs/a-1"] {
            assert_eq!(prefix(good).ok().as_deref(), Some(good));
        }
        for bad in ["/", "hubs", "/hubs/", "//a", "/../a", "/A", "/a?b", "/a%2f"] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_cached_no_longer_than_the_server_waits() {
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
        let checked = |flag, of_server| checked_max_age(flag, of_server).ok();
        assert_eq!(checked(None, seconds(300)), seconds(300));
        assert_eq!(checked(seconds(60), seconds(300)), seconds(60));
        assert_eq!(checked(seconds(60), seconds(60)), seconds(60));
        assert_eq!(checked(seconds(61), seconds(60)), None);
        assert_eq!(checked(seconds(3600), None), seconds(3600));
        for out_of_bounds in [29, 3601] {
            assert_eq!(checked(seconds(out_of_bounds), None), None);
        }
        // The server's is unknown, and no server has a shorter one.
        assert_eq!(checked(None, None), seconds(30));
    }
}
