//! Follows a token's path to a live target: the requests of `keyferry doctor`, `whoami` and `can-i`.
//!
//! [`start`] and [`flux`] read which token and target an object leads to, and return a
//! [`plan::Plan`]. [`plan::Plan::admit`] refuses a target that a tenant can have written and that no
//! TargetCluster lists. [`gather`] then asks the issuer and the target, and returns the evidence that
//! `keyferry-kube-authn` explains. [`identity`] asks only which user the token is, and [`apply`] what
//! this user may do.

#[cfg(test)]
mod address_tests;
pub mod apply;
mod bindings;
mod client_certificate;
mod fetch;
pub mod flux;
pub mod found_kubeconfig;
pub mod identity;
pub mod impersonated_user;
mod impersonation;
mod inventory;
mod listed;
pub mod plan;
pub mod published;
pub mod start;
pub mod target_calls;
mod target_metrics;

use std::path::PathBuf;

use keyferry_hub::address_guard::DestinationError;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::doctor::{
    ConfigurationFile, Evidence, Fetched, Review, TokenEvidence, entry_for,
};
use keyferry_kube_authn::{Minor, doctor::Asked, doctor::Identity};
use secrecy::SecretString;
use serde_json::{Value, json};

use self::fetch::Fetcher;
use self::impersonation::ImpersonationQuestion;
use self::plan::Plan;
use self::target_calls::TargetCalls;

/// A client cannot be created, or a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The given CA certificates are not valid.
    #[error("reading the CA certificates of {0}: they are not PEM certificates")]
    Authority(&'static str),
    /// The address is not valid.
    #[error("reading the address {0:?}: it is not an https URL")]
    Address(String),
    /// The name to expect in the target's certificate is an address.
    #[error("calling the target with tlsServerName {0:?}: it is not a DNS name")]
    ServerName(String),
    /// A proxy would be asked to connect to the certificate's name.
    #[error("calling the target: it cannot be called with a tlsServerName through a proxyURL")]
    ProxiedServerName,
    /// Nothing may be sent to the target's address, or to that of its proxy.
    #[error("calling the target: TargetAddressRefused: {0}")]
    Destination(#[from] DestinationError),
    /// The HTTPS client cannot be created.
    #[error("preparing an HTTPS client: is there a CA to trust? give one")]
    Client,
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Hub(#[from] keyferry_hub::client::ClientError),
}

/// A target's address, and how to verify its certificate.
#[derive(Clone, Debug, Default)]
pub struct TargetAddress {
    /// The URL of the target.
    pub url: String,
    /// The target's CA certificates, PEM. `None` means the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// The name in the target's certificate, if it is not the URL's host.
    pub tls_server_name: Option<String>,
    /// The proxy to use for the target.
    pub proxy_url: Option<String>,
}

/// Sources of facts about the target besides the network.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// The target's AuthenticationConfiguration.
    pub auth_config: Option<Vec<u8>>,
    /// The target's Kubernetes release, if stated.
    pub minor: Option<Minor>,
    /// A kubeconfig of a user with rights at the target.
    pub target_kubeconfig: Option<PathBuf>,
    /// A context of that kubeconfig that replaces its current one.
    pub target_context: Option<String>,
    /// The rights that the user needs. Empty means that any right will do.
    pub needs: Vec<Value>,
    /// The namespace in which rights are checked.
    pub target_namespace: Option<String>,
}

impl Means {
    /// The user's own access to the target, which also vouches for its address.
    fn target_access(&self) -> Option<HubAccess> {
        Some(HubAccess {
            kubeconfig: Some(self.target_kubeconfig.clone()?),
            context: self.target_context.clone(),
            ..HubAccess::default()
        })
    }
}

/// Collects the evidence from all sources, without judging it.
///
/// # Errors
/// [`DoctorError`]: an input cannot be used.
pub async fn gather(mut plan: Plan, means: &Means) -> Result<Evidence, DoctorError> {
    let clock = SystemClock::start();
    let admin = means.target_access();
    if let Some(access) = &admin {
        let config = access.config().await?;
        plan.guard = plan.guard.with_own(&config.cluster_url.to_string());
    }
    let issuer = plan.token_issuer();
    let entry = means
        .auth_config
        .as_deref()
        .and_then(|file| entry_for(file, issuer.as_deref()));
    let mut evidence = Evidence {
        now: clock.now().wall,
        ..plan.evidence(means.auth_config.as_deref())
    };
    evidence.configuration = means
        .auth_config
        .clone()
        .map(|bytes| ConfigurationFile { bytes });
    let place = plan.discovery_place(entry, issuer.as_deref());
    if let Some(place) = place {
        let fetcher = Fetcher::new(place.ca_pem.as_deref(), plan.documents_guard())?;
        evidence.discovery = fetcher.get(&place.url).await;
        evidence.jwks_uri = fetch::jwks_uri(&evidence.discovery);
        if let Some(uri) = &evidence.jwks_uri {
            evidence.keys = fetcher.get_linked(uri, &place.url).await;
        }
        evidence.discovery_stated = place.stated;
        evidence.discovery_url = Some(place.url);
    }
    if let Some(address) = &plan.target {
        let token = plan.secret();
        match TargetCalls::new(address, token.clone(), &plan.guard).await {
            Ok(calls) => ask_target(&calls, &plan, means, &mut evidence, &clock).await,
            Err(DoctorError::Destination(refused)) => {
                evidence.target.connection = Fetched::AddressRefused(refused.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(minor) = means.minor {
        evidence.target.minor = Some(minor);
    }
    if let Some(access) = &admin {
        // The token of a refused target is not sent anywhere.
        let token = plan.secret().filter(|_| !plan.refused);
        ask_as_admin(
            access,
            token.as_ref(),
            plan.subject().as_deref(),
            &mut evidence,
        )
        .await?;
    }
    Ok(evidence)
}

async fn ask_target(
    calls: &TargetCalls,
    plan: &Plan,
    means: &Means,
    evidence: &mut Evidence,
    clock: &SystemClock,
) {
    let greeting = calls.greet(clock).await;
    let target = &mut evidence.target;
    target.skew = greeting.skew;
    target.minor = greeting.minor;
    let reached = matches!(greeting.answer, Fetched::Response(_));
    target.connection = greeting.answer;
    if !reached || !calls.has_token() {
        return;
    }
    target.identity = calls.who(None).await;
    if !matches!(target.identity, Identity::Known(_)) {
        return;
    }
    if means.auth_config.is_some() {
        target.active = calls.active_configuration().await;
    }
    let user = plan.impersonate.as_ref();
    let mut rights_unknown = None;
    if let Some(wanted) = user {
        match wanted.account() {
            Some((namespace, name)) => {
                let question = ImpersonationQuestion {
                    namespace,
                    name,
                    minor: means.minor.or(target.minor),
                    needs: &means.needs,
                    target_namespace: means.target_namespace.as_deref(),
                };
                let answer = question.ask(calls).await;
                target.impersonation = answer.asked;
                rights_unknown = answer.rights_unknown;
            }
            None => {
                let [legacy, constrained] = wanted.rights();
                target.impersonation = calls.allowed(&legacy, None).await;
                if !matches!(target.impersonation, Asked::Yes(_)) {
                    // From 1.36 on, a narrower right is enough.
                    let narrow = calls.allowed(&constrained, None).await;
                    if matches!(narrow, Asked::Yes(_)) {
                        target.impersonation = narrow;
                    }
                }
            }
        }
        if !matches!(target.impersonation, Asked::Yes(_) | Asked::NothingYet(_)) {
            return;
        }
        if let Identity::Known(answered) = calls.who(user).await
            && !answered.is_empty()
            && answered != wanted.name
        {
            target.impersonation_ignored = Some(answered);
            return;
        }
    }
    target.rights = match rights_unknown {
        Some(why) => Asked::Unknown(why),
        None => {
            calls
                .rights(&means.needs, means.target_namespace.as_deref(), user)
                .await
        }
    };
    target.ping = calls.ping().await;
}

/// Collects what a user with rights at the target can see: a TokenReview, the configuration's hash
/// and the target's own issuer.
async fn ask_as_admin(
    access: &HubAccess,
    token: Option<&SecretString>,
    subject: Option<&str>,
    evidence: &mut Evidence,
) -> Result<(), DoctorError> {
    let client = HubClient::new(access.config().await?)?;
    if let Ok(document) = client
        .get_object::<Value>("/.well-known/openid-configuration", "discovery document")
        .await
        && let Some(issuer) = document.get("issuer").and_then(Value::as_str)
    {
        evidence.target.own_issuers.push(issuer.to_owned());
    }
    if let Ok(metrics) = client.get("/metrics", "text/plain").await {
        let metrics = String::from_utf8_lossy(&metrics);
        evidence.target.active = Some(target_metrics::active_configuration(&metrics));
    }
    if evidence.target.minor.is_none()
        && let Ok(version) = client.get_object::<Value>("/version", "version").await
    {
        evidence.target.minor = target_calls::minor(&version);
    }
    if let Some(token) = token {
        evidence.target.review = Some(review(&client, token).await);
    }
    // Read only where a binding seems to be missing.
    if let (Some(subject), Asked::No(_) | Asked::NothingYet(_)) = (subject, &evidence.target.rights)
    {
        evidence.target.mistaken_bindings = bindings::mistaken(&client, subject).await;
    }
    Ok(())
}

/// Describes a failed call of the target, whose client is the hub's.
pub fn at_target(error: &HubError) -> String {
    match error {
        HubError::Unreachable(cause) => format!("the target could not be reached: {cause}"),
        HubError::Unwell(message) => format!("the target could not answer: {message}"),
        HubError::Busy => "the target was not called: too many calls are in progress".to_owned(),
        HubError::Unauthenticated(message) => {
            format!("the target does not accept the credentials: {message}")
        }
        HubError::Forbidden(forbidden) => format!("the target refused the call: {forbidden}"),
        HubError::NotFound(message)
        | HubError::Conflict(message)
        | HubError::PolicyNotReady(message)
        | HubError::Refused(message) => {
            format!("the target refused the request: {message}")
        }
        HubError::TooLarge => "the target's answer is too large".to_owned(),
        HubError::Unreadable(what) => {
            format!("the target's answer to {what} could not be read")
        }
    }
}

async fn review(client: &HubClient, token: &SecretString) -> Review {
    use secrecy::ExposeSecret;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token.expose_secret() } });
    let answer: Result<Value, HubError> = client
        .create(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            &review,
            "TokenReview",
        )
        .await;
    match answer {
        Err(error) => Review::Failed(at_target(&error)),
        Ok(answer) if answer["status"]["authenticated"] == json!(true) => Review::Authenticated(
            answer["status"]["user"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
        Ok(answer) => Review::Refused(
            answer["status"]["error"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
    }
}

/// Returns a token as a secret, or `None` if its bytes are not text.
fn secret_of(held: &TokenEvidence) -> Option<SecretString> {
    let TokenEvidence::Token(bytes) = held else {
        return None;
    };
    String::from_utf8(bytes.clone()).ok().map(Into::into)
}
