//! Connections: so many at once and no more, and none that stays silent.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may take to its first byte after the handshake.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// How long it may be silent later on. Longer than any request may take.
const SILENCE: Duration = Duration::from_secs(75);

/// Lets another acceptor do its work within the bounds.
#[derive(Clone)]
pub(super) struct BoundedAcceptor<A> {
    inner: A,
    room: Arc<Semaphore>,
}

impl<A> BoundedAcceptor<A> {
    /// For so many connections at once.
    pub(super) fn new(inner: A, connections: usize) -> BoundedAcceptor<A> {
        BoundedAcceptor { inner, room: Arc::new(Semaphore::new(connections)) }
    }
}

impl<I, S, A> Accept<I, S> for BoundedAcceptor<A>
where
    A: Accept<I, S>,
    A::Stream: Send,
    A::Service: Send,
    A::Future: Send + 'static,
{
    type Stream = BoundedStream<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let room = Arc::clone(&self.room).try_acquire_owned();
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            // Taken before the handshake, which is the dearest part.
            let room = room.map_err(|_| Error::new(ErrorKind::ConnectionRefused, "too many connections"))?;
            let (inner, service) = accepted.await?;
            Ok((BoundedStream { inner, silence: Box::pin(sleep(FIRST_BYTE)), _room: room }, service))
        })
    }
}

/// A stream that ends when nothing is heard for too long.
pub(super) struct BoundedStream<T> {
    inner: T,
    silence: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl<T: AsyncRead + Unpin> AsyncRead for BoundedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, buffer) {
            let until = Instant::now() + SILENCE;
            self.silence.as_mut().reset(until);
            return Poll::Ready(read);
        }
        ready!(self.silence.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client was silent for too long")))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BoundedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[std::io::IoSlice<'_>]) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use axum_server::accept::{Accept, DefaultAcceptor};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::{BoundedAcceptor, FIRST_BYTE, SILENCE};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_left() {
        let (mut client, server) = duplex(64);
        let (mut stream, ()) = BoundedAcceptor::new(DefaultAcceptor::new(), 1).accept(server, ()).await.unwrap();
        let mut byte = [0];
        tokio::time::advance(FIRST_BYTE - Duration::from_millis(10)).await;
        client.write_all(b"a").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        let before = tokio::time::Instant::now();
        let error = stream.read_exact(&mut byte).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed().as_secs(), SILENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_has_a_shorter_time() {
        let (_client, server) = duplex(64);
        let (mut stream, ()) = BoundedAcceptor::new(DefaultAcceptor::new(), 1).accept(server, ()).await.unwrap();
        let before = tokio::time::Instant::now();
        assert!(stream.read_u8().await.is_err());
        assert_eq!(before.elapsed().as_secs(), FIRST_BYTE.as_secs());
    }

    #[tokio::test]
    async fn one_too_many_is_refused_and_room_comes_back() {
        let acceptor = BoundedAcceptor::new(DefaultAcceptor::new(), 1);
        let first = acceptor.accept(duplex(64).1, ()).await.unwrap();
        assert!(acceptor.accept(duplex(64).1, ()).await.is_err());
        drop(first);
        assert!(acceptor.accept(duplex(64).1, ()).await.is_ok());
    }
}
