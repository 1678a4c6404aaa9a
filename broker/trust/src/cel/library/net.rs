//! Not evaluated yet.

use std::fmt;

use super::super::value::Val;
use super::{Called, Context};

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct Ip(std::net::IpAddr);

/// A prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct Prefix(Ip, u8);

impl Ip {
    pub(in crate::cel) fn size(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}

impl Prefix {
    pub(in crate::cel) fn size(self) -> usize {
        self.0.size()
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

pub(super) fn call(_overload: &str, _args: &[Val], _context: &Context<'_>) -> Option<Called> {
    None
}
