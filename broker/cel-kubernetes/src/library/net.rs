//! Addresses and prefixes, as in Go's `netip`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use keyferry_go_formats::quote::quote;

use super::{Called, Context};
use crate::Minor;
use crate::value::Val;

/// An address without a zone, and not an IPv4 address mapped into IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip(IpAddr);

/// An address, and the length of its prefix in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix(Ip, u8);

impl Ip {
    fn parse(text: &str) -> Option<Self> {
        let address: IpAddr = text.parse().ok()?;
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        (!mapped).then_some(Self(address))
    }

    /// Returns the length in bytes, for costs.
    pub(crate) fn size(self) -> usize {
        usize::from(self.width() / 8)
    }

    fn width(self) -> u8 {
        if self.0.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the first bits, shifted to the right end.
    fn leading(self, bits: u8) -> u128 {
        let all = match self.0 {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => u128::from(v6),
        };
        all.checked_shr(u32::from(self.width() - bits.min(self.width())))
            .unwrap_or(0)
    }

    fn first_group(self) -> u16 {
        match self.0 {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) => v6.segments().first().copied().unwrap_or(0),
        }
    }

    fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(_) => self.first_group() & 0xffc0 == 0xfe80,
        }
    }

    fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
            IpAddr::V6(_) => self.first_group() & 0xff0f == 0xff02,
        }
    }

    fn is_global_unicast(self) -> bool {
        let excluded = self.0 == IpAddr::V4(Ipv4Addr::BROADCAST)
            || self.0.is_unspecified()
            || self.0.is_loopback();
        !(excluded || self.0.is_multicast() || self.is_link_local_unicast())
    }
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.rsplit_once('/')?;
        let ip = Ip::parse(address)?;
        let plain =
            bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
        let bits: u8 = bits.parse().ok().filter(|_| plain)?;
        (bits <= ip.width()).then_some(Self(ip, bits))
    }

    /// Returns the number of bytes that the prefix covers, for costs.
    pub(crate) fn size(self) -> usize {
        usize::from(self.1).div_ceil(8)
    }

    fn contains(self, ip: Ip) -> bool {
        self.0.width() == ip.width() && self.0.leading(self.1) == ip.leading(self.1)
    }

    /// Up to 1.31 the other prefix must begin at the same address.
    fn contains_prefix(self, other: Self, minor: Minor) -> bool {
        let near = if minor < Minor::V1_32 {
            self.masked().0 == other.0
        } else {
            self.contains(other.0)
        };
        self.1 <= other.1 && near
    }

    fn masked(self) -> Self {
        let left = self.0.width() - self.1;
        let bits = self
            .0
            .leading(self.1)
            .checked_shl(u32::from(left))
            .unwrap_or(0);
        let address = match self.0.0 {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(bits).unwrap_or_default().into()),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        };
        Self(Ip(address), self.1)
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

pub(super) fn call(overload: &str, args: &[Val], context: &Context<'_>) -> Option<Called> {
    let minor = context.minor;
    let bad_ip = |s: &str| {
        Val::error(format!(
            "IP Address {} parse error during conversion from string",
            quote(s)
        ))
    };
    let bad_prefix = |s: &str| {
        Val::error(format!(
            "network address parse error during conversion from string: {}",
            quote(s)
        ))
    };
    Some(Ok(match (overload, args) {
        ("string_to_ip", [Val::Str(s)]) => Ip::parse(s).map_or_else(|| bad_ip(s), Val::Ip),
        ("is_ip", [Val::Str(s)]) => Val::Bool(Ip::parse(s).is_some()),
        ("ip_is_canonical", [Val::Str(s)]) => {
            Ip::parse(s).map_or_else(|| bad_ip(s), |ip| Val::Bool(ip.to_string() == **s))
        }
        ("ip_family", [Val::Ip(ip)]) => Val::Int(if ip.width() == 32 { 4 } else { 6 }),
        ("ip_is_unspecified", [Val::Ip(ip)]) => Val::Bool(ip.0.is_unspecified()),
        ("ip_is_loopback", [Val::Ip(ip)]) => Val::Bool(ip.0.is_loopback()),
        ("ip_is_link_local_multicast", [Val::Ip(ip)]) => Val::Bool(ip.is_link_local_multicast()),
        ("ip_is_link_local_unicast", [Val::Ip(ip)]) => Val::Bool(ip.is_link_local_unicast()),
        ("ip_is_global_unicast", [Val::Ip(ip)]) => Val::Bool(ip.is_global_unicast()),
        ("string_to_cidr", [Val::Str(s)]) => {
            Prefix::parse(s).map_or_else(|| bad_prefix(s), Val::Prefix)
        }
        ("is_cidr", [Val::Str(s)]) => Val::Bool(Prefix::parse(s).is_some()),
        ("cidr_ip", [Val::Prefix(p)]) => Val::Ip(p.0),
        ("cidr_prefix_length", [Val::Prefix(p)]) => Val::Int(i64::from(p.1)),
        ("cidr_masked", [Val::Prefix(p)]) => Val::Prefix(p.masked()),
        ("cidr_contains_ip_ip", [Val::Prefix(p), Val::Ip(ip)]) => Val::Bool(p.contains(*ip)),
        ("cidr_contains_ip_string", [Val::Prefix(p), Val::Str(s)]) => {
            Ip::parse(s).map_or_else(Val::no_overload, |ip| Val::Bool(p.contains(ip)))
        }
        ("cidr_contains_cidr", [Val::Prefix(p), Val::Prefix(other)]) => {
            Val::Bool(p.contains_prefix(*other, minor))
        }
        ("cidr_contains_cidr_string", [Val::Prefix(p), Val::Str(s)]) => Prefix::parse(s)
            .map_or_else(Val::no_overload, |other| {
                Val::Bool(p.contains_prefix(other, minor))
            }),
        _ => return None,
    }))
}
