//! Serves the documents of managed issuers by the same rules as the hub's. A name without documents
//! gives 404, whatever the reason.

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::routing::any;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_issuer::managed_issuer::{ManagedIssuers, OwnDocuments};
use keyferry_issuer::publication::Document;
use keyferry_listener::plain_text;

use super::discovery;

#[derive(Clone)]
struct Shared {
    issuers: ManagedIssuers,
    cache_control: HeaderValue,
}

/// Builds the routes below `/issuers/{target}`. The same documents are also served where RFC 8414
/// section 3.1 looks for those of an issuer with a path.
pub(super) fn managed_issuer_routes(issuers: ManagedIssuers, cache_control: HeaderValue) -> Router {
    Router::new()
        .route(
            &format!("/issuers/{{target}}{DISCOVERY_PATH}"),
            any(answer_metadata),
        )
        .route(
            &format!("{DISCOVERY_PATH}/issuers/{{target}}"),
            any(answer_metadata),
        )
        .route(
            "/.well-known/oauth-authorization-server/issuers/{target}",
            any(answer_metadata),
        )
        .route("/issuers/{target}/openid/v1/jwks", any(answer_jwks))
        .with_state(Shared {
            issuers,
            cache_control,
        })
}

/// The target name in the path. A name that is not valid text gives 404 too.
type Named = Result<Path<String>, PathRejection>;

async fn answer_metadata(
    State(shared): State<Shared>,
    target: Named,
    request: Request,
) -> Response<Body> {
    answer_document(
        &shared,
        &target,
        &request,
        "application/json",
        |documents| &documents.metadata,
    )
}

async fn answer_jwks(
    State(shared): State<Shared>,
    target: Named,
    request: Request,
) -> Response<Body> {
    answer_document(
        &shared,
        &target,
        &request,
        "application/jwk-set+json",
        |documents| &documents.jwks,
    )
}

fn answer_document(
    shared: &Shared,
    target: &Named,
    request: &Request,
    content_type: &'static str,
    document: impl Fn(&OwnDocuments) -> &Document,
) -> Response<Body> {
    let found = target
        .as_ref()
        .ok()
        .and_then(|Path(target)| shared.issuers.find_by_name(target));
    let Some(issuer) = found else {
        return discovery::not_found();
    };
    let documents = issuer.documents.as_deref();
    match documents {
        Some(documents) => discovery::document_response(
            document(documents),
            content_type,
            &shared.cache_control,
            request,
        ),
        None => plain_text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the keys of this issuer have not been read yet\n",
        ),
    }
}

#[cfg(test)]
mod tests;
