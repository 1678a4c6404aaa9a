//! The servers under test: processes that end when their values are dropped.

use std::net::SocketAddr;
use std::time::Duration;

use keyferry_integration::parts::PartError;

use super::peer;
use crate::harness::Outcome;
use crate::harness::empty_handler::{self, DOCUMENT_PATH};
use crate::harness::policy::Ports;
use crate::harness::server_process::ServerProcess;
use crate::harness::stage::Ground;
use crate::harness::tls_connection::{self, Size};

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
    process: ServerProcess,
}

impl Server {
    /// Starts Keyferry with the files of the ground.
    pub async fn keyferry(ground: &Ground, ports: Ports) -> Outcome<Self> {
        Ok(Self {
            name: "Keyferry",
            address: SocketAddr::from(([127, 0, 0, 1], ports.discovery)),
            keys: DOCUMENT_PATH,
            metadata: Some("/.well-known/openid-configuration"),
            process: ServerProcess::start_keyferry(ground, ports).await?,
        })
    }

    /// Starts an empty handler whose responses have the same length on the wire as these.
    pub async fn empty(ground: &Ground, like: Size) -> Outcome<Self> {
        let short = Self::empty_of(ground, 1).await?;
        let short = short.probe(ground, short.keys).await?;
        Self::empty_of(ground, empty_handler::body_length(like, short)).await
    }

    async fn empty_of(ground: &Ground, bytes: usize) -> Outcome<Self> {
        let (process, address) = empty_handler::serve_apart(ground, bytes).await?;
        Ok(Self {
            name: "empty handler",
            address,
            keys: DOCUMENT_PATH,
            metadata: None,
            process,
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
            process,
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
        self.process.id()
    }

    /// The request for one of its documents. SPIRE knows its domains by name.
    pub fn request(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    }

    /// Sends one request, to learn the size of the response.
    pub async fn probe(&self, ground: &Ground, path: &str) -> Outcome<Size> {
        let request = Self::request(path);
        tls_connection::probe(self.address, &ground.ca_pem, request.as_bytes()).await
    }
}
