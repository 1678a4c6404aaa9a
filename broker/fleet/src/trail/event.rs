//! Events of a kube-apiserver's audit log: `audit.k8s.io` Event, a JSON object a line.

use std::borrow::Cow;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

/// The longest `jti` that counts as one. Kubernetes' and Keyferry's have 36 characters.
pub const MAX_TOKEN_ID_BYTES: usize = 128;

/// The members that are read. All have the types of `k8s.io/apiserver/pkg/apis/audit/v1`: a line with
/// others is no event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEvent<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "auditID")]
    pub(super) audit_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) verb: Cow<'a, str>,
    #[serde(borrow, default, rename = "requestURI")]
    request_uri: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) user: EventUser<'a>,
    #[serde(default, rename = "sourceIPs")]
    source_ips: Vec<String>,
    #[serde(borrow, default)]
    pub(super) user_agent: Cow<'a, str>,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Option<ResponseStatus>,
    /// When the request arrived and its token was accepted. The end of a watch may be an hour later.
    #[serde(rename = "requestReceivedTimestamp")]
    pub(super) received_at: Timestamp,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// Who was authenticated. An impersonated user is another member, and its extra is what the client
/// wrote.
#[derive(Debug, Default, Deserialize)]
pub(super) struct EventUser<'a> {
    #[serde(borrow, default)]
    pub(super) username: Cow<'a, str>,
    #[serde(default)]
    extra: Option<UserExtra>,
}

#[derive(Debug, Deserialize)]
struct UserExtra {
    #[serde(default, rename = "authentication.kubernetes.io/credential-id")]
    credential_id: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: i32,
}

#[derive(Debug, Deserialize)]
struct Annotations {
    #[serde(default, rename = "authentication.kubernetes.io/issued-credential-id")]
    issued_credential_id: Option<String>,
}

impl<'a> AuditEvent<'a> {
    /// Reads a line; `None` if it is no event.
    pub(super) fn read(line: &'a [u8]) -> Option<Self> {
        let event: Self = serde_json::from_slice(line).ok()?;
        (event.kind == "Event" && !event.audit_id.is_empty()).then_some(event)
    }

    /// The `jti` of the token by which the user was authenticated. Other credentials have other
    /// forms, such as `X509SHA256=`.
    pub(super) fn used_token(&self) -> Option<&str> {
        let ids = &self.user.extra.as_ref()?.credential_id;
        ids.iter().find_map(|id| token_id(id))
    }

    /// The `jti` of the token that the request made.
    pub(super) fn issued_token(&self) -> Option<&str> {
        let annotations = self.annotations.as_ref()?;
        token_id(annotations.issued_credential_id.as_deref()?)
    }

    /// The ServiceAccount of a TokenRequest, as `namespace/name`.
    pub(super) fn account(&self) -> Option<String> {
        let object = self.object_ref.as_ref()?;
        Some(format!("{}/{}", object.namespace, object.name))
    }

    /// The address of the connection, which is the last one. A client chooses those before it, by
    /// X-Forwarded-For.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        let address: IpAddr = self.source_ips.last()?.parse().ok()?;
        Some(address.to_canonical())
    }

    /// The path of the request, without its query, in which a client may have put anything.
    pub(super) fn path(&self) -> &str {
        self.request_uri.split('?').next().unwrap_or_default()
    }

    /// The status of the answer, once there is one.
    pub(super) fn code(&self) -> Option<i32> {
        self.response_status.as_ref().map(|status| status.code)
    }

    /// Whether the client asked only who it is, as Keyferry's probe does.
    pub(super) fn is_self_review(&self) -> bool {
        self.verb == "create" && self.path().ends_with("/selfsubjectreviews")
    }
}

/// The `jti` of a credential's id.
fn token_id(credential_id: &str) -> Option<&str> {
    let id = credential_id.strip_prefix("JTI=")?;
    (!id.is_empty() && id.len() <= MAX_TOKEN_ID_BYTES).then_some(id)
}
