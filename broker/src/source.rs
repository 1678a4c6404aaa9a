//! Where a connection comes from, as far as limits go.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One source of connections: an IPv4 address, or the /64 of an IPv6 address.
///
/// A host usually has a whole /64, so a limit per IPv6 address would be no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl Source {
    /// The source of a connection from `address`.
    pub fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(address) => Source(IpAddr::V4(address)),
            IpAddr::V6(address) => Source(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))),
        }
    }
}

impl Default for Source {
    /// A source that is no host's: for what comes from no connection.
    fn default() -> Source {
        Source(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Source;

    #[test]
    fn an_ipv6_host_is_its_network_and_an_ipv4_host_itself() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
        assert_eq!(source("192.0.2.1").to_string(), "192.0.2.1");
    }
}
