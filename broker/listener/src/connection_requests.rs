//! The state of a connection's requests: when the last one began, and which responses the client
//! has not received yet.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep_until};

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionRequests {
    begun: Instant,
    asked: AtomicBool,
    /// When a request last began or a response was last sent, in milliseconds after `begun`.
    last: AtomicU64,
    /// Until when nothing is read, in microseconds after `begun`; 0 if nothing was ever paused.
    paused_until: AtomicU64,
    /// Responses that HTTP/2 has not sent completely, each with the time at which it was queued.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl ConnectionRequests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            asked: AtomicBool::new(false),
            last: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// Records that a request began.
    pub(crate) fn note_request(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.note_progress();
    }

    /// Whether a request has ever begun.
    pub(crate) fn has_requests(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Records progress on a response.
    pub(crate) fn note_progress(&self) {
        let passed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(passed, Ordering::Relaxed);
    }

    /// When a request last began or a response last made progress.
    pub(crate) fn last_activity(&self) -> Instant {
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Reads nothing from the connection until then.
    pub(crate) fn pause_reads(&self, until: Instant) {
        let until = until.saturating_duration_since(self.begun).as_micros();
        self.paused_until
            .store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Waits until the connection may be read from.
    pub(crate) async fn until_read_again(&self) {
        if let Some(until) = self.paused_until() {
            sleep_until(until).await;
        }
    }

    /// Until when nothing is read; `None` if that is over.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        match self.paused_until.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(self.begun + Duration::from_micros(micros))
                .filter(|until| *until > Instant::now()),
        }
    }

    /// Since when the oldest unsent response has been waiting.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        // Responses are numbered in order of arrival.
        self.waiting
            .lock()
            .since
            .first_key_value()
            .map(|(_, since)| *since)
    }

    /// Tracks a response until HTTP/2 has sent its last byte.
    ///
    /// A client may open no window for a stream and still keep the connection busy. The socket then
    /// shows nothing unusual, and the body stays in the library's buffer. So each piece of the body
    /// carries a marker that is dropped once its bytes are sent or the stream is reset.
    pub(crate) fn track_response(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        if response.body().is_end_stream() {
            return response;
        }
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.since.insert(number, Instant::now());
        drop(waiting);
        let note = Arc::new(NotLeft {
            answers: Arc::clone(self),
            number,
        });
        response.map(|body| Body::new(Followed { body, note }))
    }
}

/// Marks a response as unsent until all of it is sent.
struct NotLeft {
    answers: Arc<ConnectionRequests>,
    number: u64,
}

impl Drop for NotLeft {
    fn drop(&mut self) {
        self.answers.waiting.lock().since.remove(&self.number);
        self.answers.note_progress();
    }
}

struct Followed {
    body: Body,
    note: Arc<NotLeft>,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let note = &self.note;
        polled.map(|frame| {
            frame.map(|frame| {
                frame.map(|frame| frame.map_data(|bytes| note_consumption(bytes, note)))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn note_consumption(bytes: Bytes, note: &Arc<NotLeft>) -> Bytes {
    struct Noted(
        Bytes,
        #[allow(dead_code, reason = "it is dropped with the bytes")] Arc<NotLeft>,
    );

    impl AsRef<[u8]> for Noted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Noted(bytes, Arc::clone(note)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, HttpBody};
    use axum::http::Response;
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::ConnectionRequests;

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_until_its_last_byte_is_dropped() {
        let answers = ConnectionRequests::new();
        let begun = Instant::now();
        let mut response = answers.track_response(Response::new(Body::from("document")));
        assert_eq!(
            response.body().size_hint().exact(),
            Some(8),
            "its length is still known"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut later = answers.track_response(Response::new(Body::from("another")));
        let bytes = response
            .body_mut()
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        let part = bytes.slice(4..);
        drop((response, bytes));
        assert_eq!(
            answers.waiting_since(),
            Some(begun),
            "a part of it is still to be sent"
        );
        drop(part);
        assert_eq!(
            answers.waiting_since(),
            Some(begun + Duration::from_secs(1))
        );
        assert_eq!(
            answers.last_activity(),
            begun + Duration::from_secs(1),
            "it has just left"
        );
        assert_eq!(
            later.body_mut().collect().await.unwrap().to_bytes(),
            "another"
        );
        drop(later);
        assert_eq!(answers.waiting_since(), None);
        answers.track_response(Response::new(Body::empty()));
        assert_eq!(answers.waiting_since(), None, "there is nothing to send");
    }
}
