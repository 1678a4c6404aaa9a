//! The resource attributes of an access review.

use serde::Serialize;

/// An operation on resources, as an access review asks about it. An empty part is not sent: to an
/// apiserver, that is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResourceAttributes {
    /// The verb, like `get`.
    pub verb: String,
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource, as API paths have it.
    pub resource: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The name of one object; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace; empty for all, and for a resource of the whole cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl ResourceAttributes {
    /// The operation in words: verb, resource, name and namespace.
    pub(crate) fn in_words(&self) -> String {
        let mut words = format!("{} {}", self.verb, self.resource);
        if !self.name.is_empty() {
            words.push_str(&format!(" {}", self.name));
        }
        if !self.namespace.is_empty() {
            words.push_str(&format!(" in {}", self.namespace));
        }
        words
    }

    /// Returns the resource with its subresource, as a role names it.
    #[must_use]
    pub fn resource_path(&self) -> String {
        let parts = [self.resource.as_str(), self.subresource.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }

    /// Writes what is asked about in full: the resource with its group, subresource and name.
    #[must_use]
    pub fn full_name(&self) -> String {
        let mut text = self.resource.clone();
        for (separator, part) in [
            (".", &self.group),
            ("/", &self.subresource),
            (" ", &self.name),
        ] {
            if !part.is_empty() {
                text.push_str(separator);
                text.push_str(part);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ResourceAttributes;

    #[test]
    fn what_was_asked_about_is_written_in_full() {
        let scale = ResourceAttributes {
            resource: "deployments".to_owned(),
            group: "apps".to_owned(),
            subresource: "scale".to_owned(),
            ..ResourceAttributes::default()
        };
        assert_eq!(scale.full_name(), "deployments.apps/scale");
        assert_eq!(scale.resource_path(), "deployments/scale");
        let named = ResourceAttributes {
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            name: "web".to_owned(),
            ..ResourceAttributes::default()
        };
        assert_eq!(named.full_name(), "pods web");
        assert_eq!(named.in_words(), "get pods web");
        let sent = json!({ "verb": "get", "resource": "pods", "name": "web" });
        assert_eq!(json!(named), sent);
    }
}
