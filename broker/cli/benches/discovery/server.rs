//! The servers under test: processes that end when their values are dropped.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use keyferry_integration::parts::PartError;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::empty::{self, Order};
use super::keyferry_process::Keyferry;
use super::peer;
use super::policy::Ports;
use super::stage::Ground;
use super::tls_connection::{self, Size, TlsConnection};
use crate::Outcome;

const READY: Duration = Duration::from_secs(15);

/// A running server.
pub struct Server {
    /// Its name in the tables.
    pub name: &'static str,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The path of its keys.
    pub keys: &'static str,
    /// The path of its provider metadata, if it has any.
    pub metadata: Option<&'static str>,
    process: Running,
}

enum Running {
    Keyferry(Keyferry),
    Other(Other),
}

/// Another server's process, which is killed when dropped.
pub struct Other(pub Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts Keyferry with the files of the ground.
    pub async fn keyferry(ground: &Ground, ports: Ports) -> Outcome<Self> {
        Ok(Self {
            name: "Keyferry",
            address: SocketAddr::from(([127, 0, 0, 1], ports.discovery)),
            keys: "/openid/v1/jwks",
            metadata: Some("/.well-known/openid-configuration"),
            process: Running::Keyferry(Keyferry::start(ground, ports).await?),
        })
    }

    /// Starts an empty handler whose responses have the same length on the wire as these.
    pub async fn empty(ground: &Ground, like: Size) -> Outcome<Self> {
        let short = Self::empty_of(ground, 1).await?;
        let head = short.probe(ground, short.keys).await?;
        let total = like.head + like.body;
        // The header with the length of the body may itself need more digits.
        let digits = total.to_string().len() - head.body.to_string().len();
        Self::empty_of(ground, total - head.head - digits).await
    }

    async fn empty_of(ground: &Ground, bytes: usize) -> Outcome<Self> {
        let order = Order {
            certificate: ground.file("tls.crt"),
            key: ground.file("tls.key"),
            bytes,
        };
        let orders = ground.file("empty.json");
        std::fs::write(&orders, serde_json::to_vec(&order)?)?;
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command
            .arg(empty::SERVE)
            .stdin(std::fs::File::open(orders)?)
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = child
            .stdout
            .take()
            .ok_or("the empty handler has no output")?;
        let process = Other(child);
        let mut lines = BufReader::new(tokio::process::ChildStdout::from_std(said)?).lines();
        let line = tokio::time::timeout(READY, lines.next_line())
            .await
            .map_err(|_| "the empty handler did not start")??;
        let address = line.ok_or("the empty handler said nothing")?.parse()?;
        Ok(Self {
            name: "empty handler",
            address,
            keys: "/openid/v1/jwks",
            metadata: None,
            process: Running::Other(process),
        })
    }

    /// Starts SPIRE's provider with the same keys, or returns why it is unavailable.
    pub async fn spire(ground: &Ground, keys: &[u8]) -> Outcome<Result<Self, PartError>> {
        let program = match peer::locate().await {
            Ok(program) => program,
            Err(missing @ PartError::Unavailable { .. }) => return Ok(Err(missing)),
            Err(error) => return Err(error.into()),
        };
        let (process, address) = peer::start(&program, ground, keys)?;
        let server = Self {
            name: peer::NAME,
            address,
            keys: "/keys",
            metadata: Some("/.well-known/openid-configuration"),
            process: Running::Other(process),
        };
        let ready = async {
            while server.probe(ground, server.keys).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(READY, ready)
            .await
            .map_err(|_| "SPIRE's provider did not become ready")?;
        Ok(Ok(server))
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        match &self.process {
            Running::Keyferry(keyferry) => keyferry.id(),
            Running::Other(other) => other.0.id(),
        }
    }

    /// The request for one of its documents. SPIRE knows its domains by name.
    pub fn request(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    }

    /// Sends one request, to learn the size of the response.
    pub async fn probe(&self, ground: &Ground, path: &str) -> Outcome<Size> {
        let mut connection =
            TlsConnection::open(self.address, tls_connection::trusting(&ground.ca_pem)?).await?;
        connection.ask(Self::request(path).as_bytes()).await
    }
}
