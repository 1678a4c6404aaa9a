//! A Secret as the hub returns it: those with CA certificates and those of the key journal are
//! parsed here.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::ports::{HubError, SecretData};

/// The used members of `v1.Secret`. Values stay encoded until they are read, and cannot be printed.
#[derive(Deserialize)]
pub(crate) struct Secret {
    metadata: Metadata,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, SecretString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    uid: String,
}

impl Secret {
    /// The resourceVersion for a compare-and-swap.
    pub(crate) fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// The UID.
    pub(crate) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// The `type`, such as `kubernetes.io/tls`.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether it has an entry of this name.
    pub(crate) fn has_entry(&self, key: &str) -> bool {
        self.data.contains_key(key)
    }

    /// Decodes one entry; `None` if it is absent.
    pub(crate) fn entry(&self, key: &str) -> Result<Option<Zeroizing<Vec<u8>>>, HubError> {
        self.data.get(key).map(decode_entry).transpose()
    }

    /// Decodes all entries.
    pub(crate) fn entries(&self) -> Result<SecretData, HubError> {
        self.data
            .iter()
            .map(|(key, text)| Ok((key.clone(), decode_entry(text)?)))
            .collect()
    }
}

fn decode_entry(text: &SecretString) -> Result<Zeroizing<Vec<u8>>, HubError> {
    STANDARD
        .decode(text.expose_secret())
        .map(Zeroizing::new)
        .map_err(|_| HubError::Unreadable("Secret"))
}
