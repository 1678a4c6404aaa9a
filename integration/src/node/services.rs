//! Leads connections to the addresses of Services to ready Pods, as kube-proxy does with rules of
//! the kernel. It needs no `iptables` or `nft`. Pods see the node as the client.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::machine::Machine;
use crate::ports::bound_listener;
use crate::rest::RestClient;
use crate::runner::TestError;

/// kube-proxy follows a watch; this reads as often as its default allows it to change rules.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The Services of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
struct Routes {
    /// The ready Pods behind a Service's address and port.
    pods: BTreeMap<SocketAddr, Vec<SocketAddr>>,
    /// The address of a Service, by `namespace/name`.
    addresses: BTreeMap<String, Ipv4Addr>,
}

/// A listener outside the node's network, and the Service and port to which it leads.
type Outside = (std::net::TcpListener, String, u16);

/// A thread in the node's network that listens at the addresses of all Services.
#[derive(Debug)]
pub(super) struct Services {
    /// The thread ends when this is dropped.
    outside: mpsc::UnboundedSender<Outside>,
    reading: JoinHandle<()>,
}

impl Services {
    pub(super) fn start(machine: &Machine, admin: RestClient) -> Result<Self, TestError> {
        let (outside, mut asked) = mpsc::unbounded_channel::<Outside>();
        let routes = Arc::new(Mutex::new(Routes::default()));
        // The apiserver is on this machine's loopback interface, which the node's network has not.
        let reading = tokio::spawn(read(admin, Arc::clone(&routes)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        machine.network().thread(move || {
            runtime.block_on(async {
                let serving = tokio::spawn(serve(Arc::clone(&routes)));
                while let Some(asked) = asked.recv().await {
                    tokio::spawn(from_outside(asked, Arc::clone(&routes)));
                }
                serving.abort();
            });
        })?;
        Ok(Self { outside, reading })
    }

    /// Listens at a port of this machine that leads to a port of a Service, `namespace/name`, which
    /// need not exist yet.
    pub(super) fn open_service_port(
        &self,
        service: &str,
        port: u16,
    ) -> Result<SocketAddr, TestError> {
        let listener = bound_listener()?;
        let address = listener.local_addr()?;
        let sent = self.outside.send((listener, service.to_owned(), port));
        sent.map_err(|_| "the node's network has ended")?;
        Ok(address)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// A socket stays in the network in which it was made: this one is accepted from outside, and
/// connects inside.
async fn from_outside((listener, service, port): Outside, routes: Arc<Mutex<Routes>>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("the node is not reached from outside: {error}");
            return;
        }
    };
    while let Ok((client, _)) = listener.accept().await {
        let address = routes.lock().addresses.get(&service).copied();
        if let Some(address) = address {
            let to = SocketAddr::from((address, port));
            tokio::spawn(async move { drop(join(client, to).await) });
        }
    }
}

/// Polls the Services and their endpoints. A failure leaves the routes unchanged.
async fn read(admin: RestClient, routes: Arc<Mutex<Routes>>) {
    loop {
        let services = admin.get("/api/v1/services").await;
        let slices = admin.get("/apis/discovery.k8s.io/v1/endpointslices").await;
        if let (Ok(services), Ok(slices)) = (services, slices) {
            *routes.lock() = service_routes(&services, &slices);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The routes of all Services with an address of the cluster. A Service without a ready Pod has
/// none, so that connections to it are refused.
fn service_routes(services: &Value, slices: &Value) -> Routes {
    let mut routes = Routes::default();
    for service in items(services) {
        let Some(address) = service["spec"]["clusterIP"].as_str() else {
            continue;
        };
        let Ok(address) = address.parse::<Ipv4Addr>() else {
            continue;
        };
        let [namespace, name] = ["namespace", "name"]
            .map(|field| service["metadata"][field].as_str().unwrap_or_default());
        routes
            .addresses
            .insert(format!("{namespace}/{name}"), address);
        for port in array(&service["spec"]["ports"]) {
            let of_service = items(slices).filter(|slice| {
                slice["metadata"]["namespace"] == *namespace
                    && slice["metadata"]["labels"]["kubernetes.io/service-name"] == *name
            });
            let pods: Vec<SocketAddr> = of_service
                .flat_map(|slice| endpoints(slice, &port["name"]))
                .collect();
            let number = port["port"]
                .as_u64()
                .and_then(|port| u16::try_from(port).ok());
            if let (Some(number), false) = (number, pods.is_empty()) {
                routes.pods.insert((address, number).into(), pods);
            }
        }
    }
    routes
}

/// The ready addresses of a slice with the port of this name.
fn endpoints(slice: &Value, port_name: &Value) -> Vec<SocketAddr> {
    let name = port_name.as_str().unwrap_or_default();
    let port = array(&slice["ports"])
        .find(|port| port["name"].as_str().unwrap_or_default() == name)
        .and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    let Some(port) = port else {
        return Vec::new();
    };
    array(&slice["endpoints"])
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .flat_map(|endpoint| array(&endpoint["addresses"]))
        .filter_map(|address| Some((address.as_str()?.parse::<Ipv4Addr>().ok()?, port).into()))
        .collect()
}

/// Listens at the address of each route, while there is one.
async fn serve(routes: Arc<Mutex<Routes>>) {
    let mut listening: BTreeMap<SocketAddr, JoinHandle<()>> = BTreeMap::new();
    loop {
        let wanted: Vec<SocketAddr> = routes.lock().pods.keys().copied().collect();
        listening.retain(|address, task| {
            let kept = wanted.contains(address);
            if !kept {
                task.abort();
            }
            kept
        });
        for address in wanted {
            if listening.contains_key(&address) {
                continue;
            }
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let accepting = tokio::spawn(accept(listener, address, Arc::clone(&routes)));
                    listening.insert(address, accepting);
                }
                Err(error) => eprintln!("the node cannot listen at Service {address}: {error}"),
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn accept(listener: TcpListener, service: SocketAddr, routes: Arc<Mutex<Routes>>) {
    let next = AtomicUsize::new(0);
    while let Ok((client, _)) = listener.accept().await {
        let chosen = {
            let routes = routes.lock();
            let pods = routes
                .pods
                .get(&service)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let turn = next.fetch_add(1, Ordering::Relaxed);
            turn.checked_rem(pods.len())
                .and_then(|index| pods.get(index).copied())
        };
        if let Some(pod) = chosen {
            // If one side fails, the other side's connection is closed.
            tokio::spawn(async move { drop(join(client, pod).await) });
        }
    }
}

/// Passes bytes both ways until both sides have ended.
async fn join(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    array(&list["items"])
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_leads_to_the_ready_pods_of_its_port() {
        let services = json!({ "items": [
            {
                "metadata": { "namespace": "a", "name": "keyferry" },
                "spec": { "clusterIP": "10.96.0.9", "ports": [{ "name": "https", "port": 443 }] },
            },
            { "metadata": { "namespace": "a", "name": "headless" }, "spec": { "clusterIP": "None" } },
        ]});
        let slice = |name: &str, address: &str, ready: bool| {
            json!({
                "metadata": { "namespace": "a", "labels": { "kubernetes.io/service-name": name } },
                "ports": [{ "name": "https", "port": 9443 }],
                "endpoints": [{ "addresses": [address], "conditions": { "ready": ready } }],
            })
        };
        let slices = json!({ "items": [
            slice("keyferry", "10.244.0.2", true),
            slice("keyferry", "10.244.0.3", false),
            slice("other", "10.244.0.4", true),
        ]});
        let routes = service_routes(&services, &slices);
        let expected = ("10.96.0.9:443".parse(), "10.244.0.2:9443".parse());
        let (Ok(service), Ok(pod)) = expected else {
            panic!("no addresses");
        };
        assert_eq!(routes.pods, BTreeMap::from([(service, vec![pod])]));
        assert_eq!(routes.addresses.len(), 1, "{routes:?}");
        let none = json!({ "items": [slice("keyferry", "10.244.0.3", false)] });
        assert!(service_routes(&services, &none).pods.is_empty());
    }
}
