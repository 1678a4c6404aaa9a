//! The audit log: one JSON line per decision, on disk or on standard output before a token is
//! issued.

mod file;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::AuditFile;
use keyferry_core::audit::AuditRecord;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::file::LogFile;

/// The maximum number of waiting lines, some 12 MB; a longer queue means that the log is blocked.
/// Even many callers that waited for one mint submit their lines within a tenth of a second.
const MAX_QUEUED_LINES: usize = 16_384;
/// How many of those lines may be refusals. Further refusals are only counted: the rest of the queue
/// is reserved for issuances, which wait for their lines and must not fail for want of a place.
const MAX_QUEUED_REFUSALS: usize = MAX_QUEUED_LINES / 2;
/// How long one write may take. After that, the callers that wait for it or behind it are refused.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Collects lines and writes them in batches, in its own thread: a blocked pipe or a slow disk
/// stops issuances and nothing else.
pub struct AuditLog {
    queue: Arc<AuditQueue>,
    writer: JoinHandle<()>,
}

/// The queue of submitted lines.
#[derive(Default)]
struct AuditQueue {
    pending: Mutex<PendingLines>,
    submitted: Notify,
}

#[derive(Default)]
struct PendingLines {
    text: Vec<u8>,
    lines: usize,
    /// How many of `lines` are refusals.
    refusals: usize,
    /// Refusals that get no line of their own, by reason. There are only a few reasons, so the map
    /// stays small.
    left_out: BTreeMap<&'static str, LeftOut>,
    waiting: Vec<oneshot::Sender<bool>>,
    /// The writer task has ended.
    closed: bool,
}

/// Refusals that one summary line covers.
struct LeftOut {
    /// The last of them.
    last: AuditRecord,
    count: usize,
}

/// A batch for the thread, with a channel for the result.
struct AuditBatch {
    text: Vec<u8>,
    done: oneshot::Sender<bool>,
}

impl AuditLog {
    /// Opens a log that appends to a file, and rotates it if the configuration says so. Like the
    /// other constructors, it needs a running Tokio runtime.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn to_file(file: &AuditFile) -> std::io::Result<Self> {
        Ok(Self::to_sink(LogFile::open(file.clone())?))
    }

    /// Opens a log on standard output.
    pub fn standard_output() -> Self {
        Self::to_sink(std::io::stdout())
    }

    /// Opens a log that writes to `sink`.
    pub fn to_sink(sink: impl Write + Send + 'static) -> Self {
        let queue = Arc::new(AuditQueue::default());
        let (orders, taken) = std::sync::mpsc::channel();
        std::thread::spawn(move || write_all(sink, &taken));
        Self {
            queue: Arc::clone(&queue),
            writer: tokio::spawn(write_batches(queue, orders)),
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl AuditSink for AuditLog {
    fn record(&self, record: &AuditRecord) -> Recording {
        // The writer task applies the timeout for all lines: a timer per request would cost as much
        // as its line.
        self.queue
            .lay_down(record)
            .map_or_else(Recording::failed, Recording::told_by)
    }
}

impl AuditQueue {
    /// Queues a line. Returns `None` if there is no line, the queue is full or the writer task has
    /// ended.
    fn lay_down(&self, record: &AuditRecord) -> Option<oneshot::Receiver<bool>> {
        let (line, is_refusal) = (record.to_json_line().ok()?, is_refusal(record));
        let (written, waiting) = oneshot::channel();
        let mut pending = self.lock_pending();
        if pending.closed {
            return None;
        }
        if is_refusal && pending.refusals >= MAX_QUEUED_REFUSALS {
            pending.leave_out(record);
            return None;
        }
        if pending.lines >= MAX_QUEUED_LINES {
            return None;
        }
        pending.text.extend_from_slice(&line);
        pending.lines += 1;
        pending.refusals += usize::from(is_refusal);
        pending.waiting.push(written);
        let first = pending.lines == 1;
        drop(pending);
        if first {
            self.submitted.notify_one();
        }
        Some(waiting)
    }

    /// Takes the callers that wait for queued lines. The lines stay in the queue and are written as
    /// soon as the log moves again.
    fn take_waiting(&self) -> Vec<oneshot::Sender<bool>> {
        std::mem::take(&mut self.lock_pending().waiting)
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock()
    }
}

/// Whether a record is a refusal of one request. A summary covers many of them, and always gets its
/// line.
fn is_refusal(record: &AuditRecord) -> bool {
    record.count.is_none() && record.decision != "granted"
}

impl PendingLines {
    fn leave_out(&mut self, record: &AuditRecord) {
        let AuditRecord {
            time,
            request_id,
            decision,
            reason,
            ..
        } = *record;
        let last = AuditRecord {
            time,
            request_id,
            route: "summary",
            decision,
            reason,
            ..AuditRecord::default()
        };
        let count = self
            .left_out
            .get(reason)
            .map_or(1, |left_out| left_out.count + 1);
        self.left_out.insert(reason, LeftOut { last, count });
    }

    /// Returns the text, with a summary line for each reason of the omitted refusals.
    fn into_text(mut self) -> (Vec<u8>, Vec<oneshot::Sender<bool>>) {
        for (_, LeftOut { last, count }) in self.left_out {
            let summary = AuditRecord {
                count: Some(count),
                ..last
            };
            self.text.extend(summary.to_json_line().unwrap_or_default());
        }
        (self.text, self.waiting)
    }
}

/// Closes the queue when its writer task ends for any reason, so that no caller waits for a line
/// that will never be written.
struct Closing(Arc<AuditQueue>);

impl Drop for Closing {
    fn drop(&mut self) {
        let left = std::mem::replace(
            &mut *self.0.lock_pending(),
            PendingLines {
                closed: true,
                ..PendingLines::default()
            },
        );
        // Dropped outside the lock, because it wakes the waiting callers.
        drop(left);
    }
}

/// Sends the queued lines to the thread in batches, and reports the results to the callers.
async fn write_batches(queue: Arc<AuditQueue>, thread: std::sync::mpsc::Sender<AuditBatch>) {
    let _closing = Closing(Arc::clone(&queue));
    loop {
        queue.submitted.notified().await;
        // Requests that are ready now add their lines to this batch. Without this yield an exchange
        // falls from 68 to 61 % of an empty handler (docs/development/benchmarks.md).
        tokio::task::yield_now().await;
        let pending = std::mem::take(&mut *queue.lock_pending());
        let (text, mut waiting) = pending.into_text();
        let (done, mut written) = oneshot::channel();
        if thread.send(AuditBatch { text, done }).is_err() {
            return;
        }
        let good = loop {
            match timeout(WRITE_TIMEOUT, &mut written).await {
                Ok(Ok(good)) => break good,
                // The thread has ended, so nothing can be written any more.
                Ok(Err(_)) => return,
                Err(_) => answer_waiting(waiting.drain(..).chain(queue.take_waiting()), false),
            }
        };
        answer_waiting(waiting.into_iter(), good);
    }
}

fn answer_waiting(waiting: impl Iterator<Item = oneshot::Sender<bool>>, good: bool) {
    for written in waiting {
        // The caller may have hung up.
        let _ = written.send(good);
    }
}

/// The body of the writing thread. It ends when the sender of orders is dropped.
fn write_all(mut sink: impl Write, orders: &std::sync::mpsc::Receiver<AuditBatch>) {
    let mut torn = false;
    while let Ok(AuditBatch { text, done }) = orders.recv() {
        // After a failure the last line may be incomplete: a line break keeps the next one apart.
        let break_first = if torn { sink.write_all(b"\n") } else { Ok(()) };
        let good = break_first
            .and_then(|()| sink.write_all(&text))
            .and_then(|()| sink.flush())
            .is_ok();
        torn = !good;
        let _ = done.send(good);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
