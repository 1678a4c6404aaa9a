//! The settings that the status of a TargetCluster states.

use keyferry_api::config::{self, Configuration};

use super::object_view::TargetView;

/// The settings that a TargetCluster's status states, if it is about the current spec.
pub fn settings_in(target: &TargetView) -> Option<Configuration> {
    let status = target.current_status()?;
    // That of a role is `<hub>:<role>:`, and no hub's name has a colon.
    let prefix = status.username_prefix.as_deref()?.strip_suffix(':')?;
    let hub_name = prefix.split_once(':').map_or(prefix, |(hub, _)| hub);
    let discovery_url = url::Url::parse(status.discovery_url.as_deref()?).ok()?;
    let public_url = discovery_url.origin().ascii_serialization();
    let namespace = status.cluster_resource_namespace.as_deref()?;
    config::of_hub_objects(hub_name, &public_url, namespace).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::TargetView;

    fn settings_in(object: &serde_json::Value) -> Option<super::Configuration> {
        super::settings_in(&TargetView::of(object))
    }

    fn object(status: serde_json::Value) -> serde_json::Value {
        json!({ "metadata": { "generation": 2 }, "status": status })
    }

    #[test]
    fn settings_are_read_from_a_status() {
        for (prefix, discovery_url) in [
            (
                "hub:",
                "https://keys.example.com:8443/.well-known/openid-configuration",
            ),
            (
                "hub:view:",
                "https://keys.example.com:8443/issuers/prod/.well-known/openid-configuration",
            ),
        ] {
            let object = object(json!({
                "observedGeneration": 2, "usernamePrefix": prefix, "discoveryURL": discovery_url,
                "clusterResourceNamespace": "platform-keyferry",
            }));
            let server = settings_in(&object).unwrap().server;
            assert_eq!(server.hub_name, "hub");
            assert_eq!(
                server.cluster_resource_namespace.as_str(),
                "platform-keyferry"
            );
            assert_eq!(server.public_url.as_str(), "https://keys.example.com:8443");
        }
        let good = json!({
            "observedGeneration": 2, "usernamePrefix": "hub:", "discoveryURL": "https://k",
            "clusterResourceNamespace": "keyferry-system",
        });
        assert!(settings_in(&object(good.clone())).is_some());
        for (field, wrong) in [
            ("observedGeneration", json!(1)),
            ("observedGeneration", json!(null)),
            ("usernamePrefix", json!(null)),
            ("usernamePrefix", json!("hub")),
            ("usernamePrefix", json!("a b:")),
            ("discoveryURL", json!(null)),
            ("discoveryURL", json!("http://k")),
            ("discoveryURL", json!(1)),
            ("clusterResourceNamespace", json!(null)),
            ("clusterResourceNamespace", json!("No")),
        ] {
            let mut status = good.clone();
            status[field] = wrong;
            assert!(settings_in(&object(status)).is_none(), "{field}");
        }
        let mut without = object(good);
        without["metadata"]["generation"] = json!("2");
        without["status"]["observedGeneration"] = json!(null);
        assert!(settings_in(&without).is_none(), "no generation at all");
    }
}
