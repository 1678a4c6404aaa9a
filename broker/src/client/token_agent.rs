//! Keeps a token directory fresh: one access, one directory, for as long as the process lives.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_core::jwt::UnverifiedJwt;
use keyferry_core::kubeconfig;
use keyferry_core::lifetime;
use keyferry_core::name::AccessName;
use keyferry_core::received_kubeconfig::ReceivedKubeconfig;
use secrecy::{ExposeSecret, SecretString};

use super::ClientError;
use super::token_directory::{TokenDirectory, TokenDirectoryError};
use crate::clock::Clock;
use crate::random::Random;

/// The least and the most between two tries of which the first failed.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// A machine may sleep meanwhile, so the clocks are looked at this often.
const LOOK: Duration = Duration::from_secs(20);

/// What an agent works with.
pub struct AgentParts {
    /// The access.
    pub access: AccessName,
    /// Where its files go.
    pub directory: TokenDirectory,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

/// Why a round wrote nothing. What an earlier one wrote stays.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// No token was got.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It could not be written.
    #[error(transparent)]
    Directory(#[from] TokenDirectoryError),
    /// The token says no usable end.
    #[error(
        "the server's token has ended by this machine's clock, or does not say when it ends; set \
         the clocks right"
    )]
    Expiry,
    /// The kubeconfig could not be written.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
}

/// What a round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// When the token that is there ends.
    pub expires: Timestamp,
    /// Whether the files were replaced; otherwise they were the same.
    pub written: bool,
}

/// Tells what happens. Called for every round, and no secret is in it.
pub type Report = dyn Fn(&AccessName, &Result<Round, RoundError>) + Send + Sync;

/// One round: the files of what the server sent.
///
/// # Errors
/// [`RoundError`].
pub fn write(parts: &AgentParts, received: &ReceivedKubeconfig) -> Result<Round, RoundError> {
    let ReceivedKubeconfig { cluster, token } = received;
    let now = parts.clock.now().wall;
    let expires = expiry(token)
        .filter(|expires| *expires > now)
        .ok_or(RoundError::Expiry)?;
    let document = kubeconfig::with_files(cluster, &parts.access)?;
    let ca = cluster.ca_pem();
    let mut files = vec![
        ("token", token.expose_secret().as_bytes()),
        ("namespace", parts.access.namespace.as_str().as_bytes()),
        ("kubeconfig", document.as_bytes()),
    ];
    files.extend(ca.as_ref().map(|pem| ("ca.crt", pem.as_bytes())));
    let mut random = [0; 8];
    parts.random.fill(&mut random);
    let written = parts
        .directory
        .replace(&files, now, u64::from_be_bytes(random))?;
    Ok(Round { expires, written })
}

/// When a token ends, by its own word.
pub fn expiry(token: &SecretString) -> Option<Timestamp> {
    let jwt = UnverifiedJwt::parse(token.expose_secret()).ok()?;
    Timestamp::from_second(jwt.claims().get("exp")?.as_i64()?).ok()
}

/// Writes, waits, and writes again, until the task is dropped. After a failure it tries again with
/// growing pauses.
pub async fn keep(
    parts: AgentParts,
    fetch: impl AsyncFn() -> Result<ReceivedKubeconfig, ClientError>,
    report: &Report,
) {
    let mut failures = 0;
    loop {
        let round = match fetch().await {
            Ok(received) => write(&parts, &received),
            Err(error) => Err(error.into()),
        };
        report(&parts.access, &round);
        let now = parts.clock.now();
        let wait = match &round {
            Ok(round) => {
                failures = 0;
                let left =
                    Duration::try_from(round.expires.duration_since(now.wall)).unwrap_or_default();
                lifetime::rewrite_after(left, parts.random.unit())
            }
            Err(_) => {
                failures += 1;
                pause(failures, parts.random.unit())
            }
        };
        let due = keyferry_core::moment::Deadline::after(wait, now);
        loop {
            let left = due.left(parts.clock.now());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

/// Twice as long after each failure in a row, and up to half less by chance.
fn pause(failures: u32, jitter: f64) -> Duration {
    let [least, most] = RETRY;
    let pause = least
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(most);
    pause.mul_f64(1.0 - 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
