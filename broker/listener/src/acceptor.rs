//! Accepts connections: passes the gate, performs the handshake, and wraps the service in the
//! checks that each request gets first.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, Version};
use axum_server::accept::Accept;
use hyper::body::Incoming;
use keyferry_keys::caller_certificate::PresentedChain;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::connection::{BoundedStream, Times};
use crate::connection_requests::ConnectionRequests;
use crate::framing;
use crate::gate::{Gate, Refused};
use crate::listener::Bounds;
use crate::source::Source;

/// Returns the certificates that the peer of a connection presented.
pub(crate) type ChainOf<S> = fn(&S) -> Option<Arc<PresentedChain>>;

/// Performs the handshake with another acceptor, within the listener's limits.
pub(crate) struct BoundedAcceptor<A, S> {
    inner: A,
    chain_of: ChainOf<S>,
    gate: Arc<Gate>,
    bounds: Bounds,
}

impl<A: Clone, S> Clone for BoundedAcceptor<A, S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            chain_of: self.chain_of,
            gate: Arc::clone(&self.gate),
            bounds: self.bounds,
        }
    }
}

impl<A, S> BoundedAcceptor<A, S> {
    pub(crate) fn new(inner: A, chain_of: ChainOf<S>, gate: Arc<Gate>, bounds: Bounds) -> Self {
        Self {
            inner,
            chain_of,
            gate,
            bounds,
        }
    }
}

impl<A> Accept<TcpStream, Router> for BoundedAcceptor<A, A::Stream>
where
    A: Accept<TcpStream, Router, Service = Router>,
    A::Stream: Send + 'static,
    A::Future: Send + 'static,
{
    type Stream = BoundedStream<A::Stream>;
    type Service = ConnectionService;
    type Future = Pin<Box<dyn Future<Output = Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, routes: Router) -> Self::Future {
        let (
            gate,
            Bounds {
                times,
                tells_source,
                each_address,
                ..
            },
        ) = (Arc::clone(&self.gate), self.bounds);
        // Checked before the handshake, which is the most expensive part.
        let entered = stream
            .peer_addr()
            .map(|peer| Source::of_address(peer.ip()))
            .and_then(|source| {
                let source = if each_address {
                    source
                } else {
                    source.network()
                };
                let handshake = gate
                    .admit_connection(source)
                    .map_err(|_| Error::from(ErrorKind::ConnectionRefused))?;
                bound_kernel(&stream, times);
                Ok((source, handshake))
            });
        let (source, handshake) = match entered {
            Ok(entered) => entered,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let accepted = self.inner.accept(stream, routes);
        let chain_of = self.chain_of;
        Box::pin(async move {
            let accepted = tokio::time::timeout(times.handshake, accepted).await;
            let (inner, routes) = accepted.map_err(Error::from).flatten().inspect_err(|_| {
                gate.count_refusal(Refused::Handshake);
            })?;
            let place = handshake
                .into_open()
                .map_err(|_| Error::from(ErrorKind::ConnectionRefused))?;
            let answers = ConnectionRequests::new();
            let told = tells_source.then_some(source);
            let service = ConnectionService {
                routes,
                gate,
                source,
                reported_source: told,
                certificate: chain_of(&inner),
                answers: Arc::clone(&answers),
            };
            Ok((BoundedStream::new(inner, times, answers, place), service))
        })
    }
}

/// Sets the kernel's timeout for a client that acknowledges nothing or keeps its window closed. It
/// also applies after the process has closed its end and can no longer limit the kernel's buffer.
#[cfg(target_os = "linux")]
fn bound_kernel(stream: &TcpStream, times: Times) {
    // Longer than the connection's own limit, which ends the connection first and is counted in a
    // metric.
    let limit = u32::try_from((times.progress * 2).as_millis()).unwrap_or(u32::MAX);
    // A failure only loses this extra limit; the connection's own limit still applies.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, limit);
}

#[cfg(not(target_os = "linux"))]
fn bound_kernel(_: &TcpStream, _: Times) {}

/// Answers the requests of one connection.
#[derive(Clone)]
pub(crate) struct ConnectionService {
    routes: Router,
    gate: Arc<Gate>,
    source: Source,
    /// The source of the connection, if the routes receive it.
    reported_source: Option<Source>,
    /// What the client presented in the handshake.
    certificate: Option<Arc<PresentedChain>>,
    answers: Arc<ConnectionRequests>,
}

type Outcome = std::result::Result<Response<Body>, Infallible>;

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.answers.note_request();
        let service = self.clone();
        if request.version() == Version::HTTP_2 {
            // Before further streams are read, because each would hold its head while it waits.
            service.answers.pause_reads(service.count_request());
            return Box::pin(async move {
                let response = service.answer_request(request).await?;
                // Only HTTP/2 queues responses that its client has not read yet.
                Ok(service.answers.track_response(response))
            });
        }
        Box::pin(async move {
            // One read may bring many requests: this one waits for the pause of the one before it.
            service.answers.until_read_again().await;
            let read_again = service.count_request();
            let response = service.answer_request(request).await?;
            // Its own body was to be read without a pause.
            service.answers.pause_reads(read_again);
            Ok(response)
        })
    }
}

impl ConnectionService {
    /// Counts a request, and returns when its connection may be read from again.
    fn count_request(&self) -> Instant {
        Instant::now() + self.gate.count_request(self.source)
    }

    async fn answer_request(&self, mut request: Request<Incoming>) -> Outcome {
        let close = framing::ends_connection(&request);
        let refused = framing::refuse_ambiguous(&request);
        if let Some(source) = self.reported_source {
            request.extensions_mut().insert(source);
        }
        if let Some(chain) = &self.certificate {
            request.extensions_mut().insert(Arc::clone(chain));
        }
        let mut response = match refused {
            Some(refused) => refused,
            None => self.routes.clone().oneshot(request).await?,
        };
        if close {
            framing::close_connection(&mut response);
        }
        Ok(response)
    }
}
