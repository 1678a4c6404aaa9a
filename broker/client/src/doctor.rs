//! Follows a token's path to a live target: the requests of `keyferry doctor`, `whoami` and `can-i`.
//!
//! [`start`] and [`flux`] read which token and target an object leads to, and return a
//! [`plan::Plan`]. [`plan::Plan::admit`] refuses a target that a tenant can have written and that no
//! TargetCluster lists. [`gather_evidence`] then asks the issuer and the target, and returns the evidence that
//! `keyferry-kube-authn` explains. [`identity`] asks only which user the token is, and [`apply`] what
//! this user may do.

mod access_of_tenant;
#[cfg(test)]
mod address_tests;
mod api_discovery;
pub mod apply;
pub mod authority_text;
mod bindings;
mod client_certificate;
pub mod diagnosis;
mod fetch;
pub mod flux;
mod followed_delivery;
pub mod found_kubeconfig;
pub mod identity;
pub mod impersonated_user;
mod impersonation;
mod inventory;
pub(crate) mod kubeconfig_secret;
mod listed;
pub mod plan;
pub mod published;
pub mod resource_attributes;
pub mod resources;
pub mod rules;
pub mod start;
#[cfg(test)]
mod start_tests;
pub mod target_calls;
pub mod target_metrics;
mod target_user;

use std::path::PathBuf;

use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::fetched::Fetched;
use keyferry_kube_authn::prediction::entry_for;
use keyferry_platform::address_guard::DestinationError;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::https_client::HttpsClientError;
use keyferry_platform::target_connection::{TargetAddress, TargetConnectionError};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use self::fetch::Fetcher;
use self::impersonated_user::ImpersonatedUser;
use self::impersonation::ImpersonationQuestion;
use self::plan::Plan;
use self::resource_attributes::ResourceAttributes;
use self::resources::{ResolvedNeeds, ResourceError};
use self::target_calls::{ServerVersion, TargetCalls};
use crate::checked_mint::issuer_of;
use crate::doctor::diagnosis::{
    Asked, ConfigurationFile, Evidence, Identity, Review, TokenEvidence,
};
use crate::lenient::{self, Lenient};

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
    Destination(DestinationError),
    /// A needed right names a resource that the target does not serve.
    #[error("looking up --needs: {0}")]
    Needs(#[from] ResourceError),
    /// The HTTPS client cannot be created.
    #[error("preparing an HTTPS client: is there a CA to trust? give one")]
    Client,
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Hub(#[from] keyferry_hub::client::ClientError),
}

impl DoctorError {
    /// Describes why no connection to a target can be opened.
    fn of_target(error: TargetConnectionError, address: &TargetAddress) -> Self {
        let given = |text: &Option<String>| text.clone().unwrap_or_default();
        match error {
            TargetConnectionError::Address => Self::Address(address.url.clone()),
            TargetConnectionError::Proxy => Self::Address(given(&address.proxy_url)),
            TargetConnectionError::ServerName => Self::ServerName(given(&address.tls_server_name)),
            TargetConnectionError::ProxiedServerName => Self::ProxiedServerName,
            TargetConnectionError::Destination(refused) => Self::Destination(refused),
            TargetConnectionError::Client(HttpsClientError::Authority) => {
                Self::Authority("the target")
            }
            TargetConnectionError::Client(_) => Self::Client,
        }
    }
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
    pub needs: Vec<ResourceAttributes>,
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
pub async fn gather_evidence(mut plan: Plan, means: &Means) -> Result<Evidence, DoctorError> {
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
    let published_documents = plan.discovery_place(entry, issuer.as_deref());
    let has_none = matches!(plan.token_evidence, TokenEvidence::NotAToken(_));
    if let Some(place) = published_documents.filter(|_| !has_none) {
        match Fetcher::new(place.ca_pem.as_deref(), plan.documents_guard()) {
            Ok(fetcher) => {
                evidence.discovery = fetcher.get(&place.url).await;
                evidence.jwks_uri = fetch::jwks_uri(&evidence.discovery);
                if let Some(uri) = &evidence.jwks_uri {
                    evidence.keys = fetcher.get_linked(uri, &place.url).await;
                }
            }
            // A CA of the target's file. The other hops are still worth knowing.
            Err(error) => evidence.discovery = Fetched::Untrusted(error.to_string()),
        }
        evidence.discovery_stated = place.stated;
        evidence.discovery_url = Some(place.url);
    }
    if let Some(address) = &plan.target {
        let token = plan.secret();
        match TargetCalls::new(address, token.clone(), &plan.guard).await {
            Ok(calls) => ask_target(&calls, &plan, means, &mut evidence, &clock).await?,
            Err(DoctorError::Destination(refused)) => {
                evidence.target.connection = Fetched::AddressRefused(refused.to_string());
            }
            // What the start says cannot be called, which the hop reports beside the others.
            Err(error @ DoctorError::Authority(_)) => {
                evidence.target.connection = Fetched::Untrusted(error.to_string());
            }
            Err(error) => evidence.target.connection = Fetched::Unreachable(error.to_string()),
        }
    }
    if let Some(minor) = means.minor {
        evidence.target.minor = Some(minor);
    }
    if let Some(access) = &admin {
        // The token of a refused target is not sent anywhere.
        let token = plan.secret().filter(|_| !plan.refused);
        let asked = ask_as_admin(
            access,
            token.as_ref(),
            plan.subject().as_deref(),
            &mut evidence,
        )
        .await;
        // Such as a command of its user that is not installed. The other hops stay worth knowing.
        if let Err(error) = asked {
            let why = format!("--target-kubeconfig: {error}");
            evidence.target.review = Some(Review::Failed(why));
        }
    }
    Ok(evidence)
}

async fn ask_target(
    calls: &TargetCalls,
    plan: &Plan,
    means: &Means,
    evidence: &mut Evidence,
    clock: &SystemClock,
) -> Result<(), ResourceError> {
    let greeting = calls.greet(clock).await;
    let target = &mut evidence.target;
    target.skew = greeting.skew;
    target.minor = greeting.minor;
    let reached = matches!(greeting.answer, Fetched::Response(_));
    target.connection = greeting.answer;
    if !reached || !calls.has_token() {
        return Ok(());
    }
    target.identity = calls.who(None).await;
    if !matches!(target.identity, Identity::Known(_)) {
        return Ok(());
    }
    let needs = resources::resolve_needs(calls, &means.needs).await?;
    target.needs = [&needs.resolved[..], &needs.unresolved].concat();
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
                    needs: &needs.resolved,
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
            return Ok(());
        }
        if let Identity::Known(answered) = calls.who(user).await
            && !answered.is_empty()
            && answered != wanted.name
        {
            target.impersonation_ignored = Some(answered);
            return Ok(());
        }
    }
    target.rights = match rights_unknown {
        Some(why) => Asked::Unknown(why),
        None => check_rights(calls, &needs, means.target_namespace.as_deref(), user).await,
    };
    target.ping = calls.ping().await;
    Ok(())
}

/// Whether all needs are allowed. A denial by a name that may not be the resource's own proves
/// nothing.
async fn check_rights(
    calls: &TargetCalls,
    needs: &ResolvedNeeds,
    namespace: Option<&str>,
    user: Option<&ImpersonatedUser>,
) -> Asked {
    let ResolvedNeeds {
        resolved,
        unresolved,
        unread,
    } = needs;
    if unresolved.is_empty() {
        return calls.rights(resolved, namespace, user).await;
    }
    if !resolved.is_empty() {
        let asked = calls.rights(resolved, namespace, user).await;
        if !matches!(asked, Asked::Yes(_)) {
            return asked;
        }
    }
    match calls.rights(unresolved, namespace, user).await {
        Asked::No(denied) => Asked::Unknown(format!(
            "--needs: {denied} by this name, and the resources that the target serves could not be \
             read: {unread}"
        )),
        asked => asked,
    }
}

/// Collects what a user with rights at the target can see: a TokenReview, the configuration's hash
/// and the target's own issuer.
async fn ask_as_admin(
    access: &HubAccess,
    token: Option<&SecretString>,
    subject: Option<&str>,
    evidence: &mut Evidence,
) -> Result<(), DoctorError> {
    let client = access.client().await?;
    evidence.target.own_issuers.extend(issuer_of(&client).await);
    if let Ok(metrics) = client.get("/metrics", "text/plain").await {
        let metrics = String::from_utf8_lossy(&metrics);
        evidence.target.active = Some(target_metrics::active_configuration(&metrics));
    }
    if evidence.target.minor.is_none()
        && let Ok(Lenient(version)) = client
            .get_object::<Lenient<ServerVersion>>("/version", "version")
            .await
    {
        evidence.target.minor = version.minor();
    }
    if let Some(token) = token {
        evidence.target.review = Some(review_token(&client, token).await);
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
        HubError::Overloaded(message) => format!("the target could not answer: {message}"),
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

/// A TokenReview, reduced to its result.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenReview {
    #[serde(deserialize_with = "lenient::or_default")]
    status: TokenReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenReviewStatus {
    #[serde(deserialize_with = "lenient::or_default")]
    authenticated: bool,
    #[serde(deserialize_with = "lenient::or_default")]
    user: ReviewedUser,
    #[serde(deserialize_with = "lenient::or_default")]
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewedUser {
    username: String,
}

async fn review_token(client: &HubClient, token: &SecretString) -> Review {
    use secrecy::ExposeSecret;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token.expose_secret() } });
    let answer: Result<Lenient<TokenReview>, HubError> = client
        .create(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            &review,
            "TokenReview",
        )
        .await;
    match answer {
        Err(error) => Review::Failed(at_target(&error)),
        Ok(Lenient(TokenReview { status })) if status.authenticated => {
            Review::Authenticated(status.user.username)
        }
        Ok(Lenient(TokenReview { status })) => Review::Refused(status.error),
    }
}

/// Returns a token as a secret, or `None` if its bytes are not text.
fn secret_of(held: &TokenEvidence) -> Option<SecretString> {
    let TokenEvidence::Token(bytes) = held else {
        return None;
    };
    String::from_utf8(bytes.clone()).ok().map(Into::into)
}
