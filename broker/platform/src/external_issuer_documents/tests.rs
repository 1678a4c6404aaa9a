//! What is read from an external issuer's server, and to which addresses nothing is sent.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::BoxFuture;
use http::header::CONTENT_ENCODING;
use keyferry_api::issuer::Issuer;
use keyferry_core::target_address::{AddressRules, HubNetworks, RefusedAddress};
use keyferry_keys::discovery::DiscoveryError;
use keyferry_keys::jwks::{JwksError, RejectReason};
use keyferry_testing::Authority;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{ExternalIssuerAddress, ExternalIssuerKeys, ExternalKeysError, HttpsIssuerKeys};
use crate::address_guard::{AddressGuard, HubNetworkSource, HubNetworksUnread};
use crate::name_resolver::NameResolver;

const HOST: &str = "ci.example.com";

struct Networks(Result<HubNetworks, HubNetworksUnread>);

impl HubNetworkSource for Networks {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        Box::pin(async { self.0.clone() })
    }
}

struct To(Vec<SocketAddr>);

impl NameResolver for To {
    fn addresses<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        Box::pin(async { self.0.clone() })
    }
}

/// A server of an issuer's documents, which counts the requests.
struct Server {
    authority: Authority,
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(change: impl FnOnce(&str, &mut Value, &mut Value)) -> Self {
        Self::start_encoding(IntoResponse::into_response, change).await
    }

    /// Starts a server that sends each document as `encode` makes it.
    async fn start_encoding(
        encode: fn(String) -> Response,
        change: impl FnOnce(&str, &mut Value, &mut Value),
    ) -> Self {
        let authority = Authority::new("test CA").unwrap();
        let tls = authority.server_identity(&[HOST]).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = format!("https://{HOST}:{}", address.port());
        let mut document = json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") });
        let mut keys = json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }] });
        change(&issuer, &mut document, &mut keys);
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = |body: Value| {
            let requests = Arc::clone(&requests);
            get(move || {
                requests.fetch_add(1, Ordering::SeqCst);
                async move { encode(body.to_string()) }
            })
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", counted(document))
            .route("/keys", counted(keys))
            .route("/moved", get(|| async { Redirect::to("/keys") }));
        let config =
            axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls.tls_config().unwrap()));
        let bound = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(bound.serve(router.into_make_service()));
        Self {
            authority,
            address,
            requests,
        }
    }

    fn issuer(&self) -> ExternalIssuerAddress {
        ExternalIssuerAddress {
            issuer: Issuer::new(format!("https://{HOST}:{}", self.address.port())).unwrap(),
            certificate_authority: Some(self.authority.ca_pem().to_owned()),
        }
    }

    async fn read(&self) -> Result<Vec<String>, ExternalKeysError> {
        let client = client(&["127.0.0.0/8"], vec![self.address]);
        let keys = client.fetch(&self.issuer()).await?;
        Ok(keys.kids().map(str::to_owned).collect())
    }
}

fn client(allowed: &[&str], addresses: Vec<SocketAddr>) -> HttpsIssuerKeys {
    let rules = AddressRules {
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        ..AddressRules::default()
    };
    let networks = Networks(Ok(HubNetworks {
        services: vec!["10.96.0.0/12".parse().unwrap()],
        apiservers: Vec::new(),
    }));
    let resolver = Arc::new(To(addresses));
    HttpsIssuerKeys::new(AddressGuard::new(rules, Arc::new(networks), resolver))
}

#[tokio::test]
async fn the_keys_are_found_by_the_discovery_document() {
    let server = Server::start(|_, _, _| {}).await;
    assert_eq!(server.read().await, Ok(vec!["one".to_owned()]));
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_document_that_leads_elsewhere_is_refused() {
    const WRONG_KEYS_URL: ExternalKeysError =
        ExternalKeysError::Discovery(DiscoveryError::Member("jwks_uri"));
    for uri in [
        "https://169.254.169.254/latest/meta-data",
        "https://ci.example.com.evil.example/keys",
        "http://ci.example.com/keys",
        "https://user@ci.example.com/keys",
        "/keys",
        "",
    ] {
        let server = Server::start(|_, document, _| document["jwks_uri"] = json!(uri)).await;
        assert_eq!(server.read().await, Err(WRONG_KEYS_URL), "{uri}");
        assert_eq!(server.requests.load(Ordering::SeqCst), 1, "{uri}");
    }
    let other = Server::start(|_, document, _| document["issuer"] = json!("https://other")).await;
    let mismatch = ExternalKeysError::Discovery(DiscoveryError::IssuerMismatch);
    assert_eq!(other.read().await, Err(mismatch));
    let moved = Server::start(|issuer, document, _| {
        document["jwks_uri"] = json!(format!("{issuer}/moved"));
    })
    .await;
    assert_eq!(moved.read().await, Err(ExternalKeysError::Status(303)));
    assert_eq!(
        moved.requests.load(Ordering::SeqCst),
        1,
        "a redirect is not followed"
    );
}

#[tokio::test]
async fn a_key_set_with_a_private_key_or_without_a_usable_one_is_refused() {
    let private = Server::start(|_, _, keys| keys["keys"][0]["d"] = json!("AA")).await;
    let refused = ExternalKeysError::Keys(JwksError::PrivateKeyInSet {
        index: 0,
        kind: "a private EC key",
    });
    assert!(refused.issuers_fix().is_some());
    assert_eq!(private.read().await, Err(refused));
    let none = Server::start(|_, _, keys| keys["keys"] = json!([{ "kty": "oct", "kid": "a" }]));
    let refused = ExternalKeysError::Keys(JwksError::NoUsableKey {
        found: 1,
        first: Some(RejectReason::KeyType),
    });
    assert_eq!(none.await.read().await, Err(refused));
    let long = Server::start(|_, document, _| document["pad"] = json!("x".repeat(70_000))).await;
    assert_eq!(long.read().await, Err(ExternalKeysError::TooLong));
}

/// A response in gzip of a body, and of what follows it.
fn packed(body: &[&[u8]]) -> Response {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for part in body {
        encoder.write_all(part).unwrap();
    }
    ([(CONTENT_ENCODING, "gzip")], encoder.finish().unwrap()).into_response()
}

/// Go's clients, and so targets, read what a server of stored objects sends packed.
#[tokio::test]
async fn documents_in_gzip_are_read_and_both_sizes_are_limited() {
    let server = Server::start_encoding(|body| packed(&[body.as_bytes()]), |_, _, _| {}).await;
    assert_eq!(server.read().await, Ok(vec!["one".to_owned()]));
    let too_long = Err(ExternalKeysError::TooLong);
    // 2 MiB in some 2 KiB, which is within the limit as it is sent.
    let bomb = |body: String| packed(&[body.as_bytes(), &vec![b' '; 2 << 20]]);
    let server = Server::start_encoding(bomb, |_, _, _| {}).await;
    assert_eq!(server.read().await, too_long);
    // A member without content adds to what is sent alone.
    let stuffed = |body: String| {
        let empty = GzEncoder::new(Vec::new(), Compression::best()).finish();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body.as_bytes()).unwrap();
        let sent = [encoder.finish().unwrap(), empty.unwrap().repeat(10_000)].concat();
        ([(CONTENT_ENCODING, "gzip")], sent).into_response()
    };
    let server = Server::start_encoding(stuffed, |_, _, _| {}).await;
    assert_eq!(server.read().await, too_long);
    let untrue = |body: String| ([(CONTENT_ENCODING, "gzip")], body).into_response();
    let server = Server::start_encoding(untrue, |_, _, _| {}).await;
    assert_eq!(server.read().await, Err(ExternalKeysError::NotGzip));
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_no_target_may_have() {
    let server = Server::start(|_, _, _| {}).await;
    for (address, kind) in [
        (server.address, RefusedAddress::Loopback),
        (
            "169.254.169.254:443".parse().unwrap(),
            RefusedAddress::LinkLocal,
        ),
        ("10.96.0.1:443".parse().unwrap(), RefusedAddress::HubNetwork),
    ] {
        // The public address of the list does not admit the other.
        let addresses = vec!["192.0.2.1:443".parse().unwrap(), address];
        let refused = client(&[], addresses).fetch(&server.issuer()).await;
        assert_eq!(refused.err(), Some(ExternalKeysError::AddressRefused(kind)));
    }
    let nowhere = client(&[], Vec::new()).fetch(&server.issuer()).await;
    assert_eq!(nowhere.err(), Some(ExternalKeysError::NoAddress));
    let unread = HttpsIssuerKeys::new(AddressGuard::new(
        AddressRules::default(),
        Arc::new(Networks(Err(HubNetworksUnread))),
        Arc::new(To(vec![server.address])),
    ));
    let refused = unread.fetch(&server.issuer()).await;
    assert_eq!(refused.err(), Some(ExternalKeysError::NetworksUnread));
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

/// A resolver that reads addresses as they are, and answers for a name in turn: the last answer stays.
struct Scripted(Mutex<Vec<SocketAddr>>, AtomicUsize);

impl NameResolver for Scripted {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.0.lock();
        let of_name = if answers.len() > 1 {
            Some(answers.remove(0))
        } else {
            answers.first().copied()
        };
        let literal = host.parse().map(|address| SocketAddr::new(address, port));
        Box::pin(async move { literal.ok().or(of_name).into_iter().collect() })
    }
}

fn scripted(allowed: &[&str], answers: Vec<SocketAddr>) -> (HttpsIssuerKeys, Arc<Scripted>) {
    let resolver = Arc::new(Scripted(Mutex::new(answers), AtomicUsize::new(0)));
    let rules = AddressRules {
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        refused: ["10.244.0.0/16".parse().unwrap()].into(),
    };
    let networks = Networks(Ok(HubNetworks {
        services: vec!["10.96.0.0/16".parse().unwrap()],
        apiservers: vec!["192.0.2.1".parse().unwrap()],
    }));
    let port: Arc<dyn NameResolver> = Arc::<Scripted>::clone(&resolver);
    let keys = HttpsIssuerKeys::new(AddressGuard::new(rules, Arc::new(networks), port));
    (keys, resolver)
}

/// The second request, for the keys, goes to the address that was checked before the first one.
#[tokio::test]
async fn a_name_is_resolved_once_for_both_documents() {
    let server = Server::start(|_, _, _| {}).await;
    let elsewhere = Server::start(|_, _, _| {}).await;
    let answers = vec![server.address, elsewhere.address];
    let (keys, resolver) = scripted(&["127.0.0.0/8"], answers);
    assert!(keys.fetch(&server.issuer()).await.is_ok());
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    assert_eq!(elsewhere.requests.load(Ordering::SeqCst), 0);
    // A name that changes its answer to a refused address is refused at the next read.
    let (keys, _) = scripted(&[], vec!["198.51.100.7:1".parse().unwrap(), server.address]);
    let before = server.requests.load(Ordering::SeqCst);
    let first = keys.fetch(&server.issuer()).await;
    assert!(
        !matches!(first, Err(ExternalKeysError::AddressRefused(_))),
        "{first:?}"
    );
    let second = keys.fetch(&server.issuer()).await;
    let refused = Some(ExternalKeysError::AddressRefused(RefusedAddress::Loopback));
    assert_eq!(second.err(), refused);
    assert_eq!(server.requests.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_named() {
    let server = Server::start(|_, _, _| {}).await;
    let other = Authority::new("another CA").unwrap();
    let issuer = ExternalIssuerAddress {
        certificate_authority: Some(other.ca_pem().to_owned()),
        ..server.issuer()
    };
    let refused = client(&["127.0.0.0/8"], vec![server.address])
        .fetch(&issuer)
        .await;
    let unknown = "its certificate is signed by an unknown CA".to_owned();
    assert_eq!(refused.err(), Some(ExternalKeysError::Certificate(unknown)));
}

/// The server gets the same answer, so `serve --check` must not call the file good.
#[test]
fn an_answer_that_every_reader_gets_is_a_mistake() {
    let is_mistake = |error: ExternalKeysError| error.issuers_fix().is_some();
    for status in [301, 303, 404, 410] {
        assert!(is_mistake(ExternalKeysError::Status(status)), "{status}");
    }
    assert!(is_mistake(ExternalKeysError::TooLong));
    assert!(is_mistake(ExternalKeysError::NotGzip));
    assert!(is_mistake(ExternalKeysError::Certificate(String::new())));
    // An outage, or the way to the issuer.
    for status in [401, 403, 407, 429, 500, 503] {
        assert!(!is_mistake(ExternalKeysError::Status(status)), "{status}");
    }
    assert!(!is_mistake(ExternalKeysError::NoAddress));
    assert!(!is_mistake(ExternalKeysError::NoAnswer("late")));
}
