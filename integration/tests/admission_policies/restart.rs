//! Measures how long a restarted apiserver refuses TokenRequests because `keyferry-pairing` cannot
//! find its parameters' kind yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait;

use super::stage::{AUDIENCE, Stage, mint};

/// Sets how often each hub is restarted.
const RESTARTS: &str = "KEYFERRY_RESTARTS";
/// kube-apiserver refreshes its list of kinds every 30 s. The rest is room for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn measured(stage: Arc<Stage>) -> TestResult {
    let restarts = match std::env::var(RESTARTS) {
        Ok(number) => number.parse()?,
        Err(_) => 1,
    };
    futures::future::try_join_all(stage.hubs.iter().map(|hub| on(hub, restarts)))
        .await
        .map(drop)
}

async fn on(hub: &ControlPlane, restarts: usize) -> TestResult {
    let mut refusals = Vec::with_capacity(restarts);
    for _ in 0..restarts {
        hub.restart().await?;
        refusals.push(until_tokens(hub).await?);
    }
    let shown: Vec<String> = refusals
        .iter()
        .map(|refused| format!("{:.1}", refused.as_secs_f64()))
        .collect();
    eprintln!(
        "seconds from /readyz to the first token on {}: {}",
        hub.minor().git_version(),
        shown.join(" ")
    );
    Ok(())
}

/// Waits until the hub mints a token for a listed audience; returns how long it refused.
async fn until_tokens(hub: &ControlPlane) -> Result<Duration, TestError> {
    let (ready, admin) = (Instant::now(), hub.admin());
    wait::until("a token for a listed audience", LIMIT, || async {
        // An account that is not listed gets no token meanwhile.
        if mint(admin, "tenant-a", "other", &[AUDIENCE]).await.is_ok() {
            return Err("an unlisted account got a token".into());
        }
        match mint(admin, "tenant-a", "reconciler", &[AUDIENCE]).await {
            Ok(_) => Ok(true),
            Err(error) => {
                let said = error.to_string();
                let known = [
                    "failed to find resource referenced by paramKind",
                    "not yet synced to use for admission",
                ];
                match known.iter().any(|text| said.contains(text)) {
                    true => Ok(false),
                    false => Err(format!("refused for another reason: {said}").into()),
                }
            }
        }
    })
    .await?;
    Ok(ready.elapsed())
}
