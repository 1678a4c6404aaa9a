//! Measures how soon the removal of an entry of `allow[]` takes effect.

use std::time::{Duration, Instant};

use keyferry_integration::world::caller_token;
use serde_json::json;

use super::hub::Hub;
use super::plan::{self, ACCOUNT, Access, OFFERED};
use super::seen::Seen;
use crate::harness::Outcome;
use crate::harness::process::now;

const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// The times after the response to the change of the TargetCluster, in seconds.
pub struct Revoked {
    /// The number of accesses that the entry had allowed.
    pub accesses: usize,
    /// The time to the first refusal of the token API.
    pub refused: f64,
    /// The time to the first TokenRequest that the hub's admission policy denies, for any client.
    pub denied: f64,
    /// The time to the deletion of the first object.
    pub first_deleted: f64,
    /// The time to the deletion of the last object.
    pub last_deleted: f64,
    /// The time until the status of every access reports it.
    pub told: f64,
}

/// Removes the entry that lets all tenants use the first target.
pub async fn measure(
    hub: &Hub,
    accesses: &[Access],
    seen: &Seen,
    written: &[Seen; 2],
) -> Outcome<Revoked> {
    const TARGET: usize = 0;
    let hit: Vec<&Access> = accesses
        .iter()
        .filter(|access| access.target() == TARGET)
        .collect();
    let asked = hit
        .iter()
        .find(|access| access.name == OFFERED)
        .ok_or("nobody may ask for an access of the first target")?;
    let caller = caller_token(&hub.plane, &asked.namespace, ACCOUNT).await?;
    let before = hub.broker.exchange(&caller, &asked.id()).await?;
    if before.status != 200 {
        return Err(format!(
            "the access {} is not granted before: {}",
            asked.id(),
            before.body
        )
        .into());
    }
    let kept: Vec<_> = plan::allow()
        .as_array()
        .into_iter()
        .flatten()
        .skip(1)
        .cloned()
        .collect();
    hub.allow(TARGET, &json!(kept)).await?;
    let from = now();
    let end = from + PATIENCE;
    let audience = format!("https://{}.keyferry.test", plan::target(TARGET));
    let refused = async {
        until(end, async || {
            Ok(hub.broker.exchange(&caller, &asked.id()).await?.status != 200)
        })
        .await
    };
    let denied = async {
        until(end, async || {
            Ok(hub
                .plane
                .token_request(&asked.namespace, ACCOUNT, &[&audience], 600)
                .await
                .is_err())
        })
        .await
    };
    let (refused, denied) = tokio::try_join!(refused, denied)?;
    let ended = |seen: &[Seen], id: &str| seen.iter().find_map(|seen| seen.of(id).ended);
    let gone = |access: &&&Access| {
        written
            .iter()
            .any(|seen| seen.of(&access.written()).ended.is_some())
    };
    written[0]
        .until(PATIENCE, "the deletion of every object", |_| {
            hit.iter().filter(gone).count() == hit.len()
        })
        .await?;
    let mut deleted: Vec<Instant> = hit
        .iter()
        .filter_map(|access| ended(written, &access.written()))
        .collect();
    deleted.sort_unstable();
    let is_told = |seen: &Seen| {
        hit.iter()
            .all(|access| seen.of(&access.id()).ended.is_some())
    };
    seen.until(PATIENCE, "the refusal in every status", is_told)
        .await?;
    let told = hit
        .iter()
        .filter_map(|access| seen.of(&access.id()).ended)
        .max();
    let seconds = |at: Option<Instant>| {
        at.map_or(f64::NAN, |at| {
            at.saturating_duration_since(from).as_secs_f64()
        })
    };
    Ok(Revoked {
        accesses: hit.len(),
        refused: seconds(Some(refused)),
        denied: seconds(Some(denied)),
        first_deleted: seconds(deleted.first().copied()),
        last_deleted: seconds(deleted.last().copied()),
        told: seconds(told),
    })
}

/// The time when the check was first true.
async fn until(end: Instant, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<Instant> {
    while !holds().await? {
        if now() > end {
            return Err(format!(
                "a token was still given {PATIENCE:?} after its entry was taken out"
            )
            .into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(now())
}
