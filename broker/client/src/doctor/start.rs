//! Turns what the user starts from into a plan of what to ask.

use keyferry_api::config::{
    CertificateSource, ServerConfiguration, TargetAccess, TargetCluster, TokenIssuer,
};
use keyferry_api::managed_issuer;
use keyferry_api::name::{AccessName, Namespace, ObjectName, TrustBundleName};
use keyferry_api::reason::Reason;
use keyferry_core::static_verdict::{StaticVerdict, explain_refusal};
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::{self, HubAccess};
use keyferry_hub::ports::{CertificateSecrets, HubError, TrustBundleError};
use keyferry_kube_authn::Code;
use keyferry_platform::clock::{Clock, SystemClock};
use secrecy::ExposeSecret;

use crate::ClientError;
use crate::checked_mint::{issuer_of, issuer_of_hub};
use crate::configuration_source::ConfigurationSource;
use crate::direct::Direct;
use crate::doctor::access_of_tenant::gives_on_request;
use crate::doctor::diagnosis::TokenEvidence;
use crate::doctor::kubeconfig_secret::{SecretRef, read_secret};
use crate::doctor::listed::{ListError, ListedTargets, ManagedIssuer};
use crate::doctor::plan::{Plan, may_not_mint, problem};
use crate::doctor::{access_of_tenant, client_certificate, followed_delivery};

/// Builds a plan from an access of a configuration file or of the hub, with the user's own rights
/// on the hub.
pub async fn from_access(access: &AccessName, direct: &Direct) -> Plan {
    let mut plan = Plan {
        namespace: Some(access.namespace.clone()),
        ..Plan::named(format!("access/{access}"))
    };
    let configuration = match direct.read_configuration(access).await {
        Ok(configuration) => configuration,
        Err(ClientError::HubCall {
            error: HubError::Forbidden(right),
            ..
        }) => return access_of_tenant::plan(plan, access, direct, &right.to_string()).await,
        Err(error) => {
            let text = error.to_string();
            let problem = match error {
                // Not a mistake of any configuration.
                ClientError::Hub(_) | ClientError::HubCall { .. } => {
                    problem(Code::StartUnread, text)
                }
                _ => problem(Reason::ConfigurationInvalid, text),
            };
            plan.problem = Some(problem);
            return plan;
        }
    };
    let server = &configuration.server;
    state_server(&mut plan, server, &direct.hub).await;
    let policy = &configuration.policy;
    let target_access = policy.accesses.get(access);
    let target = target_access.and_then(|found| policy.targets.get(&found.target));
    let (Some(found), Some(target)) = (target_access, target) else {
        let why = explain_refusal(policy, access);
        plan.problem = Some(problem(Reason::TargetNotGranted, why));
        return plan;
    };
    if target.client_certificates.is_some() {
        follow_certificate(&mut plan, found, &direct.hub).await;
        return plan;
    }
    let namespace = &server.cluster_resource_namespace;
    let ca_pem = target_authority(&direct.hub, namespace, target).await;
    plan.set_target(target, ca_pem);
    if target.issuer == TokenIssuer::Keyferry {
        let issuer =
            managed_issuer::managed_issuer_url(&configuration.server.public_url, &target.name);
        let issuer = issuer.ok().map(|issuer| issuer.as_str().to_owned());
        plan.expect_managed(ManagedIssuer(issuer));
    }
    plan.set_published(direct.target_status(server, &target.name).await);
    if StaticVerdict::of(policy, found) == StaticVerdict::NotAllowed {
        let why = explain_refusal(policy, access);
        plan.token_evidence = TokenEvidence::Failed(problem(Reason::TargetNotGranted, why));
        return plan;
    }
    if !gives_on_request(found) {
        followed_delivery::follow_first_delivery(&mut plan, found, &target.audience, &direct.hub)
            .await;
        return plan;
    }
    plan.token_evidence = requested_token(access, direct).await;
    plan
}

/// Notes what the server's settings say of the hub and of its published documents.
async fn state_server(plan: &mut Plan, server: &ServerConfiguration, hub: &HubAccess) {
    plan.hub_name = Some(server.hub_name.clone());
    plan.published_at = Some(server.public_url.discovery_url());
    let pinned = server.hub_issuer.as_ref();
    plan.issuer = issuer_of_hub(hub)
        .await
        .or_else(|| pinned.map(|issuer| issuer.as_str().to_owned()));
}

/// Reads the client certificate of an access to a target that issues no tokens.
async fn follow_certificate(plan: &mut Plan, access: &TargetAccess, hub: &HubAccess) {
    let now = SystemClock::start().now().wall;
    let read = match hub.client().await {
        Ok(client) => client_certificate::read(&client, access, now).await,
        Err(error) => Err(problem(Code::StartUnread, error.to_string())),
    };
    match read {
        Ok(valid) => plan.warning = Some(valid),
        Err(fault) => plan.problem = Some(fault),
    }
}

/// Reads the CA certificates of a target; `None` for those of the system.
pub(crate) async fn target_authority(
    hub: &HubAccess,
    namespace: &Namespace,
    target: &TargetCluster,
) -> Result<Option<Vec<u8>>, SecretAuthorityError> {
    match &target.certificate {
        CertificateSource::System => Ok(None),
        CertificateSource::Inline(pem) => Ok(Some(pem.clone().into_bytes())),
        CertificateSource::TrustBundle(name) => trust_bundle(hub, namespace, name).await,
        CertificateSource::Secret(name) => secret_authority(hub, namespace, name).await,
    }
}

/// Requests a token with the user's own rights.
async fn requested_token(access: &AccessName, direct: &Direct) -> TokenEvidence {
    match direct.mint_token(access).await {
        Ok(token) => TokenEvidence::Token(token.token.expose_secret().as_bytes().to_vec()),
        Err(ClientError::Refused {
            reason: Reason::MintForbidden,
            ..
        }) => TokenEvidence::Unknown(may_not_mint(
            &format!("of {access}"),
            &Reason::MintForbidden,
        )),
        Err(ClientError::HubCall {
            doing,
            error: HubError::Forbidden(right),
        }) => TokenEvidence::Unknown(format!(
            "{doing}: {right}: ask the hub's admin for this right, or add --server URL"
        )),
        Err(ClientError::Refused { reason, detail, .. }) => {
            TokenEvidence::Failed(problem(reason, detail))
        }
        Err(error) => TokenEvidence::Failed(problem(Reason::MintFailed, error.to_string())),
    }
}

/// Builds a plan from a listed TargetCluster. It has no token, because only a TargetAccess names
/// the ServiceAccount.
pub async fn from_target(name: &str, source: &ConfigurationSource, hub: &HubAccess) -> Plan {
    let mut plan = Plan::named(format!("targetcluster/{name}"));
    let listed = match ListedTargets::read(source, hub, None).await {
        Ok(listed) => listed,
        Err(ListError::MissingRight(right)) => {
            return Plan {
                unknown: Some(format!(
                    "you may not list the TargetClusters of the hub ({right}): ask its admin for \
                     get and list on targetclusters.keyferry.dev, or start from targetaccess/NAME"
                )),
                ..plan
            };
        }
        Err(error) => {
            return Plan {
                problem: Some(problem(Code::StartUnread, error.to_string())),
                ..plan
            };
        }
    };
    let Some(target) = listed.named(name) else {
        let mut detail = format!(
            "{} has no TargetCluster {name} that can be read",
            listed.list_description()
        );
        if let Some(missing) = listed.missing() {
            detail = format!("{detail}; {missing}");
        }
        return Plan {
            problem: Some(problem(Code::StartUnread, detail)),
            ..plan
        };
    };
    plan.issuer = match hub.client().await {
        Ok(client) => issuer_of(&client).await,
        Err(_) => None,
    };
    if let Some(managed) = listed.managed_issuer(target) {
        plan.expect_managed(managed);
    }
    let ca_pem = listed.ca_pem(target).await;
    plan.set_target(target, ca_pem.map(|pem| pem.map(String::into_bytes)));
    plan.set_published(listed.status(&target.name));
    plan
}

/// Why the Secret of `certSecretRef` or a ClusterTrustBundle gives no CA certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretAuthorityError {
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
    let client = hub.client().await?;
    let bundles = KubeCertificateSecrets::new(client, namespace.clone());
    Ok(Some(bundles.trust_bundle(name).await?))
}

async fn secret_authority(
    hub: &HubAccess,
    namespace: &Namespace,
    name: &ObjectName,
) -> Result<Option<Vec<u8>>, SecretAuthorityError> {
    let client = hub.client().await?;
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
    let mut plan = Plan {
        namespace: Some(namespace.clone()),
        ..Plan::named(format!("secret/{name} in {namespace}"))
    };
    match hub.client().await {
        Ok(client) => {
            plan.issuer = issuer_of(&client).await;
            let secret = SecretRef {
                name,
                key,
                key_field: "--secret-key",
            };
            read_secret(&client, namespace, &secret, &mut plan).await;
        }
        Err(error) => plan.problem = Some(problem(Code::StartUnread, error.to_string())),
    }
    plan
}
