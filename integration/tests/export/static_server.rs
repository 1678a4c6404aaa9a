//! The simplest possible web server: a folder, no media types, no caching.

use std::path::PathBuf;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::TestError;

pub(super) async fn start(ca: &TestCa, folder: PathBuf) -> Result<HttpsServer, TestError> {
    let routes = Router::new().fallback(file).with_state(folder);
    Ok(HttpsServer::start(&ca.serving("static-server", &[])?, routes).await?)
}

async fn file(State(folder): State<PathBuf>, request: Request) -> Response {
    match tokio::fs::read(folder.join(request.uri().path().trim_start_matches('/'))).await {
        Ok(bytes) => bytes.into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}
