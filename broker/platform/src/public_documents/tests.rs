use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::routing::get;
use keyferry_testing::Authority;
use parking_lot::Mutex;

use super::*;
use crate::testing::{
    CountingListener, REFUSED_ADDRESS_FORMS, ScriptedResolver, loopback_guard, strict_guard,
};

const DEADLINE: Duration = Duration::from_secs(10);

/// A server of this host that redirects `/moved` to a changing place, and `/loop` to itself.
struct Server {
    authority: Authority,
    port: u16,
    to: Arc<Mutex<String>>,
}

async fn server() -> Server {
    let authority = Authority::new("test CA").unwrap();
    let to = Arc::new(Mutex::new(String::new()));
    let place = Arc::clone(&to);
    let moved = get(move || {
        let place = place.lock().clone();
        async move { (StatusCode::FOUND, [(LOCATION, place)]) }
    });
    let again = get(|| async { (StatusCode::FOUND, [(LOCATION, "/loop")]) });
    let here = get(|| async { "here" });
    let router = Router::new()
        .route("/moved", moved)
        .route("/loop", again)
        .route("/here", here);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let identity = authority.server_identity(&["localhost"]).unwrap();
    let tls = identity.tls_config().unwrap();
    let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
    let bound = axum_server::from_tcp_rustls(listener, config).unwrap();
    tokio::spawn(bound.serve(router.into_make_service()));
    Server {
        authority,
        port,
        to,
    }
}

impl Server {
    fn documents(&self, guard: AddressGuard) -> PublicDocuments {
        let authority = Some(self.authority.ca_pem().as_bytes());
        PublicDocuments::new(authority, DEADLINE, guard).unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }
}

#[tokio::test]
async fn redirects_are_followed_to_allowed_places_and_not_for_ever() {
    let server = server().await;
    let documents = server.documents(loopback_guard());
    for to in ["/here".to_owned(), server.url("/here")] {
        server.to.lock().clone_from(&to);
        let answer = documents.get(&server.url("/moved")).await.unwrap();
        assert_eq!(answer.response.status(), 200, "{to}");
    }
    let endless = documents.get(&server.url("/loop")).await.err().unwrap();
    assert!(matches!(endless, DocumentError::Redirect), "{endless:?}");
    *server.to.lock() = format!("http://localhost:{}/here", server.port);
    let plain = documents.get(&server.url("/moved")).await.err().unwrap();
    assert!(matches!(plain, DocumentError::Redirect), "{plain:?}");
    let plain = documents.get("http://localhost:1/").await.err().unwrap();
    assert!(matches!(plain, DocumentError::Url), "{plain:?}");
}

/// A user's own URL is not checked, but what its server redirects to is.
#[tokio::test]
async fn no_form_of_a_refused_address_is_reached_directly_or_by_a_redirect() {
    let (server, listener) = (server().await, CountingListener::start().await);
    let resolver = ScriptedResolver::new(&[&["127.0.0.1"]]);
    let own = strict_guard(resolver.clone()).with_own(&server.url("/"));
    let documents = server.documents(own);
    for form in REFUSED_ADDRESS_FORMS {
        let to = format!("https://{form}:{}/", listener.port);
        server.to.lock().clone_from(&to);
        for url in [to.as_str(), &server.url("/moved")] {
            let refused = documents.get(url).await.err().unwrap();
            assert!(
                matches!(refused, DocumentError::Destination(_)),
                "{form} by {url}: {refused:?}"
            );
        }
    }
    assert_eq!(listener.count(), 0);
}

/// The user names several places, but not that one may lead a request to another.
#[tokio::test]
async fn a_redirect_or_a_link_does_not_lead_to_another_place_of_the_user() {
    let (server, listener) = (server().await, CountingListener::start().await);
    let other = format!("https://localhost:{}/", listener.port);
    let guard = strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
    let guard = guard.with_own(&server.url("/")).with_own(&other);
    let documents = server.documents(guard);
    server.to.lock().clone_from(&other);
    let moved = server.url("/moved");
    for refused in [
        documents.get(&moved).await.err().unwrap(),
        documents.get_linked(&other, &moved).await.err().unwrap(),
    ] {
        assert!(
            matches!(refused, DocumentError::Destination(_)),
            "{refused:?}"
        );
    }
    assert_eq!(listener.count(), 0);
    *server.to.lock() = server.url("/here");
    let linked = documents.get_linked(&moved, &server.url("/here")).await;
    assert_eq!(linked.unwrap().response.status(), 200);
}
