//! What is held at the start, turned into what is to be asked.

use keyferry_core::config::CertificateSource;
use keyferry_core::name::{AccessName, Namespace};
use keyferry_core::reason::Reason;
use keyferry_trust::Code;
use keyferry_trust::doctor::{Cause, Entry, Evidence, Held, Problem, Target, entry_for};
use keyferry_trust::token::Token;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{TargetAddress, found_kubeconfig, secret_of};
use crate::client::ClientError;
use crate::client::direct::Direct;
use crate::kube::certificate_secret::KubeCertificateSecrets;
use crate::kube::client::{HubAccess, HubClient};
use crate::ports::{CertificateSecrets, HubError};

const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Where a discovery document is read.
#[derive(Clone, Debug)]
pub struct DiscoveryPlace {
    /// Its URL.
    pub url: String,
    /// The CA certificates to trust there; none: the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether somebody said so.
    pub stated: bool,
}

/// All that is to be asked. What flags say goes before what the start says.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What was started from, in words.
    pub start: String,
    /// What is wrong with it.
    pub problem: Option<Problem>,
    /// What is odd about it.
    pub warning: Option<Problem>,
    /// The token.
    pub held: Held,
    /// The issuer that is expected.
    pub issuer: Option<String>,
    /// The audiences of which the token must have one.
    pub audiences: Vec<String>,
    /// The discovery document's URL, where a flag says it.
    pub discovery_url: Option<String>,
    /// Where the start says that it is published.
    pub published_at: Option<String>,
    /// The CA certificates of its server.
    pub discovery_ca: Option<Vec<u8>>,
    /// The target.
    pub target: Option<TargetAddress>,
    /// The target's own issuers, as far as they are stated.
    pub own_issuers: Vec<String>,
    /// The ServiceAccount that is impersonated at the target, as namespace and name.
    pub impersonate: Option<(String, String)>,
    /// What a Kustomization that was started from has applied.
    pub inventory: Option<Vec<Value>>,
}

impl Plan {
    /// One that starts from something, with nothing found yet.
    pub fn named(start: impl Into<String>) -> Plan {
        Plan { start: start.into(), ..Plan::default() }
    }

    /// The `iss` of the token, unverified.
    pub(super) fn token_issuer(&self) -> Option<String> {
        let Held::Token(bytes) = &self.held else { return None };
        let text = std::str::from_utf8(bytes).ok()?;
        let jwt = keyferry_core::jwt::UnverifiedJwt::parse(text).ok()?;
        Some(jwt.claims().get("iss")?.as_str()?.to_owned())
    }

    pub(super) fn secret(&self) -> Option<SecretString> {
        // What is no JWT is shown to nobody: it may be a credential of another kind.
        let Held::Token(bytes) = &self.held else { return None };
        Token::read(bytes).ok().filter(Token::is_signed)?;
        secret_of(&self.held)
    }

    /// The user name that Flux's impersonation sends.
    pub fn impersonated_user(&self) -> Option<String> {
        self.impersonate.as_ref().map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"))
    }

    pub(super) fn evidence(&self, file: Option<&[u8]>) -> Evidence {
        let entry = file.and_then(|file| entry_for(file, self.token_issuer().as_deref()));
        Evidence {
            start: self.start.clone(),
            start_problem: self.problem.clone(),
            start_warning: self.warning.clone(),
            held: self.held.clone(),
            // The file's own entry is judged as the target's configuration, not here.
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            discovery_stated: entry.is_some(),
            target: Target { own_issuers: self.own_issuers.clone(), ..Target::default() },
            ..Evidence::default()
        }
    }

    /// A flag, else the target's file, else what the start says, else where the issuer has it by itself.
    pub(super) fn discovery_place(&self, entry: Option<Entry>, issuer: Option<&str>) -> Option<DiscoveryPlace> {
        if let Some(url) = &self.discovery_url {
            return Some(DiscoveryPlace { url: url.clone(), ca_pem: self.discovery_ca.clone(), stated: true });
        }
        if let Some(entry) = entry {
            let ca_pem = entry.certificate_authority.map(String::into_bytes).or_else(|| self.discovery_ca.clone());
            return Some(DiscoveryPlace { url: entry.discovery_url, ca_pem, stated: true });
        }
        if let Some(url) = &self.published_at {
            // By which CA the target trusts it, the start does not say.
            return Some(DiscoveryPlace { url: url.clone(), ca_pem: self.discovery_ca.clone(), stated: self.discovery_ca.is_some() });
        }
        let issuer = issuer.or(self.issuer.as_deref())?;
        let url = format!("{}{DISCOVERY}", issuer.strip_suffix('/').unwrap_or(issuer));
        Some(DiscoveryPlace { url, ca_pem: self.discovery_ca.clone(), stated: false })
    }
}

/// A plan from an access of a configuration file or of the hub, with your own rights on the hub.
pub async fn from_access(access: &AccessName, direct: &Direct) -> Plan {
    let mut plan = Plan::named(format!("access/{access}"));
    let configuration = match direct.configuration(access).await {
        Ok(configuration) => configuration,
        Err(error) => return Plan { problem: Some(problem(Reason::ConfigurationInvalid, error.to_string())), ..plan },
    };
    plan.published_at = Some(format!("{}{DISCOVERY}", configuration.server.public_url.as_str().trim_end_matches('/')));
    plan.issuer =
        hub_issuer(&direct.hub).await.or_else(|| configuration.server.hub_issuer.as_ref().map(|issuer| issuer.as_str().to_owned()));
    let found = configuration.policy.accesses.get(access);
    let target = found.and_then(|found| configuration.policy.targets.get(&found.target));
    let Some(target) = target else {
        plan.problem = Some(problem(Reason::TargetNotGranted, "there is no access of this name that leads to a target".to_owned()));
        return plan;
    };
    plan.audiences = vec![target.audience.as_str().to_owned()];
    plan.own_issuers.extend(target.target_issuer.as_ref().map(|issuer| issuer.as_str().to_owned()));
    let ca_pem = match &target.certificate {
        CertificateSource::System => Ok(None),
        CertificateSource::Inline(pem) => Ok(Some(pem.clone().into_bytes())),
        CertificateSource::Secret(name) => secret_authority(&direct.hub, &configuration.server.cluster_resource_namespace, name).await,
    };
    match ca_pem {
        Ok(ca_pem) => {
            let (tls_server_name, proxy_url) = (target.tls_server_name.clone(), target.proxy_url.clone());
            plan.target = Some(TargetAddress { url: target.address.clone(), ca_pem, tls_server_name, proxy_url });
        }
        Err(detail) => plan.problem = Some(problem(Reason::CertificateAuthorityInvalid, detail)),
    }
    plan.held = match direct.token(access).await {
        Ok(token) => Held::Token(token.token.expose_secret().as_bytes().to_vec()),
        Err(ClientError::Refused { reason, detail, .. }) => Held::Failed(problem(reason, detail)),
        Err(error) => Held::Failed(problem(Reason::MintFailed, error.to_string())),
    };
    plan
}

async fn secret_authority(
    hub: &HubAccess,
    namespace: &Namespace,
    name: &keyferry_core::name::ObjectName,
) -> Result<Option<Vec<u8>>, String> {
    let client = hub_client(hub).await?;
    let entry = KubeCertificateSecrets::new(client, namespace.clone()).certificate(name).await.map_err(|error| error.to_string())?;
    entry.pem.map(Some).ok_or_else(|| "the Secret of certSecretRef has no ca.crt".to_owned())
}

/// A plan from a Secret of the hub that holds a kubeconfig.
pub async fn from_secret(hub: &HubAccess, namespace: &Namespace, name: &str, key: Option<&str>) -> Plan {
    let mut plan = Plan::named(format!("secret/{name} in {namespace}"));
    match hub_client(hub).await {
        Ok(client) => {
            plan.issuer = issuer_of(&client).await;
            read_secret(&client, namespace, name, key, &mut plan).await;
        }
        Err(detail) => plan.problem = Some(problem(Code::StartUnread, detail)),
    }
    plan
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, SecretString>,
}

/// Reads the Secret as Flux does: the named key, else `value`, else `value.yaml`.
pub(super) async fn read_secret(client: &HubClient, namespace: &Namespace, name: &str, key: Option<&str>, plan: &mut Plan) {
    use base64::Engine;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let secret: Secret = match client.get_object(&path, "Secret").await {
        Ok(secret) => secret,
        Err(error) => {
            plan.problem = Some(problem(Code::StartUnread, format!("secret/{name}: {error}")));
            return;
        }
    };
    let keys: &[&str] = match &key {
        Some(key) => &[*key],
        None => &["value", "value.yaml"],
    };
    let unusable = |detail: &str| Some(problem(Code::KubeconfigUnusable, format!("secret/{name}: {detail}")));
    let Some(data) = keys.iter().find_map(|key| secret.data.get(*key)) else {
        plan.problem = unusable(&format!("it has no key {}", keys.join(" or ")));
        return;
    };
    let text = base64::engine::general_purpose::STANDARD.decode(data.expose_secret()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match text.ok_or("it is no text").and_then(|text| found_kubeconfig::read(&text)) {
        Ok(found) => plan.take(found),
        Err(detail) => plan.problem = unusable(detail),
    }
}

impl Plan {
    /// Takes the target and the token of a kubeconfig.
    pub fn take(&mut self, found: found_kubeconfig::FoundKubeconfig) {
        self.target = Some(found.target);
        self.held = Held::Token(found.token.expose_secret().as_bytes().to_vec());
    }
}

/// Mints a token on the hub, with your own rights.
pub(super) async fn mint(client: &HubClient, namespace: &Namespace, account: &str, audiences: &[String]) -> Held {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        token: SecretString,
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": audiences, "expirationSeconds": 600 },
    });
    let answer: Result<Answer, HubError> = client.create(&path, &request, "TokenRequest").await;
    match answer {
        Ok(answer) => Held::Token(answer.status.token.expose_secret().as_bytes().to_vec()),
        Err(error) => Held::Failed(problem(error.mint_reason(), format!("ServiceAccount {namespace}/{account}: {error}"))),
    }
}

/// A client of the hub.
pub(super) async fn hub_client(hub: &HubAccess) -> Result<HubClient, String> {
    let config = hub.config().await.map_err(|error| error.to_string())?;
    HubClient::new(config).map_err(|error| error.to_string())
}

async fn hub_issuer(hub: &HubAccess) -> Option<String> {
    issuer_of(&hub_client(hub).await.ok()?).await
}

/// The hub's issuer, where it may be read.
pub(super) async fn issuer_of(client: &HubClient) -> Option<String> {
    let document: Value = client.get_object(DISCOVERY, "discovery document").await.ok()?;
    Some(document.get("issuer")?.as_str()?.to_owned())
}

/// A problem by its name.
pub(super) fn problem(cause: impl Into<Cause>, detail: impl Into<String>) -> Problem {
    Problem { cause: cause.into(), detail: detail.into() }
}
