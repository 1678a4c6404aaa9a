//! Issues tokens without a server: takes the same decisions on the same file or hub objects, and
//! mints with the user's own rights on the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::config::{
    CertificateSource, Configuration, DeliveryType, ObjectSource, Policy, ServerConfiguration,
    TargetCluster, TokenIssuer,
};
use keyferry_api::lifetime;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_api::status::TargetClusterStatus;
use keyferry_core::authorise::{self, Grant, Requester, Review};
use keyferry_core::kubeconfig::{self, KubeconfigParts};
use keyferry_core::readiness::{ISSUER_COLLISION_FIX, NotReady, check_readiness};
use keyferry_core::static_verdict::explain_refusal;
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::kube_hub::KubeHub;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::{CertificateSecrets, Hub, HubError, TrustBundleError};
use keyferry_issuer::bound_request::{self, TokenPurpose};
use keyferry_issuer::publication::{KeyRecords, Publisher, PublisherParts};
use keyferry_keys::bound_token::BoundToken;
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::metrics::Metrics;
use secrecy::SecretString;
use serde::Deserialize;

use super::checked_mint::{self, CheckedMintError};
use super::configuration_source::ConfigurationSource;
use super::wanted_objects::Wanted;
use super::{ClientError, UsableToken, objects_of_hub};

/// Settings, objects and access to the hub, to mint without a server.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Where the settings and the objects are.
    pub source: ConfigurationSource,
    /// The hub, with the user's identity.
    pub hub: HubAccess,
}

/// A minted token with its target.
struct Obtained {
    token: BoundToken,
    target: TargetCluster,
    certificates: HubClient,
    namespace: keyferry_api::name::Namespace,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<Timestamp>,
}

impl Direct {
    /// Mints a token for `access`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn mint_token(&self, access: &AccessName) -> Result<UsableToken, ClientError> {
        let clock = SystemClock::start();
        let obtained = self.obtain_token(access, &clock).await?;
        let usable = obtained
            .token
            .remaining_lifetime(clock.now())
            .unwrap_or_default();
        Ok(UsableToken {
            token: obtained.token.secret().clone(),
            remaining_lifetime: usable,
        })
    }

    /// Mints a token for `access` and renders a kubeconfig with it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn mint_kubeconfig(&self, access: &AccessName) -> Result<SecretString, ClientError> {
        let clock = SystemClock::start();
        let obtained = self.obtain_token(access, &clock).await?;
        let ca_pem = target_certificates(&obtained, access, &clock).await?;
        let parts = KubeconfigParts {
            target: &obtained.target,
            ca_pem: ca_pem.as_deref(),
            access,
            token: obtained.token.secret(),
        };
        Ok(kubeconfig::render_kubeconfig(&parts)?)
    }

    /// Reads the configuration, with the access and its target in its policy. They come from the
    /// file or from the hub.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn read_configuration(
        &self,
        access: &AccessName,
    ) -> Result<Configuration, ClientError> {
        let client = async || Ok(self.hub.client().await?);
        self.source
            .read_configuration(client, Wanted::Access(access))
            .await
    }

    /// Reads the status of a TargetCluster: the default if there is none, the user may not read it,
    /// or the objects are in the server's file.
    pub async fn target_status(
        &self,
        server: &ServerConfiguration,
        target: &ObjectName,
    ) -> TargetClusterStatus {
        match &self.source {
            ConfigurationSource::Objects(file) => return file.target_status(target),
            ConfigurationSource::File(_) if server.objects == ObjectSource::File => {
                return TargetClusterStatus::default();
            }
            ConfigurationSource::File(_) | ConfigurationSource::Hub => {}
        }
        let Ok(config) = self.hub.config().await else {
            return TargetClusterStatus::default();
        };
        let Ok(client) = HubClient::new(config) else {
            return TargetClusterStatus::default();
        };
        let read = objects_of_hub::target_status(&client, target).await;
        read.unwrap_or_default()
    }

    async fn obtain_token(
        &self,
        access: &AccessName,
        clock: &SystemClock,
    ) -> Result<Obtained, ClientError> {
        let configuration = self.read_configuration(access).await?;
        let config = self.hub.config().await?;
        let client = HubClient::new(config.clone())?;
        let live = look_up(&client, &configuration.policy, access).await?;
        let grant = authorise_grant(&configuration.policy, &live, access)?;
        let target = configuration
            .policy
            .targets
            .get(grant.pair().target())
            .cloned();
        let target = target.ok_or_else(|| refusal_error(access, Reason::TargetNotGranted))?;
        if target.issuer == TokenIssuer::Keyferry {
            return Err(refusal_error(access, Reason::TargetNotReady));
        }
        let server = configuration.server;
        let namespace = server.cluster_resource_namespace.clone();
        let publisher = self.publisher(server);
        publisher.refresh().await?;
        let published = publisher
            .reader()
            .current()
            .ok_or_else(|| refusal_error(access, Reason::HubDiscoveryInvalid))?;
        check_readiness(&target, Some(&published.issuer))
            .map_err(|error| refusal_error(access, error.reason()))?;
        let hub: Arc<dyn Hub> = Arc::new(KubeHub::new(
            client.clone(),
            Arc::new(SystemClock::start()),
            // A command shows no metrics.
            Metrics::default(),
        ));
        let token = bound_request::request_bound_token(
            &*hub,
            &publisher,
            clock,
            TokenPurpose::Granted(&grant),
        )
        .await
        .map_err(|reason| refusal_error(access, reason))?;
        refuse_hub_credential(config, token.secret(), access).await?;
        Ok(Obtained {
            token,
            target,
            certificates: client,
            namespace,
        })
    }

    /// Reads the hub's keys with the user's own rights, and keeps no journal of them.
    fn publisher(&self, server: ServerConfiguration) -> Publisher {
        Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                self.hub.clone(),
                server.hub_endpoints,
                HubCaller::User,
            )),
            public_url: server.public_url,
            pinned: server.hub_issuer,
            activation_delay: lifetime::activation_delay(server.max_age),
            records: KeyRecords::none(),
            clock: Arc::new(SystemClock::start()),
            metrics: Metrics::default(),
        })
    }
}

/// Refuses a token that the hub itself accepts: the target could use it there.
async fn refuse_hub_credential(
    config: kube::Config,
    token: &SecretString,
    access: &AccessName,
) -> Result<(), ClientError> {
    match checked_mint::opens_the_hub(config, token).await {
        Ok(false) => Ok(()),
        Ok(true)
        | Err(CheckedMintError::AudienceIsHubs(_) | CheckedMintError::OtherAudiences(_)) => {
            Err(refusal_error(access, Reason::AudienceIsHubs))
        }
        Err(CheckedMintError::Client(error)) => Err(error.into()),
        Err(CheckedMintError::Hub(error)) => Err(ClientError::HubCall {
            doing: "checking whether the hub accepts the audience",
            error,
        }),
    }
}

fn authorise_grant(
    policy: &Policy,
    live: &LiveObjects,
    access: &AccessName,
) -> Result<Grant, ClientError> {
    let requester = Requester::Operator;
    let pair = authorise::authorise_request(policy, live, &requester, access, DeliveryType::HTTP)
        .or_else(|_| {
            authorise::authorise_request(policy, live, &requester, access, DeliveryType::Exec)
        })
        .map_err(|reason| refused_by_policy(policy, access, reason))?;
    authorise::grant_token(policy, requester, pair, Review::NotAsked)
        .map_err(|reason| refused_by_policy(policy, access, reason))
}

/// Explains a refusal by the objects, which this user may read.
fn refused_by_policy(policy: &Policy, access: &AccessName, reason: Reason) -> ClientError {
    match reason {
        Reason::TargetNotGranted => ClientError::Refused {
            access: access.to_string(),
            reason,
            detail: explain_refusal(policy, access),
        },
        reason => refusal_error(access, reason),
    }
}

/// Reads the ServiceAccount and the Namespace that the decision needs.
async fn look_up(
    client: &HubClient,
    policy: &Policy,
    access: &AccessName,
) -> Result<LiveObjects, ClientError> {
    let live = LiveObjects::default();
    let Some(found) = policy.accesses.get(access) else {
        return Ok(live);
    };
    let account = ServiceAccount {
        namespace: access.namespace.clone(),
        name: found.service_account.clone(),
    };
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}",
        account.namespace, account.name
    );
    if let Some(object) = get_object(client, &path, "reading the ServiceAccount on the hub").await?
        && let Ok(uid) = Uid::new(object.metadata.uid)
    {
        live.set_service_account(account, Some(uid));
    }
    let path = format!("/api/v1/namespaces/{}", access.namespace);
    if let Some(object) = get_object(client, &path, "reading the Namespace on the hub").await? {
        live.set_namespace(access.namespace.clone(), Some(object.metadata.labels));
    }
    Ok(live)
}

async fn get_object(
    client: &HubClient,
    path: &str,
    doing: &'static str,
) -> Result<Option<Object>, ClientError> {
    let object: Result<Object, HubError> = client.get_object(path, "object").await;
    match object {
        Ok(object) => {
            Ok(Some(object).filter(|object| object.metadata.deletion_timestamp.is_none()))
        }
        Err(HubError::NotFound(_)) => Ok(None),
        Err(error) => Err(ClientError::HubCall { doing, error }),
    }
}

async fn target_certificates(
    obtained: &Obtained,
    access: &AccessName,
    clock: &SystemClock,
) -> Result<Option<String>, ClientError> {
    let invalid = |detail: String| ClientError::Refused {
        access: access.to_string(),
        reason: Reason::CertificateAuthorityInvalid,
        detail,
    };
    let pem = match &obtained.target.certificate {
        CertificateSource::System => return Ok(None),
        CertificateSource::Inline(pem) => pem.as_bytes().to_vec(),
        CertificateSource::TrustBundle(name) => {
            let bundles = KubeCertificateSecrets::new(
                obtained.certificates.clone(),
                obtained.namespace.clone(),
            );
            let read = bundles.trust_bundle(name).await;
            read.map_err(|error| match error {
                TrustBundleError::Hub(error) => ClientError::HubCall {
                    doing: "reading the ClusterTrustBundle of clusterTrustBundleRef",
                    error,
                },
                error => invalid(error.to_string()),
            })?
        }
        CertificateSource::Secret(name) => {
            let secrets = KubeCertificateSecrets::new(
                obtained.certificates.clone(),
                obtained.namespace.clone(),
            );
            let entry = secrets.certificate(name).await;
            let entry = entry.map_err(|error| ClientError::HubCall {
                doing: "reading the Secret of certSecretRef",
                error,
            })?;
            entry
                .pem
                .ok_or_else(|| invalid("the Secret of certSecretRef has no ca.crt".to_owned()))?
        }
    };
    let bundle = CaBundle::from_pem(&pem, clock.now().wall)
        .map_err(|error| invalid(format!("ca.crt: {error}")))?;
    Ok(Some(bundle.to_pem()))
}

fn refusal_error(access: &AccessName, reason: Reason) -> ClientError {
    let detail = match reason {
        Reason::TargetNotGranted => {
            "no TargetAccess of this name leads to a TargetCluster that allows its ServiceAccount; \
             `keyferry targets` lists what is allowed; for objects on the hub, see also their \
             conditions"
                .to_owned()
        }
        Reason::TargetSuspended => NotReady::Suspended.to_string(),
        Reason::IssuerCollision => ISSUER_COLLISION_FIX.to_owned(),
        Reason::TargetNotReady => {
            "the target trusts a managed issuer, whose keys only the server reads; ask the server, \
             with --server"
                .to_owned()
        }
        Reason::AudienceIsHubs => {
            "the hub's own apiserver accepts the target's audience; give the \
            target another"
                .to_owned()
        }
        Reason::MintForbidden => "your own account may not create tokens for this ServiceAccount \
            on the hub"
            .to_owned(),
        _ => "see the messages above".to_owned(),
    };
    ClientError::Refused {
        access: access.to_string(),
        reason,
        detail,
    }
}
