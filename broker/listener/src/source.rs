//! The source of a connection, for limits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefix with which a NAT64 presents IPv4 clients to an IPv6 server (RFC 6052).
const NAT64_PREFIX: u128 = 0x0064_ff9b << 96;

/// One source of connections: an address, or the /64 of an IPv6 address.
///
/// On the internet a host usually has a whole /64, so a limit per IPv6 address would be no limit
/// there. In a cluster the Pods of a node often share one, so a limit per /64 alone would let one
/// Pod lock out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(Counted);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Counted {
    Address(IpAddr),
    Network(Ipv6Addr),
}

impl Source {
    /// The source for a single address. An IPv4-mapped or NAT64 address counts as its IPv4 address.
    pub fn of_address(address: IpAddr) -> Self {
        Self(Counted::Address(match address.to_canonical() {
            IpAddr::V6(address) if address.to_bits() >> 32 == NAT64_PREFIX >> 32 => {
                let [.., a, b, c, d] = address.octets();
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            address => address,
        }))
    }

    /// Returns the /64 of an IPv6 address; an IPv4 address stays as it is.
    pub fn network(self) -> Self {
        match self.0 {
            Counted::Address(IpAddr::V6(address)) => Self(Counted::Network(Ipv6Addr::from_bits(
                address.to_bits() & (u128::MAX << 64),
            ))),
            _ => self,
        }
    }
}

impl Default for Source {
    /// A source for requests without a connection; no host has this address.
    fn default() -> Self {
        Self(Counted::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Counted::Address(address) => write!(f, "{address}"),
            Counted::Network(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Source;

    fn source(text: &str) -> Source {
        Source::of_address(text.parse().unwrap())
    }

    #[test]
    fn each_address_is_a_source_and_so_is_each_network() {
        assert_ne!(source("2001:db8::1"), source("2001:db8::2"));
        assert_eq!(
            source("2001:db8::1").network(),
            source("2001:db8::ffff:2").network()
        );
        assert_ne!(
            source("2001:db8::1").network(),
            source("2001:db8:0:1::1").network()
        );
        assert_ne!(source("2001:db8::").network(), source("2001:db8::"));
        assert_eq!(source("192.0.2.1").network(), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(
            source("2001:db8:1:2:3:4:5:6").to_string(),
            "2001:db8:1:2:3:4:5:6"
        );
        assert_eq!(
            source("2001:db8:1:2:3:4:5:6").network().to_string(),
            "2001:db8:1:2::/64"
        );
        assert_eq!(source("192.0.2.1").to_string(), "192.0.2.1");
    }

    #[test]
    fn an_ipv4_client_is_itself_however_its_address_is_written() {
        for text in ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1"] {
            assert_eq!(source(text), source("192.0.2.1"), "{text}");
            assert_eq!(source(text).network().to_string(), "192.0.2.1", "{text}");
        }
        assert_ne!(
            source("64:ff9b::192.0.2.1").network(),
            source("64:ff9b::192.0.2.2").network()
        );
        assert_eq!(
            source("64:ff9b:0:0:0:1:c000:201").to_string(),
            "64:ff9b::1:c000:201",
            "it is not in the /96"
        );
    }
}
