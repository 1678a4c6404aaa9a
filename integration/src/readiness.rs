//! Waits for a server until a deadline, and reports the end of its log if it does not become ready.

use std::time::Duration;

use tokio::time::Instant;

use crate::process::Process;

const POLL_EVERY: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 25;

/// Why a server is not ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// Its process ended.
    #[error("{name} exited before it was ready; end of its log:\n{log}")]
    Exited {
        /// The server.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// It runs but does not become ready in time.
    #[error("{name} was not ready after {seconds} s ({last}); end of its log:\n{log}")]
    Deadline {
        /// The server.
        name: String,
        /// How long the harness waited.
        seconds: u64,
        /// The last answer or error.
        last: String,
        /// The end of its log.
        log: String,
    },
}

impl NotReady {
    /// Whether the server lost the race for its port, so that another port can be tried.
    pub fn lost_port(&self) -> bool {
        matches!(self, Self::Exited { log, .. } if log.contains("address already in use"))
    }
}

/// Requests the URL until it answers 200.
pub async fn wait_until_ready(
    name: &str,
    process: &mut Process,
    client: &reqwest::Client,
    url: &str,
    limit: Duration,
) -> Result<(), NotReady> {
    let deadline = Instant::now() + limit;
    loop {
        let asking = client.get(url).timeout(Duration::from_secs(5)).send();
        // Check the process first: an unrelated program on its port may accept a connection and
        // never answer, or may answer 200.
        let answer = tokio::select! {
            biased;
            () = process.exited() => None,
            answer = asking => Some(answer),
        };
        let Some(answer) = answer else {
            return Err(NotReady::Exited {
                name: name.to_owned(),
                log: process.logs_tail(LOG_LINES),
            });
        };
        let last = match answer {
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => format!("last answer {}", response.status()),
            Err(error) => format!("last error: {error}"),
        };
        if Instant::now() >= deadline {
            return Err(NotReady::Deadline {
                name: name.to_owned(),
                seconds: limit.as_secs(),
                last,
                log: process.logs_tail(LOG_LINES),
            });
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
