//! The interface to the audit log.

use std::pin::Pin;
use std::task::{Context, Poll};

use keyferry_core::audit::AuditRecord;
use tokio::sync::oneshot;

/// Where audit records go.
pub trait AuditSink: Send + Sync {
    /// Submits a record. The returned [`Recording`] reports whether it was written; an issuance
    /// waits for it.
    fn record(&self, record: &AuditRecord) -> Recording;
}

/// A submitted record. It resolves within seconds, even if the log is blocked.
#[must_use = "nothing may leave before its record is written"]
pub struct Recording(Option<oneshot::Receiver<bool>>);

impl Recording {
    /// Tracks a record whose writer reports the result. A writer that is dropped without a report
    /// did not write it.
    pub fn told_by(writer: oneshot::Receiver<bool>) -> Self {
        Self(Some(writer))
    }

    /// Creates the result of a record that is written already.
    pub fn written() -> Self {
        let (writer, told) = oneshot::channel();
        // Cannot fail: the receiver lives on below.
        let _ = writer.send(true);
        Self(Some(told))
    }

    /// Creates the result of a record that will not be written.
    pub fn failed() -> Self {
        Self(None)
    }
}

impl Future for Recording {
    type Output = Result<(), AuditError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), AuditError>> {
        match &mut self.0 {
            Some(writer) => Pin::new(writer).poll(context).map(|told| {
                if told == Ok(true) {
                    Ok(())
                } else {
                    Err(AuditError)
                }
            }),
            None => Poll::Ready(Err(AuditError)),
        }
    }
}

/// The record could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("writing the audit record")]
pub struct AuditError;
