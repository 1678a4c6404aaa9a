//! Redirects from plain HTTP to the published documents.
//!
//! Only the method and the path of a request are used. `Host` cannot choose where a client is sent,
//! and no body is read.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use keyferry_api::issuer::PublicUrl;
use keyferry_listener::plain_text;
use tower::ServiceExt;

use super::discovery;

struct Shared {
    documents: Router,
    public_url: PublicUrl,
}

/// Builds the routes of the listener. `documents` are the routes of the discovery listener: what
/// they serve is redirected to the same path of `public_url`, and everything else is 404.
pub fn redirect_routes(documents: Router, public_url: PublicUrl) -> Router {
    Router::new()
        .fallback(redirect_request)
        .with_state(Arc::new(Shared {
            documents,
            public_url,
        }))
}

async fn redirect_request(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = if is_read && shared.serves_path(path).await {
        shared.moved_response(path)
    } else {
        discovery::not_found()
    };
    // A client needs no second request here. Closing the connection also drops an unread body.
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

impl Shared {
    /// Whether the discovery listener serves this path, by asking its own routes.
    async fn serves_path(&self, path: &str) -> bool {
        let Ok(request) = Request::builder().uri(path).body(Body::empty()) else {
            return false;
        };
        let Ok(response) = self.documents.clone().oneshot(request).await;
        response.status() != StatusCode::NOT_FOUND
    }

    fn moved_response(&self, path: &str) -> Response<Body> {
        let location = HeaderValue::from_str(&format!("{}{path}", self.public_url));
        let Ok(location) = location else {
            return discovery::not_found();
        };
        let mut response = plain_text(StatusCode::MOVED_PERMANENTLY, "moved to https\n");
        response.headers_mut().insert(header::LOCATION, location);
        response
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::{Method, Request, StatusCode, header};
    use keyferry_api::issuer::PublicUrl;
    use keyferry_issuer::testing::managed_issuers::start_managed_world;
    use tower::ServiceExt;

    use super::super::discovery;

    #[tokio::test]
    async fn only_what_is_served_is_redirected_and_only_to_the_public_url() {
        let (world, _store, mut replica) = start_managed_world().await;
        replica.maintainer.run_round(&world.policy).await;
        let documents = discovery::discovery_routes(
            world.publisher.reader(),
            replica.issuers.clone(),
            Duration::from_secs(60),
        );
        let public_url = PublicUrl::new("https://keyferry.example.com").unwrap();
        let routes = super::redirect_routes(documents, public_url);
        let ask = async |method: Method, uri: &str| {
            let request = Request::builder()
                .method(method)
                .uri(uri)
                .header(header::HOST, "evil.example.com")
                .header("x-forwarded-host", "evil.example.com")
                // A body that never ends: reading it would never return.
                .body(Body::from_stream(futures::stream::pending::<
                    Result<Vec<u8>, std::io::Error>,
                >()))
                .unwrap();
            let response = routes.clone().oneshot(request).await.unwrap();
            let location = response.headers().get(header::LOCATION);
            (
                response.status(),
                location.map(|location| location.to_str().unwrap().to_owned()),
            )
        };
        for path in [
            "/.well-known/openid-configuration",
            "/openid/v1/jwks",
            "/issuers/prod/.well-known/openid-configuration",
            "/issuers/prod/openid/v1/jwks",
        ] {
            let moved = Some(format!("https://keyferry.example.com{path}"));
            for method in [Method::GET, Method::HEAD] {
                for uri in [
                    path.to_owned(),
                    format!("{path}?next=https://evil.example.com"),
                    format!("http://evil.example.com{path}"),
                ] {
                    assert_eq!(
                        ask(method.clone(), &uri).await,
                        (StatusCode::MOVED_PERMANENTLY, moved.clone()),
                        "{method} {uri}"
                    );
                }
            }
            for method in [Method::POST, Method::PUT, Method::OPTIONS, Method::TRACE] {
                assert_eq!(ask(method, path).await, (StatusCode::NOT_FOUND, None));
            }
        }
        for path in [
            "/",
            "//evil.example.com/openid/v1/jwks",
            "/openid/v1/jwks/",
            "/issuers/other/openid/v1/jwks",
            "/issuers/..%2Fprod/openid/v1/jwks",
            "/v1/token",
            "/metrics",
        ] {
            assert_eq!(
                ask(Method::GET, path).await,
                (StatusCode::NOT_FOUND, None),
                "{path}"
            );
        }
    }
}
