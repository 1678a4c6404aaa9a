//! doctor, whoami, can-i, lint and onboarding connect to no refused address, whatever a name resolves
//! to.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use axum::Json;
use axum::routing::get;
use keyferry_hub::address_guard::AddressGuard;
use keyferry_hub::testing::{
    CountingListener, REFUSED_ADDRESS_FORMS as FORMS, ScriptedResolver, strict_guard,
};
use keyferry_kube_authn::doctor::{Fetched, Hop, Mode, Report, Status, TokenEvidence, examine};
use keyferry_kube_authn::lint::PublishedDocuments;
use keyferry_testing::Authority;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::published::published;
use crate::target_calls::TargetCalls;
use crate::{DoctorError, Means, TargetAddress, gather, identity};

/// A signed JWT as far as its form goes. It has no issuer from which doctor would read documents.
const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJhIn0.AAAA";

fn target(url: String, proxy_url: Option<String>, name: Option<&str>) -> TargetAddress {
    TargetAddress {
        url,
        ca_pem: None,
        tls_server_name: name.map(str::to_owned),
        proxy_url,
    }
}

/// Every way in which an object or a kubeconfig can name a host: as the address, with another
/// certificate name, as a proxy, and behind a proxy that is allowed.
fn ways(host: &str, port: u16) -> [TargetAddress; 4] {
    let url = |scheme: &str| format!("{scheme}://{host}:{port}");
    let elsewhere = || "https://198.51.100.7:6443".to_owned();
    [
        target(url("https"), None, None),
        target(url("https"), None, Some("prod.example.test")),
        target(elsewhere(), Some(url("http")), None),
        target(
            url("https"),
            Some("http://proxy.example.test:3128".to_owned()),
            None,
        ),
    ]
}

fn plan(target: Option<TargetAddress>, guard: AddressGuard) -> Plan {
    Plan {
        target,
        held: TokenEvidence::Token(TOKEN.as_bytes().to_vec()),
        guard,
        ..Plan::named("targetaccess/a/b")
    }
}

#[tokio::test]
async fn no_form_of_a_refused_address_is_asked() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    for form in FORMS {
        for (way, target) in ways(form, listener.port).into_iter().enumerate() {
            let about = format!("{form}, way {way}");
            let plan = plan(Some(target.clone()), guard.clone());
            // doctor
            let evidence = gather(plan.clone(), &Means::default()).await.unwrap();
            let connection = &evidence.target.connection;
            assert!(
                matches!(connection, Fetched::AddressRefused(_)),
                "{about}: {connection:?}"
            );
            // whoami and can-i
            for refused in [
                identity::ask(&plan, None).await.err().unwrap(),
                identity::calls(&plan).await.err().unwrap(),
            ] {
                let text = refused.to_string();
                assert!(text.contains("TargetAddressRefused"), "{about}: {text}");
            }
            // onboard, for the release
            let release = TargetCalls::new(&target, None, &guard).await.err().unwrap();
            assert!(
                matches!(release, DoctorError::Destination(_)),
                "{about}: {release}"
            );
        }
    }
    assert_eq!(listener.count(), 0);
}

/// The HTTP client ignores a proxy of a kind that it does not know, and a URL reads more than a name
/// in a text: both would lead to addresses that nobody checked.
#[tokio::test]
async fn a_proxy_of_another_kind_and_a_name_that_a_url_reads_otherwise_are_refused() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    let here = format!("https://kubernetes.default.svc:{}", listener.port);
    for proxy in [
        "ftp://proxy.example.test",
        "socks5://proxy.example.test:1080",
        "socks5h://proxy.example.test",
        "HTTPX://proxy.example.test",
        "file://proxy.example.test/",
    ] {
        let target = target(here.clone(), Some(proxy.to_owned()), None);
        let refused = TargetCalls::new(&target, None, &guard).await.err().unwrap();
        assert!(
            matches!(refused, DoctorError::Address(_)),
            "{proxy}: {refused}"
        );
    }
    let elsewhere = format!("https://prod.example.test:{}", listener.port);
    for name in [
        "localhost:1",
        "%6cocalhost",
        "lo\u{ad}calhost",
        "localhost/a",
        "localhost?a",
        "127.0.0.1",
        "0x7f000001",
    ] {
        let target = target(elsewhere.clone(), None, Some(name));
        let refused = TargetCalls::new(&target, None, &guard).await.err().unwrap();
        assert!(
            matches!(
                refused,
                DoctorError::ServerName(_) | DoctorError::Address(_)
            ),
            "{name}: {refused}"
        );
    }
    let upper = target(elsewhere, None, Some("PROD.example.test"));
    assert!(TargetCalls::new(&upper, None, &guard).await.is_ok());
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn doctor_names_the_reason_and_the_flag_and_proves_nothing() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[]));
    let [target, ..] = ways("127.0.0.1", listener.port);
    let evidence = gather(plan(Some(target), guard), &Means::default())
        .await
        .unwrap();
    let report = Report::of("a", vec![Mode::Network], &examine(&evidence));
    let hop = report
        .hops
        .iter()
        .find(|hop| hop.hop == Hop::Connection)
        .unwrap();
    assert_eq!(hop.status, Status::Broken);
    assert_eq!(
        hop.reason.map(|reason| reason.name()),
        Some("TargetAddressRefused")
    );
    assert!(
        hop.detail.contains("--allow-target-cidr 127.0.0.0/8"),
        "{}",
        hop.detail
    );
    let authentication = report
        .hops
        .iter()
        .find(|hop| hop.hop == Hop::Authentication)
        .unwrap();
    assert_ne!(authentication.status, Status::Well);
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn every_answer_of_a_name_is_checked_and_no_second_one_is_asked_for() {
    let listener = CountingListener::start().await;
    for answer in [
        ["127.0.0.1", "2001:db8::7"],
        ["2001:db8::7", "127.0.0.1"],
        ["2001:db8::7", "::1"],
        ["2001:db8::7", "::ffff:127.0.0.1"],
        ["2001:db8::7", "169.254.169.254"],
        ["2001:db8::7", "10.96.0.1"],
    ] {
        for target in ways("prod.example.test", listener.port).into_iter().take(3) {
            let guard = strict_guard(ScriptedResolver::new(&[&answer]));
            let refused = TargetCalls::new(&target, None, &guard).await.err().unwrap();
            assert!(matches!(refused, DoctorError::Destination(_)), "{answer:?}");
        }
    }
    for target in ways("prod.example.test", listener.port).into_iter().take(3) {
        let changing = ScriptedResolver::new(&[&["2001:db8::7"], &["127.0.0.1"]]);
        let plan = plan(Some(target), strict_guard(changing.clone()));
        let evidence = gather(plan, &Means::default()).await.unwrap();
        let connection = evidence.target.connection;
        assert!(
            matches!(connection, Fetched::Unreachable(_)),
            "{connection:?}"
        );
        assert_eq!(changing.calls(), 1);
    }
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn a_proxy_is_never_asked_for_the_name_of_a_certificate() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    let target = target(
        "https://198.51.100.7:6443".to_owned(),
        Some(format!("http://127.0.0.1:{}", listener.port)),
        Some("localhost"),
    );
    let refused = TargetCalls::new(&target, None, &guard).await.err().unwrap();
    assert!(matches!(refused, DoctorError::ProxiedServerName));
    assert_eq!(listener.count(), 0);
}

/// A server of this host whose discovery document names a changing place for its keys.
async fn issuer(authority: &Authority) -> (u16, Arc<Mutex<String>>) {
    let keys = Arc::new(Mutex::new(String::new()));
    let named = Arc::clone(&keys);
    let document = get(move || {
        let document = json!({ "issuer": "https://hub.example", "jwks_uri": *named.lock() });
        async move { Json::<Value>(document) }
    });
    let router = axum::Router::new().route("/.well-known/openid-configuration", document);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let identity = authority.server_identity(&["localhost"]).unwrap();
    let tls = identity.tls_config().unwrap();
    let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
    let bound = axum_server::from_tcp_rustls(listener, config).unwrap();
    tokio::spawn(bound.serve(router.into_make_service()));
    (port, keys)
}

#[tokio::test]
async fn documents_and_keys_are_read_from_no_refused_address() {
    let (listener, authority) = (
        CountingListener::start().await,
        Authority::new("test CA").unwrap(),
    );
    let (port, keys) = issuer(&authority).await;
    let own = format!("https://localhost:{port}/.well-known/openid-configuration");
    let guard = || strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
    for form in FORMS {
        let place = format!("https://{form}:{}/keys", listener.port);
        keys.lock().clone_from(&place);
        let from = |published_at: Option<&String>, issuer: Option<&String>| Plan {
            published_at: published_at.cloned(),
            issuer: issuer.cloned(),
            discovery_ca: Some(authority.ca_pem().as_bytes().to_vec()),
            own_documents: vec![own.clone()],
            ..plan(None, guard())
        };
        // The document, where an object or the hub's issuer names it.
        for plan in [from(Some(&place), None), from(None, Some(&place))] {
            let evidence = gather(plan, &Means::default()).await.unwrap();
            assert!(
                matches!(evidence.discovery, Fetched::AddressRefused(_)),
                "{form}: {:?}",
                evidence.discovery
            );
        }
        // The keys, where the document names them.
        let evidence = gather(from(Some(&own), None), &Means::default())
            .await
            .unwrap();
        assert!(
            matches!(evidence.discovery, Fetched::Response(_)),
            "{:?}",
            evidence.discovery
        );
        assert!(
            matches!(evidence.keys, Fetched::AddressRefused(_)),
            "{form}: {:?}",
            evidence.keys
        );
        // lint, for a file.
        let places = [Some(PublishedDocuments {
            discovery_url: place,
            certificate_authority: None,
        })];
        let found = published(&places, &guard()).await;
        assert!(
            matches!(found[0].discovery, Fetched::AddressRefused(_)),
            "{form}: {found:?}"
        );
    }
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn what_the_user_names_is_connected_to() {
    let listener = CountingListener::start().await;
    let url = format!("https://prod.example.test:{}", listener.port);
    let resolver = ScriptedResolver::new(&[&["127.0.0.1"]]);
    let guard = strict_guard(resolver).with_own(&url);
    let own = target(url.clone(), None, None);
    let evidence = gather(plan(Some(own), guard.clone()), &Means::default())
        .await
        .unwrap();
    let connection = evidence.target.connection;
    assert!(
        matches!(connection, Fetched::Unreachable(_)),
        "{connection:?}"
    );
    let reached = listener.count();
    assert!(reached > 0);
    // Another port of the same host is another place.
    let other = target("https://prod.example.test:1".to_owned(), None, None);
    let refused = TargetCalls::new(&other, None, &guard).await.err().unwrap();
    assert!(matches!(refused, DoctorError::Destination(_)), "{refused}");
    // The hub's own documents may be read, but the hub is no target.
    let hub = Plan {
        own_documents: vec![url.clone()],
        ..plan(
            Some(target(url, None, None)),
            strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]])),
        )
    };
    let evidence = gather(hub, &Means::default()).await.unwrap();
    assert!(matches!(
        evidence.target.connection,
        Fetched::AddressRefused(_)
    ));
}
