//! The user of a request or a token, in the form of Kubernetes' `UserInfo`.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, header};
use serde::{Deserialize, Serialize};

/// Extra key under which an apiserver names the token (`JTI=<jti>`).
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The group of every authenticated user.
pub(super) const AUTHENTICATED: &str = "system:authenticated";

/// The name of a caller without credentials, and its group.
pub(super) const ANONYMOUS: &str = "system:anonymous";
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// `UserInfo` of authentication.k8s.io/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name.
    pub username: String,
    /// The UID; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, with those that the server adds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further values by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Names the token in `extra`, as an apiserver does for a non-empty `jti`.
    pub(super) fn with_credential_id(mut self, jti: Option<&str>) -> Self {
        if let Some(jti) = jti.filter(|jti| !jti.is_empty()) {
            self.extra
                .insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={jti}")]);
        }
        self
    }
}

/// The bearer token of a request, if it carries one.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
