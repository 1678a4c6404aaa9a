//! Free loopback ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A TCP port on 127.0.0.1 that nothing listened on a moment ago.
///
/// Another process can take it before it is used: whoever starts a server on it looks at the server's log for
/// "address already in use" and asks again.
pub fn free_port() -> std::io::Result<u16> {
    Ok(bound_listener()?.local_addr()?.port())
}

/// A non-blocking listener on a port of its own, for servers that run in the test process.
pub fn bound_listener() -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
