//! Accepts connections: passes the gate, performs the handshake, and wraps the service in the
//! checks that each request gets first.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{Request, Response, Version};
use axum_server::accept::Accept;
use futures::FutureExt;
use futures::future::{Either, Join, Map, join};
use hyper::body::Incoming;
use tokio::net::TcpStream;
use tower::Service;

use super::connection::{BoundedStream, Times};
use super::connection_requests::ConnectionRequests;
use super::framing;
use super::gate::{Gate, Refused};
use super::listener::{Bounds, HttpService};
use crate::source::Source;

/// Performs the handshake with another acceptor, within the listener's limits.
#[derive(Clone)]
pub(super) struct BoundedAcceptor<A> {
    inner: A,
    gate: Arc<Gate>,
    bounds: Bounds,
}

impl<A> BoundedAcceptor<A> {
    pub(super) fn new(inner: A, gate: Arc<Gate>, bounds: Bounds) -> Self {
        Self {
            inner,
            gate,
            bounds,
        }
    }
}

impl<S, A> Accept<TcpStream, S> for BoundedAcceptor<A>
where
    A: Accept<TcpStream, S>,
    A::Stream: Send + 'static,
    A::Service: Send + 'static,
    A::Future: Send + 'static,
    S: Send + 'static,
{
    type Stream = BoundedStream<A::Stream>;
    type Service = ConnectionService<A::Service>;
    type Future = Pin<Box<dyn Future<Output = Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
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
            .map(|peer| Source::of(peer.ip()))
            .and_then(|source| {
                let source = if each_address {
                    source
                } else {
                    source.network()
                };
                let handshake = gate
                    .enter(source)
                    .map_err(|_| Error::from(ErrorKind::ConnectionRefused))?;
                bound_kernel(&stream, times);
                Ok((source, handshake))
            });
        let (source, handshake) = match entered {
            Ok(entered) => entered,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let accepted = tokio::time::timeout(times.handshake, accepted).await;
            let (inner, service) = accepted.map_err(Error::from).flatten().inspect_err(|_| {
                gate.refuse(Refused::Handshake);
            })?;
            let place = handshake
                .done()
                .map_err(|_| Error::from(ErrorKind::ConnectionRefused))?;
            let answers = ConnectionRequests::new();
            let told = tells_source.then_some(source);
            let service = ConnectionService {
                inner: service,
                told,
                answers: Arc::clone(&answers),
            };
            Ok((BoundedStream::new(inner, times, answers, place), service))
        })
    }
}

/// Sets the kernel's timeout for a client that acknowledges nothing or keeps its window shut. It
/// also applies after the process has closed its end, when the process can no longer limit what the
/// kernel buffers for the client.
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
pub(super) struct ConnectionService<S> {
    inner: S,
    /// The source of the connection, if the service receives it.
    told: Option<Source>,
    answers: Arc<ConnectionRequests>,
}

type Outcome = std::result::Result<Response<Body>, Infallible>;

/// What remains to be done once a request has its response.
pub(super) struct Finish {
    /// Where to track the response; set under HTTP/2 only.
    follow: Option<Arc<ConnectionRequests>>,
    close: bool,
}

impl<S: HttpService<Incoming>> Service<Request<Incoming>> for ConnectionService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        Ready<Outcome>,
        Map<Join<S::Future, Ready<Finish>>, fn((Outcome, Finish)) -> Outcome>,
    >;

    fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        self.answers.request();
        let follow = (request.version() == Version::HTTP_2).then(|| Arc::clone(&self.answers));
        let finish = Finish {
            follow,
            close: framing::ends_connection(&request),
        };
        if let Some(refused) = framing::refused(&request) {
            return Either::Left(ready(finished((Ok(refused), finish))));
        }
        if let Some(source) = self.told {
            request.extensions_mut().insert(source);
        }
        // `join` with a ready future needs no named, boxed or hand-pinned future: it completes with
        // the response.
        Either::Right(
            join(self.inner.call(request), ready(finish))
                .map(finished as fn((Outcome, Finish)) -> Outcome),
        )
    }
}

fn finished((outcome, finish): (Outcome, Finish)) -> Outcome {
    outcome.map(|mut response| {
        if finish.close {
            framing::close(&mut response);
        }
        match finish.follow {
            Some(answers) => answers.follow(response),
            None => response,
        }
    })
}
