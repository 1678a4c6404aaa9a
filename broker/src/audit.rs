//! The audit log: one JSON line per decision, on disk or on standard output before anything leaves.

mod file;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keyferry_core::audit::AuditRecord;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::file::LogFile;
use crate::ports::{AuditSink, Recording};

/// Lines waiting at most, some 12 MB; more than that and the log has stopped moving. A crowd that
/// waited for one mint lays its lines down within a tenth of a second.
const QUEUE: usize = 16_384;
/// Of those, refusals of unknown callers. Further ones are counted: an issuance waits for its
/// line, and a stranger must not take the room for it.
const STRANGERS: usize = QUEUE / 2;
/// How often the carrier lets others lay down their lines first, as long as each time brings
/// another one. More lines to a write cost less each; alone, a line goes at once, and a full load
/// is not made to wait for more.
const ROUNDS: usize = 8;
/// Lines that make a full load.
const LOAD: usize = 64;
/// How long one write may take. Whoever waits for it is then refused, and whoever waits behind it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Gathers lines and writes those that came together at once, in a thread of its own: a blocked
/// pipe or a slow disk stops issuances and nothing else.
pub struct AuditLog {
    desk: Arc<Desk>,
    carrier: JoinHandle<()>,
}

/// Where lines are laid down.
#[derive(Default)]
struct Desk {
    gathered: Mutex<Gathered>,
    laid_down: Notify,
}

#[derive(Default)]
struct Gathered {
    text: Vec<u8>,
    lines: usize,
    /// Lines about strangers, of those.
    strangers: usize,
    /// Refusals of strangers without a line of their own, by reason: there are a few reasons.
    left_out: BTreeMap<&'static str, LeftOut>,
    waiting: Vec<oneshot::Sender<bool>>,
    /// Nobody carries any more.
    closed: bool,
}

/// Refusals that one line stands for.
struct LeftOut {
    /// The last of them.
    last: AuditRecord,
    count: usize,
}

/// A text for the thread, and where it says whether it was written. The text comes back, to be
/// filled again.
struct Order {
    text: Vec<u8>,
    done: oneshot::Sender<(bool, Vec<u8>)>,
}

impl AuditLog {
    /// Appends to the file at `path`. A runtime must be there, as for all of these.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn file(path: &Path) -> std::io::Result<Self> {
        Ok(Self::to(LogFile::open(path)?))
    }

    /// Writes to standard output.
    pub fn standard_output() -> Self {
        Self::to(std::io::stdout())
    }

    /// Writes to `sink`.
    pub fn to(sink: impl Write + Send + 'static) -> Self {
        let desk = Arc::new(Desk::default());
        let (orders, taken) = std::sync::mpsc::channel();
        std::thread::spawn(move || write_all(sink, &taken));
        Self {
            desk: Arc::clone(&desk),
            carrier: tokio::spawn(carry(desk, orders)),
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl AuditSink for AuditLog {
    fn record(&self, record: &AuditRecord) -> Recording {
        // Who carries the lines also says when it takes too long: a timer for each request would
        // cost as much as its line.
        self.desk
            .lay_down(record)
            .map_or_else(Recording::failed, Recording::told_by)
    }
}

impl Desk {
    /// Nothing where there is no room, or nobody who carries.
    fn lay_down(&self, record: &AuditRecord) -> Option<oneshot::Receiver<bool>> {
        let (line, stranger) = (record.line(), is_of_stranger(record));
        let (written, waiting) = oneshot::channel();
        let mut gathered = self.gathered();
        if gathered.closed {
            return None;
        }
        if stranger && gathered.strangers >= STRANGERS {
            gathered.leave_out(record);
            return None;
        }
        if gathered.lines >= QUEUE {
            return None;
        }
        gathered.text.extend_from_slice(&line);
        gathered.lines += 1;
        gathered.strangers += usize::from(stranger);
        gathered.waiting.push(written);
        let first = gathered.lines == 1;
        drop(gathered);
        if first {
            self.laid_down.notify_one();
        }
        Some(waiting)
    }

    /// Whoever waits for a line that lies here. The line stays: it is written as soon as the log
    /// moves again.
    fn take_waiting(&self) -> Vec<oneshot::Sender<bool>> {
        std::mem::take(&mut self.gathered().waiting)
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a record says that an unknown caller was refused: anybody who reaches the listener can
/// cause such records. A summary stands for many of them, and has its line.
fn is_of_stranger(record: &AuditRecord) -> bool {
    record.caller.is_none() && record.count.is_none() && record.decision != "granted"
}

impl Gathered {
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

    /// The text, and a line for each reason of what was left out.
    fn into_text(mut self) -> (Vec<u8>, Vec<oneshot::Sender<bool>>) {
        for (_, LeftOut { last, count }) in self.left_out {
            self.text.extend_from_slice(
                &AuditRecord {
                    count: Some(count),
                    ..last
                }
                .line(),
            );
        }
        (self.text, self.waiting)
    }
}

/// Closes the desk when its carrier goes, whatever made it go: who lays down a line must not wait
/// for nobody.
struct Closing(Arc<Desk>);

impl Drop for Closing {
    fn drop(&mut self) {
        let left = std::mem::replace(
            &mut *self.0.gathered(),
            Gathered {
                closed: true,
                ..Gathered::default()
            },
        );
        // Not under the lock: it wakes whoever waits.
        drop(left);
    }
}

/// Carries what is gathered to the thread, and its word back.
async fn carry(desk: Arc<Desk>, thread: std::sync::mpsc::Sender<Order>) {
    let _closing = Closing(Arc::clone(&desk));
    let mut spare = Vec::new();
    loop {
        desk.laid_down.notified().await;
        let mut lines = 0;
        for _ in 0..ROUNDS {
            let gathered = desk.gathered().lines;
            if gathered == lines || gathered >= LOAD {
                break;
            }
            lines = gathered;
            tokio::task::yield_now().await;
        }
        let empty = Gathered {
            text: spare,
            ..Gathered::default()
        };
        let gathered = std::mem::replace(&mut *desk.gathered(), empty);
        let (text, mut waiting) = gathered.into_text();
        let (done, mut written) = oneshot::channel();
        if thread.send(Order { text, done }).is_err() {
            return;
        }
        let good = loop {
            match timeout(PATIENCE, &mut written).await {
                Ok(Ok((good, text))) => {
                    spare = text;
                    break good;
                }
                // The thread is gone, and with it the log.
                Ok(Err(_)) => return,
                Err(_) => answer(waiting.drain(..).chain(desk.take_waiting()), false),
            }
        };
        answer(waiting.into_iter(), good);
    }
}

fn answer(waiting: impl Iterator<Item = oneshot::Sender<bool>>, good: bool) {
    for written in waiting {
        // Whoever waited may have hung up.
        let _ = written.send(good);
    }
}

/// The thread. It ends when nobody can give it an order any more.
fn write_all(mut sink: impl Write, orders: &std::sync::mpsc::Receiver<Order>) {
    let mut torn = false;
    while let Ok(Order { mut text, done }) = orders.recv() {
        // After a failure the last line may be half there: the next one must not grow on it.
        let break_first = if torn { sink.write_all(b"\n") } else { Ok(()) };
        let good = break_first
            .and_then(|()| sink.write_all(&text))
            .and_then(|()| sink.flush())
            .is_ok();
        torn = !good;
        text.clear();
        let _ = done.send((good, text));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
