//! The token API and an empty handler behind Keyferry's own TLS listener, in a thread of their own,
//! and a client that blocks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use axum::routing::any;
use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_listener::{Bounds, TlsListener};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::audit::AuditLog;
use keyferry_server::http::listener::{self, CertificateAccess};
use keyferry_testing::Authority;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedSender;
use tower::ServiceExt;

use super::counted::mark_of_a_part;
use crate::subjects;
use crate::subjects::exchange::{self, Forms};

/// What a client needs to know of the server.
pub struct Served {
    pub exchange: SocketAddr,
    pub empty: SocketAddr,
    /// A complete request, with the caller's token as `subject_token`.
    pub subject_token: Vec<u8>,
    /// The same with the token as `client_assertion`.
    pub client_assertion: Vec<u8>,
    /// A token that was issued, for what only needs its length.
    pub token: String,
    ca_pem: String,
    marks: UnboundedSender<mpsc::Sender<()>>,
}

impl Served {
    /// Ends a part of the thread that serves.
    pub fn mark(&self) {
        let (sender, receiver) = mpsc::channel();
        self.marks.send(sender).unwrap();
        receiver.recv().unwrap();
    }

    /// Starts the server, which runs until the process ends.
    pub fn start() -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(serve(&sender));
        });
        receiver.recv().unwrap()
    }
}

/// The audit log that `keyferry serve` writes, in a file without a name.
pub fn audit_log() -> Arc<dyn AuditSink> {
    Arc::new(AuditLog::to_sink(tempfile::tempfile().unwrap()))
}

async fn serve(sender: &mpsc::Sender<Served>) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("counts CA").unwrap();
    let identity = authority.server_identity(&["127.0.0.1"]).unwrap();
    std::fs::write(folder.path().join("tls.crt"), &identity.certificate_pem).unwrap();
    std::fs::write(
        folder.path().join("tls.key"),
        identity.key_pem.expose_secret(),
    )
    .unwrap();
    let world = subjects::start_world().await;
    let forms = Forms::new(&world);
    let routes = exchange::routes(&world, audit_log());
    let (token, length) = first_answer(&routes, &forms.subject_token).await;
    let body = Bytes::from(vec![b'x'; length]);
    let handler = any(async move |_: Bytes| Response::new(Body::from(body.clone())));
    let empty_routes = Router::new().route(exchange::PATH, handler);
    let (token_api, empty) = (bind(&folder).await, bind(&folder).await);
    let (marks, mut requested) = tokio::sync::mpsc::unbounded_channel::<mpsc::Sender<()>>();
    tokio::spawn(async move {
        while let Some(done) = requested.recv().await {
            mark_of_a_part(2);
            done.send(()).unwrap();
        }
    });
    let served = Served {
        marks,
        exchange: token_api.address().unwrap(),
        empty: empty.address().unwrap(),
        subject_token: request(&forms.subject_token),
        client_assertion: request(&forms.client_assertion),
        token,
        ca_pem: authority.ca_pem().to_owned(),
    };
    let stream = || ReloadSignal::never().into_stream();
    tokio::spawn(empty.serve(empty_routes, stream()));
    sender.send(served).unwrap();
    token_api.serve(routes, stream()).await.unwrap();
}

/// Exchanges once without a listener. Returns the token, and the length of a body with which an
/// answer without the exchange's headers is as long.
async fn first_answer(routes: &Router, form: &str) -> (String, usize) {
    let request = Request::post(exchange::PATH)
        .header("content-type", exchange::MEDIA_TYPE)
        .body(Body::from(form.to_owned()))
        .unwrap();
    let answer = routes.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let headers: usize = answer
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
    let response: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let token = response["access_token"].as_str().unwrap().to_owned();
    (token, body.len() + headers)
}

async fn bind(folder: &TempDir) -> TlsListener {
    let files = TlsFiles {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: TlsSource::Files(files),
        min_version: TlsVersion::default(),
        connections_per_address: None,
    };
    let access = CertificateAccess::default();
    listener::bind_listener(
        &listener,
        Bounds::TOKENS,
        None,
        &access,
        &Metrics::default(),
    )
    .await
    .unwrap()
}

fn request(form: &str) -> Vec<u8> {
    format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n{form}",
        exchange::PATH,
        exchange::MEDIA_TYPE,
        form.len()
    )
    .into_bytes()
}

/// A connection that a client keeps.
pub struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to one of the server's listeners.
    pub fn open(served: &Served, address: SocketAddr) -> Self {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(served.ca_pem.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            stream: StreamOwned::new(session, socket),
            buffer: vec![0; 64 * 1024],
        }
    }

    /// Sends a request and reads its whole answer, which must be 200.
    pub fn ask(&mut self, request: &[u8]) {
        self.stream.write_all(request).unwrap();
        self.stream.flush().unwrap();
        let mut read = 0;
        loop {
            let count = self.stream.read(&mut self.buffer[read..]).unwrap();
            assert!(count > 0, "the server closed the connection");
            read += count;
            if is_complete(&self.buffer[..read]) {
                break;
            }
        }
        let is_ok = self.buffer.starts_with(b"HTTP/1.1 200");
        assert!(is_ok, "{}", String::from_utf8_lossy(&self.buffer[..read]));
    }
}

fn is_complete(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap()
        .parse()
        .unwrap();
    answer.len() >= end + 4 + length
}
