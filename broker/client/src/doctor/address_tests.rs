//! doctor, whoami, can-i, lint and onboarding connect to no refused address, whatever a name resolves
//! to.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use axum::Json;
use axum::routing::get;
use keyferry_kube_authn::fetched::Fetched;
use keyferry_kube_authn::lint::PublishedDocuments;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::testing::{
    CountingListener, REFUSED_ADDRESS_FORMS as FORMS, ScriptedResolver, strict_guard,
};
use keyferry_testing::Authority;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::doctor::diagnosis::{Hop, Mode, Report, Status, TokenEvidence, examine};
use crate::doctor::plan::Plan;
use crate::doctor::published::published;
use crate::doctor::target_calls::TargetCalls;
use crate::doctor::{DoctorError, Means, gather_evidence, identity};

/// A signed JWT as far as its form goes. It has no issuer from which doctor would read documents.
const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJhIn0.AAAA";

/// The address of a host by its URL alone.
fn target(url: String) -> TargetAddress {
    TargetAddress {
        url,
        ..TargetAddress::default()
    }
}

fn plan(target: Option<TargetAddress>, guard: AddressGuard) -> Plan {
    Plan {
        target,
        token_evidence: TokenEvidence::Token(TOKEN.as_bytes().to_vec()),
        guard,
        ..Plan::named("targetaccess/a/b")
    }
}

#[tokio::test]
async fn no_command_asks_a_refused_address() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
    let target = target(format!("https://prod.example.test:{}", listener.port));
    let plan = plan(Some(target.clone()), guard.clone());
    // doctor
    let evidence = gather_evidence(plan.clone(), &Means::default())
        .await
        .unwrap();
    let connection = &evidence.target.connection;
    assert!(
        matches!(connection, Fetched::AddressRefused(_)),
        "{connection:?}"
    );
    // whoami and can-i
    for refused in [
        identity::ask(&plan, None).await.err().unwrap(),
        identity::calls(&plan).await.err().unwrap(),
    ] {
        let text = refused.to_string();
        assert!(text.contains("TargetAddressRefused"), "{text}");
    }
    // onboard, for the release
    let release = TargetCalls::new(&target, None, &guard).await.err().unwrap();
    assert!(matches!(release, DoctorError::Destination(_)), "{release}");
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn doctor_names_the_reason_and_the_flag_and_proves_nothing() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[]));
    let target = target(format!("https://127.0.0.1:{}", listener.port));
    let evidence = gather_evidence(plan(Some(target), guard), &Means::default())
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
        let keys_url = format!("https://{form}:{}/keys", listener.port);
        keys.lock().clone_from(&keys_url);
        let from = |published_at: Option<&String>, issuer: Option<&String>| Plan {
            published_at: published_at.cloned(),
            issuer: issuer.cloned(),
            discovery_ca: Some(authority.ca_pem().as_bytes().to_vec()),
            own_documents: vec![own.clone()],
            ..plan(None, guard())
        };
        // The document, where an object or the hub's issuer names it.
        for plan in [from(Some(&keys_url), None), from(None, Some(&keys_url))] {
            let evidence = gather_evidence(plan, &Means::default()).await.unwrap();
            assert!(
                matches!(evidence.discovery, Fetched::AddressRefused(_)),
                "{form}: {:?}",
                evidence.discovery
            );
        }
        // The keys, where the document names them.
        let evidence = gather_evidence(from(Some(&own), None), &Means::default())
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
            discovery_url: keys_url,
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
    let own = target(url.clone());
    let evidence = gather_evidence(plan(Some(own), guard.clone()), &Means::default())
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
    let other = target("https://prod.example.test:1".to_owned());
    let refused = TargetCalls::new(&other, None, &guard).await.err().unwrap();
    assert!(matches!(refused, DoctorError::Destination(_)), "{refused}");
    // The hub's own documents may be read, but the hub is no target.
    let hub = Plan {
        own_documents: vec![url.clone()],
        ..plan(
            Some(target(url)),
            strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]])),
        )
    };
    let evidence = gather_evidence(hub, &Means::default()).await.unwrap();
    assert!(matches!(
        evidence.target.connection,
        Fetched::AddressRefused(_)
    ));
}
