//! Turns what the user starts from into a plan of what to ask.

use keyferry_api::config::CertificateSource;
use keyferry_api::name::{AccessName, Namespace, ObjectName, TrustBundleName};
use keyferry_api::reason::Reason;
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::{self, HubAccess, HubClient};
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::ports::{CertificateSecrets, HubError, TrustBundleError};
use keyferry_kube_authn::Code;
use keyferry_kube_authn::doctor::TokenEvidence;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::listed::ListedTargets;
use crate::plan::{DISCOVERY, Plan, problem};
use crate::{client_certificate, found_kubeconfig};
use keyferry_client::ClientError;
use keyferry_client::checked_mint::issuer_of;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;

/// Builds a plan from an access of a configuration file or of the hub, with the user's own rights
/// on the hub.
pub async fn from_access(access: &AccessName, direct: &Direct) -> Plan {
    let mut plan = Plan::named(format!("access/{access}"));
    let configuration = match direct.configuration(access).await {
        Ok(configuration) => configuration,
        Err(error) => {
            return Plan {
                problem: Some(problem(Reason::ConfigurationInvalid, error.to_string())),
                ..plan
            };
        }
    };
    plan.hub_name = Some(configuration.server.hub_name.clone());
    plan.published_at = Some(format!(
        "{}{DISCOVERY}",
        configuration
            .server
            .public_url
            .as_str()
            .trim_end_matches('/')
    ));
    plan.issuer = hub_issuer(&direct.hub).await.or_else(|| {
        configuration
            .server
            .hub_issuer
            .as_ref()
            .map(|issuer| issuer.as_str().to_owned())
    });
    let found = configuration.policy.accesses.get(access);
    let target = found.and_then(|found| configuration.policy.targets.get(&found.target));
    let Some(target) = target else {
        plan.problem = Some(problem(
            Reason::TargetNotGranted,
            "there is no access of this name that leads to a target".to_owned(),
        ));
        return plan;
    };
    if let (Some(found), true) = (found, target.client_certificates.is_some()) {
        let now = SystemClock::start().now().wall;
        let read = match hub_client(&direct.hub).await {
            Ok(client) => client_certificate::read(&client, found, now).await,
            Err(error) => Err(problem(Code::StartUnread, error.to_string())),
        };
        match read {
            Ok(valid) => plan.warning = Some(valid),
            Err(fault) => plan.problem = Some(fault),
        }
        return plan;
    }
    let ca_pem = match &target.certificate {
        CertificateSource::System => Ok(None),
        CertificateSource::Inline(pem) => Ok(Some(pem.clone().into_bytes())),
        CertificateSource::TrustBundle(name) => {
            trust_bundle(
                &direct.hub,
                &configuration.server.cluster_resource_namespace,
                name,
            )
            .await
        }
        CertificateSource::Secret(name) => {
            secret_authority(
                &direct.hub,
                &configuration.server.cluster_resource_namespace,
                name,
            )
            .await
        }
    };
    plan.set_target(target, ca_pem);
    plan.held = match direct.token(access).await {
        Ok(token) => TokenEvidence::Token(token.token.expose_secret().as_bytes().to_vec()),
        Err(ClientError::Refused { reason, detail, .. }) => {
            TokenEvidence::Failed(problem(reason, detail))
        }
        Err(error) => TokenEvidence::Failed(problem(Reason::MintFailed, error.to_string())),
    };
    plan
}

/// Builds a plan from a listed TargetCluster. It has no token, because only a TargetAccess names
/// the ServiceAccount.
pub async fn from_target(name: &str, source: &ConfigurationSource, hub: &HubAccess) -> Plan {
    let mut plan = Plan::named(format!("targetcluster/{name}"));
    let listed = match ListedTargets::read(source, hub).await {
        Ok(listed) => listed,
        Err(error) => {
            return Plan {
                problem: Some(problem(Code::StartUnread, error.to_string())),
                ..plan
            };
        }
    };
    let Some(target) = listed.named(name) else {
        let detail = format!(
            "{} has no TargetCluster {name} that can be read",
            listed.place()
        );
        return Plan {
            problem: Some(problem(Code::StartUnread, detail)),
            ..plan
        };
    };
    plan.issuer = match hub_client(hub).await {
        Ok(client) => issuer_of(&client).await,
        Err(_) => None,
    };
    let ca_pem = listed.ca_pem(target).await;
    plan.set_target(target, ca_pem.map(|pem| pem.map(String::into_bytes)));
    plan
}

/// Why the Secret of `certSecretRef` or a ClusterTrustBundle gives no CA certificates.
#[derive(Debug, thiserror::Error)]
enum SecretAuthorityError {
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    TrustBundle(#[from] TrustBundleError),
    #[error("the Secret of certSecretRef has no ca.crt")]
    Empty,
}

async fn trust_bundle(
    hub: &HubAccess,
    namespace: &Namespace,
    name: &TrustBundleName,
) -> Result<Option<Vec<u8>>, SecretAuthorityError> {
    let client = hub_client(hub).await?;
    let bundles = KubeCertificateSecrets::new(client, namespace.clone());
    Ok(Some(bundles.trust_bundle(name).await?))
}

async fn secret_authority(
    hub: &HubAccess,
    namespace: &Namespace,
    name: &ObjectName,
) -> Result<Option<Vec<u8>>, SecretAuthorityError> {
    let client = hub_client(hub).await?;
    let entry = KubeCertificateSecrets::new(client, namespace.clone())
        .certificate(name)
        .await?;
    entry.pem.map(Some).ok_or(SecretAuthorityError::Empty)
}

/// Builds a plan from a Secret of the hub that contains a kubeconfig.
pub async fn from_secret(
    hub: &HubAccess,
    namespace: &Namespace,
    name: &str,
    key: Option<&str>,
) -> Plan {
    let mut plan = Plan::named(format!("secret/{name} in {namespace}"));
    match hub_client(hub).await {
        Ok(client) => {
            plan.issuer = issuer_of(&client).await;
            read_secret(&client, namespace, name, key, &mut plan).await;
        }
        Err(error) => plan.problem = Some(problem(Code::StartUnread, error.to_string())),
    }
    plan
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, SecretString>,
}

/// Reads the Secret as Flux does: the named key, else `value`, else `value.yaml`.
pub(crate) async fn read_secret(
    client: &HubClient,
    namespace: &Namespace,
    name: &str,
    key: Option<&str>,
    plan: &mut Plan,
) {
    use base64::Engine;
    // A tenant can write this name: in a path, it could lead to another namespace.
    let Ok(name) = ObjectName::new(name) else {
        plan.problem = Some(problem(
            Code::FluxReferenceUnusable,
            format!("{name:?} is not the name of a Secret"),
        ));
        return;
    };
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let secret: Secret = match client.get_object(&path, "Secret").await {
        Ok(secret) => secret,
        Err(error) => {
            plan.problem = Some(problem(
                Code::StartUnread,
                format!("secret/{name}: {error}"),
            ));
            return;
        }
    };
    let keys: &[&str] = match &key {
        Some(key) => &[*key],
        None => &["value", "value.yaml"],
    };
    let unusable = |detail: &str| {
        Some(problem(
            Code::KubeconfigUnusable,
            format!("secret/{name}: {detail}"),
        ))
    };
    let Some(data) = keys.iter().find_map(|key| secret.data.get(*key)) else {
        plan.problem = unusable(&format!("it has no key {}", keys.join(" or ")));
        return;
    };
    let text = base64::engine::general_purpose::STANDARD
        .decode(data.expose_secret())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else {
        plan.problem = unusable("it is not text");
        return;
    };
    match found_kubeconfig::read(&text) {
        Ok(found) => {
            plan.take(found);
            plan.target_is_tenants = true;
        }
        Err(error) => plan.problem = unusable(&error.to_string()),
    }
}

/// Creates a client of the hub.
pub(crate) async fn hub_client(hub: &HubAccess) -> Result<HubClient, client::ClientError> {
    HubClient::new(hub.config().await?)
}

async fn hub_issuer(hub: &HubAccess) -> Option<String> {
    issuer_of(&hub_client(hub).await.ok()?).await
}
