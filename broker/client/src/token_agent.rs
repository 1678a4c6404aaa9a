//! Keeps one token directory fresh for one access, for as long as the process lives.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::lifetime;
use keyferry_api::name::AccessName;
use keyferry_core::kubeconfig;
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::received_kubeconfig::ReceivedKubeconfig;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::Random;
use secrecy::{ExposeSecret, SecretString};

use super::ClientError;
use super::token_directory::{TokenDirectory, TokenDirectoryError};

/// The shortest and the longest pause before a retry.
const RETRY_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How often the clock is checked while waiting, because the machine may sleep meanwhile.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// Keeps the token of one access in one directory.
pub struct TokenAgent {
    /// The access whose token is kept.
    pub access: AccessName,
    /// The directory for its files.
    pub directory: TokenDirectory,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub random: Arc<dyn Random>,
}

/// Why a round wrote nothing. Files of earlier rounds stay.
#[derive(Debug, thiserror::Error)]
pub enum AgentUpdateError {
    /// No token was received.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The files could not be written.
    #[error(transparent)]
    Directory(#[from] TokenDirectoryError),
    /// The token has expired or has no readable expiry.
    #[error(
        "the server's token has ended by this machine's clock, or does not say when it ends; \
         correct the clocks"
    )]
    Expiry,
    /// The kubeconfig could not be rendered.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentUpdate {
    /// When the current token expires.
    pub expires: Timestamp,
    /// Whether the files were replaced. False if they were already the same.
    pub written: bool,
}

/// Reports the result of every round. It contains no secret.
pub type Report = dyn Fn(&AccessName, &Result<AgentUpdate, AgentUpdateError>) + Send + Sync;

/// What one round received.
pub enum Received {
    /// A token and the cluster that it is for.
    Kubeconfig(ReceivedKubeconfig),
    /// A token alone, for a target that is not a cluster.
    Token(SecretString),
}

impl From<ReceivedKubeconfig> for Received {
    fn from(received: ReceivedKubeconfig) -> Self {
        Self::Kubeconfig(received)
    }
}

/// Writes the files of one round from the server's response.
///
/// # Errors
/// [`AgentUpdateError`].
pub fn write_files(
    agent: &TokenAgent,
    received: impl Into<Received>,
) -> Result<AgentUpdate, AgentUpdateError> {
    let (token, cluster) = match received.into() {
        Received::Kubeconfig(ReceivedKubeconfig { cluster, token }) => (token, Some(cluster)),
        Received::Token(token) => (token, None),
    };
    let now = agent.clock.now().wall;
    let expires = token_expiry(&token)
        .filter(|expires| *expires > now)
        .ok_or(AgentUpdateError::Expiry)?;
    let document = cluster
        .as_ref()
        .map(|cluster| kubeconfig::with_files(cluster, &agent.access))
        .transpose()?;
    let ca = cluster.as_ref().and_then(PublicCluster::ca_pem);
    let mut files = vec![
        ("token", token.expose_secret().as_bytes()),
        ("namespace", agent.access.namespace.as_str().as_bytes()),
    ];
    files.extend(
        document
            .as_ref()
            .map(|text| ("kubeconfig", text.as_bytes())),
    );
    files.extend(ca.as_ref().map(|pem| ("ca.crt", pem.as_bytes())));
    let mut random = [0; 8];
    agent.random.fill_bytes(&mut random);
    let written = agent
        .directory
        .replace_files(&files, now, u64::from_be_bytes(random))?;
    Ok(AgentUpdate { expires, written })
}

/// Returns the token's own, unverified expiry.
pub fn token_expiry(token: &SecretString) -> Option<Timestamp> {
    let jwt = UnverifiedJwt::parse(token.expose_secret()).ok()?;
    Timestamp::from_second(jwt.claims().get("exp")?.as_i64()?).ok()
}

/// Fetches and writes in rounds until the task is dropped. After a failure it retries with growing
/// pauses.
pub async fn run_rounds<R: Into<Received>>(
    agent: TokenAgent,
    fetch: impl AsyncFn() -> Result<R, ClientError>,
    report: &Report,
) {
    let mut failures = 0;
    loop {
        let round = match fetch().await {
            Ok(received) => write_files(&agent, received),
            Err(error) => Err(error.into()),
        };
        report(&agent.access, &round);
        let now = agent.clock.now();
        let wait = match &round {
            Ok(round) => {
                failures = 0;
                let left =
                    Duration::try_from(round.expires.duration_since(now.wall)).unwrap_or_default();
                lifetime::rewrite_after(left, agent.random.unit_fraction())
            }
            Err(_) => {
                failures += 1;
                retry_pause(failures, agent.random.unit_fraction())
            }
        };
        let due = keyferry_api::moment::Deadline::after(wait, now);
        loop {
            let left = due.left(agent.clock.now());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
        }
    }
}

/// Doubles the pause after each failure in a row, and shortens it at random by up to half.
fn retry_pause(failures: u32, jitter: f64) -> Duration {
    let [least, most] = RETRY_RANGE;
    let pause = least
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(most);
    pause.mul_f64(1.0 - 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
