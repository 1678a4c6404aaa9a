//! Reads the hub's own networks, to which Keyferry does not connect: the ranges of its Services
//! and the addresses of its apiservers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use keyferry_core::target_address::HubNetworks;
use keyferry_platform::address_guard::{HubNetworkSource, HubNetworksUnread};
use keyferry_platform::clock::Clock;
use keyferry_platform::name_resolver::NameResolver;
use kube::core::ObjectList;
use tokio::sync::Mutex;

use crate::client::HubClient;
use crate::endpoint_slice;
use crate::ports::HubError;

const SERVICE_CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const BEHIND_A_PROXY: &str = "the hub is reached through a proxy, so its address is unknown";
const NO_SERVICE_CIDRS: &str = "the hub has no ServiceCIDRs, as before Kubernetes 1.33";
/// How long the networks are cached. Only an admin changes them.
const CACHE_LIFETIME: Duration = Duration::from_secs(300);

/// Reads the networks of one hub, and keeps them for a while.
pub struct KubeHubNetworks {
    client: HubClient,
    resolver: Arc<dyn NameResolver>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(Duration, HubNetworks)>>,
}

impl KubeHubNetworks {
    /// Creates the reader. The resolver finds the addresses at which the client reaches the hub.
    pub fn new(client: HubClient, resolver: Arc<dyn NameResolver>, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            resolver,
            clock,
            last: Mutex::default(),
        }
    }

    async fn read_networks(&self) -> Result<HubNetworks, HubError> {
        let mut apiservers = own_addresses(&self.client, &*self.resolver).await?;
        apiservers.extend(apiserver_addresses(&self.client).await?);
        Ok(HubNetworks {
            // The admin of an older hub names its ranges on the command line.
            services: service_networks(&self.client).await?.unwrap_or_default(),
            apiservers,
        })
    }
}

/// The networks that a user could read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadableNetworks {
    /// What was read. The addresses of the user's own kubeconfig need no right.
    pub networks: HubNetworks,
    /// Why some networks are not known.
    pub unread: Option<String>,
}

/// Reads the networks with a user's rights, which may not suffice for all of them.
pub async fn readable_networks(
    client: &HubClient,
    resolver: &dyn NameResolver,
) -> ReadableNetworks {
    let (own, endpoints, services) = futures::join!(
        own_addresses(client, resolver),
        apiserver_addresses(client),
        service_networks(client)
    );
    let mut networks = ReadableNetworks::default();
    if client.host_and_port().is_none() {
        networks.unread = Some(BEHIND_A_PROXY.to_owned());
    }
    for addresses in [own, endpoints] {
        match addresses {
            Ok(addresses) => networks.networks.apiservers.extend(addresses),
            Err(error) => networks.unread = Some(error.to_string()),
        }
    }
    match services {
        Ok(Some(services)) => networks.networks.services = services,
        Ok(None) => networks.unread = Some(NO_SERVICE_CIDRS.to_owned()),
        Err(error) => networks.unread = Some(error.to_string()),
    }
    networks
}

/// Returns the ranges of the hub's Services; `None` for a hub before 1.33, which has no
/// ServiceCIDRs.
async fn service_networks(client: &HubClient) -> Result<Option<Vec<IpNet>>, HubError> {
    match client
        .get_object::<ObjectList<ServiceCIDR>>(SERVICE_CIDRS, "ServiceCIDRList")
        .await
    {
        Ok(list) => Ok(Some(service_ranges(list.items))),
        Err(HubError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the addresses of the hub's apiservers, as the hub names them.
async fn apiserver_addresses(client: &HubClient) -> Result<Vec<IpAddr>, HubError> {
    let uris = endpoint_slice::read_addresses(client).await?;
    let address = |uri: &http::Uri| uri.host()?.trim_matches(['[', ']']).parse().ok();
    Ok(uris.iter().filter_map(address).collect())
}

/// Returns the addresses at which the client reaches the hub; none through a proxy.
async fn own_addresses(
    client: &HubClient,
    resolver: &dyn NameResolver,
) -> Result<Vec<IpAddr>, HubError> {
    let Some((host, port)) = client.host_and_port() else {
        return Ok(Vec::new());
    };
    let own = resolver.addresses(host, port).await;
    if own.is_empty() {
        return Err(HubError::Unreachable(format!(
            "its own host {host} does not resolve"
        )));
    }
    Ok(own.iter().map(|address| address.ip()).collect())
}

impl HubNetworkSource for KubeHubNetworks {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        Box::pin(async move {
            let mut last = self.last.lock().await;
            let now = self.clock.now().mono;
            if let Some((at, networks)) = last.as_ref()
                && now.saturating_sub(*at) < CACHE_LIFETIME
            {
                return Ok(networks.clone());
            }
            let networks = self.read_networks().await.map_err(|_| HubNetworksUnread)?;
            *last = Some((now, networks.clone()));
            Ok(networks)
        })
    }
}

fn service_ranges(list: Vec<ServiceCIDR>) -> Vec<IpNet> {
    list.into_iter()
        .filter_map(|object| object.spec?.cidrs)
        .flatten()
        .filter_map(|text| text.parse().ok())
        .collect()
}
