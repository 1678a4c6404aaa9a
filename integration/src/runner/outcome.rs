//! The result of a test, and the report of a fixture that did not start.

use std::error::Error;
use std::time::Duration;

use libtest_mimic::{Completion, Failed};
use tokio::task::JoinError;
use tokio::time::error::Elapsed;

use crate::fleet::FleetError;
use crate::network_namespace::NetworkNamespaceError;
use crate::parts::PartError;
use crate::small_disk::SmallDiskError;

/// Any error. Tests only print it.
pub type TestError = Box<dyn Error + Send + Sync>;

/// The result of a test. A panic counts as a failure too.
pub type TestResult = Result<(), TestError>;

/// Why a fixture did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// This machine lacks something, so the tests are ignored.
    Missing(String),
    /// The machine has everything, but the start failed.
    Failed(TestError),
}

impl NotStarted {
    /// A failure that does not come from a fleet. If it is that of a missing part, the tests are
    /// ignored.
    pub fn failed(error: impl Into<TestError>) -> Self {
        let error = error.into();
        match is_missing(error.as_ref()) {
            true => Self::Missing(error.to_string()),
            false => Self::Failed(error),
        }
    }
}

impl From<FleetError> for NotStarted {
    fn from(error: FleetError) -> Self {
        match error.missing_part() {
            Some(reason) => Self::Missing(reason),
            None => Self::Failed(error.into()),
        }
    }
}

/// Reports the test as ignored with the reason, or as failed if real parts are required.
pub(super) fn missing(reason: &str) -> Result<Completion, Failed> {
    if std::env::var_os("KEYFERRY_REQUIRE_REAL").is_some_and(|value| value == "1") {
        return Err(format!("real parts are required: {reason}").into());
    }
    Ok(Completion::ignored_with(reason))
}

/// The text of a failed test, also for panics and time-outs.
pub(super) fn test_outcome(
    ended: Result<Result<TestResult, JoinError>, Elapsed>,
    limit: Duration,
) -> Result<Completion, String> {
    match ended {
        Ok(Ok(Ok(()))) => Ok(Completion::Completed),
        // Something that only this test needs is missing.
        Ok(Ok(Err(error))) if is_missing(error.as_ref()) => missing(&error.to_string())
            .map_err(|failed| failed.message().unwrap_or_default().to_owned()),
        Ok(Ok(Err(error))) => Err(with_causes(error.as_ref())),
        Ok(Err(join)) => Err(match join.try_into_panic() {
            Ok(payload) => panic_text(payload.as_ref()),
            Err(join) => join.to_string(),
        }),
        Err(_) => Err(format!("not finished after {} s", limit.as_secs())),
    }
}

fn is_missing(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let part = matches!(error.downcast_ref(), Some(PartError::Unavailable { .. }));
    let network = matches!(
        error.downcast_ref(),
        Some(NetworkNamespaceError::Unavailable(_))
    );
    part || network || error.downcast_ref::<SmallDiskError>().is_some()
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        let said = one.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = one.source();
    }
    text
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", said.unwrap_or("without a message"))
}
