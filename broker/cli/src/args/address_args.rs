//! The flags that say to which networks of targets and issuers a command connects.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use futures::future::BoxFuture;
use ipnet::IpNet;
use keyferry_core::target_address::{AddressRules, HubNetworks};
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::hub_networks::{self, ReadableNetworks};
use keyferry_platform::address_guard::{AddressGuard, HubNetworkSource, HubNetworksUnread};
use keyferry_platform::name_resolver::{NameResolver, SystemResolver};
use tokio::sync::OnceCell;

use crate::args::TARGET;
use crate::ui;

/// The networks of targets, their proxies and issuers.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AddressArgs {
    /// A network in which targets may be although it is refused by default (may be repeated)
    ///
    /// Keyferry sends nothing to loopback, link-local, or the hub's Services or apiservers by
    /// default. The flag is for targets, their proxies and issuers.
    #[arg(
        long,
        env = "KEYFERRY_ALLOW_TARGET_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = TARGET, hide_short_help = true)]
    allow_target_cidr: Vec<IpNet>,
    /// A network to which Keyferry sends nothing, such as that of the hub's Pods (may be repeated)
    #[arg(
        long,
        env = "KEYFERRY_REFUSE_TARGET_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = TARGET, hide_short_help = true)]
    refuse_target_cidr: Vec<IpNet>,
}

impl AddressArgs {
    /// The rules of the flags.
    pub(crate) fn rules(&self) -> AddressRules {
        AddressRules {
            allowed: self.allow_target_cidr.as_slice().into(),
            refused: self.refuse_target_cidr.as_slice().into(),
        }
    }

    /// Creates the guard of a command that has a hub. Its networks are read with the user's own
    /// rights, when the first address is checked.
    pub(crate) fn guard(&self, hub: HubAccess) -> AddressGuard {
        let resolver = Arc::new(WatchedResolver::default());
        let networks = NetworksOfUser {
            hub,
            read: OnceCell::new(),
            noted: OnceCell::new(),
            resolver: Arc::clone(&resolver),
        };
        AddressGuard::new(self.rules(), Arc::new(networks), resolver)
    }

    /// Creates the guard of a command that has no hub. It says once that no network of a hub is
    /// known, unless the user names some.
    pub(crate) fn guard_without_hub(&self) -> AddressGuard {
        let resolver = Arc::new(WatchedResolver::default());
        let networks = NoHub {
            noted: OnceCell::new_with((!self.refuse_target_cidr.is_empty()).then_some(())),
            resolver: Arc::clone(&resolver),
        };
        AddressGuard::new(self.rules(), Arc::new(networks), resolver)
    }
}

/// Resolves names, and remembers whether an address was in a private network. Only such an address
/// can be in a network of the hub.
#[derive(Default)]
struct WatchedResolver {
    saw_private: AtomicBool,
}

impl WatchedResolver {
    fn saw_private(&self) -> bool {
        self.saw_private.load(Ordering::Relaxed)
    }
}

impl NameResolver for WatchedResolver {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            let addresses = SystemResolver.addresses(host, port).await;
            if addresses.iter().any(|address| is_private(address.ip())) {
                self.saw_private.store(true, Ordering::Relaxed);
            }
            addresses
        })
    }
}

/// Whether an address is in a network that is not routed in the internet (RFC 1918, RFC 6598, RFC
/// 4193), and that a hub can have. None has a loopback or a link-local network.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let shared = first == 100 && (64..128).contains(&second);
            address.is_private() || shared
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// No networks, because the command reads files and asks no hub.
struct NoHub {
    noted: OnceCell<()>,
    resolver: Arc<WatchedResolver>,
}

impl HubNetworkSource for NoHub {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        Box::pin(async move {
            if !self.resolver.saw_private() {
                return Ok(HubNetworks::default());
            }
            let note = self.noted.get_or_init(|| async {
                ui::note_with_fix(
                    "no hub is asked, so addresses are not compared with its networks",
                    "where this machine reaches them, name them with --refuse-target-cidr",
                );
            });
            note.await;
            Ok(HubNetworks::default())
        })
    }
}

/// The networks of the user's hub, as far as the user may read them.
struct NetworksOfUser {
    hub: HubAccess,
    read: OnceCell<ReadableNetworks>,
    noted: OnceCell<()>,
    resolver: Arc<WatchedResolver>,
}

impl HubNetworkSource for NetworksOfUser {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        Box::pin(async move {
            let read = self.read.get_or_init(|| self.readable()).await;
            if let Some(why) = read.unread.as_ref().filter(|_| self.resolver.saw_private()) {
                let note = self.noted.get_or_init(|| async {
                    ui::note_with_fix(
                        &format!(
                            "not all networks of the hub are known, so a private address was \
                             compared only with some: {}",
                            ui::plain(why)
                        ),
                        "name the hub's Service and Pod networks with --refuse-target-cidr",
                    );
                });
                note.await;
            }
            Ok(read.networks.clone())
        })
    }
}

impl NetworksOfUser {
    async fn readable(&self) -> ReadableNetworks {
        let client = self.hub.config().await.and_then(HubClient::new);
        match client {
            Ok(client) => hub_networks::readable_networks(&client, &SystemResolver).await,
            Err(error) => ReadableNetworks {
                networks: HubNetworks::default(),
                unread: Some(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::is_private;

    #[test]
    fn only_addresses_that_a_hub_can_have_are_private() {
        for private in [
            "10.0.0.1",
            "172.16.3.4",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for other in [
            "203.0.113.1",
            "8.8.8.8",
            "100.128.0.1",
            "2001:db8::7",
            "127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "::1",
        ] {
            assert!(!is_private(other.parse().unwrap()), "{other}");
        }
    }
}
