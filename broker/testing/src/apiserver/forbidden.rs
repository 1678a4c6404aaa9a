//! 403 in the words of kube-apiserver.

use serde_json::{Map, Value};

use crate::status::ApiError;
use keyferry_kube_rbac::{Attributes, RequestTarget};

impl ApiError {
    /// A refusal of what the attributes describe, with the authorizer's reason if it has one.
    pub(crate) fn not_allowed(username: &str, attributes: &Attributes, reason: &str) -> Self {
        let verb = &attributes.verb;
        let mut details = Map::new();
        let (subject, refused) = match &attributes.target {
            RequestTarget::Path(path) => (
                "forbidden".to_owned(),
                format!("User {username:?} cannot {verb} path {path:?}"),
            ),
            RequestTarget::Resource(resource) => {
                let (kind, name) = (resource.resource.as_str(), resource.name.as_str());
                let group = resource.group.as_str();
                for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
                    if !value.is_empty() {
                        details.insert(field.to_owned(), Value::from(value));
                    }
                }
                let qualified = match group {
                    "" => kind.to_owned(),
                    group => format!("{kind}.{group}"),
                };
                let subject = match name {
                    "" => format!("{qualified} is forbidden"),
                    name => format!("{qualified} {name:?} is forbidden"),
                };
                let scope = match resource.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let combined = resource.combined();
                (
                    subject,
                    format!(
                        "User {username:?} cannot {verb} resource {combined:?} in API group \
                         {group:?} {scope}"
                    ),
                )
            }
        };
        // kube-apiserver replaces these so that no message reads as HTML.
        let refused = refused
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let colon = if reason.is_empty() { "" } else { ": " };
        Self::forbidden_with(format!("{subject}: {refused}{colon}{reason}"), details)
    }
}
