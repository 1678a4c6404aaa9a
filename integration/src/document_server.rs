//! Serves fixed documents over HTTPS, such as an issuer's discovery document and keys.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use parking_lot::Mutex;
use serde_json::Value;

use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::https::HttpsServer;
use crate::pki::{PkiError, TestCa};

/// Why documents could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The certificate could not be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The server did not start.
    #[error("start a document server: {0}")]
    Start(std::io::Error),
    /// The issuer's own documents could not be read.
    #[error(transparent)]
    Issuer(#[from] ControlPlaneError),
}

/// Serves documents by exact path; everything else is 404.
#[derive(Debug)]
pub struct DocumentServer {
    server: HttpsServer,
    shelf: Shelf,
}

impl DocumentServer {
    /// Starts a server without documents, with a certificate of the CA.
    pub async fn start(ca: &TestCa) -> Result<Self, DocumentError> {
        let certificate = ca.serving("document-server", &[])?;
        let shelf = Shelf::default();
        let routes = Router::new()
            .fallback(serve_document)
            .with_state(shelf.clone());
        let server = HttpsServer::start(&certificate, routes)
            .await
            .map_err(DocumentError::Start)?;
        Ok(Self { server, shelf })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Puts a JSON document at a path, and replaces any document there.
    pub fn put(&self, path: &str, document: &Value) {
        self.shelf.with(|shelves| {
            let place = shelves.entry(path.to_owned()).or_default();
            place.document = Some(document.to_string());
        });
    }

    /// Removes the document, so that its path answers 404.
    pub fn remove(&self, path: &str) {
        self.shelf.with(|shelves| {
            if let Some(place) = shelves.get_mut(path) {
                place.document = None;
            }
        });
    }

    /// The number of requests for a path.
    pub fn reads(&self, path: &str) -> u64 {
        self.shelf
            .with(|shelves| shelves.get(path).map_or(0, |place| place.reads))
    }

    /// Copies the discovery document and the keys of a control plane below `/<name>`, with
    /// `jwks_uri` pointing here. Returns the URL of the discovery document, for
    /// `issuer.discoveryURL`.
    pub async fn publish(&self, issuer: &ControlPlane) -> Result<String, DocumentError> {
        let read = async |path: &str| -> Result<Value, ControlPlaneError> {
            Ok(issuer.admin().get(path).await?)
        };
        let mut discovery = read("/.well-known/openid-configuration").await?;
        let keys = read("/openid/v1/jwks").await?;
        let keys_path = format!("/{}/keys", issuer.name());
        let path = format!("/{}/.well-known/openid-configuration", issuer.name());
        discovery["jwks_uri"] = format!("{}{keys_path}", self.url()).into();
        self.put(&keys_path, &keys);
        self.put(&path, &discovery);
        Ok(format!("{}{path}", self.url()))
    }
}

#[derive(Debug, Clone, Default)]
struct Shelf(Arc<Mutex<HashMap<String, Place>>>);

#[derive(Debug, Default)]
struct Place {
    document: Option<String>,
    reads: u64,
}

impl Shelf {
    fn with<R>(&self, work: impl FnOnce(&mut HashMap<String, Place>) -> R) -> R {
        work(&mut self.0.lock())
    }
}

async fn serve_document(State(shelf): State<Shelf>, request: Request) -> Response {
    let document = shelf.with(|shelves| {
        let place = shelves.entry(request.uri().path().to_owned()).or_default();
        place.reads += 1;
        place.document.clone()
    });
    match document {
        Some(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
