//! One keep-alive HTTP/1.1 connection over TLS. It does as little work as possible, because the
//! client shares the machine with the server.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore};
use tokio::net::TcpStream;

use super::Outcome;

/// A keep-alive HTTP/1.1 connection over TLS.
pub struct TlsConnection {
    stream: TcpStream,
    tls: ClientConnection,
    answer: Vec<u8>,
}

/// The size of one response on the wire, before encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The length of the status line and the headers, with the empty line.
    pub head: usize,
    /// The length of the body.
    pub body: usize,
}

/// A TLS configuration that trusts this CA alone, and has no certificate of its own.
pub fn trusting(ca_pem: &str) -> Outcome<Arc<ClientConfig>> {
    Ok(Arc::new(
        configuration_trusting(ca_pem)?.with_no_client_auth(),
    ))
}

/// The beginning of a TLS configuration that trusts this CA alone.
pub fn configuration_trusting(
    ca_pem: &str,
) -> Outcome<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|_| "the CA is not PEM")?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

/// The size of the response to one request on a new connection.
pub async fn probe(address: SocketAddr, ca_pem: &str, request: &[u8]) -> Outcome<Size> {
    let mut connection = TlsConnection::open(address, trusting(ca_pem)?).await?;
    connection.ask(request).await
}

impl TlsConnection {
    /// Connects and completes the handshake.
    pub async fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Outcome<Self> {
        Self::over(TcpStream::connect(address).await?, config).await
    }

    /// Completes the handshake over a connected socket.
    pub async fn over(stream: TcpStream, config: Arc<ClientConfig>) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        let server = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let tls = ClientConnection::new(config, server)?;
        let mut connection = Self {
            stream,
            tls,
            answer: Vec::with_capacity(16 * 1024),
        };
        while connection.tls.is_handshaking() {
            connection.flush().await?;
            if connection.tls.is_handshaking() {
                connection.receive().await?;
            }
        }
        connection.flush().await?;
        Ok(connection)
    }

    /// Sends a request and reads the whole response. Any status except 200 is an error.
    pub async fn ask(&mut self, request: &[u8]) -> Outcome<Size> {
        self.send(request).await?;
        self.answer().await
    }

    /// Sends a request, reads the whole response and returns its status.
    pub async fn ask_status(&mut self, request: &[u8]) -> Outcome<u16> {
        self.send(request).await?;
        Ok(self.whole_answer().await?.0)
    }

    /// Sends a request, or a part of one.
    pub async fn send(&mut self, part: &[u8]) -> Outcome<()> {
        self.tls.writer().write_all(part)?;
        self.flush().await
    }

    /// Reads one whole response. Any status except 200 is an error.
    pub async fn answer(&mut self) -> Outcome<Size> {
        let (status, size) = self.whole_answer().await?;
        if status != 200 {
            let body = String::from_utf8_lossy(self.answer.get(size.head..).unwrap_or_default());
            return Err(format!("a request was answered with {status}: {body}").into());
        }
        Ok(size)
    }

    /// Reads one whole response, and returns its status.
    async fn whole_answer(&mut self) -> Outcome<(u16, Size)> {
        self.answer.clear();
        loop {
            self.receive_text().await?;
            if let Some(complete) = complete(&self.answer)? {
                return Ok(complete);
            }
        }
    }

    /// Returns the statuses of the responses that one read completes, after requests that were sent
    /// together.
    pub async fn next_statuses(&mut self) -> Outcome<Vec<u16>> {
        self.receive_text().await?;
        let mut statuses = Vec::new();
        while let Some((status, size)) = complete(&self.answer)? {
            self.answer.drain(..size.head + size.body);
            statuses.push(status);
        }
        Ok(statuses)
    }

    async fn flush(&mut self) -> Outcome<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Appends what the server sends next.
    async fn receive_text(&mut self) -> Outcome<()> {
        self.receive().await?;
        let mut chunk = [0; 8192];
        while let Some(bytes) = read_some(&mut self.tls, &mut chunk)? {
            self.answer.extend_from_slice(bytes);
        }
        Ok(())
    }

    async fn receive(&mut self) -> Outcome<()> {
        loop {
            self.stream.readable().await?;
            match self.tls.read_tls(&mut Socket(&self.stream)) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(_) => {
                    self.tls.process_new_packets()?;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn read_some<'a>(tls: &mut ClientConnection, chunk: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    match tls.reader().read(chunk) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(chunk.get(..count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The status and the size of the response, once all of it has arrived.
fn complete(answer: &[u8]) -> Outcome<Option<(u16, Size)>> {
    let Some(head) = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4)
    else {
        return Ok(None);
    };
    let text = std::str::from_utf8(answer.get(..head).unwrap_or_default())?;
    let status = text.split(' ').nth(1).ok_or("an answer has no status")?;
    let status = status.parse()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    let (_, length) = fields
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .ok_or("an answer has no length")?;
    let body: usize = length.parse()?;
    Ok((answer.len() >= head + body).then_some((status, Size { head, body })))
}

/// The socket with the traits that rustls requires.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
