//! Metrics on a TLS listener of their own, for readers that the hub permits.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use keyferry_api::reason::Reason;
use keyferry_listener::{Source, plain_text};
use keyferry_platform::metrics::Metrics;
use tokio::runtime::Handle;

use super::bearer;
use super::exchange::source_of;
use crate::metrics_readers::MetricsReaders;

/// What the metrics listener serves, and who may read it.
pub struct MetricsParts {
    /// The metrics to expose.
    pub metrics: Metrics,
    /// Who may read them. None: every client.
    pub readers: Option<MetricsReaders>,
}

/// Builds the route `/metrics`.
pub fn metrics_routes(parts: MetricsParts) -> Router {
    Router::new()
        .route("/metrics", get(answer_metrics))
        .with_state(Arc::new(parts))
}

async fn answer_metrics(
    State(parts): State<Arc<MetricsParts>>,
    request: Request,
) -> Response<Body> {
    let permitted = match &parts.readers {
        Some(readers) => check_permission(readers, request.headers(), source_of(&request)).await,
        None => Ok(()),
    };
    match permitted {
        Ok(()) => exposition_response(&parts.metrics),
        Err(reason) => refusal_response(reason),
    }
}

async fn check_permission(
    readers: &MetricsReaders,
    headers: &HeaderMap,
    source: Source,
) -> Result<(), Reason> {
    match bearer::bearer_token(headers).and_then(|token| token.ok_or(Reason::CallerMissing)) {
        Ok(token) => readers.check_reader(&token, source).await,
        Err(reason) => {
            readers.count_unreadable(source)?;
            Err(reason)
        }
    }
}

/// Answers with all metrics, those of the runtime as they are now.
pub(super) fn exposition_response(metrics: &Metrics) -> Response<Body> {
    metrics.running_tasks(Handle::current().metrics().num_alive_tasks());
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        metrics.exposition(),
    )
        .into_response()
}

fn refusal_response(reason: Reason) -> Response<Body> {
    let (status, text) = match reason {
        reason if reason.is_about_caller() => (
            StatusCode::UNAUTHORIZED,
            "the hub does not accept the bearer token; fix: send the ServiceAccount token with \
             which you call the hub's API\n",
        ),
        Reason::MetricsForbidden => (
            StatusCode::FORBIDDEN,
            "MetricsForbidden: you may not get /metrics; fix: bind ClusterRole \
             keyferry-metrics-reader\n",
        ),
        Reason::RateLimited => (
            StatusCode::TOO_MANY_REQUESTS,
            "RateLimited: too many requests of unknown readers; try again shortly\n",
        ),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the hub could not review the bearer token; see Keyferry's log\n",
        ),
    };
    let mut response = plain_text(status, text);
    if status == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
