//! Time limits of an open connection: ends those that stay silent and those whose responses the
//! client does not read.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection_requests::ConnectionRequests;
use crate::gate::OpenConnection;

/// Bytes of a pending response that a client must read within [`Times::progress`]: one TLS record.
/// A client that has read everything pending owes nothing more.
const PROGRESS_BYTES: usize = 16 * 1024;

/// Number of reads without waiting after which the time limits are checked. A client that keeps the
/// socket full never makes a read wait, so the timer alone would never run.
const LOOK_EVERY: u32 = 32;

/// Time limits for the client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// For the TLS handshake.
    pub(crate) handshake: Duration,
    /// From the handshake to the first byte.
    pub(crate) first_byte: Duration,
    /// For a request head, for the first request, and between two requests under HTTP/1.1.
    pub(crate) head: Duration,
    /// For reading [`PROGRESS_BYTES`] bytes of a pending response, and under HTTP/2 for a whole response.
    pub(crate) progress: Duration,
    /// Without a request or a response. It exceeds the longest request: 30 s for the body and 30 s
    /// for the decision.
    pub(crate) idle: Duration,
}

impl Times {
    /// The limits of every listener.
    pub(crate) const DEFAULT: Self = Self {
        handshake: Duration::from_secs(3),
        first_byte: Duration::from_secs(10),
        head: Duration::from_secs(30),
        progress: Duration::from_secs(30),
        idle: Duration::from_secs(75),
    };
}

/// Why a connection is ended, as a metric label.
type EndReason = &'static str;

/// A stream that fails when its client makes no progress in time.
///
/// Reads and writes both check the time limits: a connection whose responses nobody reads is never
/// read from again. Reads that never wait check them too, every few reads.
pub(crate) struct BoundedStream<T> {
    inner: T,
    times: Times,
    opened: Instant,
    heard: bool,
    /// Number of reads since the connection began that did not wait.
    reads: u32,
    blocked: Option<Blocked>,
    answers: Arc<ConnectionRequests>,
    /// When to check the limits next. Progress is only recorded and does not reset the timer, which
    /// would cost more.
    timer: Pin<Box<Sleep>>,
    /// The end of a pause, for a source that sent more requests than its rate.
    pause: Option<Pin<Box<Sleep>>>,
    open_connection: OpenConnection,
}

/// Response bytes that are pending and cannot be sent.
struct Blocked {
    since: Instant,
    sent: usize,
}

impl<T> BoundedStream<T> {
    pub(crate) fn new(
        inner: T,
        times: Times,
        answers: Arc<ConnectionRequests>,
        place: OpenConnection,
    ) -> Self {
        let opened = Instant::now();
        let first = times
            .first_byte
            .min(times.head)
            .min(times.idle)
            .min(times.progress / 2);
        let timer = Box::pin(sleep_until(opened + first));
        Self {
            inner,
            times,
            opened,
            heard: false,
            reads: 0,
            blocked: None,
            answers,
            timer,
            pause: None,
            open_connection: place,
        }
    }

    /// Keeps waiting, unless a time limit has passed.
    fn keep_waiting<R>(&mut self, context: &mut Context<'_>) -> Poll<Result<R>> {
        // tokio may have deferred this read because its task used up its budget. Without
        // `unconstrained`, the timer would be deferred with it every time.
        while Pin::new(&mut unconstrained(self.timer.as_mut()))
            .poll(context)
            .is_ready()
        {
            self.check_deadlines()?;
        }
        Poll::Pending
    }

    /// Waits for the end of a pause.
    ///
    /// A paused client is not read from, so its next requests cost neither decryption nor memory. A
    /// wait in the service would hold the head of each HTTP/2 stream meanwhile.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.answers.paused_until() else {
            return Poll::Ready(());
        };
        let pause = self
            .pause
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if pause.deadline() != until {
            pause.as_mut().reset(until);
        }
        Pin::new(&mut unconstrained(pause.as_mut())).poll(context)
    }

    /// Ends the connection if a time limit has passed.
    fn check_deadlines(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.timer.deadline() {
            return Ok(());
        }
        match self.next_look(now) {
            Ok(next) => {
                self.timer.as_mut().reset(next);
                Ok(())
            }
            Err(why) => {
                self.open_connection.count_ended(why);
                Err(Error::new(ErrorKind::TimedOut, why))
            }
        }
    }

    /// Returns the earliest time at which a limit may have passed.
    fn next_look(&self, now: Instant) -> std::result::Result<Instant, EndReason> {
        let Times {
            first_byte,
            head,
            progress,
            idle,
            ..
        } = self.times;
        let limits = [
            ("silent", (!self.heard).then_some(self.opened), first_byte),
            (
                "silent",
                (!self.answers.has_requests()).then_some(self.opened),
                head,
            ),
            (
                "unread",
                self.blocked.as_ref().map(|blocked| blocked.since),
                progress,
            ),
            ("unread", self.answers.waiting_since(), progress),
            ("idle", Some(self.answers.last_activity()), idle),
        ];
        // Half of `progress` is soon enough to notice a wait that begins meanwhile.
        let mut next = now + progress / 2;
        for (why, since, limit) in limits {
            let Some(end) = since.map(|since| since + limit) else {
                continue;
            };
            if end <= now {
                return Err(why);
            }
            next = next.min(end);
        }
        Ok(next)
    }

    fn note_written(&mut self, bytes: usize) {
        let Some(blocked) = &mut self.blocked else {
            return;
        };
        blocked.sent += bytes;
        if blocked.sent >= PROGRESS_BYTES {
            *blocked = Blocked {
                since: Instant::now(),
                sent: 0,
            };
            self.answers.note_progress();
        }
    }

    fn note_blocked<R>(&mut self, context: &mut Context<'_>) -> Poll<Result<R>> {
        self.blocked.get_or_insert_with(|| Blocked {
            since: Instant::now(),
            sent: 0,
        });
        self.keep_waiting(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for BoundedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if self.poll_pause(context).is_pending() {
            return self.keep_waiting(context);
        }
        match Pin::new(&mut self.inner).poll_read(context, buffer) {
            Poll::Pending => self.keep_waiting(context),
            ready => {
                self.heard = true;
                self.reads = self.reads.wrapping_add(1);
                if self.reads.is_multiple_of(LOOK_EVERY) {
                    self.check_deadlines()?;
                }
                ready
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> BoundedStream<T> {
    fn after_write(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        match polled {
            Poll::Pending => self.note_blocked(context),
            Poll::Ready(Ok(bytes)) => {
                self.note_written(bytes);
                Poll::Ready(Ok(bytes))
            }
            failed => failed,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BoundedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.after_write(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.after_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match Pin::new(&mut self.inner).poll_flush(context) {
            Poll::Pending => self.note_blocked(context),
            ready => {
                if self.blocked.take().is_some() {
                    self.answers.note_progress();
                }
                ready
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match Pin::new(&mut self.inner).poll_shutdown(context) {
            Poll::Pending => self.note_blocked(context),
            ready => ready,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::{BoundedStream, PROGRESS_BYTES, Times};
    use crate::connection_requests::ConnectionRequests;
    use crate::gate::{ConnectionLimits, Gate};
    use crate::listener::tests::CountedMetrics;
    use crate::source::Source;

    const TIMES: Times = Times::DEFAULT;

    /// The client's end, the server's end, and the state of the connection's requests.
    fn connection(
        buffer: usize,
    ) -> (
        DuplexStream,
        BoundedStream<DuplexStream>,
        Arc<ConnectionRequests>,
    ) {
        let (client, server) = duplex(buffer);
        let gate = Gate::new(
            "api",
            ConnectionLimits {
                connections: 1,
                handshakes: 1,
                per_source: None,
            },
            Arc::<CountedMetrics>::default(),
        );
        let place = gate
            .admit_connection(Source::default())
            .ok()
            .unwrap()
            .into_open()
            .ok()
            .unwrap();
        let answers = ConnectionRequests::new();
        (
            client,
            BoundedStream::new(server, TIMES, Arc::clone(&answers), place),
            answers,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_has_a_shorter_time() {
        let (_client, mut stream, _) = connection(64);
        let before = Instant::now();
        assert_eq!(
            stream.read_u8().await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        assert_eq!(before.elapsed(), TIMES.first_byte);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_request_is_left() {
        let (mut client, mut stream, answers) = connection(64);
        client.write_all(b"a").await.unwrap();
        stream.read_u8().await.unwrap();
        tokio::time::advance(Duration::from_secs(20)).await;
        answers.note_request();
        let before = Instant::now();
        // Bytes alone are no request: a client may send some for ever.
        let trickle = async {
            loop {
                tokio::time::sleep(Duration::from_secs(20)).await;
                client.write_all(b"a").await.unwrap();
            }
        };
        let reading = async {
            loop {
                if let Err(error) = stream.read_u8().await {
                    return error;
                }
            }
        };
        let error = tokio::select! { error = reading => error, () = trickle => unreachable!() };
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::TimedOut, "idle")
        );
        assert_eq!(before.elapsed(), TIMES.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_ends_the_connection() {
        let (_client, mut stream, answers) = connection(64);
        let before = Instant::now();
        stream.heard = true;
        answers.note_request();
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::TimedOut, "unread")
        );
        assert_eq!(before.elapsed(), TIMES.progress);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_little_at_a_time_is_left_and_a_slow_one_is_served() {
        for (piece, served) in [(64, false), (PROGRESS_BYTES, true)] {
            let (mut client, mut stream, answers) = connection(64);
            stream.heard = true;
            answers.note_request();
            let reader = async {
                let mut taken = vec![0; piece];
                loop {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    client.read_exact(&mut taken).await.unwrap();
                }
            };
            let answer = vec![0; PROGRESS_BYTES * 8];
            let written = tokio::select! { written = stream.write_all(&answer) => written, () = reader => unreachable!() };
            assert_eq!(
                written.is_ok(),
                served,
                "{piece} bytes in 20 s: {written:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_the_client_gives_no_window_ends_the_connection_however_busy_it_is() {
        let (mut client, mut stream, answers) = connection(64);
        let before = Instant::now();
        answers.note_request();
        let stuck = answers.track_response(Response::new(Body::from("document")));
        let busy = async {
            loop {
                client.write_all(b"ping").await.unwrap();
                answers.note_progress();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reading = async {
            loop {
                if let Err(error) = stream.read_u8().await {
                    return error;
                }
            }
        };
        let error = tokio::select! { error = reading => error, () = busy => unreachable!() };
        assert_eq!(error.to_string(), "unread");
        assert_eq!(before.elapsed(), TIMES.progress);
        drop(stuck);
    }

    /// A preface, SETTINGS and PINGs are not a request.
    #[tokio::test(start_paused = true)]
    async fn the_first_request_has_the_time_of_a_head() {
        let (mut client, mut stream, _) = connection(64);
        let before = Instant::now();
        let busy = async {
            loop {
                client.write_all(b"ping").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reading = async {
            loop {
                if let Err(error) = stream.read_u8().await {
                    return error;
                }
            }
        };
        let error = tokio::select! { error = reading => error, () = busy => unreachable!() };
        assert_eq!(error.to_string(), "silent");
        assert_eq!(before.elapsed(), TIMES.head);
    }

    /// Simulates a client that keeps the socket full of bytes that are not a request.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_lets_a_read_wait_is_left() {
        let (_client, stream, answers) = connection(64);
        let mut stream = BoundedStream {
            inner: tokio::io::repeat(b'p'),
            times: TIMES,
            opened: stream.opened,
            heard: true,
            reads: 0,
            blocked: None,
            answers: Arc::clone(&answers),
            timer: stream.timer,
            pause: None,
            open_connection: stream.open_connection,
        };
        answers.note_request();
        let before = Instant::now();
        let error = loop {
            assert!(before.elapsed() < TIMES.idle * 2, "it is still there");
            tokio::time::advance(Duration::from_millis(100)).await;
            if let Err(error) = stream.read_u8().await {
                break error;
            }
        };
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::TimedOut, "idle")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_client_is_read_from_later_and_keeps_its_time_limits() {
        let (mut client, mut stream, answers) = connection(64);
        client.write_all(b"ab").await.unwrap();
        stream.read_u8().await.unwrap();
        answers.note_request();
        let before = Instant::now();
        answers.pause_reads(Instant::now() + Duration::from_secs(2));
        assert_eq!(stream.read_u8().await.unwrap(), b'b');
        assert_eq!(before.elapsed(), Duration::from_secs(2));
        answers.pause_reads(Instant::now() + TIMES.idle * 2);
        client.write_all(b"c").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap_err().to_string(), "idle");
        assert_eq!(before.elapsed(), TIMES.idle);
    }

    /// tokio defers a task that has read much: such a read waits, and the timer would wait with it.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_to_pause_still_sees_the_time() {
        let (_client, mut stream, answers) = connection(64);
        stream.heard = true;
        answers.note_request();
        tokio::time::advance(TIMES.idle).await;
        while futures::poll!(std::pin::pin!(tokio::task::coop::consume_budget())).is_ready() {}
        let mut byte = [0];
        let read = futures::poll!(std::pin::pin!(stream.read(&mut byte)));
        assert!(
            matches!(read, std::task::Poll::Ready(Err(_))),
            "it waits on: {read:?}"
        );
    }
}
