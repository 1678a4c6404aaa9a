//! Reads the hub's own networks, to which the server does not connect: the ranges of its Services
//! and the addresses of its apiservers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use keyferry_core::target_address::HubNetworks;
use kube::core::ObjectList;
use tokio::sync::Mutex;

use crate::client::HubClient;
use crate::clock::Clock;
use crate::endpoint_slice;
use crate::name_resolver::NameResolver;
use crate::ports::{HubError, HubNetworkSource};

const SERVICE_CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
/// How long the networks are cached. Only an admin changes them.
const CURRENT: Duration = Duration::from_secs(300);

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

    async fn read(&self) -> Result<HubNetworks, HubError> {
        let services = match self
            .client
            .get_object::<ObjectList<ServiceCIDR>>(SERVICE_CIDRS, "ServiceCIDRList")
            .await
        {
            Ok(list) => ranges(list.items),
            // A hub before 1.33 has no ServiceCIDRs. The admin names its ranges on the command
            // line.
            Err(HubError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut apiservers: Vec<IpAddr> = endpoint_slice::read(&self.client)
            .await?
            .iter()
            .filter_map(|address| address.host()?.trim_matches(['[', ']']).parse().ok())
            .collect();
        if let Some((host, port)) = self.client.place() {
            let own = self.resolver.addresses(host, port).await;
            if own.is_empty() {
                return Err(HubError::Unreachable(format!(
                    "its own host {host} does not resolve"
                )));
            }
            apiservers.extend(own.iter().map(|address| address.ip()));
        }
        Ok(HubNetworks {
            services,
            apiservers,
        })
    }
}

impl HubNetworkSource for KubeHubNetworks {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubError>> {
        Box::pin(async move {
            let mut last = self.last.lock().await;
            let now = self.clock.now().mono;
            if let Some((at, networks)) = last.as_ref()
                && now.saturating_sub(*at) < CURRENT
            {
                return Ok(networks.clone());
            }
            let networks = self.read().await?;
            *last = Some((now, networks.clone()));
            Ok(networks)
        })
    }
}

fn ranges(list: Vec<ServiceCIDR>) -> Vec<IpNet> {
    list.into_iter()
        .filter_map(|object| object.spec?.cidrs)
        .flatten()
        .filter_map(|text| text.parse().ok())
        .collect()
}
