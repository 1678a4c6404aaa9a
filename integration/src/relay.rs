//! A TCP relay in front of a server. It can force all clients to connect again, as when a load
//! balancer is replaced.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ports::bound_listener;

/// A connection is quiet when nothing has moved for this long after the server's last bytes: then
/// no client waits for an answer on it.
const QUIET: Duration = Duration::from_secs(1);
/// The same after the client's last bytes. The client may have sent a request that a busy server
/// answers late. Two Kustomizations that reconcile every five seconds on one connection leave a
/// pause of this length, and not a much longer one.
const ASKED: Duration = Duration::from_secs(2);

/// A running relay. Dropping it ends it, and also its open connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    connections: Arc<Connections>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Connections {
    accepted: AtomicU64,
    clients: Mutex<BTreeSet<IpAddr>>,
    /// The connections since the last [`Relay::renew`] listen to this: `true` asks them to end.
    present: Mutex<watch::Sender<bool>>,
}

impl Relay {
    /// Starts a relay in front of a port of this machine.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn in_front_of(port: u16) -> io::Result<Self> {
        Self::listening(bound_listener()?, port)
    }

    /// As [`Self::in_front_of`], at a non-blocking listener, which may be in another network
    /// namespace.
    ///
    /// # Errors
    /// As [`Self::in_front_of`].
    pub fn listening(listener: std::net::TcpListener, port: u16) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Connections::default());
        let counted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((client, peer)) = listener.accept().await {
                let end = counted.accept(peer.ip());
                tokio::spawn(async move {
                    // Either side may break off at any time. The other side then sees its
                    // connection end, so there is no error to report.
                    let _ = relay(client, port, end).await;
                });
            }
        });
        Ok(Self {
            address,
            connections,
            accepting,
        })
    }

    /// `https://<address>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections so far.
    pub fn accepted(&self) -> u64 {
        self.connections.accepted.load(Ordering::Relaxed)
    }

    /// The addresses of all clients so far.
    pub fn client_addresses(&self) -> BTreeSet<IpAddr> {
        self.connections.clients.lock().clone()
    }

    /// Ends each open connection once it is quiet, and returns when all of them have ended. New
    /// connections are accepted at any time.
    pub async fn renew(&self) {
        let before = std::mem::take(&mut *self.connections.present());
        before.send_replace(true);
        before.closed().await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Connections {
    fn accept(&self, client: IpAddr) -> watch::Receiver<bool> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().insert(client);
        self.present().subscribe()
    }

    fn present(&self) -> parking_lot::MutexGuard<'_, watch::Sender<bool>> {
        self.present.lock()
    }
}

async fn relay(mut client: TcpStream, port: u16, mut end: watch::Receiver<bool>) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut quiet = QUIET;
    loop {
        let ending = *end.borrow_and_update();
        // Read available bytes before judging the pause, which may have passed while this task was
        // not running.
        let (bytes, destination) = tokio::select! {
            biased;
            read = from_client.read(&mut up) => {
                quiet = ASKED;
                (up.get(..read?), &mut to_server)
            }
            read = from_server.read(&mut down) => {
                quiet = QUIET;
                (down.get(..read?), &mut to_client)
            }
            asked = end.changed() => match asked {
                Ok(()) => continue,
                Err(_) => return Ok(()),
            },
            () = tokio::time::sleep(quiet), if ending => return Ok(()),
        };
        match bytes {
            Some(bytes) if !bytes.is_empty() => destination.write_all(bytes).await?,
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn talk(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
        let mut word = [0; 4];
        client.write_all(b"ping").await?;
        server.read_exact(&mut word).await?;
        server.write_all(b"pong").await?;
        client.read_exact(&mut word).await?;
        assert_eq!(&word, b"pong");
        Ok(())
    }

    #[tokio::test]
    async fn what_stands_ends_when_it_is_quiet_and_not_before() -> io::Result<()> {
        let listener = TcpListener::from_std(bound_listener()?)?;
        let relay = Relay::in_front_of(listener.local_addr()?.port())?;
        let mut client = TcpStream::connect(relay.address).await?;
        let (mut server, _) = listener.accept().await?;
        talk(&mut client, &mut server).await?;
        let mut ended = Box::pin(relay.renew());
        // Longer than the quiet period in total, with each pause much shorter.
        for _ in 0..15 {
            assert!(
                tokio::time::timeout(QUIET / 10, &mut ended).await.is_err(),
                "ended while it was in use"
            );
            talk(&mut client, &mut server).await?;
        }
        tokio::time::timeout(Duration::from_secs(10), &mut ended).await?;
        drop(ended);
        assert_eq!(client.read(&mut [0; 4]).await?, 0, "in good order");
        let mut client = TcpStream::connect(relay.address).await?;
        let (mut server, _) = listener.accept().await?;
        talk(&mut client, &mut server).await?;
        assert_eq!(relay.accepted(), 2);
        drop(relay);
        assert_eq!(client.read(&mut [0; 4]).await?, 0);
        Ok(())
    }
}
