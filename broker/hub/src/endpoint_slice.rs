//! Reads the addresses of the hub's apiservers from EndpointSlice `default/kubernetes`.

use http::Uri;
use serde::Deserialize;

use super::client::HubClient;
use crate::ports::HubError;

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
/// The most addresses that are read. A hub has three apiservers, or five.
const MOST: usize = 16;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    #[serde(default)]
    address_type: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    port: Option<u16>,
}

/// Returns the apiservers' addresses. The list is empty if the object is absent, unreadable or
/// names none.
///
/// # Errors
/// The hub did not respond, so the number of apiservers is unknown.
pub(super) async fn addresses(config: &kube::Config) -> Result<Vec<Uri>, HubError> {
    let client =
        HubClient::new(config.clone()).map_err(|error| HubError::Unreachable(error.to_string()))?;
    match client
        .get_object::<EndpointSlice>(PATH, "EndpointSlice")
        .await
    {
        Ok(slice) => Ok(slice.addresses()),
        Err(error) if error.proves_unreachable() => Err(error),
        Err(error) => {
            tracing::debug!(%error, "the hub's own endpoints are not known; its documents are read \
                at the client's address");
            Ok(Vec::new())
        }
    }
}

impl EndpointSlice {
    fn addresses(&self) -> Vec<Uri> {
        let named = self
            .ports
            .iter()
            .find(|port| port.name.as_deref() == Some("https"))
            .or_else(|| self.ports.first());
        let Some(port) = named.and_then(|port| port.port) else {
            return Vec::new();
        };
        let host = |address: &String| {
            if self.address_type == "IPv6" {
                format!("[{address}]")
            } else {
                address.clone()
            }
        };
        let hosts = self
            .endpoints
            .iter()
            .flat_map(|endpoint| &endpoint.addresses)
            .take(MOST)
            .map(host);
        hosts
            .filter_map(|host| format!("https://{host}:{port}").parse().ok())
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::EndpointSlice;

    #[test]
    fn a_slice_names_every_apiserver() {
        let slice = |text: &str| {
            serde_json::from_str::<EndpointSlice>(text)
                .unwrap()
                .addresses()
        };
        let three = slice(
            r#"{"addressType":"IPv4","ports":[{"name":"metrics","port":1},{"name":"https","port":6443}],
                "endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]},{"addresses":["10.0.0.3"]}]}"#,
        );
        assert_eq!(
            three,
            [
                "https://10.0.0.1:6443",
                "https://10.0.0.2:6443",
                "https://10.0.0.3:6443"
            ]
        );
        let six = slice(
            r#"{"addressType":"IPv6","ports":[{"port":6443}],"endpoints":[{"addresses":["fd00::1"]}]}"#,
        );
        assert_eq!(six, ["https://[fd00::1]:6443"]);
        assert!(slice("{}").is_empty());
        assert!(
            slice(r#"{"ports":[{"port":1}],"endpoints":[{"addresses":["no host"]}]}"#).is_empty()
        );
    }
}
