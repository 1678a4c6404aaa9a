//! The audit log: one JSON line per decision, on disk or on standard output before anything leaves.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::audit::AuditRecord;
use tokio::sync::{mpsc, oneshot};

use crate::ports::{AuditError, AuditSink};

/// Records waiting at most; more than that and the log has stopped moving.
const QUEUE: usize = 4096;
/// How long the writer rests after a write, so that under load one write and one wake-up serve many records. A record after a quieter
/// time is written at once.
const REST: Duration = Duration::from_micros(200);
/// More than most records need.
const RECORD_BYTES: usize = 1024;
/// How long a request waits for its record to be written.
const PATIENCE: Duration = Duration::from_secs(2);

struct Line {
    text: Vec<u8>,
    written: oneshot::Sender<Written>,
}

/// Whether it was, and the text back: freed in the writer's thread, it would have all threads wait for one arena of the allocator.
type Written = (bool, Vec<u8>);

/// Writes records in a thread of its own, so that a blocked pipe or a slow disk stops hand-outs and nothing else.
pub struct AuditLog {
    lines: mpsc::Sender<Line>,
}

impl AuditLog {
    /// Appends to the file at `path`.
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
    pub fn to(mut sink: impl Write + Send + 'static) -> AuditLog {
        let (lines, mut queue) = mpsc::channel::<Line>(QUEUE);
        std::thread::spawn(move || {
            let mut batch = Vec::new();
            let mut torn = false;
            while queue.blocking_recv_many(&mut batch, 256) > 0 {
                // After a failure the last line may be half there: the next record must not grow on it.
                let mut text = if torn { vec![b'\n'] } else { Vec::new() };
                batch.iter().for_each(|line| text.extend_from_slice(&line.text));
                let good = sink.write_all(&text).and_then(|()| sink.flush()).is_ok();
                torn = !good;
                for line in batch.drain(..) {
                    // Whoever waited may have hung up.
                    let _ = line.written.send((good, line.text));
                }
                std::thread::sleep(REST);
            }
        });
        AuditLog { lines }
    }
}

/// A file that is opened again when another one, or none, stands under its name: a rotated log must not swallow records.
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: &Path) -> std::io::Result<LogFile> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        Ok(LogFile { path: path.to_owned(), file: options.open(path)? })
    }

    fn is_in_place(&self) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (here, there) = (self.file.metadata().map(identity), std::fs::metadata(&self.path).map(identity));
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if !self.is_in_place() {
            *self = LogFile::open(&self.path)?;
        }
        self.file.write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl AuditSink for AuditLog {
    fn record<'a>(&'a self, record: &'a AuditRecord) -> BoxFuture<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let mut text = Vec::with_capacity(RECORD_BYTES);
            serde_json::to_writer(&mut text, record).map_err(|_| AuditError)?;
            text.push(b'\n');
            let (written, waiting) = oneshot::channel();
            self.lines.try_send(Line { text, written }).map_err(|_| AuditError)?;
            match tokio::time::timeout(PATIENCE, waiting).await {
                Ok(Ok((true, _))) => Ok(()),
                _ => Err(AuditError),
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use keyferry_core::audit::AuditRecord;

    use super::AuditLog;
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
    struct Filling(std::sync::Arc<std::sync::Mutex<(Vec<u8>, u32)>>);

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
        let record = AuditRecord { caller: Some("line\nbreak \u{1b}[31m".to_owned()), ..AuditRecord::default() };
        log.record(&record).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "control characters are encoded: {text}");
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'));
    }
}
