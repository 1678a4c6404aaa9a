//! A request on the token API, and its two outcomes: an issuance or a refusal.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{DeliveryType, Policy, TargetCluster};
use keyferry_api::lifetime;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::authorise::Grant;
use keyferry_core::caller::PresentedToken;
use keyferry_core::request_id::RequestId;
use keyferry_keys::bound_token::BoundToken;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::Source;

/// How a caller proves who it is. A request with both proofs is refused before it gets here.
#[derive(Debug)]
pub enum Credential<'a> {
    /// The caller's own token.
    Token(PresentedToken<'a>),
    /// The client certificate of its connection.
    Certificate(Arc<PresentedChain>),
}

/// One request on the token API.
pub struct Request<'a> {
    /// The route, `exchange` or `kubeconfig`; goes into the audit record.
    pub route: &'static str,
    /// The proof of who the caller is.
    pub credential: Credential<'a>,
    /// The access that the caller asks for.
    pub access: AccessName,
    /// What the caller expects the token to be for.
    pub scope: Option<Cow<'a, str>>,
    /// The minimum remaining lifetime of the issued token.
    pub min_ttl: Option<Duration>,
    /// Whether the response contains the address of a cluster, which some targets do not have.
    pub needs_cluster: bool,
    /// The delivery types that fit the response; policy must allow at least one of them.
    pub deliveries: &'static [DeliveryType],
    /// Correlates the response with its audit record.
    pub request_id: RequestId,
    /// The network source of the request, for rate limits.
    pub source: Source,
}

impl Request<'_> {
    /// Checks that the target is a cluster, if the response is to describe one.
    pub(super) fn require_cluster(&self, target: &TargetCluster) -> Result<(), Refusal> {
        if self.needs_cluster && !target.is_cluster() {
            return Err(Refusal::with_detail(
                Reason::RequestInvalid,
                "the target has kind: Audience, so it is no cluster; exchange the token at \
                 /v1/token, as keyferry token does"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks that a scope is the role of the target. To ignore another one would issue a token with
    /// other rights than the caller expects.
    pub(super) fn require_scope(&self, target: &TargetCluster) -> Result<(), Refusal> {
        let role = target.role.as_ref().map(|role| role.role.as_str());
        if self.scope.is_none() || self.scope.as_deref() == role {
            return Ok(());
        }
        // Does not name the role that would be accepted.
        Err(Refusal::with_detail(
            Reason::RequestInvalid,
            "scope is not supported unless it is the role of the target; the TargetAccess alone \
             decides what the token is for"
                .to_owned(),
        ))
    }

    /// Returns the least remaining lifetime that the caller wants, if tokens of the grant can have
    /// it.
    pub(super) fn allowed_min_ttl(&self, grant: &Grant) -> Result<Duration, Refusal> {
        let min_ttl = self.min_ttl.unwrap_or_default();
        let most = lifetime::greatest_min_ttl(grant.pair().lifetime());
        if min_ttl > most {
            return Err(Refusal::with_detail(
                Reason::RequestInvalid,
                format!("min_ttl may be at most {} for this target", most.as_secs()),
            ));
        }
        Ok(min_ttl)
    }
}

/// What an authorised caller gets.
#[derive(Debug)]
pub struct Issuance {
    /// The token.
    pub token: Arc<BoundToken>,
    /// The token's remaining lifetime for the caller.
    pub remaining_lifetime: Duration,
    /// The target of the token; its settings are in `policy`.
    pub target: ObjectName,
    /// The policy that granted the token.
    pub policy: Arc<Policy>,
    /// The target's CA certificates as PEM.
    pub ca_pem: Option<Arc<str>>,
}

/// Why a request got nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub reason: Reason,
    /// An explanation for an authorised caller, or the claim of an external caller's own token that
    /// no rule accepts; every other caller gets the reason alone.
    pub detail: Option<String>,
    /// When to retry, if known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) fn with_detail(reason: Reason, detail: String) -> Self {
        Self {
            reason,
            detail: Some(detail),
            retry_after: None,
        }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            detail: None,
            retry_after: None,
        }
    }
}

/// Classifies a refusal for audit and metrics: `denied` is a decision about the request, `failed`
/// means that Keyferry could not carry out what was allowed.
pub(super) fn decision_of(reason: Reason) -> &'static str {
    use Reason as R;
    match reason {
        reason if reason.is_about_caller() => "denied",
        R::DelegationForbidden
        | R::InputCredentialRejected
        | R::InputsNotGranted
        | R::RateLimited
        | R::RequestInvalid
        | R::TargetNotGranted
        | R::TargetSuspended => "denied",
        _ => "failed",
    }
}
