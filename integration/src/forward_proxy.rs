//! A forward proxy between a client and its server: HTTP CONNECT and SOCKS 5 on one port. It records
//! where clients want to go, and leads every name to this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::ports::bound_listener;

const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A running proxy. Dropping it ends it; connections that are open stay open.
#[derive(Debug)]
pub struct ForwardProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl ForwardProxy {
    /// Starts a proxy. With credentials, as `user:password`, it serves CONNECT with them alone.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start(credentials: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::from_std(bound_listener()?)?;
        let address = listener.local_addr()?;
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let recorded = Arc::clone(&asked);
        let wanted = credentials.map(|pair| format!("Basic {}", STANDARD.encode(pair)));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (recorded, wanted) = (Arc::clone(&recorded), wanted.clone());
                tokio::spawn(async move {
                    // The client sees a connection that ends, and the record has what it wanted.
                    let _ = serve(client, &recorded, wanted.as_deref()).await;
                });
            }
        });
        Ok(Self {
            address,
            asked,
            accepting,
        })
    }

    /// `<host>:<port>`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked for: `CONNECT host:port` or `SOCKS host:port`, `407 host:port` for a CONNECT
    /// with other credentials, and `? …` for anything else. Sorted, each once.
    pub fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().clone();
        asked.sort();
        asked.dedup();
        asked
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    asked: &Mutex<Vec<String>>,
    wanted: Option<&str>,
) -> io::Result<()> {
    let first = client.read_u8().await?;
    let (host, port, answer) = if first == 5 {
        let (host, port) = read_socks(&mut client).await?;
        asked.lock().push(format!("SOCKS {host}:{port}"));
        (host, port, b"\x05\0\0\x01\0\0\0\0\0\0".as_slice())
    } else {
        let head = read_head(&mut client, first).await?;
        let line = head.lines().next().unwrap_or_default();
        let place = line.strip_prefix("CONNECT ").and_then(|rest| {
            let (host, port) = rest.split(' ').next()?.rsplit_once(':')?;
            Some((host.to_owned(), port.parse::<u16>().ok()?))
        });
        let Some((host, port)) = place else {
            asked.lock().push(format!("? {line}"));
            return Err(io::ErrorKind::InvalidData.into());
        };
        let given = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("proxy-authorization")
                .then(|| value.trim())
        });
        if wanted.is_some() && given != wanted {
            asked.lock().push(format!("407 {host}:{port}"));
            let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
            return client.write_all(refusal).await;
        }
        asked.lock().push(format!("CONNECT {host}:{port}"));
        (host, port, b"HTTP/1.1 200 OK\r\n\r\n".as_slice())
    };
    let host = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let address = host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut server = TcpStream::connect((address, port)).await?;
    client.write_all(answer).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn read_head(client: &mut TcpStream, first: u8) -> io::Result<String> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(client.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads the rest of a handshake without credentials (RFC 1928), up to the place in its request.
async fn read_socks(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let mut methods = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut methods).await?;
    client.write_all(&[5, 0]).await?;
    // Version, command and a reserved byte.
    client.read_exact(&mut [0; 3]).await?;
    let host = match client.read_u8().await? {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        4 => Ipv6Addr::from(client.read_u128().await?).to_string(),
        _ => {
            let mut name = vec![0; usize::from(client.read_u8().await?)];
            client.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
    };
    Ok((host, client.read_u16().await?))
}
