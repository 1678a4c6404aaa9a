//! The flags of both forms of onboarding, and what they make: the target's part and the proof.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use keyferry_api::config::DeliveryType;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::checked_mint;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;
use keyferry_doctor::Means;
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::Minor;
use keyferry_terminal::address_args::AddressArgs;
use keyferry_terminal::command_error::CommandError;
use keyferry_terminal::names::lifetime;
use keyferry_terminal::{HUB, HubArgs, TARGET, start_args};
use keyferry_trust_tools::trust::{self, ShapeArgs, TargetPart};

use super::output::OutputArgs;
use super::place::{KeyferryObjects, ready_access};
use super::progress::Progress;
use super::proof::{Proof, TokenSource, untried};
use super::tenant_flags::delivery;
use super::write::WriteArgs;

/// How long a target may take to load its file, by default.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Args)]
pub(super) struct GuidedArgs {
    /// What the tenant's TargetAccess delivers, like FluxConfigMap: without it, tokens on request;
    /// may be given again.
    #[arg(long, value_name = "TYPE", value_parser = delivery)]
    pub(super) delivery: Vec<DeliveryType>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// CA certificates of the server of the discovery document.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    discovery_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(super) write: WriteArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// How long to wait until the target has loaded its file: without it, 10m.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    timeout: Option<Duration>,
    /// Keyferry's configuration file: where it holds the objects, they are shown to be added there.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keyferry's own namespace on the hub.
    #[arg(long, value_name = "NAMESPACE", help_heading = HUB)]
    keyferry_namespace: Option<String>,
    #[command(flatten)]
    pub(super) addresses: AddressArgs,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

impl GuidedArgs {
    /// Finds out where Keyferry's objects are.
    ///
    /// # Errors
    /// The configuration cannot be used, or the hub cannot be read.
    pub(super) async fn place(&self, client: &HubClient) -> Result<KeyferryObjects, CommandError> {
        KeyferryObjects::find(
            self.config.as_deref(),
            self.keyferry_namespace.as_deref(),
            client,
        )
        .await
    }

    /// Where the settings and the objects are read.
    pub(super) fn source(&self) -> ConfigurationSource {
        ConfigurationSource::named(self.config.clone())
    }

    /// Returns what the target needs. `release` is the target's, if the user states none.
    ///
    /// # Errors
    /// What is missing or cannot be read.
    pub(super) async fn target_part(
        &self,
        target: &ObjectName,
        release: Option<Minor>,
        place: &KeyferryObjects,
        client: &HubClient,
    ) -> Result<TargetPart, CommandError> {
        let issuer = match place.lacks_issuer_of(target) {
            true => checked_mint::issuer_of(client).await,
            false => None,
        };
        let mut shape = self.shape.clone();
        shape.minor = shape.minor.or(release);
        trust::for_target(
            target,
            self.config.clone(),
            issuer,
            self.discovery_ca.clone(),
            shape,
            self.hub.clone(),
        )
        .await
    }

    /// Waits until the TargetAccess is Ready, and tries its token at the target.
    ///
    /// # Errors
    /// It is not Ready in time, or an input of the diagnosis cannot be used.
    pub(super) async fn prove(
        &self,
        access: AccessName,
        target: Option<TargetClusterStatus>,
        means: Means,
        place: &KeyferryObjects,
        client: &HubClient,
        progress: &mut Progress,
    ) -> Result<ExitCode, CommandError> {
        let patience = self.timeout.unwrap_or(PATIENCE);
        let source = match place.file() {
            Some(_) => Some(TokenSource::OnRequest),
            None => {
                progress.begin("waiting until the TargetAccess is Ready");
                TokenSource::of_access(&ready_access(client, &access, patience).await?)
            }
        };
        progress.begin("trying a token at the target");
        let Some(source) = source else {
            return Ok(untried(&access));
        };
        let proof = Proof {
            direct: Direct {
                source: self.source(),
                hub: self.hub.access(),
            },
            access,
            source,
            target,
            discovery_ca: self
                .discovery_ca
                .as_deref()
                .map(start_args::file)
                .transpose()?,
            means,
            guard: self.addresses.guard(self.hub.access()),
            patience,
        };
        proof.run().await
    }
}
