//! The claims that a hub's kube-apiserver would put into a token of a ServiceAccount, before there
//! is one.

use crate::go::json::Json;

/// A TokenRequest that was not made yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccountToken {
    /// The ServiceAccount's namespace.
    pub namespace: String,
    /// The ServiceAccount's name.
    pub name: String,
    /// Its UID, where it is known.
    pub uid: Option<String>,
    /// The issuer of the hub.
    pub issuer: String,
    /// The one audience.
    pub audience: String,
    /// When it would be issued, in seconds since 1970.
    pub issued_at: i64,
    /// How long it would live, in seconds.
    pub lifetime: i64,
}

/// What stands for a UID that is not known before the token exists.
pub(super) const UNKNOWN_UID: &str = "00000000-0000-0000-0000-000000000000";

impl ServiceAccountToken {
    /// The names of claims whose value is only assumed.
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
