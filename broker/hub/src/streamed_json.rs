//! Parses a response while it arrives, item by item, so that a list of any length takes no more
//! memory than what is kept of a few items.
//!
//! The parser runs on a blocking thread and reads the chunks of the body from a channel. A caller
//! that stops waiting ends the thread too: its channels close.

use std::error::Error;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use keyferry_platform::gzip::GzipError;
use kube::client::Body;
use serde::de::Error as _;
use tokio::sync::mpsc;

/// The chunks of a body that may wait for the parser. A chunk has some 400 KiB at most.
const MAX_WAITING_CHUNKS: usize = 2;
/// The parsed items that may wait for the caller.
const MAX_WAITING_ITEMS: usize = 4;
/// The parser reads single bytes, which should not each go through [`Chunks`].
const READ_BYTES: usize = 16 * 1024;

/// Why a body could not be parsed.
#[derive(Debug)]
pub(crate) enum BodyFault {
    /// It is longer than the limit.
    TooLarge,
    /// It is not the expected JSON.
    Unreadable(serde_json::Error),
    /// It broke off.
    Broken(kube::Error),
    /// It is not the gzip that it says it is.
    NotGzip,
    /// A gateway before the hub packed a watch, which has no end to unpack it at.
    PackedWatch,
}

impl BodyFault {
    /// Whether the connection ended as watches end: between two bytes, or after a silence.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Unreadable(error) => error.is_eof(),
            Self::Broken(error) => is_end_of_body(error),
            Self::TooLarge | Self::NotGzip | Self::PackedWatch => false,
        }
    }
}

fn is_end_of_body(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(
            kind,
            Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut)
        ) {
            return true;
        }
        next = error.source();
    }
    false
}

impl From<BodyFault> for kube::Error {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooLarge => Self::SerdeError(serde_json::Error::custom("too large")),
            BodyFault::Unreadable(error) => Self::SerdeError(error),
            BodyFault::Broken(error) => error,
            BodyFault::NotGzip => Self::SerdeError(serde_json::Error::custom(GzipError::Malformed)),
            BodyFault::PackedWatch => Self::SerdeError(serde_json::Error::custom(
                "a gateway before the hub packed a watch in gzip, although none was asked for",
            )),
        }
    }
}

/// Where the parser puts its items.
pub(crate) struct Items<T>(mpsc::Sender<T>);

impl<T> Items<T> {
    /// Passes an item on.
    ///
    /// # Errors
    /// The caller no longer waits for items.
    pub(crate) fn pass_item<E: serde::de::Error>(&self, item: T) -> Result<(), E> {
        self.0
            .blocking_send(item)
            .map_err(|_| E::custom("the items are no longer awaited"))
    }
}

/// A response body as the parser reads it.
pub(crate) type BodyReader<'a> = BufReader<&'a mut Chunks>;

/// The body's bytes in order, up to a limit.
pub(crate) struct Chunks {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
    read: u64,
    limit: u64,
}

/// The text of the error with which [`Chunks`] refuses to read beyond its limit.
#[derive(Debug)]
struct LimitReached;

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body is longer than its limit")
    }
}

impl Error for LimitReached {}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        if self.read >= self.limit {
            return Err(io::Error::other(LimitReached));
        }
        let count = buffer.len().min(self.current.len());
        let (Some(into), Some(from)) = (buffer.get_mut(..count), self.current.get(..count)) else {
            return Ok(0);
        };
        into.copy_from_slice(from);
        self.current.advance(count);
        self.read = self.read.saturating_add(count as u64);
        Ok(count)
    }
}

/// How a body ended.
pub(crate) struct ParsedBody<R> {
    /// The parser's own result; `None` if the caller stopped before.
    pub(crate) result: Option<R>,
    /// How many bytes were read.
    pub(crate) bytes: u64,
}

/// Parses `body`, of at most `limit` bytes, by `parse`, and hands each item that it passes on to
/// `act`, in order. `act` can end the reading.
///
/// # Errors
/// [`BodyFault`]. `act` may have got items before.
pub(crate) async fn parse_body<T, R>(
    body: Body,
    limit: u64,
    parse: impl FnOnce(BodyReader<'_>, &Items<T>) -> Result<R, serde_json::Error> + Send + 'static,
    mut act: impl FnMut(T) -> ControlFlow<()>,
) -> Result<ParsedBody<R>, BodyFault>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let (to_parser, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let (items, mut parsed) = mpsc::channel(MAX_WAITING_ITEMS);
    let thread = tokio::task::spawn_blocking(move || {
        let mut chunks = Chunks {
            chunks,
            current: Bytes::new(),
            read: 0,
            limit,
        };
        let reader = BufReader::with_capacity(READ_BYTES, &mut chunks);
        let result = parse(reader, &Items(items));
        (result, chunks.read)
    });
    let feed = feed_parser(body, to_parser);
    tokio::pin!(feed);
    let (mut broken, mut is_fed) = (None, false);
    loop {
        tokio::select! {
            fault = &mut feed, if !is_fed => {
                is_fed = true;
                broken = fault;
            }
            item = parsed.recv() => match item {
                Some(item) => if act(item).is_break() {
                    return Ok(ParsedBody { result: None, bytes: 0 });
                },
                None => break,
            },
        }
    }
    let joined = thread.await;
    let (result, bytes) = joined
        .map_err(|_| BodyFault::Unreadable(serde_json::Error::custom("the parser failed")))?;
    match (result, broken) {
        (Ok(result), _) => Ok(ParsedBody {
            result: Some(result),
            bytes,
        }),
        (Err(_), Some(broken)) => Err(BodyFault::Broken(broken)),
        (Err(_), None) if bytes >= limit => Err(BodyFault::TooLarge),
        (Err(error), None) => Err(BodyFault::Unreadable(error)),
    }
}

/// Passes the body's chunks to the parser until one of the two ends. Returns why the body broke
/// off.
async fn feed_parser(mut body: Body, parser: mpsc::Sender<Bytes>) -> Option<kube::Error> {
    while let Some(frame) = body.frame().await {
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(chunk)) => {
                if parser.send(chunk).await.is_err() {
                    return None;
                }
            }
            Ok(Err(_trailers)) => {}
            Err(error) => return Some(error),
        }
    }
    None
}
