//! Builds the claims that a hub's kube-apiserver would put into a ServiceAccount token, before the
//! token exists.

use keyferry_go_formats::json::Json;

/// A TokenRequest that has not been made yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccountToken {
    /// The ServiceAccount's namespace.
    pub namespace: String,
    /// The ServiceAccount's name.
    pub name: String,
    /// The ServiceAccount's UID, if known.
    pub uid: Option<String>,
    /// The issuer of the hub.
    pub issuer: String,
    /// The only audience of the token.
    pub audience: String,
    /// The time of issuance, in seconds since 1970.
    pub issued_at: i64,
    /// The lifetime of the token, in seconds.
    pub lifetime: i64,
}

/// The placeholder for a UID that is unknown before the token exists.
pub(super) const UNKNOWN_UID: &str = "00000000-0000-0000-0000-000000000000";

impl ServiceAccountToken {
    /// Lists the claims whose values are only assumed.
    #[must_use]
    pub fn assumed(&self) -> Vec<&'static str> {
        let uid = self
            .uid
            .is_none()
            .then_some("kubernetes.io.serviceaccount.uid");
        ["jti"].into_iter().chain(uid).collect()
    }

    pub(super) fn claims(&self) -> Json {
        let text = |text: &str| Json::Text(text.to_owned());
        let number = |seconds: i64| Json::Number(seconds.to_string());
        let object = |members: Vec<(&str, Json)>| {
            Json::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            )
        };
        let uid = self.uid.as_deref().unwrap_or(UNKNOWN_UID);
        let account = object(vec![("name", text(&self.name)), ("uid", text(uid))]);
        object(vec![
            ("aud", Json::List(vec![text(&self.audience)])),
            ("exp", number(self.issued_at.saturating_add(self.lifetime))),
            ("iat", number(self.issued_at)),
            ("iss", text(&self.issuer)),
            ("jti", text(UNKNOWN_UID)),
            (
                "kubernetes.io",
                object(vec![
                    ("namespace", text(&self.namespace)),
                    ("serviceaccount", account),
                ]),
            ),
            ("nbf", number(self.issued_at)),
            (
                "sub",
                Json::Text(format!(
                    "system:serviceaccount:{}:{}",
                    self.namespace, self.name
                )),
            ),
        ])
    }
}
