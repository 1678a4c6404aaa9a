#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use axum::http::StatusCode;
use keyferry_api::reason::Reason;
use serde_json::Value;

use super::responses::error_statuses;
use super::{ApiRoute, Documents, Enabled, openapi_document};
use crate::http::refusal::{self, Surface};

const ALL: Enabled = Enabled {
    inputs: true,
    metadata: true,
};

#[test]
fn the_document_has_each_enabled_route_and_no_other() {
    let both = [false, true];
    for (inputs, metadata) in both
        .into_iter()
        .flat_map(|one| both.map(|other| (one, other)))
    {
        let enabled = Enabled { inputs, metadata };
        let document = openapi_document(enabled);
        let paths: BTreeSet<&str> = document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let routes: BTreeSet<&str> = ApiRoute::ALL_ROUTES
            .into_iter()
            .filter(|route| enabled.has_route(*route))
            .map(ApiRoute::path)
            .collect();
        assert_eq!(paths, routes);
    }
}

#[tokio::test]
async fn every_refusal_that_a_route_can_make_is_in_the_document() {
    let surfaces = [
        (ApiRoute::Exchange, Surface::Exchange),
        (ApiRoute::Kubeconfig, Surface::Resource),
        (ApiRoute::InputsCluster, Surface::Inputs),
    ];
    for (route, surface) in surfaces {
        for reason in Reason::ALL {
            let is_of_inputs = matches!(
                reason,
                Reason::InputCredentialRejected | Reason::InputsNotGranted | Reason::InputsUnread
            );
            let is_of_tokens = matches!(
                reason,
                Reason::DelegationForbidden | Reason::TargetNotGranted
            );
            // A surface never makes the refusals of the other.
            if (is_of_inputs && surface != Surface::Inputs)
                || (is_of_tokens && surface == Surface::Inputs)
            {
                continue;
            }
            let response = refusal::refusal_response(&(*reason).into(), surface, None);
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 1 << 16)
                .await
                .unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let code = body["error"].as_str().unwrap();
            assert!(
                is_documented(route, status, code),
                "{route:?} {reason}: {status} {code}"
            );
        }
    }
}

fn is_documented(route: ApiRoute, status: StatusCode, code: &str) -> bool {
    error_statuses(route)
        .iter()
        .any(|(known, codes)| *known == status.as_u16() && codes.contains(&code))
}

#[test]
fn both_spellings_say_the_same() {
    let documents = Documents::new(ALL);
    let json: Value = serde_json::from_slice(&documents.json).unwrap();
    let yaml: Value = serde_saphyr::from_slice(&documents.yaml).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["openapi"], "3.1.0");
}

#[test]
fn a_route_without_credentials_is_one_that_needs_none() {
    let document = openapi_document(ALL);
    let public: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, item)| item["get"]["security"] == serde_json::json!([]))
        .map(|(path, _)| path.as_str())
        .collect();
    let wanted = [
        "/.well-known/oauth-authorization-server",
        "/health",
        "/healthz",
        "/livez",
        "/openapi.json",
        "/openapi.yaml",
        "/ready",
        "/readyz",
    ];
    assert_eq!(public, BTreeSet::from(wanted));
}

/// The recorded document has all routes. Its schemas are derived from types, so a change of a type
/// shows here as a change of the API.
#[test]
fn the_document_is_the_recorded_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/openapi/document.json");
    let document = openapi_document(ALL);
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(path, format!("{document:#}\n")).unwrap();
        return;
    }
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(
        document, recorded,
        "KEYFERRY_WRITE_COPIES=1 cargo test --workspace --lib -- openapi writes it"
    );
}
