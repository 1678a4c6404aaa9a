//! Reads the addresses of the hub's apiservers from EndpointSlice `default/kubernetes`.

use http::Uri;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::client::HubClient;
use crate::ports::HubError;

const ENDPOINT_SLICE_PATH: &str =
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
/// The most addresses that are read. A hub has three apiservers, or five.
const MAX_ADDRESSES: usize = 16;

/// Returns the apiservers' addresses. The list is empty if the object is absent, unreadable or
/// names none.
///
/// # Errors
/// The hub did not respond, so the number of apiservers is unknown.
pub(super) async fn apiserver_addresses(config: &kube::Config) -> Result<Vec<Uri>, HubError> {
    let client =
        HubClient::new(config.clone()).map_err(|error| HubError::Unreachable(error.to_string()))?;
    match read_addresses(&client).await {
        Ok(addresses) => Ok(addresses),
        Err(error) if error.proves_unreachable() => Err(error),
        Err(error) => {
            tracing::debug!(%error, "the hub's own endpoints are not known; its documents are read \
                at the client's address");
            Ok(Vec::new())
        }
    }
}

/// Returns the apiservers' addresses, for a decision that needs all of them. The list is empty only
/// if there is no such object, or it names none.
///
/// # Errors
/// The object could not be read.
pub(super) async fn read_addresses(client: &HubClient) -> Result<Vec<Uri>, HubError> {
    match client
        .get_object::<EndpointSlice>(ENDPOINT_SLICE_PATH, "EndpointSlice")
        .await
    {
        Ok(slice) => Ok(slice_uris(&slice)),
        Err(HubError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn slice_uris(slice: &EndpointSlice) -> Vec<Uri> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let named = ports
        .iter()
        .find(|port| port.name.as_deref() == Some("https"))
        .or_else(|| ports.first());
    let Some(port) = named.and_then(|port| port.port) else {
        return Vec::new();
    };
    let host = |address: &String| {
        if slice.address_type == "IPv6" {
            format!("[{address}]")
        } else {
            address.clone()
        }
    };
    slice
        .endpoints
        .iter()
        .flatten()
        .flat_map(|endpoint| &endpoint.addresses)
        .take(MAX_ADDRESSES)
        .map(host)
        .filter_map(|host| format!("https://{host}:{port}").parse().ok())
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::slice_uris;

    #[test]
    fn a_slice_names_every_apiserver() {
        let slice = |text: &str| slice_uris(&serde_json::from_str(text).unwrap());
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
