//! The flags that say to which networks of targets and issuers a command connects.

use std::sync::Arc;

use clap::Args;
use futures::future::BoxFuture;
use ipnet::IpNet;
use keyferry_core::target_address::{AddressRules, HubNetworks};
use keyferry_hub::address_guard::AddressGuard;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::hub_networks::{self, ReadableNetworks};
use keyferry_hub::name_resolver::{NameResolver, SystemResolver};
use keyferry_hub::ports::{HubError, HubNetworkSource};
use tokio::sync::OnceCell;

use crate::{TARGET, ui};

/// The networks of targets, their proxies and issuers.
#[derive(Args, Clone, Debug, Default)]
pub struct AddressArgs {
    /// A network in which targets, their proxies and issuers may be, although Keyferry sends nothing
    /// there by default: loopback, link-local, the hub's Services or apiservers. Repeatable.
    #[arg(
        long,
        env = "KEYFERRY_ALLOW_TARGET_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = TARGET
    )]
    allow_target_cidr: Vec<IpNet>,
    /// A network to which Keyferry sends nothing, such as that of the hub's Pods. Repeatable.
    #[arg(
        long,
        env = "KEYFERRY_REFUSE_TARGET_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = TARGET
    )]
    refuse_target_cidr: Vec<IpNet>,
}

impl AddressArgs {
    /// The rules of the flags.
    pub fn rules(&self) -> AddressRules {
        AddressRules {
            allowed: self.allow_target_cidr.as_slice().into(),
            refused: self.refuse_target_cidr.as_slice().into(),
        }
    }

    /// Creates the guard of a command that has a hub. Its networks are read with the user's own
    /// rights, when the first address is checked.
    pub fn guard(&self, hub: HubAccess) -> AddressGuard {
        let networks = NetworksOfUser {
            hub,
            read: OnceCell::new(),
        };
        AddressGuard::new(self.rules(), Arc::new(networks), Arc::new(SystemResolver))
    }

    /// Creates the guard of a command that has no hub. It says once that no network of a hub is
    /// known, unless the user names some.
    pub fn guard_without_hub(&self) -> AddressGuard {
        let resolver: Arc<dyn NameResolver> = Arc::new(SystemResolver);
        let networks = NoHub {
            noted: OnceCell::new_with((!self.refuse_target_cidr.is_empty()).then_some(())),
        };
        AddressGuard::new(self.rules(), Arc::new(networks), resolver)
    }
}

/// No networks, because the command reads files and asks no hub.
struct NoHub {
    noted: OnceCell<()>,
}

impl HubNetworkSource for NoHub {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubError>> {
        Box::pin(async move {
            let note = self.noted.get_or_init(|| async {
                ui::note(
                    "no hub is asked, so addresses are not compared with its networks; fix: where \
                     this machine reaches them, name them with --refuse-target-cidr",
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
    read: OnceCell<HubNetworks>,
}

impl HubNetworkSource for NetworksOfUser {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubError>> {
        Box::pin(async move {
            let networks = self.read.get_or_init(|| async {
                let ReadableNetworks { networks, unread } = self.readable().await;
                if let Some(why) = unread {
                    ui::note(&format!(
                        "not all networks of the hub are known, so addresses were not compared \
                         with them: {}; fix: name its Service and Pod networks with \
                         --refuse-target-cidr",
                        ui::plain(&why)
                    ));
                }
                networks
            });
            Ok(networks.await.clone())
        })
    }
}

impl NetworksOfUser {
    async fn readable(&self) -> ReadableNetworks {
        let client = self.hub.config().await.and_then(HubClient::new);
        match client {
            Ok(client) => hub_networks::readable(&client, &SystemResolver).await,
            Err(error) => ReadableNetworks {
                networks: HubNetworks::default(),
                unread: Some(error.to_string()),
            },
        }
    }
}
