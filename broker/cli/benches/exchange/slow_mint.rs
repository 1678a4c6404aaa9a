//! Measures whether a mint that takes three seconds delays warm callers of another key.

use std::net::SocketAddr;
use std::time::Duration;

use keyferry_testing::{Fault, Route};

use super::generator::Load;
use super::interleaving::Interleaving;
use crate::harness::answer_time::AnswerTime;
use crate::harness::stage::{COLD, SELF, Stage, TENANT};
use crate::harness::{Outcome, process};

const MINT: Duration = Duration::from_secs(3);
/// Shorter than the mint, so that the whole load runs during it.
const DURATION: Duration = Duration::from_millis(2700);
const CONNECTIONS: usize = 16;
const PAUSE: Duration = Duration::from_millis(10);

/// One round: the same load without and with a slow mint beside it.
pub struct Round {
    /// The response times without the slow mint.
    pub without: AnswerTime,
    /// The response times with the slow mint.
    pub with: AnswerTime,
    /// How long the slow caller waited.
    pub slow: Duration,
}

/// Measures as many rounds as there are cold keys.
pub async fn measure(stage: &Stage) -> Outcome<Vec<Round>> {
    let requests = stage.ground.exchange_requests(CONNECTIONS, SELF, "warm")?;
    let load = Load {
        address: SocketAddr::from(([127, 0, 0, 1], stage.ports.api)),
        ca_pem: stage.ground.ca_pem.clone(),
        requests,
        connections: CONNECTIONS,
        warm_up: Duration::from_millis(300),
        duration: DURATION,
        pause: PAUSE,
    };
    let mut rounds = Vec::new();
    for index in 0..COLD {
        let without = Interleaving::once(&load).await?.next().await?.answered.time;
        let (with, slow) = beside_a_slow_mint(stage, &load, &format!("slow-{index}")).await?;
        rounds.push(Round {
            without,
            with,
            slow,
        });
    }
    Ok(rounds)
}

async fn beside_a_slow_mint(
    stage: &Stage,
    load: &Load,
    cold: &str,
) -> Outcome<(AnswerTime, Duration)> {
    let client = stage.ground.client()?;
    let form = stage.ground.form(TENANT, cold, cold)?;
    // All of them: the server also asks for tokens of its own, to see which key the hub uses.
    stage
        .ground
        .hub
        .set_fault(Route::TokenRequest, Fault::Delay(MINT));
    let mut turns = Interleaving::once(load).await?;
    turns.begin().await?;
    let begin = process::now();
    let (turn, exchanged) = tokio::join!(turns.end(), async {
        let exchanged = stage.exchange(&client, form).await;
        exchanged.map(|()| process::now() - begin)
    });
    stage.ground.hub.clear_faults();
    let slow = exchanged?;
    if slow < MINT {
        return Err("the slow mint was not slow".into());
    }
    Ok((turn?.answered.time, slow))
}
