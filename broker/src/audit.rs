//! The audit log: one JSON line per decision, on disk or on standard output before anything leaves.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::audit::AuditRecord;
use tokio::sync::{mpsc, oneshot};

use crate::ports::{AuditError, AuditSink};

/// Records waiting at most; more than that and the log has stopped moving.
const QUEUE: usize = 4096;
/// How long a request waits for its record to be written.
const PATIENCE: Duration = Duration::from_secs(2);

struct Line {
    text: Vec<u8>,
    written: oneshot::Sender<bool>,
}

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
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(AuditLog::to(options.open(path)?))
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
            while queue.blocking_recv_many(&mut batch, 256) > 0 {
                let text: Vec<u8> = batch.iter().flat_map(|line| line.text.iter().copied()).collect();
                let good = sink.write_all(&text).and_then(|()| sink.flush()).is_ok();
                for line in batch.drain(..) {
                    // Whoever waited may have hung up.
                    let _ = line.written.send(good);
                }
            }
        });
        AuditLog { lines }
    }
}

impl AuditSink for AuditLog {
    fn record<'a>(&'a self, record: &'a AuditRecord) -> BoxFuture<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let mut text = serde_json::to_vec(record).map_err(|_| AuditError)?;
            text.push(b'\n');
            let (written, waiting) = oneshot::channel();
            self.lines.try_send(Line { text, written }).map_err(|_| AuditError)?;
            match tokio::time::timeout(PATIENCE, waiting).await {
                Ok(Ok(true)) => Ok(()),
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
