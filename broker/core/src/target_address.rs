//! Decides whether the server or a command may connect to an address of a target, its proxy or an
//! issuer.
//!
//! A TargetCluster can name any host, and Keyferry sends requests there. Without this check, an
//! address in it, or a DNS answer, could lead to the own host's services, a cloud's metadata
//! service or the hub's network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Metadata services outside the link-local ranges: Azure, Alibaba Cloud, Oracle Cloud, and the
/// IPv6 forms of AWS and of Google Cloud. The shipped NetworkPolicies except them too.
pub const METADATA_ADDRESSES: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
    // EKS Pod Identity.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254)),
];

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedAddress {
    /// A loopback address, which leads to the own host.
    Loopback,
    /// An unspecified address (0.0.0.0/8 or ::), which can lead to the own host.
    Unspecified,
    /// A link-local address, where clouds have their metadata services.
    LinkLocal,
    /// A metadata service of a cloud.
    Metadata,
    /// A multicast or reserved address, which no single host has.
    NoHost,
    /// A range of the hub's Services, or one that `--refuse-target-cidr` names.
    HubNetwork,
    /// An apiserver of the hub.
    HubApiserver,
}

impl RefusedAddress {
    /// The kind of address, for a sentence.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::Unspecified => "an unspecified address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::NoHost => "a multicast or reserved address",
            Self::HubNetwork => "an address in a network of the hub",
            Self::HubApiserver => "the address of an apiserver of the hub",
        }
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An address that is refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedDestination {
    /// The address to which nothing was sent.
    pub address: IpAddr,
    /// Why it is refused.
    pub kind: RefusedAddress,
}

impl RefusedDestination {
    /// The network that `--allow-target-cidr` would have to name; `None` if no target has such an
    /// address.
    #[must_use]
    pub fn network(self) -> Option<IpNet> {
        let address = embedded_ipv4(self.address).map_or(self.address, IpAddr::V4);
        match (self.kind, address) {
            (RefusedAddress::Loopback, IpAddr::V4(_)) => Some(IpNet::V4(LOOPBACK_NETWORK)),
            (
                RefusedAddress::Loopback
                | RefusedAddress::HubNetwork
                | RefusedAddress::HubApiserver,
                address,
            ) => Some(address.into()),
            _ => None,
        }
    }
}

impl fmt::Display for RefusedDestination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, kind } = self;
        write!(formatter, "{address}, {kind}, so nothing was sent")?;
        match self.network() {
            Some(network) => write!(
                formatter,
                "; if it is right, --allow-target-cidr {network} allows it"
            ),
            None => Ok(()),
        }
    }
}

const LOOPBACK_NETWORK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);

/// The networks that an admin or a user allows and refuses, from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Networks that may be connected to, whatever else holds.
    pub allowed: Arc<[IpNet]>,
    /// Networks that are refused besides those of [`RefusedAddress`], such as the hub's Pods.
    pub refused: Arc<[IpNet]>,
}

/// The hub's own networks, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubNetworks {
    /// The ranges of the hub's Services.
    pub services: Vec<IpNet>,
    /// The addresses of its apiservers.
    pub apiservers: Vec<IpAddr>,
}

impl AddressRules {
    /// Returns why an address is refused, or `None`.
    ///
    /// An IPv6 address that embeds an IPv4 address reaches the same host, so both are checked.
    pub fn refusal_of(&self, address: IpAddr, hub: &HubNetworks) -> Option<RefusedAddress> {
        let forms = [Some(address), embedded_ipv4(address).map(IpAddr::V4)];
        let forms = || forms.into_iter().flatten();
        let allowed = |form| self.allowed.iter().any(|network| network.contains(&form));
        if forms().any(allowed) {
            return None;
        }
        forms().find_map(|form| {
            if hub.apiservers.contains(&form) {
                return Some(RefusedAddress::HubApiserver);
            }
            let in_hub = |network: &IpNet| network.contains(&form);
            if hub.services.iter().any(in_hub) || self.refused.iter().any(in_hub) {
                return Some(RefusedAddress::HubNetwork);
            }
            special_address(form)
        })
    }

    /// Checks all addresses of a host. One refused address refuses the host: otherwise chance would
    /// decide which of them is used.
    pub fn check_addresses(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        hub: &HubNetworks,
    ) -> Result<(), RefusedDestination> {
        for address in addresses {
            if let Some(kind) = self.refusal_of(address, hub) {
                return Err(RefusedDestination { address, kind });
            }
        }
        Ok(())
    }

    /// Checks a host whose name only a proxy resolves. Refuses an address as above, and a name that
    /// means the proxy's own host.
    pub fn check_behind_proxy(
        &self,
        host: &str,
        hub: &HubNetworks,
    ) -> Result<(), RefusedDestination> {
        self.check_addresses(address_behind_proxy(host), hub)
    }
}

/// Returns the address that a host surely means to a proxy.
fn address_behind_proxy(host: &str) -> Option<IpAddr> {
    let bare = host.trim_matches(['[', ']']).trim_end_matches('.');
    if let Ok(address) = bare.parse() {
        return Some(address);
    }
    let local =
        bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost");
    local.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn special_address(address: IpAddr) -> Option<RefusedAddress> {
    if METADATA_ADDRESSES.contains(&address) {
        return Some(RefusedAddress::Metadata);
    }
    match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            if address.is_loopback() {
                Some(RefusedAddress::Loopback)
            } else if address.is_link_local() {
                Some(RefusedAddress::LinkLocal)
            } else if first == 0 {
                // RFC 1122: "this network". Linux connects 0.0.0.0 to itself.
                Some(RefusedAddress::Unspecified)
            } else if first >= 224 {
                // Multicast (224/4), reserved (240/4), and broadcast.
                Some(RefusedAddress::NoHost)
            } else {
                None
            }
        }
        IpAddr::V6(address) => {
            if address.is_loopback() {
                Some(RefusedAddress::Loopback)
            } else if address.is_unspecified() {
                Some(RefusedAddress::Unspecified)
            } else if address.is_unicast_link_local() {
                Some(RefusedAddress::LinkLocal)
            } else if address.is_multicast() {
                Some(RefusedAddress::NoHost)
            } else {
                None
            }
        }
    }
}

/// Returns the IPv4 address that an IPv6 address carries: IPv4-mapped and IPv4-compatible
/// (RFC 4291), translated (RFC 2765), NAT64 with the well-known prefix (RFC 6052) or the local one
/// (RFC 8215), 6to4 (RFC 3056), Teredo's client (RFC 4380) or ISATAP (RFC 5214).
fn embedded_ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let segments = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = of(segments[6], segments[7]);
    match segments {
        [0, 0, 0, 0, 0, 0, high, low] => (high != 0 || low > 1).then_some(last),
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x0064, 0xff9b, 0, 0, 0, 0, ..] => Some(last),
        _ if LOCAL_NAT64.contains(&address) => Some(last),
        [0x2002, high, low, ..] => Some(of(high, low)),
        // Teredo writes the client's address inverted.
        [0x2001, 0, .., high, low] => Some(of(!high, !low)),
        [_, _, _, _, 0x0000 | 0x0200, 0x5efe, ..] => Some(last),
        _ => None,
    }
}

/// RFC 8215. Operators choose the length of the prefix; the usual 96 bits leave the address last.
const LOCAL_NAT64: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0x0064, 0xff9b, 1, 0, 0, 0, 0, 0), 48);

#[cfg(test)]
mod tests;
