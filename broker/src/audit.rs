//! The audit log: one JSON line per decision, on disk or on standard output before anything leaves.

mod file;

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::audit::AuditRecord;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::file::LogFile;
use crate::ports::{AuditError, AuditSink};

/// Lines waiting at most; more than that and the log has stopped moving.
const QUEUE: usize = 4096;
/// More than most lines need, and as much as the allocator hands out at once.
const LINE_BYTES: usize = 1024;
/// How often the carrier lets others lay down their lines first, as long as each time brings another one. More lines to a write cost less
/// each; alone, a line goes at once.
const ROUNDS: usize = 8;
/// How long a request waits for its line to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Gathers lines and writes those that came together at once, in a thread of its own: a blocked pipe or a slow disk stops hand-outs and
/// nothing else.
pub struct AuditLog {
    desk: Arc<Desk>,
    clerk: JoinHandle<()>,
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
    waiting: Vec<oneshot::Sender<bool>>,
    /// Nobody carries any more.
    closed: bool,
}

/// A text for the thread, and where it says whether it was written. The text comes back, to be filled again.
struct Order {
    text: Vec<u8>,
    done: oneshot::Sender<(bool, Vec<u8>)>,
}

impl AuditLog {
    /// Appends to the file at `path`. A runtime must be there, as for all of these.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn file(path: &Path) -> std::io::Result<AuditLog> {
        Ok(AuditLog::to(LogFile::open(path)?))
    }

    /// Writes to standard output.
    pub fn standard_output() -> AuditLog {
        AuditLog::to(std::io::stdout())
    }

    /// Writes to `sink`.
    pub fn to(sink: impl Write + Send + 'static) -> AuditLog {
        let desk = Arc::new(Desk::default());
        let (orders, taken) = std::sync::mpsc::channel();
        std::thread::spawn(move || write_all(sink, &taken));
        AuditLog { desk: Arc::clone(&desk), clerk: tokio::spawn(carry(desk, orders)) }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.clerk.abort();
    }
}

impl AuditSink for AuditLog {
    fn record<'a>(&'a self, record: &'a AuditRecord) -> BoxFuture<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let mut line = Vec::with_capacity(LINE_BYTES);
            serde_json::to_writer(&mut line, record).map_err(|_| AuditError)?;
            line.push(b'\n');
            // Who carries the lines also says when it takes too long: a timer for each request would cost as much as its line.
            match self.desk.lay_down(&line)?.await {
                Ok(true) => Ok(()),
                _ => Err(AuditError),
            }
        })
    }
}

impl Desk {
    fn lay_down(&self, line: &[u8]) -> Result<oneshot::Receiver<bool>, AuditError> {
        let (written, waiting) = oneshot::channel();
        let mut gathered = self.gathered();
        if gathered.closed || gathered.lines >= QUEUE {
            return Err(AuditError);
        }
        gathered.text.extend_from_slice(line);
        gathered.lines += 1;
        gathered.waiting.push(written);
        let first = gathered.lines == 1;
        drop(gathered);
        if first {
            self.laid_down.notify_one();
        }
        Ok(waiting)
    }

    /// Whoever waits for a line that lies here. The line stays: it is written as soon as the log moves again.
    fn take_waiting(&self) -> Vec<oneshot::Sender<bool>> {
        std::mem::take(&mut self.gathered().waiting)
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the desk when its carrier goes, whatever made it go: who lays down a line must not wait for nobody.
struct Closing(Arc<Desk>);

impl Drop for Closing {
    fn drop(&mut self) {
        *self.0.gathered() = Gathered { closed: true, ..Gathered::default() };
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
            if gathered == lines {
                break;
            }
            lines = gathered;
            tokio::task::yield_now().await;
        }
        let empty = Gathered { text: spare, ..Gathered::default() };
        let Gathered { text, mut waiting, .. } = std::mem::replace(&mut *desk.gathered(), empty);
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
        let good = break_first.and_then(|()| sink.write_all(&text)).and_then(|()| sink.flush()).is_ok();
        torn = !good;
        text.clear();
        let _ = done.send((good, text));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use keyferry_core::audit::AuditRecord;

    use super::{AuditLog, PATIENCE};
    use crate::ports::{AuditError, AuditSink};

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_for_whoever_waits() {
        assert_eq!(AuditLog::to(Full).record(&AuditRecord::default()).await, Err(AuditError));
    }

    /// Takes ten bytes, then nothing, then everything.
    #[derive(Clone, Default)]
    struct Filling(Arc<Mutex<(Vec<u8>, u32)>>);

    impl Write for Filling {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            let mut state = self.0.lock().unwrap();
            state.1 += 1;
            let taken = match state.1 {
                1 => text.len().min(10),
                2 => return Err(std::io::ErrorKind::StorageFull.into()),
                _ => text.len(),
            };
            state.0.extend_from_slice(&text[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_torn_line_swallows_no_record() {
        let disk = Filling::default();
        let log = AuditLog::to(disk.clone());
        assert_eq!(log.record(&AuditRecord::default()).await, Err(AuditError));
        log.record(&AuditRecord { request_id: "after".to_owned(), ..AuditRecord::default() }).await.unwrap();
        let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["requestId"], "after", "{text}");
    }

    /// Panics once it is written to.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            panic!("on purpose")
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_log_that_is_gone() {
        let log = AuditLog::to(Broken);
        assert_eq!(log.record(&AuditRecord::default()).await, Err(AuditError));
        assert_eq!(log.record(&AuditRecord::default()).await, Err(AuditError), "and nobody waits for it later");
    }

    /// Takes nothing until it is let go.
    struct Stuck(std::sync::mpsc::Receiver<()>, Filling);

    impl Write for Stuck {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.0.lock().unwrap().0.extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_log_that_stands_still_is_an_error_in_time_and_its_lines_come_later() {
        let (go, stuck) = std::sync::mpsc::channel();
        let disk = Filling::default();
        let log = Arc::new(AuditLog::to(Stuck(stuck, disk.clone())));
        let named = |id: &str| AuditRecord { request_id: id.to_owned(), ..AuditRecord::default() };
        let (first, second) = (named("first"), named("second"));
        let later = async {
            tokio::time::sleep(PATIENCE / 2).await;
            log.record(&second).await
        };
        let both = tokio::time::timeout(PATIENCE * 2, async { tokio::join!(log.record(&first), later) }).await;
        assert_eq!(both.unwrap(), (Err(AuditError), Err(AuditError)), "whoever waits is told in time, the one behind too");
        drop(go);
        assert_eq!(log.record(&named("third")).await, Ok(()));
        let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
        let ids: Vec<String> =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["requestId"].to_string()).collect();
        assert_eq!(ids, [r#""first""#, r#""second""#, r#""third""#], "nothing is lost and nothing is mixed");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_at_once_have_a_line_each() {
        let disk = Filling(Arc::new(Mutex::new((Vec::new(), 2))));
        let log = Arc::new(AuditLog::to(disk.clone()));
        let record = |id: usize| {
            let log = Arc::clone(&log);
            async move { log.record(&AuditRecord { request_id: id.to_string(), ..AuditRecord::default() }).await }
        };
        let tasks: Vec<_> = (0..1000).map(|id| tokio::spawn(record(id))).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let state = disk.0.lock().unwrap();
        let text = String::from_utf8(state.0.clone()).unwrap();
        let ids: std::collections::BTreeSet<String> =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["requestId"].to_string()).collect();
        assert_eq!((text.lines().count(), ids.len()), (1000, 1000));
        assert!(state.1 < 1002, "some lines shared a write");
    }

    #[tokio::test]
    async fn a_rotated_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::file(&path).unwrap();
        log.record(&AuditRecord::default()).await.unwrap();
        std::fs::rename(&path, folder.path().join("audit.log.1")).unwrap();
        log.record(&AuditRecord { request_id: "after".to_owned(), ..AuditRecord::default() }).await.unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("after"));
        std::fs::remove_file(&path).unwrap();
        log.record(&AuditRecord::default()).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[tokio::test]
    async fn a_record_is_in_the_file_when_its_writer_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::file(&path).unwrap();
        let record = AuditRecord { delivery: Some("line\nbreak \u{1b}[31m".to_owned()), ..AuditRecord::default() };
        log.record(&record).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "control characters are encoded: {text}");
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'));
    }
}
