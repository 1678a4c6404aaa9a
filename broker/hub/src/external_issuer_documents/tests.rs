//! What is read from an external issuer's server, and to which addresses nothing is sent.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use futures::future::BoxFuture;
use keyferry_api::issuer::Issuer;
use keyferry_core::target_address::{AddressRules, HubNetworks, RefusedAddress};
use keyferry_keys::discovery::DiscoveryError;
use keyferry_keys::jwks::JwksError;
use keyferry_testing::Authority;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    ExternalIssuerAddress, ExternalIssuerKeys, ExternalKeysError, HttpsIssuerKeys, check_authority,
};
use crate::name_resolver::NameResolver;
use crate::ports::{HubError, HubNetworkSource};

const HOST: &str = "ci.example.com";

struct Networks(Result<HubNetworks, HubError>);

impl HubNetworkSource for Networks {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubError>> {
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
                async move { body.to_string() }
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
    HttpsIssuerKeys::within(rules, Arc::new(networks), Arc::new(To(addresses)))
}

#[tokio::test]
async fn the_keys_are_found_by_the_discovery_document() {
    let server = Server::start(|_, _, _| {}).await;
    assert_eq!(server.read().await, Ok(vec!["one".to_owned()]));
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_document_that_leads_elsewhere_is_refused() {
    const PLACE: ExternalKeysError =
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
        assert_eq!(server.read().await, Err(PLACE), "{uri}");
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
    let refused = ExternalKeysError::Keys(JwksError::PrivateKeyInSet);
    assert_eq!(private.read().await, Err(refused));
    let none = Server::start(|_, _, keys| keys["keys"] = json!([{ "kty": "oct", "kid": "a" }]));
    let refused = ExternalKeysError::Keys(JwksError::NoUsableKey(1));
    assert_eq!(none.await.read().await, Err(refused));
    let long = Server::start(|_, document, _| document["pad"] = json!("x".repeat(70_000))).await;
    let refused = ExternalKeysError::NoAnswer("its answer is too long");
    assert_eq!(long.read().await, Err(refused));
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
    let unread = HttpsIssuerKeys::within(
        AddressRules::default(),
        Arc::new(Networks(Err(HubError::Busy))),
        Arc::new(To(vec![server.address])),
    );
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
    let keys = HttpsIssuerKeys::within(rules, Arc::new(networks), port);
    (keys, resolver)
}

#[tokio::test]
async fn no_form_of_an_address_that_no_target_may_have_is_connected_to() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let (mut refused, mut no_issuer) = (0, 0);
    for form in crate::testing::REFUSED_ADDRESS_FORMS {
        let Ok(issuer) = Issuer::new(format!("https://{form}:{port}")) else {
            no_issuer += 1;
            continue;
        };
        let address = ExternalIssuerAddress {
            issuer,
            certificate_authority: None,
        };
        let (keys, _) = scripted(&[], Vec::new());
        let answer = keys.fetch(&address).await;
        assert!(
            matches!(answer, Err(ExternalKeysError::AddressRefused(_))),
            "{form}: {answer:?}"
        );
        refused += 1;
    }
    assert!(
        refused + no_issuer >= 60 && refused >= 40,
        "{refused} {no_issuer}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
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
async fn another_authority_is_no_answer() {
    let server = Server::start(|_, _, _| {}).await;
    let other = Authority::new("another CA").unwrap();
    let issuer = ExternalIssuerAddress {
        certificate_authority: Some(other.ca_pem().to_owned()),
        ..server.issuer()
    };
    let refused = client(&["127.0.0.0/8"], vec![server.address])
        .fetch(&issuer)
        .await;
    assert!(matches!(refused, Err(ExternalKeysError::NoAnswer(_))));
    assert!(check_authority(Some(other.ca_pem())).is_ok());
    assert!(check_authority(Some("no PEM")).is_err());
}
