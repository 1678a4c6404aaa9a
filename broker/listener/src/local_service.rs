//! A listener for programs of this machine: bound to loopback, and with limits for one reader.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use futures::future::BoxFuture;

use crate::listener::{Bounds, ListenError, PlainListener};
use crate::metrics::ListenerMetrics;

/// Answers the requests of a loopback listener. A request's body is never read.
pub trait LocalService: Send + Sync + 'static {
    /// Answers one request, whatever its method and target are.
    fn answer_request(&self, request: Request<()>) -> BoxFuture<'_, Response<String>>;
}

impl PlainListener {
    /// Binds a free port of 127.0.0.1. No flag of any command chooses another address, so no other
    /// machine ever reaches it.
    ///
    /// # Errors
    /// [`ListenError::Bind`].
    pub fn bind_loopback(metrics: Arc<dyn ListenerMetrics>) -> Result<Self, ListenError> {
        Self::bind((Ipv4Addr::LOCALHOST, 0).into(), Bounds::VIEWER, metrics)
    }

    /// Serves the answers of one service until the handle shuts the listener down.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn serve_local(self, service: Arc<dyn LocalService>) -> std::io::Result<()> {
        let answer = move |request: Request<Body>| {
            let service = Arc::clone(&service);
            async move {
                let (head, _) = request.into_parts();
                let request = Request::from_parts(head, ());
                service.answer_request(request).await.map(Body::from)
            }
        };
        self.serve(Router::new().fallback(answer)).await
    }
}
