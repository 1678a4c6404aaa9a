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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_keys::jwt::SigningAlgorithm;
    use keyferry_keys::testing::key;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use serde_json::json;

    use super::*;

    const USER: &str = "keyferry:tenant-a:reconciler";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A Secret of the access `u`, with these values in its data.
    fn secret(values: &[(&str, &str)]) -> Value {
        let values = values.iter().map(|(name, text)| {
            let encoded = STANDARD.encode(text);
            ((*name).to_owned(), Value::from(encoded))
        });
        json!({
            "metadata": {
                "uid": "object-uid", "resourceVersion": "9",
                "ownerReferences": [{ "kind": "TargetAccess", "uid": "u", "controller": true }],
                "managedFields": [{ "manager": "keyferry" }],
                "annotations": {
                    "keyferry.dev/expires-at": at(1000).to_string(),
                    "keyferry.dev/renew-at": at(500).to_string(),
                    "keyferry.dev/key-id": "a-key", "keyferry.dev/token-id": "a-jti",
                    "keyferry.dev/target": "prod", "keyferry.dev/digest": "a-digest",
                },
            },
            "data": values.collect::<serde_json::Map<_, _>>(),
        })
    }

    fn owned(object: &Value) -> OwnedObject<'_> {
        match classify_object(Some(object), &Uid::new("u").unwrap()) {
            DeliveredObject::Ours(owned) => owned,
            DeliveredObject::Absent => panic!("absent"),
            DeliveredObject::Foreign(why) => panic!("{why}"),
        }
    }

    #[test]
    fn without_a_credential_the_annotations_count() {
        let object = secret(&[("name", "prod")]);
        let owned = owned(&object);
        assert_eq!((owned.uid(), owned.version()), ("object-uid", "9"));
        assert_eq!(owned.object(), &object);
        assert_eq!(
            (owned.expires_at(), owned.renew_at()),
            (Some(at(1000)), Some(at(500)))
        );
        assert_eq!(owned.key_id().as_deref(), Some("a-key"));
        assert_eq!(
            (owned.token_id(), owned.target(), owned.digest()),
            (Some("a-jti"), Some("prod"), Some("a-digest"))
        );
        assert_eq!(owned.certificate_user(), None);
        assert_eq!(owned.tokens().key_ids.len(), 0);
    }

    /// A tenant can edit the annotations, and the hub can end a token before its `exp`.
    #[test]
    fn a_token_names_its_key_and_the_earlier_expiry_counts() {
        for (exp, expires_at) in [(900, 900), (2000, 1000)] {
            let token = key(SigningAlgorithm::Es256).token(&json!({ "exp": exp }));
            let object = secret(&[("value", &token)]);
            let owned = owned(&object);
            assert_eq!(owned.key_id().as_deref(), Some("ES256"));
            assert!(owned.tokens().key_ids.iter().eq(["ES256"]));
            assert_eq!(owned.expires_at(), Some(at(expires_at)), "{exp}");
        }
        let mut without = secret(&[]);
        without["metadata"]["annotations"] = json!({ "keyferry.dev/expires-at": "soon" });
        let owned = owned(&without);
        assert_eq!((owned.expires_at(), owned.renew_at()), (None, None));
    }

    #[test]
    fn a_certificate_names_its_user() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, USER);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let pem = certificate.pem();
        for (text, user) in [(pem.as_str(), Some(USER)), ("none", None)] {
            let object = secret(&[("tls.crt", text)]);
            assert_eq!(owned(&object).certificate_user().as_deref(), user);
        }
    }

    #[test]
    fn what_keeps_an_object_in_place_is_named() {
        let state = |path: &str, value: Value| {
            let mut object = secret(&[]);
            match path {
                "immutable" => object[path] = value,
                _ => object["metadata"][path] = value,
            }
            let owned = owned(&object);
            (owned.immutable(), owned.has_finalizers())
        };
        for (path, value, expected) in [
            ("immutable", json!(null), (false, false)),
            ("immutable", json!(false), (false, false)),
            ("immutable", json!(true), (true, false)),
            ("finalizers", json!([]), (false, false)),
            ("finalizers", json!(["theirs"]), (false, true)),
        ] {
            assert_eq!(state(path, value.clone()), expected, "{path}: {value}");
        }
    }
}
