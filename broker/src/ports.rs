//! What Keyferry needs of the world, as interfaces. `kube/` and `audit.rs` implement them; tests
//! bring their own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::audience::Audience;
use keyferry_core::audit::AuditRecord;
use keyferry_core::authorise::Grant;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_core::delivery::{ObjectBody, ReadObject};
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::{ServiceAccount, ServiceAccountIdentity};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::managed_issuer::HubsConsent;

/// Why a call to the hub failed. The texts hold nothing that the hub sent but its own status
/// message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// No answer, or a broken one.
    #[error("the hub could not be reached: {0}")]
    Unreachable(String),
    /// 429 or 5xx.
    #[error("the hub could not answer: {0}")]
    Unwell(String),
    /// Too many of Keyferry's own calls are under way; this says nothing about the hub.
    #[error("the hub was not asked: too many calls are under way")]
    Busy,
    /// 401: the hub does not know who asks.
    #[error("the hub does not accept the credentials: {0}")]
    Unauthenticated(String),
    /// 403: Keyferry itself lacks a right.
    #[error("the hub refused Keyferry: {0}")]
    Forbidden(String),
    /// 404.
    #[error("the hub does not have it: {0}")]
    NotFound(String),
    /// 409.
    #[error("the hub has another object of that name: {0}")]
    Conflict(String),
    /// Any other refusal.
    #[error("the hub refused the request: {0}")]
    Refused(String),
    /// An answer that cannot be read.
    #[error("the hub's answer to {0} could not be read")]
    Unreadable(&'static str),
}

impl HubError {
    /// Whether the failure proves the hub unreachable, so that an earlier answer may stand for a
    /// while.
    pub fn proves_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unwell(_))
    }

    /// The stable code of this failure of a TokenRequest.
    pub fn mint_reason(&self) -> Reason {
        match self {
            Self::Unreachable(_) | Self::Unwell(_) | Self::Busy => Reason::HubUnreachable,
            Self::Unauthenticated(_) | Self::Forbidden(_) => Reason::MintForbidden,
            Self::NotFound(_) | Self::Conflict(_) => Reason::ServiceAccountChanged,
            Self::Refused(_) | Self::Unreadable(_) => Reason::MintFailed,
        }
    }

    /// The stable code of this failure of a TokenReview or SubjectAccessReview.
    pub fn review_reason(&self) -> Reason {
        match self {
            Self::Unreachable(_) | Self::Unwell(_) | Self::Busy => Reason::HubUnreachable,
            Self::Unauthenticated(_) | Self::Forbidden(_) => Reason::ReviewForbidden,
            Self::NotFound(_) | Self::Conflict(_) | Self::Refused(_) | Self::Unreadable(_) => {
                Reason::ReviewFailed
            }
        }
    }
}

/// The hub's token and review APIs. Every call has a deadline of its own and is never repeated by
/// the client library.
pub trait Hub: Send + Sync {
    /// TokenRequest, pinned to the ServiceAccount's UID, for exactly one audience.
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>>;

    /// TokenReview; without an audience it asks for the hub's own ones.
    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>>;

    /// SubjectAccessReview: may this user create tokens for that ServiceAccount?
    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>>;
}

/// The hub's discovery documents, read anew at each call.
pub trait IssuerDocuments: Send + Sync {
    /// Reads both documents at every endpoint of the hub, each over a fresh connection. At least
    /// one answer.
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>>;
}

/// What one endpoint of the hub answered.
#[derive(Clone, Debug)]
pub struct EndpointAnswer {
    /// Its address, for the log and to know it again.
    pub endpoint: String,
    /// Its documents.
    pub documents: Result<UpstreamDocuments, HubError>,
}

/// The hub's discovery documents as they came.
#[derive(Clone, Debug)]
pub struct UpstreamDocuments {
    /// `/.well-known/openid-configuration`.
    pub metadata: Vec<u8>,
    /// `/openid/v1/jwks`.
    pub jwks: Vec<u8>,
}

/// The CA certificates in Secrets of Keyferry's namespace.
pub trait CertificateSecrets: Send + Sync {
    /// The bytes of `ca.crt`, or of the legacy `caFile`; no other member is ever read out.
    fn certificate<'a>(
        &'a self,
        secret: &'a ObjectName,
    ) -> BoxFuture<'a, Result<CertificateEntry, HubError>>;
}

/// What a `certSecretRef` Secret holds, as far as Keyferry looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateEntry {
    /// The certificate bytes, if the Secret has any.
    pub pem: Option<Vec<u8>>,
    /// Whether they stood under the legacy key `caFile`.
    pub legacy_key: bool,
    /// Whether the Secret also holds a client certificate or key, which is ignored.
    pub client_certificate: bool,
}

/// The data of a Secret, wiped when it is let go of.
pub type SecretData = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// A Secret as it was read.
pub struct StoredSecret {
    /// Its resourceVersion.
    pub version: String,
    /// Its data.
    pub data: SecretData,
}

/// Keyferry's own Secrets. Every change is a compare-and-swap.
pub trait SecretStore: Send + Sync {
    /// The Secret of that name, if there is one.
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>>;

    /// Creates it; [`HubError::Conflict`] if there is one already.
    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Replaces the data of the Secret of that resourceVersion; [`HubError::Conflict`] if it has
    /// another by now.
    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>>;
}

/// The key sets of Keyferry's managed issuers: one stored object per target, replaced by
/// compare-and-swap, so that any replica may write.
pub trait IssuerKeyStore: Send + Sync {
    /// What is stored for a target now; nothing if there is no object.
    fn read<'a>(
        &'a self,
        target: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredKeys>, HubError>>;

    /// Stores a document in the place of what was read, or the first one. [`HubError::Conflict`]
    /// when another replica was first.
    fn write<'a>(
        &'a self,
        target: &'a ObjectName,
        document: &'a str,
        replaces: Option<&'a StoredObject>,
    ) -> BoxFuture<'a, Result<(), HubError>>;
}

/// A stored object as far as replacing it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its UID: another one is another object, made after this one was deleted.
    pub uid: String,
    /// Its version and whatever else of it stays, for the store alone.
    pub rest: serde_json::Value,
}

/// What is stored for a target.
pub struct StoredKeys {
    /// The object.
    pub object: StoredObject,
    /// The document, if the object has any.
    pub document: Option<Zeroizing<Vec<u8>>>,
    /// The request for a rotation by hand that stands at it.
    pub rotation_request: Option<String>,
}

/// What the hub says of itself.
pub trait HubFacts: Send + Sync {
    /// The audiences that its apiserver gives a token for which none was asked: all that it
    /// accepts.
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>>;

    /// As whom it knows Keyferry.
    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>>;
}

/// The hub's objects, as the controller reads and writes them. Every write names what it is to
/// meet.
pub trait HubObjects: Send + Sync {
    /// The object at a path, if there is one. A kind that the hub does not have is no object.
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>>;

    /// Creates an object of a collection; its resourceVersion.
    fn create<'a>(
        &'a self,
        collection: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>>;

    /// Replaces the object whose UID and resourceVersion `object` carries; the resourceVersion that
    /// it has then.
    fn replace<'a>(
        &'a self,
        path: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>>;

    /// Deletes the object of this UID and resourceVersion; one that is gone is deleted.
    fn delete<'a>(
        &'a self,
        path: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Creates an object that holds nothing secret.
    fn post<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Replaces an object that holds nothing secret, by the resourceVersion that it carries.
    fn put<'a>(&'a self, path: &'a str, object: &'a Value) -> BoxFuture<'a, Result<(), HubError>>;

    /// Changes an object that holds nothing secret, or its status, by a merge patch; the object as
    /// it stands then.
    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<Value, HubError>>;

    /// Applies a status by server-side apply, as the field manager of everything that the
    /// controller writes, to the object whose resourceVersion `object` carries: the hub refuses it
    /// for another of that name.
    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>>;
}

/// A target, as far as it is asked whether it takes a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedTarget {
    /// Its apiserver's URL.
    pub address: String,
    /// The name in its certificate, where it is not the address's host.
    pub tls_server_name: Option<String>,
    /// The proxy on the way.
    pub proxy_url: Option<String>,
    /// Its CA certificates as PEM; none means the system's roots.
    pub ca_pem: Option<Arc<str>>,
}

/// What a target makes of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It knows whose it is.
    Accepted(TargetIdentity),
    /// It does not take it.
    Refused,
    /// It did not answer, or not as an apiserver does.
    Unanswered(&'static str),
}

/// Asks targets whether they take a token.
pub trait TargetProbe: Send + Sync {
    /// Shows the token to the target, and to nobody else.
    fn try_token<'a>(
        &'a self,
        target: &'a ProbedTarget,
        token: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer>;
}

/// Signs for a target's own issuer. The audience is the key set's: nobody names another.
pub trait Signer: Send + Sync {
    /// A token for what is granted, once the hub has consented to it.
    fn sign<'a>(
        &'a self,
        grant: &'a Grant,
        consent: HubsConsent,
    ) -> BoxFuture<'a, Result<MintAnswer, Reason>>;
}

/// Where audit records go.
pub trait AuditSink: Send + Sync {
    /// Takes a record to be written. What comes back says whether it was: whoever hands something
    /// out waits for it.
    fn record(&self, record: &AuditRecord) -> Recording;
}

/// A record on its way. It ends within some seconds, however the log fares.
#[must_use = "nothing may leave before its record is written"]
pub struct Recording(Option<oneshot::Receiver<bool>>);

impl Recording {
    /// Of a record whose writer will say whether it was written; one that says nothing did not
    /// write it.
    pub fn told_by(writer: oneshot::Receiver<bool>) -> Self {
        Self(Some(writer))
    }

    /// Of a record that is written already.
    pub fn written() -> Self {
        let (writer, told) = oneshot::channel();
        // It is heard by the receiver below.
        let _ = writer.send(true);
        Self(Some(told))
    }

    /// Of a record that nobody will write.
    pub fn failed() -> Self {
        Self(None)
    }
}

impl Future for Recording {
    type Output = Result<(), AuditError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), AuditError>> {
        match &mut self.0 {
            Some(writer) => Pin::new(writer).poll(context).map(|told| {
                if told == Ok(true) {
                    Ok(())
                } else {
                    Err(AuditError)
                }
            }),
            None => Poll::Ready(Err(AuditError)),
        }
    }
}

/// The record could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("writing the audit record")]
pub struct AuditError;
