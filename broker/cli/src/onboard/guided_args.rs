//! The flags of both forms of onboarding, and what they make: the target's part and the proof.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use keyferry_api::config::DeliveryType;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::checked_mint;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;
use keyferry_client::doctor::Means;
use keyferry_client::object_view::{AccessView, TargetView};
use keyferry_client::objects_of_hub::{access_value, request_reconciliation, target_value};
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::Minor;
use keyferry_platform::clock::{Clock, SystemClock};
use serde_json::Value;

use super::place::{Deadline, KeyferryObjects, ready_access};
use super::progress::Progress;
use super::proof::{Proof, TokenSource, untried};
use super::tenant_flags::delivery;
use super::token_signer::TokenSigner;
use super::write::WriteArgs;
use crate::args::access::ServerArgs;
use crate::args::address_args::AddressArgs;
use crate::args::names::lifetime;
use crate::args::{HUB, HubArgs, SERVER, TARGET};
use crate::command_error::CommandError;
use crate::local_file::read_small_file;
use crate::onboarding::change_plan::Removals;
use crate::onboarding::objects::{Tenant, deliveries_of, united};
use crate::trust::{self, Binding, Occasion, OutputDirArgs, ShapeArgs, TargetPart, TargetRequest};
use crate::ui;

/// How long a target may take to load its file, by default.
const DEFAULT_WAIT_LIMIT: Duration = Duration::from_secs(600);

#[derive(Args)]
pub(super) struct GuidedArgs {
    /// What the tenant's TargetAccess delivers, like FluxConfigMap (may be repeated) [default:
    /// tokens on request]
    #[arg(long, value_name = "TYPE", value_parser = delivery)]
    pub(super) delivery: Vec<DeliveryType>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// CA certificates of the server of the discovery document [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    discovery_ca: Option<PathBuf>,
    /// An AuthenticationConfiguration to add to, byte for byte as it is.
    ///
    /// The one that the target has.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    pub(super) merge: Option<PathBuf>,
    /// The Keyferry server's https URL.
    ///
    /// The token that proves the target is requested there. A target with a managed issuer needs
    /// it, because only the server signs for it.
    #[arg(long, value_name = "URL", help_heading = SERVER)]
    server: Option<String>,
    /// CA certificates of the Keyferry server [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = SERVER, requires = "server", hide_short_help = true)]
    certificate_authority: Option<PathBuf>,
    /// The audience of the caller's token [default: keyferry.dev]
    ///
    /// It is callerAudience of the server.
    #[arg(long, value_name = "TEXT", help_heading = SERVER, requires = "server", hide_short_help = true)]
    caller_audience: Option<String>,
    #[command(flatten)]
    pub(super) write: WriteArgs,
    #[command(flatten)]
    pub(super) output: OutputDirArgs,
    /// How long to wait in all, until the objects are Ready and the target has loaded its file
    /// [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = lifetime, hide_short_help = true)]
    timeout: Option<Duration>,
    /// Keyferry's configuration file.
    ///
    /// Where it holds the objects, they are shown to be added there.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keyferry's own namespace on the hub [default: it is searched]
    #[arg(long, value_name = "NAMESPACE", help_heading = HUB, hide_short_help = true)]
    keyferry_namespace: Option<String>,
    #[command(flatten)]
    pub(super) addresses: AddressArgs,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

/// What is to be proven, and until when.
pub(super) struct ProofRequest {
    /// The TargetAccess whose token is tried.
    pub(super) access: AccessName,
    /// The status of the TargetCluster, if it is on the hub.
    pub(super) target: Option<TargetClusterStatus>,
    /// What else is known about the target.
    pub(super) means: Means,
    /// When the run ends.
    pub(super) deadline: Deadline,
    /// How often a token is tried.
    pub(super) tries: Tries,
}

/// How often a token is tried at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// Once, because nothing that this run shows can change the result.
    One,
    /// Until it is accepted, or the time is over.
    UntilDeadline,
}

impl GuidedArgs {
    /// Finds out where Keyferry's objects are.
    ///
    /// # Errors
    /// The configuration cannot be used, or the hub cannot be read.
    pub(super) async fn find_keyferry_objects(
        &self,
        client: &HubClient,
    ) -> Result<KeyferryObjects, CommandError> {
        KeyferryObjects::find(
            self.config.as_deref(),
            self.keyferry_namespace.as_deref(),
            client,
        )
        .await
    }

    /// Where the settings and the objects are read.
    pub(super) fn source(&self) -> ConfigurationSource {
        ConfigurationSource::file_or_hub(self.config.clone())
    }

    /// Fails where flags contradict each other, before anything is read.
    ///
    /// # Errors
    /// What the flags lack.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        self.shape.binding().map(drop)
    }

    /// Returns the role to bind at the target.
    pub(super) fn binding(&self) -> Result<Option<Binding>, CommandError> {
        self.shape.binding()
    }

    /// Returns all ClusterRoles to bind at the target, also those for the users of roles.
    pub(super) fn bindings(&self) -> Result<Vec<Binding>, CommandError> {
        let of_roles = self.shape.role_bindings().cloned();
        Ok(self.binding()?.into_iter().chain(of_roles).collect())
    }

    /// Returns the ServiceAccount that Flux is to impersonate at the target.
    pub(super) fn flux_account(&self) -> Option<&ServiceAccount> {
        self.shape.flux_account()
    }

    /// Whether the user asks for something at the target beside the file's entry.
    pub(super) fn asks_for_target_part(&self) -> bool {
        self.merge.is_some() || self.shape.asks_for_rbac()
    }

    /// Starts the time in which this run has to end.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::start(self.timeout.unwrap_or(DEFAULT_WAIT_LIMIT))
    }

    /// Reads the tenant's TargetAccess on the hub. What it delivers stays, unless it is pruned.
    ///
    /// # Errors
    /// The hub cannot be read.
    pub(super) async fn existing_access(
        &self,
        tenant: &mut Tenant,
        place: &KeyferryObjects,
        client: &HubClient,
    ) -> Result<Option<Value>, CommandError> {
        if place.file().is_some() {
            return Ok(None);
        }
        let existing = access_value(client, &tenant.access_name()).await?;
        if let Some(existing) = &existing
            && self.write.removals() == Removals::Kept
        {
            let in_place = deliveries_of(&AccessView::of(existing));
            tenant.deliveries = united(&in_place, &tenant.deliveries);
        }
        Ok(existing)
    }

    /// Returns what the target needs; for a role, what the target at whose cluster it is needs.
    /// `release` is the target's, if the user states none.
    ///
    /// # Errors
    /// What is missing or cannot be read.
    pub(super) async fn target_part(
        &self,
        target: &ObjectName,
        release: Option<Minor>,
        occasion: Occasion,
        place: &KeyferryObjects,
        client: &HubClient,
    ) -> Result<TargetPart, CommandError> {
        let target = &place.owner_of_file(target, client).await?;
        let issuer = match place.lacks_issuer_of(target) {
            true => checked_mint::issuer_of(client).await,
            false => None,
        };
        let mut shape = self.shape.clone();
        shape.minor = shape.minor.or(release);
        trust::for_target(TargetRequest {
            target: target.clone(),
            config: self.config.clone(),
            issuer,
            discovery_ca: self.discovery_ca.clone(),
            shape,
            merge: self.merge.clone(),
            occasion,
            hub: self.hub.clone(),
        })
        .await
    }

    /// Returns the flags of the server that is asked for the token of an access.
    fn server_args(&self, account: &str) -> Option<ServerArgs> {
        Some(ServerArgs {
            server: Some(self.server.clone()?),
            certificate_authority: self.certificate_authority.clone(),
            token_file: None,
            github_oidc: false,
            token_env: None,
            service_account: Some(account.to_owned()),
            caller_audience: self.caller_audience.clone(),
            client_certificate: None,
            client_key: None,
            client_config: None,
            hub: self.hub.clone(),
        })
    }

    /// Waits until the TargetAccess is Ready, and tries its token at the target.
    ///
    /// # Errors
    /// It is not Ready in time, or an input of the diagnosis cannot be used.
    pub(super) async fn prove(
        &self,
        asked: ProofRequest,
        place: &KeyferryObjects,
        client: &HubClient,
        progress: &mut Progress,
    ) -> Result<ExitCode, CommandError> {
        let ProofRequest {
            access,
            target,
            means,
            deadline,
            tries,
        } = asked;
        let on_hub = match place.file() {
            Some(_) => None,
            None => {
                progress.begin("waiting until the TargetAccess is Ready");
                Some(ready_access(client, &access, &deadline).await?)
            }
        };
        progress.begin("trying a token at the target");
        let signer = match &on_hub {
            Some(ready) => Some(signer_of(ready, client).await?),
            None => place.signer_in_file(&access),
        };
        let source = match &on_hub {
            Some(ready) => TokenSource::of_access(ready),
            None => Some(TokenSource::OnRequest),
        };
        let Some(source) = source else {
            request_probe(client, &access, signer.as_ref()).await;
            return Ok(untried(&access));
        };
        let signer = signer.unwrap_or_default();
        let probed = on_hub.is_some().then(|| access.clone());
        let proof = Proof {
            direct: Direct {
                source: self.source(),
                hub: self.hub.access(),
            },
            server: self.server_for(&access, &source, &signer)?,
            access,
            source,
            target,
            discovery_ca: self
                .discovery_ca
                .as_deref()
                .map(read_small_file)
                .transpose()?,
            means,
            guard: self.addresses.guard(self.hub.access()),
            deadline: match tries {
                Tries::One => Deadline::start(Duration::ZERO),
                Tries::UntilDeadline => deadline,
            },
        };
        let ended = proof.run(progress).await;
        if let Some(access) = &probed {
            request_probe(client, access, Some(&signer)).await;
        }
        ended
    }

    /// Returns the server that is asked for a token. Fails where only a server could sign it, and
    /// none is named.
    fn server_for(
        &self,
        access: &AccessName,
        source: &TokenSource,
        signer: &TokenSigner,
    ) -> Result<Option<ServerArgs>, CommandError> {
        let server = self.server_args(&signer.account);
        if signer.is_managed && server.is_none() && *source == TokenSource::OnRequest {
            return Err(CommandError::with_fix(
                format!(
                    "NOT PROVEN: TargetAccess {access} is Ready, and its tokens are signed by a \
                     managed issuer, whose keys only the server has; no token was tried"
                ),
                "add --server URL and, for a CA of your own, --certificate-authority FILE",
            ));
        }
        Ok(server)
    }
}

/// Asks Keyferry to try a token too, so that the status shows the present and not an answer from
/// before the target had its file.
async fn request_probe(client: &HubClient, access: &AccessName, signer: Option<&TokenSigner>) {
    if !signer.is_none_or(TokenSigner::is_probed) {
        return;
    }
    let now = SystemClock::start().now().wall;
    if let Err(error) = request_reconciliation(client, access, now).await {
        ui::note(&format!(
            "Keyferry was not asked to try a token of TargetAccess {access}, so its column TARGET-OK \
             is empty or of an earlier try: {error}"
        ));
    }
}

/// Reads who signs the tokens of a TargetAccess on the hub.
async fn signer_of(access: &AccessView, client: &HubClient) -> Result<TokenSigner, CommandError> {
    let target = match ObjectName::new(access.spec.target_cluster_ref.name.as_str()) {
        Ok(name) => target_value(client, &name).await?,
        Err(_) => None,
    };
    let target = target.as_ref().map(TargetView::of);
    Ok(TokenSigner::of(access, target.as_ref()))
}
