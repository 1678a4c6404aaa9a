//! Finds free loopback ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

/// The first port to use. Services on a developer's machine may start on lower ports at any time.
const FIRST: u16 = 12_000;
/// The first port that Linux uses for outgoing connections by default.
const USUAL_END: u16 = 32_768;
const TRIES: usize = 1_000;

/// Finds a TCP port on 127.0.0.1 that nothing listens on, for a server in another process and for
/// its restarts.
///
/// The port is below the kernel's range for outgoing connections, if that range leaves room. A
/// released port of that range may go to the next client's connection before the server can listen
/// on it. No other test gets this port while this process lives, but an unrelated program can still
/// take it.
///
/// # Errors
/// No port is free, or sockets are forbidden.
pub fn free_port() -> io::Result<u16> {
    let range = FIRST..first_outgoing().unwrap_or(USUAL_END);
    (0..TRIES)
        .find_map(|_| claim(any_of(&range)?))
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("no TCP port of {range:?} is free on 127.0.0.1"),
            )
        })
}

/// A non-blocking listener on a free port, for servers that run in the test process.
pub fn bound_listener() -> io::Result<TcpListener> {
    let listener = TcpListener::bind(loopback(0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Claims a port by binding the UDP port of the same number. The kernel allows this once, and frees
/// the port when the process ends in any way.
fn claim(port: u16) -> Option<u16> {
    let claim = UdpSocket::bind(loopback(port)).ok()?;
    TcpListener::bind(loopback(port)).ok()?;
    std::mem::forget(claim);
    Some(port)
}

/// A random port, not the next one: processes that start together would try the same ports in
/// order.
fn any_of(range: &Range<u16>) -> Option<u16> {
    let mut bytes = [0; 2];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    range
        .clone()
        .nth(usize::from(u16::from_ne_bytes(bytes)) % range.len())
}

/// The first port that this machine's kernel uses for outgoing connections, if the kernel reports
/// it (Linux) and there is room below.
fn first_outgoing() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range
        .split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|first| *first > FIRST)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let given: BTreeSet<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        assert_eq!(given.len(), 200);
    }

    #[test]
    fn no_outgoing_connection_takes_a_port_that_was_given() {
        let port = free_port().unwrap();
        assert!(
            first_outgoing().is_none_or(|first| port < first),
            "{port} is one that the kernel picks from"
        );
    }

    #[test]
    fn a_port_that_is_listened_on_is_not_given() {
        let listener = bound_listener().unwrap();
        assert_eq!(claim(listener.local_addr().unwrap().port()), None);
    }
}
