//! `GET /v1/namespaces/{ns}/accesses/{name}/kubeconfig`: a self-contained kubeconfig, never an exec
//! stanza.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, Response, StatusCode};
use keyferry_api::config::DeliveryType;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::kubeconfig::{self, KubeconfigParts};
use keyferry_core::request_id::RequestId;
use keyferry_listener::Source;
use secrecy::ExposeSecret;

use super::bearer;
use super::exchange::{certificate_of, choose_credential, source_of};
use super::refusal::{self, Surface};
use crate::broker::{self, Broker, Issuance};

/// The route's name in audit records.
const ROUTE_NAME: &str = "kubeconfig";

/// Answers with a kubeconfig.
pub(super) async fn answer_kubeconfig(
    State(broker): State<Arc<Broker>>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Response<Body> {
    if request.method() != Method::GET {
        return refusal::not_allowed("GET");
    }
    let (id, source) = (broker.request_id(), source_of(&request));
    if request.uri().query().is_some() {
        return refuse_malformed(
            &broker,
            "query parameters are not accepted; send the token in Authorization",
            id,
            source,
        )
        .await;
    }
    let refuse =
        |reason: Reason| refusal::refusal_response(&reason.into(), Surface::Resource, Some(id));
    let certificate = certificate_of(&request);
    let credential = bearer::bearer_token(request.headers())
        .and_then(|token| choose_credential(token, certificate));
    let credential = match credential {
        Ok(credential) => credential,
        Err(reason) => {
            return match broker.audit_refusal(ROUTE_NAME, reason, id, source).await {
                Ok(()) => refuse(reason),
                Err(limited) => refuse(limited.reason),
            };
        }
    };
    // A name needs no percent-encoding, and one path must not have two spellings.
    let path = Some(path).filter(|_| !request.uri().path().contains('%'));
    let Some(access) = path.and_then(access_of_path) else {
        return refuse_malformed(
            &broker,
            "the path names no namespace and access",
            id,
            source,
        )
        .await;
    };
    let request = broker::Request {
        route: ROUTE_NAME,
        credential,
        access: access.clone(),
        min_ttl: None,
        scope: None,
        needs_cluster: true,
        deliveries: &[DeliveryType::HTTP],
        request_id: id,
        source,
    };
    match broker.issue_credential(&request).await {
        Ok(issuance) => render_issuance(&issuance, &access, id),
        Err(refused) => refusal::refusal_response(&refused, Surface::Resource, Some(id)),
    }
}

/// Renders the kubeconfig with an issued token.
fn render_issuance(issuance: &Issuance, access: &AccessName, id: RequestId) -> Response<Body> {
    let refuse =
        |reason: Reason| refusal::refusal_response(&reason.into(), Surface::Resource, Some(id));
    let Some(target) = issuance.policy.targets.get(&issuance.target) else {
        return refuse(Reason::TargetNotGranted);
    };
    let parts = KubeconfigParts {
        target,
        ca_pem: issuance.ca_pem.as_deref(),
        access,
        token: issuance.token.secret(),
    };
    match kubeconfig::render_kubeconfig(&parts) {
        Ok(document) => refusal::secret_answer(
            StatusCode::OK,
            "application/yaml",
            document.expose_secret().to_owned(),
            Some(id),
        ),
        Err(_) => refuse(Reason::MintFailed),
    }
}

async fn refuse_malformed(
    broker: &Broker,
    description: &str,
    id: RequestId,
    source: Source,
) -> Response<Body> {
    match broker
        .audit_refusal(ROUTE_NAME, Reason::RequestInvalid, id, source)
        .await
    {
        Ok(()) => refusal::malformed_response(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            description,
            Some(id),
        ),
        Err(limited) => refusal::refusal_response(&limited, Surface::Resource, Some(id)),
    }
}

fn access_of_path(path: Result<Path<(String, String)>, PathRejection>) -> Option<AccessName> {
    let Path((namespace, name)) = path.ok()?;
    Some(AccessName {
        namespace: Namespace::new(namespace).ok()?,
        name: ObjectName::new(name).ok()?,
    })
}
