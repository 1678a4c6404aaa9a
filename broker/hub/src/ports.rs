//! The interfaces to the hub. `kube_hub.rs` and others implement them; tests use their own
//! implementations.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::config::ReducedObject;
use keyferry_api::name::{ObjectName, TrustBundleName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::{FluxObject, ObjectBody, ReadObject};
use keyferry_keys::bound_token::MintAnswer;
use secrecy::{SecretSlice, SecretString};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::forbidden::Forbidden;

/// Why a call to the hub failed. Of what the hub sent, the texts contain only its own status
/// message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// No answer, or an incomplete one.
    #[error("the hub could not be reached: {0}")]
    Unreachable(String),
    /// 429 or 5xx: the hub is overloaded or failing.
    #[error("the hub could not answer: {0}")]
    Overloaded(String),
    /// Too many of Keyferry's own calls are in progress; this says nothing about the hub.
    #[error("the hub was not called: too many calls are in progress")]
    Busy,
    /// 401: the hub does not recognise the credentials.
    #[error("the hub does not accept the credentials: {0}")]
    Unauthenticated(String),
    /// 403: the account that calls, Keyferry's or a person's, lacks a right.
    #[error("the hub refused {caller}: {0}", caller = .0.caller())]
    Forbidden(Forbidden),
    /// 404: there is no such object.
    #[error("the hub answered 404: {0}")]
    NotFound(String),
    /// 409: the object exists already, or has changed.
    #[error("the object exists already, or has changed since it was read: {0}")]
    Conflict(String),
    /// 422: an apiserver, which usually has just started, does not know the kind of an admission
    /// policy's parameter yet.
    #[error("the hub's apiserver does not know an admission policy's parameter yet: {0}")]
    PolicyNotReady(String),
    /// Any other refusal.
    #[error("the hub refused the request: {0}")]
    Refused(String),
    /// The answer is larger than what is read of one.
    #[error("the hub's answer is too large")]
    TooLarge,
    /// The answer cannot be parsed.
    #[error("the hub's answer to {0} could not be read")]
    Unreadable(&'static str),
}

impl HubError {
    /// Whether the failure proves the hub unreachable, so that an earlier answer may be used for a
    /// while.
    pub fn proves_unreachable(&self) -> bool {
        // An answer that was not read is like no answer.
        matches!(
            self,
            Self::Unreachable(_) | Self::Overloaded(_) | Self::TooLarge
        )
    }

    /// The stable reason code when a TokenRequest failed like this.
    pub fn mint_reason(&self) -> Reason {
        match self {
            Self::Unreachable(_) | Self::Overloaded(_) | Self::Busy | Self::TooLarge => {
                Reason::HubUnreachable
            }
            Self::Unauthenticated(_) | Self::Forbidden(_) => Reason::MintForbidden,
            Self::NotFound(_) | Self::Conflict(_) => Reason::ServiceAccountChanged,
            Self::PolicyNotReady(_) => Reason::HubPolicyNotReady,
            Self::Refused(_) | Self::Unreadable(_) => Reason::MintFailed,
        }
    }

    /// The stable reason code when a TokenReview or SubjectAccessReview failed like this.
    pub fn review_reason(&self) -> Reason {
        match self {
            Self::Unreachable(_) | Self::Overloaded(_) | Self::Busy | Self::TooLarge => {
                Reason::HubUnreachable
            }
            Self::Unauthenticated(_) | Self::Forbidden(_) => Reason::ReviewForbidden,
            // The caller is not authorised yet, so it learns nothing of the hub's policies.
            Self::PolicyNotReady(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Refused(_)
            | Self::Unreadable(_) => Reason::ReviewFailed,
        }
    }
}

/// The hub's token and review APIs. Every call has its own deadline, and the client library never
/// retries it.
pub trait Hub: Send + Sync {
    /// Sends a TokenRequest, pinned to the ServiceAccount's UID, for exactly one audience.
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>>;

    /// Sends a TokenReview; without an audience it asks for the hub's own ones.
    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>>;

    /// Sends a SubjectAccessReview: may this user create tokens for that ServiceAccount?
    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>>;

    /// Sends a SubjectAccessReview: may this user `get` that path, which is of no resource?
    fn path_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        path: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>>;
}

/// Fetches the hub's discovery documents on each call, without a cache.
pub trait IssuerDocuments: Send + Sync {
    /// Reads both documents from every endpoint of the hub, each over a fresh connection. Returns
    /// at least one answer.
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>>;
}

/// What one endpoint of the hub answered.
#[derive(Clone, Debug)]
pub struct EndpointAnswer {
    /// The endpoint's address, for the log and to identify the endpoint again.
    pub endpoint: String,
    /// The endpoint's documents.
    pub documents: Result<UpstreamDocuments, HubError>,
}

/// The hub's discovery documents as received, unchecked.
#[derive(Clone, Debug)]
pub struct UpstreamDocuments {
    /// `/.well-known/openid-configuration`.
    pub metadata: Vec<u8>,
    /// `/openid/v1/jwks`.
    pub jwks: Vec<u8>,
}

/// Reads CA certificates from Secrets in Keyferry's namespace, and from ClusterTrustBundles.
pub trait CertificateSecrets: Send + Sync {
    /// Returns the bytes of `ca.crt`, or of the legacy `caFile`; it never returns another member.
    fn certificate<'a>(
        &'a self,
        secret: &'a ObjectName,
    ) -> BoxFuture<'a, Result<CertificateEntry, HubError>>;

    /// Returns the PEM text of a ClusterTrustBundle.
    fn trust_bundle<'a>(
        &'a self,
        name: &'a TrustBundleName,
    ) -> BoxFuture<'a, Result<Vec<u8>, TrustBundleError>>;
}

/// Why a ClusterTrustBundle was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustBundleError {
    /// The hub serves no version of the kind that Keyferry knows.
    #[error(
        "the hub serves no ClusterTrustBundles; fix: use a hub of 1.37 or newer, or turn on \
         certificates.k8s.io/v1beta1 there, or use certSecretRef"
    )]
    NotServed,
    /// The hub serves the kind and has no such object.
    #[error("the hub has no ClusterTrustBundle {0}; fix: create it, or correct the name")]
    Absent(TrustBundleName),
    /// A call to the hub failed.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// The content of a `certSecretRef` Secret that Keyferry uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateEntry {
    /// The certificate bytes, if the Secret has any.
    pub pem: Option<Vec<u8>>,
    /// Whether the certificate was under the legacy key `caFile`.
    pub legacy_key: bool,
    /// Whether the Secret also holds a client certificate or key, which is ignored.
    pub client_certificate: bool,
}

/// Reads and watches the Secrets with serving certificates, in Keyferry's namespace.
pub trait ServingSecrets: Send + Sync {
    /// Reads the Secret of that name.
    fn read<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<ServingSecret, HubError>>;

    /// Resolves when the Secret may have changed since that resourceVersion, or after a while.
    /// `None` means since it was found absent.
    fn wait_for_change<'a>(
        &'a self,
        name: &'a ObjectName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, ()>;
}

/// The content of a Secret with a serving certificate, unchecked.
pub struct ServingSecret {
    /// The Secret's resourceVersion.
    pub version: String,
    /// The Secret's UID.
    pub uid: String,
    /// The Secret's `type`.
    pub kind: String,
    /// `tls.crt`.
    pub certificate: Option<Vec<u8>>,
    /// `tls.key`.
    pub key: Option<SecretSlice<u8>>,
    /// `ca.crt`.
    pub authority: Option<Vec<u8>>,
}

/// The data of a Secret, wiped from memory when dropped.
pub type SecretData = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// A Secret as read from the hub.
pub struct StoredSecret {
    /// The Secret's resourceVersion.
    pub version: String,
    /// The Secret's data.
    pub data: SecretData,
}

/// Reads and writes Keyferry's own Secrets. Every change is a compare-and-swap.
pub trait SecretStore: Send + Sync {
    /// Reads the Secret of that name; `None` if it does not exist.
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>>;

    /// Creates the Secret; [`HubError::Conflict`] if it already exists.
    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Replaces the data of the Secret at that resourceVersion; [`HubError::Conflict`] if the
    /// Secret has changed since.
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
    /// Reads what is stored for a target; `None` if there is no object.
    fn read<'a>(
        &'a self,
        target: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredKeys>, HubError>>;

    /// Replaces the object that was read, or creates the first one. [`HubError::Conflict`] when
    /// another replica was first.
    fn write<'a>(
        &'a self,
        target: &'a ObjectName,
        document: &'a str,
        replaces: Option<&'a StoredObject>,
    ) -> BoxFuture<'a, Result<(), HubError>>;
}

/// Identifies a stored object, so that it can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The UID: another UID means another object, created after this one was deleted.
    pub uid: String,
    /// Its version and the other members to preserve; only the store reads them.
    pub rest: serde_json::Value,
}

/// The stored key set of a target.
pub struct StoredKeys {
    /// The object.
    pub object: StoredObject,
    /// The document, if the object has any.
    pub document: Option<Zeroizing<Vec<u8>>>,
    /// The request for a manual rotation that the object carries.
    pub rotation_request: Option<String>,
}

/// Facts that the hub reports about itself and about Keyferry.
pub trait HubFacts: Send + Sync {
    /// Returns the audiences that the apiserver puts into a token when none is requested: all that
    /// it accepts.
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>>;

    /// Returns the username under which the hub knows Keyferry.
    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>>;
}

/// Reads and writes the hub's objects for the controller. Every write names the version of the
/// object that it expects.
pub trait HubObjects: Send + Sync {
    /// Reads the object at a path; `None` if there is none, or if the hub does not have its kind.
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>>;

    /// Whether one of Flux's objects in a collection may be one that `uses` accepts. It may also be
    /// one of the objects beyond the first 500, which are not read.
    fn is_used_by_flux<'a>(
        &'a self,
        path: &'a str,
        uses: &'a (dyn Fn(&FluxObject) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, HubError>>;

    /// Lists CertificateSigningRequests one after another while they arrive, and returns the times
    /// that `counted_time` gives for them, at least `most` if there are as many. Others than Keyferry
    /// create such objects, of any size and number: a list that is too long is
    /// [`HubError::Unreadable`].
    fn certificate_request_times<'a>(
        &'a self,
        path: &'a str,
        most: usize,
        counted_time: &'a (dyn Fn(&CountedRequest) -> Option<Timestamp> + Send + Sync),
    ) -> BoxFuture<'a, Result<Vec<Timestamp>, HubError>>;

    /// Creates an object in a collection and returns its resourceVersion.
    fn create<'a>(
        &'a self,
        collection: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>>;

    /// Replaces the object with the UID and resourceVersion in `object`, and returns its new
    /// resourceVersion.
    fn replace<'a>(
        &'a self,
        path: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>>;

    /// Deletes the object with this UID and resourceVersion; an object that no longer exists counts
    /// as deleted.
    fn delete<'a>(
        &'a self,
        path: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Creates an object that contains no secret.
    fn create_plain<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Replaces an object that contains no secret, at the resourceVersion that it carries.
    fn replace_plain<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>>;

    /// Changes a TargetCluster or TargetAccess, or its status, by a merge patch. Returns the new
    /// object.
    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<ReducedObject, HubError>>;

    /// Applies a status by server-side apply, with the field manager that the controller uses for
    /// all its writes. `object` carries a resourceVersion, so the hub refuses the status for
    /// another object of that name.
    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>>;
}
