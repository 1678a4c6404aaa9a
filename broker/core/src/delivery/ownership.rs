//! Decides who owns an object. Labels prove nothing: a user who can write one label can write any.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::service_account::Uid;
use keyferry_keys::client_certificate;
use serde_json::Value;

use super::delivered_token::{self, DeliveredTokens};

/// The field manager of everything that the controller writes.
pub const FIELD_MANAGER: &str = "keyferry";
pub(super) const DIGEST_ANNOTATION: &str = "keyferry.dev/digest";
pub(super) const EXPIRES_AT: &str = "keyferry.dev/expires-at";
/// The labels and annotations of `deliveries[].secret` that it was written with.
pub(super) const FURTHER_NAMES: &str = "keyferry.dev/further-names";
pub(super) const KEY_ID: &str = "keyferry.dev/key-id";
pub(super) const RENEW_AT: &str = "keyferry.dev/renew-at";
pub(super) const TARGET_ANNOTATION: &str = "keyferry.dev/target";
pub(super) const TOKEN_ID: &str = "keyferry.dev/token-id";

/// What was found under the name of a delivered object.
pub enum DeliveredObject<'a> {
    /// There is no object.
    Absent,
    /// An object that was written for this access.
    Ours(OwnedObject<'a>),
    /// Any other object, and why it is not ours. Its content must not be used.
    Foreign(&'static str),
}

/// An object of ours as it was read.
#[derive(Clone, Copy)]
pub struct OwnedObject<'a> {
    object: &'a Value,
    uid: &'a str,
    version: &'a str,
}

impl<'a> OwnedObject<'a> {
    /// Its UID.
    pub fn uid(&self) -> &'a str {
        self.uid
    }

    /// The resourceVersion that was read.
    pub fn version(&self) -> &'a str {
        self.version
    }

    /// The object itself.
    pub fn object(&self) -> &'a Value {
        self.object
    }

    /// When its token expires: the earlier of the token's `exp` and the annotation. The hub can let
    /// a token expire earlier than its `exp`, and a tenant can edit the annotation.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let annotated: Timestamp = self.annotation(EXPIRES_AT)?.parse().ok()?;
        let by_token = delivered_token::read_tokens(self.object).expires_at;
        Some(by_token.map_or(annotated, |by_token| annotated.min(by_token)))
    }

    /// When it is due for renewal, according to its annotation.
    pub fn renew_at(&self) -> Option<Timestamp> {
        self.annotation(RENEW_AT)?.parse().ok()
    }

    /// The user of its client certificate; `None` if it has none that can be read.
    pub fn certificate_user(&self) -> Option<String> {
        let encoded = self.object.get("data")?.get("tls.crt")?.as_str()?;
        client_certificate::common_name_of(&STANDARD.decode(encoded).ok()?)
    }

    /// The TargetCluster that it gives access to, according to its annotation.
    pub fn target(&self) -> Option<&'a str> {
        self.annotation(TARGET_ANNOTATION)
    }

    /// The `jti` of its token, according to its annotation.
    pub fn token_id(&self) -> Option<&'a str> {
        self.annotation(TOKEN_ID)
    }

    /// Reads all tokens in its data.
    pub fn tokens(&self) -> DeliveredTokens {
        delivered_token::read_tokens(self.object)
    }

    /// The `kid` of the key that signed its token: from the token itself, or from the annotation if
    /// no token in it can be read.
    pub fn key_id(&self) -> Option<String> {
        self.tokens()
            .key_ids
            .into_iter()
            .next()
            .or_else(|| self.annotation(KEY_ID).map(str::to_owned))
    }

    /// Whether it was made immutable: then it can be deleted and recreated, but not changed.
    pub fn immutable(&self) -> bool {
        self.object["immutable"] == true
    }

    /// Whether it has finalizers, so that it stays after its deletion until they are removed.
    pub fn has_finalizers(&self) -> bool {
        let finalizers = self
            .object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array);
        finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    }

    pub(super) fn digest(&self) -> Option<&'a str> {
        self.annotation(DIGEST_ANNOTATION)
    }

    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.object
            .get("metadata")?
            .get("annotations")?
            .get(key)?
            .as_str()
    }
}

/// Decides whether an object belongs to the access with this UID.
pub fn classify_object<'a>(object: Option<&'a Value>, owner: &Uid) -> DeliveredObject<'a> {
    let Some(object) = object else {
        return DeliveredObject::Absent;
    };
    let metadata = object.get("metadata");
    let text = |field: &str| {
        metadata
            .and_then(|metadata| metadata.get(field))
            .and_then(Value::as_str)
    };
    let (Some(uid), Some(version)) = (text("uid"), text("resourceVersion")) else {
        return DeliveredObject::Foreign("it cannot be read");
    };
    let list = |field: &str| {
        metadata
            .and_then(|metadata| metadata.get(field))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let controller = list("ownerReferences").find(|reference| reference["controller"] == true);
    let Some(controller) = controller else {
        return DeliveredObject::Foreign("Keyferry did not create it: it has no controller");
    };
    if controller["kind"] != "TargetAccess" || controller["uid"] != owner.as_str() {
        return DeliveredObject::Foreign("it belongs to another object");
    }
    let written = list("managedFields")
        .any(|entry| entry["manager"] == FIELD_MANAGER && entry["subresource"].is_null());
    if !written {
        return DeliveredObject::Foreign(
            "it names this access as its owner, but Keyferry did not write it",
        );
    }
    if text("deletionTimestamp").is_some() {
        return DeliveredObject::Foreign("it is being deleted");
    }
    DeliveredObject::Ours(OwnedObject {
        object,
        uid,
        version,
    })
}
