//! `keyferry export`: writes the discovery documents as files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use keyferry_api::config::{Overrides, ServerConfiguration};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::lifetime;
use keyferry_api::reason::Reason;
use keyferry_controller::publish;
use keyferry_hub::client::HubClient;
use keyferry_hub::clock::SystemClock;
use keyferry_hub::config_file;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::key_record_store::{KeyRecordStore, RecordError};
use keyferry_hub::metrics::Metrics;
use keyferry_hub::secret_store::KubeSecretStore;
use keyferry_issuer::export::{Export, ExportError};
use keyferry_issuer::publication::{KeyRecords, PublishError, Publisher, PublisherParts};

use super::command_error::CommandError;
use super::{HubArgs, serve, ui};

#[derive(Args)]
pub(super) struct ExportArgs {
    /// Folder to write to. It is created if missing, and holds the documents of one issuer only.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Keyferry's configuration file: publicURL, hub.issuer and discovery.maxAge of its
    /// ServerConfiguration are used.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// The https origin under which targets will reach the files, instead of publicURL.
    #[arg(long, env = "KEYFERRY_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Keep running: read the hub every 15 s and write changes, until a signal. A failure does not
    /// change the files.
    #[arg(long)]
    watch: bool,
    /// Write what the hub lists now, without the record of a running Keyferry: revoked keys, and
    /// withdrawn keys that are still needed, are then unknown.
    #[arg(long)]
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
}

pub(super) async fn run(args: ExportArgs) -> ExitCode {
    let exporter = match Exporter::of(&args).await {
        Ok(exporter) => exporter,
        Err(error) => return ui::command_failed(&error),
    };
    if args.watch {
        serve::start_log();
        tokio::select! {
            () = exporter.follow() => ExitCode::FAILURE,
            () = serve::stop_signal() => ExitCode::SUCCESS,
        }
    } else {
        match exporter.round().await {
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
}

impl Exporter {
    async fn of(args: &ExportArgs) -> Result<Self, CommandError> {
        let server = config_file::read(&args.config, Overrides::of_a_reader())?.server;
        let public_url = match &args.public_url {
            Some(text) => PublicUrl::new(text)
                .map_err(|error| CommandError::new(format!("--public-url {error}")))?,
            None => server.public_url.clone(),
        };
        let export = Export::open(&args.folder)?;
        let records = if args.without_record {
            KeyRecords::none()
        } else {
            let client = HubClient::new(args.hub.access().config().await?)?;
            let secrets = KubeSecretStore::new(client, server.cluster_resource_namespace.clone());
            KeyRecords::shared(KeyRecordStore::existing(Arc::new(secrets)))
        };
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                args.hub.access(),
                server.hub_endpoints.clone(),
            )),
            public_url: public_url.clone(),
            pinned: server.hub_issuer.clone(),
            activation_delay: lifetime::activation_delay(server.max_age),
            records,
            clock: Arc::new(SystemClock::start()),
            metrics: Metrics::default(),
        });
        Ok(Self {
            export,
            publisher,
            public_url,
            server,
        })
    }

    /// Reads the hub once and writes what changed.
    async fn round(&self) -> Result<Vec<String>, ExportRoundError> {
        self.publisher.refresh().await?;
        self.publisher.sync().await?;
        let published = self
            .publisher
            .reader()
            .current()
            .ok_or(PublishError::SharedCallLost)?;
        Ok(self
            .export
            .write(&published, &self.public_url, self.server.max_age)?)
    }

    /// Repeats rounds for ever. Logs each cause of failure once, until a round succeeds.
    async fn follow(&self) {
        let mut failing = None;
        loop {
            match self.round().await {
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
            tokio::time::sleep(publish::INTERVAL).await;
        }
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
            "the record names revoked keys; --without-record exports what the hub lists now, \
             including revoked keys",
        ),
        _ => None,
    }
}
