//! Resolves the names of hosts.

use std::net::SocketAddr;

use futures::future::BoxFuture;

/// Finds the addresses of a host.
pub trait NameResolver: Send + Sync {
    /// Returns every address of a name or an address as text; none if it does not resolve.
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>>;
}

/// The resolver of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            tokio::net::lookup_host((host, port))
                .await
                .map(Iterator::collect)
                .unwrap_or_default()
        })
    }
}
