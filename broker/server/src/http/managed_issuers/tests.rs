//! Tests of the documents that are served for managed issuers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode, header};
use keyferry_api::config::TokenIssuer;
use keyferry_issuer::testing::SmallWorld;
use keyferry_issuer::testing::managed_issuers::{Replica, start_managed_world};
use tower::ServiceExt;

use crate::http::discovery;

async fn ask(
    world: &SmallWorld,
    replica: &Replica,
    method: Method,
    path: &str,
    etag: Option<&str>,
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let routes = discovery::discovery_routes(
        world.publisher.reader(),
        replica.issuers.clone(),
        Duration::from_secs(60),
    );
    routes
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap()
}

async fn body(response: Response<Body>) -> Vec<u8> {
    to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap()
        .to_vec()
}

const METADATA: [&str; 3] = [
    "/issuers/prod/.well-known/openid-configuration",
    "/.well-known/openid-configuration/issuers/prod",
    "/.well-known/oauth-authorization-server/issuers/prod",
];
const JWKS: &str = "/issuers/prod/openid/v1/jwks";

#[tokio::test]
async fn the_documents_are_served_at_every_place_that_a_verifier_looks() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    let mut bodies = Vec::new();
    for path in METADATA {
        let response = ask(&world, &replica, Method::GET, path, None).await;
        assert_eq!(
            (response.status(), &response.headers()[header::CONTENT_TYPE]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        bodies.push(body(response).await);
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
    let metadata: serde_json::Value = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(
        metadata["issuer"],
        "https://keyferry.example.test/issuers/prod"
    );
    assert_eq!(
        metadata["jwks_uri"],
        "https://keyferry.example.test/issuers/prod/openid/v1/jwks"
    );
    assert_eq!(
        metadata["id_token_signing_alg_values_supported"],
        serde_json::json!(["ES256"])
    );
    let response = ask(&world, &replica, Method::GET, JWKS, None).await;
    let headers = response.headers().clone();
    assert_eq!(headers[header::CACHE_CONTROL], "public, max-age=60");
    assert_eq!(headers[header::CONTENT_TYPE], "application/jwk-set+json");
    assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    let jwks = String::from_utf8(body(response).await).unwrap();
    let set = store.set();
    assert!(jwks.contains(set.current.key.kid()) && jwks.contains(set.next.key.kid()));
    assert!(!jwks.contains("\"d\""), "{jwks}");
    let hub = String::from_utf8(
        body(ask(&world, &replica, Method::GET, "/openid/v1/jwks", None).await).await,
    )
    .unwrap();
    assert!(
        !hub.contains(set.current.key.kid()),
        "two issuers share no key"
    );
}

#[tokio::test]
async fn they_follow_the_rules_of_the_hubs_documents() {
    let (world, _store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    for path in [METADATA[0], METADATA[1], METADATA[2], JWKS] {
        let response = ask(&world, &replica, Method::GET, path, None).await;
        let etag = response.headers()[header::ETAG]
            .to_str()
            .unwrap()
            .to_owned();
        let unchanged = ask(&world, &replica, Method::GET, path, Some(&etag)).await;
        assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(
            unchanged.headers()[header::CACHE_CONTROL],
            "public, max-age=60"
        );
        assert!(body(unchanged).await.is_empty());
        let head = ask(&world, &replica, Method::HEAD, path, None).await;
        assert_eq!(
            (head.status(), &head.headers()[header::ETAG]),
            (StatusCode::OK, &etag.parse().unwrap())
        );
        let refused = ask(&world, &replica, Method::POST, path, None).await;
        assert_eq!(
            (refused.status(), &refused.headers()[header::ALLOW]),
            (
                StatusCode::METHOD_NOT_ALLOWED,
                &"GET, HEAD".parse().unwrap()
            )
        );
    }
}

#[tokio::test]
async fn what_has_no_issuer_of_its_own_is_not_found() {
    let (mut world, _store, mut replica) = start_managed_world().await;
    let unread = Replica::new(
        &Arc::default(),
        Arc::<keyferry_issuer::testing::FakeClock>::clone(&world.clock),
    );
    assert_eq!(
        ask(&world, &unread, Method::GET, JWKS, None).await.status(),
        StatusCode::NOT_FOUND
    );
    replica.maintainer.run_round(&world.policy).await;
    let elsewhere = body(ask(&world, &replica, Method::GET, "/nowhere", None).await).await;
    let mut paths: Vec<String> = ["other", "Prod", "prod%2Fx", "..", "%00", "prod.", "%F0"]
        .map(|name| format!("/issuers/{name}/openid/v1/jwks"))
        .into();
    paths.extend(
        [
            "/issuers/prod",
            "/issuers/prod/",
            "/issuers/prod/openid/v1/jwks/",
            "/issuers/prod/x/../openid/v1/jwks",
        ]
        .map(str::to_owned),
    );
    paths.push("/.well-known/oauth-authorization-server/issuers/other".to_owned());
    for path in &paths {
        for method in [Method::GET, Method::POST] {
            let response = ask(&world, &replica, method, path, None).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
            assert_eq!(body(response).await, elsewhere, "{path}");
        }
    }
    world
        .policy
        .targets
        .values_mut()
        .for_each(|target| target.issuer = TokenIssuer::Hub);
    replica.maintainer.run_round(&world.policy).await;
    let response = ask(&world, &replica, Method::GET, JWKS, None).await;
    assert_eq!(
        (response.status(), body(response).await),
        (StatusCode::NOT_FOUND, elsewhere),
        "the hub signs for this one"
    );
}
