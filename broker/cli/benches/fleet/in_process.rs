//! Compares what a running program waits for a token: an exchange on a kept connection, and Flux's
//! own token cache in its own process. Both are in turn with nothing cached and with the token in
//! the cache.

use std::process::Stdio;

use keyferry_integration::parts::Part;
use keyferry_integration::world::caller_token;
use serde_json::Value;
use tokio::process::Command;

use super::hub::Hub;
use super::plan::{ACCOUNT, Access, OFFERED};
use crate::harness::Outcome;
use crate::harness::process::now;
use crate::harness::spread::Spread;

/// The most runs of each.
const RUNS: usize = 100;

/// The milliseconds of a token, without and with it in the cache.
#[derive(Clone, Copy)]
pub struct Waits {
    /// With nothing cached.
    pub cold: Option<Spread>,
    /// With the token in the cache.
    pub warm: Option<Spread>,
}

/// The figures of both.
pub struct InProcess {
    /// The exchange.
    pub exchange: Waits,
    /// Flux, or why it was not measured.
    pub flux: Result<Waits, String>,
}

/// Measures both, at accesses that nobody has asked for a token yet.
pub async fn measure(hub: &Hub, accesses: &[Access]) -> Outcome<InProcess> {
    let exchange = measure_exchanges(hub, accesses).await?;
    let flux = flux(hub, accesses).await.map_err(|why| why.to_string());
    Ok(InProcess { exchange, flux })
}

/// A cold exchange costs the hub a TokenReview and a TokenRequest.
async fn measure_exchanges(hub: &Hub, accesses: &[Access]) -> Outcome<Waits> {
    let mut offered = accesses.iter().filter(|access| access.name == OFFERED);
    let first = offered.next().ok_or("no access offers exchanges")?;
    // Opens the connection.
    timed_exchange(
        hub,
        first,
        &caller_token(&hub.plane, &first.namespace, ACCOUNT).await?,
    )
    .await?;
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    // The second one is used by the exec plugin before.
    for access in offered.skip(1).take(RUNS) {
        let caller = caller_token(&hub.plane, &access.namespace, ACCOUNT).await?;
        cold.push(timed_exchange(hub, access, &caller).await?);
        warm.push(timed_exchange(hub, access, &caller).await?);
    }
    Ok(Waits {
        cold: Spread::of(cold),
        warm: Spread::of(warm),
    })
}

async fn timed_exchange(hub: &Hub, access: &Access, caller: &str) -> Outcome<f64> {
    let begin = now();
    let answer = hub.broker.exchange(caller, &access.id()).await?;
    let took = now() - begin;
    answer.token()?;
    Ok(took.as_secs_f64() * 1000.0)
}

/// A cold run costs the hub a GET of the ConfigMap and a TokenRequest, a warm one the GET alone.
async fn flux(hub: &Hub, accesses: &[Access]) -> Outcome<Waits> {
    let program = hub.parts().locate(Part::FluxTokenCache).await?;
    let access = accesses.iter().find(|access| !access.holds_token());
    let access = access.ok_or("no access has a ConfigMap for Flux")?;
    let output = Command::new(program)
        .arg(hub.plane.admin_kubeconfig())
        .args([&access.namespace, &access.name])
        .arg(RUNS.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut measured: Value = serde_json::from_slice(&output.stdout)?;
    let mut spread = |name: &str| {
        let times: Vec<f64> = serde_json::from_value(measured[name].take())?;
        Outcome::Ok(Spread::of(times))
    };
    Ok(Waits {
        cold: spread("cold")?,
        warm: spread("warm")?,
    })
}
