//! The Secret of a credential on the hub, which has only hashes, and the child's, which has the
//! token.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_core::inputs::credential::{
    CredentialHashes, InputToken, PREVIOUS_KEY, SHA256_KEY, UNTIL_KEY,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::command_error::CommandError;
use crate::yaml_document::yaml_document;

/// The annotation that says which credential a Secret is of.
const CREDENTIAL: &str = "keyferry.dev/input-credential";
const FIX: &str = "pipe the Secret that keyferry inputs credential new made: kubectl get secret \
                   NAME -n keyferry-system -o yaml | keyferry inputs credential rotate \
                   --hub-secret -";

/// The hub's Secret of a credential.
#[derive(Debug)]
pub(super) struct HubSecret {
    name: String,
    namespace: String,
    credential: String,
    current: String,
    previous: Option<(String, Timestamp)>,
}

/// A Secret as `kubectl get -o yaml` prints it.
#[derive(Deserialize)]
struct Stored {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, SecretString>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl HubSecret {
    /// The Secret of a new credential.
    pub(super) fn new(
        credential: &ObjectName,
        namespace: &Namespace,
        token: &InputToken,
    ) -> Result<Self, CommandError> {
        let name = format!("keyferry-input-{credential}");
        let name = ObjectName::new(name).map_err(|error| {
            CommandError::with_fix(
                format!("the name of the hub's Secret {error}"),
                "choose a shorter NAME",
            )
        })?;
        Ok(Self {
            name: name.to_string(),
            namespace: namespace.to_string(),
            credential: credential.to_string(),
            current: token.sha256(),
            previous: None,
        })
    }

    /// Reads a Secret. No message quotes it.
    pub(super) fn read(bytes: &[u8], now: Timestamp) -> Result<Self, CommandError> {
        let wrong = |problem: &str| {
            CommandError::with_fix(format!("reading the hub's Secret: {problem}"), FIX)
        };
        let not_secret = || wrong("it is not one Secret with data");
        let text = str::from_utf8(bytes).map_err(|_| not_secret())?;
        let stored: Stored = serde_saphyr::from_str(text).map_err(|_| not_secret())?;
        if stored.kind != "Secret" {
            return Err(not_secret());
        }
        let credential = stored.metadata.annotations.get(CREDENTIAL).cloned();
        let credential = credential
            .ok_or_else(|| wrong("it has no annotation keyferry.dev/input-credential"))?;
        let entry = |key: &str| {
            let bytes = STANDARD
                .decode(stored.data.get(key)?.expose_secret())
                .ok()?;
            String::from_utf8(bytes).ok()
        };
        let current = entry(SHA256_KEY).unwrap_or_default().trim().to_owned();
        CredentialHashes::read(|key| (key == SHA256_KEY).then(|| current.clone()), now)
            .map_err(|error| wrong(&error.to_string()))?;
        Ok(Self {
            name: stored.metadata.name,
            namespace: stored.metadata.namespace,
            credential,
            current,
            previous: None,
        })
    }

    /// The Secret's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The credential's name.
    pub(super) fn credential(&self) -> &str {
        &self.credential
    }

    /// The Secret after a rotation. An earlier previous token is no longer valid.
    pub(super) fn rotated(self, token: &InputToken, until: Timestamp) -> Self {
        Self {
            previous: Some((self.current.clone(), until)),
            ..self.replaced(token)
        }
    }

    /// The Secret with another token and no overlap.
    pub(super) fn replaced(self, token: &InputToken) -> Self {
        Self {
            current: token.sha256(),
            ..self
        }
    }

    /// The Secret without a previous token.
    pub(super) fn without_previous(self) -> Self {
        Self {
            previous: None,
            ..self
        }
    }

    /// The manifest. It has `data`, because an entry that is left out of `stringData` stays.
    pub(super) fn manifest(&self) -> Result<Zeroizing<String>, CommandError> {
        let encoded = |text: &str| STANDARD.encode(text);
        let mut data = json!({ SHA256_KEY: encoded(&self.current) });
        if let Some((previous, until)) = &self.previous {
            data[PREVIOUS_KEY] = json!(encoded(previous));
            data[UNTIL_KEY] = json!(encoded(&until.to_string()));
        }
        let mut annotations = serde_json::Map::new();
        annotations.insert(CREDENTIAL.to_owned(), json!(self.credential));
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "annotations": annotations,
            },
            "type": "Opaque",
            "data": data,
        });
        document("For the hub. It holds hashes and no token.", &secret)
    }
}

/// The child's Secret, in the form that ResourceSetInputProvider reads.
pub(super) fn child_secret(
    credential: &str,
    namespace: &Namespace,
    token: &InputToken,
) -> Result<Zeroizing<String>, CommandError> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "internal-api-token",
            "namespace": namespace.as_str(),
            "annotations": { "keyferry.dev/input-credential": credential },
        },
        "type": "Opaque",
        "stringData": { "token": token.secret().expose_secret() },
    });
    document(
        "For the child cluster, never the hub. It holds the token: keep no copy.",
        &secret,
    )
}

fn document(head: &str, object: &Value) -> Result<Zeroizing<String>, CommandError> {
    let text = yaml_document(object).map_err(|error| CommandError::new(error.to_string()))?;
    let text = Zeroizing::new(text);
    Ok(Zeroizing::new(format!("# {head}\n{}", *text)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;
    use jiff::Timestamp;
    use keyferry_api::name::{Namespace, ObjectName};
    use keyferry_core::inputs::credential::InputToken;
    use secrecy::ExposeSecret;

    use super::{HubSecret, child_secret};

    fn made(byte: u8) -> (HubSecret, InputToken) {
        let token = InputToken::of(&[byte; 32]);
        let (name, namespace) = (
            ObjectName::new("prod-eu"),
            Namespace::new("keyferry-system"),
        );
        let secret = HubSecret::new(&name.unwrap(), &namespace.unwrap(), &token).unwrap();
        (secret, token)
    }

    #[test]
    fn the_hub_gets_hashes_and_the_child_the_token() {
        let (secret, token) = made(1);
        let hub = secret.manifest().unwrap();
        let child = child_secret("prod-eu", &Namespace::new("flux-system").unwrap(), &token);
        let child = child.unwrap();
        let text = token.secret().expose_secret();
        assert!(!hub.contains(text) && child.contains(text), "{hub:?}");
        assert_snapshot!("a-credential-on-the-hub", hub.as_str());
        assert_snapshot!("a-credential-of-the-child", child.replace(text, "TOKEN"));
    }

    #[test]
    fn a_rotation_keeps_the_hash_before_and_a_revocation_does_not() {
        let (secret, old) = made(1);
        let until: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let read = |secret: &HubSecret| {
            let text = secret.manifest().unwrap();
            HubSecret::read(text.as_bytes(), Timestamp::UNIX_EPOCH).unwrap()
        };
        let new = InputToken::of(&[2; 32]);
        let rotated = read(&secret).rotated(&new, until);
        assert_eq!(rotated.current, new.sha256());
        assert_eq!(rotated.previous, Some((old.sha256(), until)));
        let manifest = rotated.manifest().unwrap();
        assert_snapshot!("a-rotated-credential", manifest.as_str());
        let kept = read(&rotated).without_previous();
        assert_eq!(
            (kept.current.as_str(), &kept.previous),
            (new.sha256().as_str(), &None)
        );
        let none = read(&rotated).without_previous().replaced(&made(3).1);
        assert!(none.current != new.sha256() && none.previous.is_none());
    }

    #[test]
    fn another_secret_is_refused_and_never_quoted() {
        let (secret, _) = made(1);
        let text = secret.manifest().unwrap();
        for wrong in [
            "hunter2".to_owned(),
            text.replace("kind: Secret", "kind: ConfigMap"),
            text.replace("keyferry.dev/input-credential", "keyferry.dev/other"),
            text.replace("sha256:", "sha1: hunter2 #"),
            "kind: Secret\nmetadata: {name: a, namespace: b}\ndata: {sha256: hunter2}".to_owned(),
        ] {
            let error = HubSecret::read(wrong.as_bytes(), Timestamp::UNIX_EPOCH).unwrap_err();
            assert!(
                !error.problem.contains("hunter2") && error.fix.is_some(),
                "{error}"
            );
        }
    }
}
