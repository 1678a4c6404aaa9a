//! Events are rehearsed, and then really happen: what clients, Keyferry and targets refuse lies
//! where `keyferry rehearse` says that it may, and is refused where it says so.
//!
//! | what happens | test |
//! |---|---|
//! | the hub signs with a key that was never published | `a_rotation_costs_what_was_rehearsed` |
//! | a target gets another CA; the hub is away for 40 s, then Keyferry | `outages_cost_what_was_rehearsed` |
//! | the printed runbook of a target's new CA is followed | `the_runbook_of_an_authority_refuses_nothing` |
//! | the printed runbook of a rotation is followed | `the_runbook_of_a_rotation_refuses_nothing` |
//! | 20 random scenarios with 30 clients each, on request | `random_scenarios_cost_what_was_rehearsed` |
//!
//! `KEYFERRY_REHEARSALS=SEED` chooses the scenarios, and `KEYFERRY_REHEARSALS=SEED:13,17` plays two of
//! them.

mod comparison;
mod consumers;
mod prediction;
mod runbook;
mod scenario;
mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::random::Random;
use keyferry_integration::runner::{BoxedSuite, Suite, TestError, TestResult};
use keyferry_integration::world::Ground;
use scenario::Scenario;
use stage::Stage;
use tokio::task::JoinSet;

/// Scenarios of the suite on request, and how many hubs play them at once.
const RANDOM_SCENARIOS: u64 = 20;
const HUBS: u64 = 4;
/// With two tenants and three ways: 30 clients, and those of the new accesses.
const ACCESSES_AT_SCALE: usize = 5;

pub(crate) fn suite() -> BoxedSuite {
    let stage = || Stage::start(1);
    Suite::new(stage)
        .concurrent_tests(1)
        .limit(Duration::from_secs(600))
        .beside(Suite::new(stage).test("a_rotation_costs_what_was_rehearsed", rotation))
        .test("outages_cost_what_was_rehearsed", outages)
        .test(
            "the_runbook_of_an_authority_refuses_nothing",
            runbook::change_target_authority,
        )
        .test(
            "the_runbook_of_a_rotation_refuses_nothing",
            runbook::publish_first,
        )
        .boxed()
}

/// The random scenarios, on request.
pub(crate) fn at_scale() -> BoxedSuite {
    Suite::new(Ground::start)
        .only_on_request()
        .limit(Duration::from_secs(3600))
        .test("random_scenarios_cost_what_was_rehearsed", |_| {
            random_scenarios()
        })
        .boxed()
}

async fn rotation(stage: Arc<Stage>) -> TestResult {
    let refused = Scenario::SignAtOnce.play(&stage, "at-once").await?;
    enough(refused)
}

async fn outages(stage: Arc<Stage>) -> TestResult {
    Scenario::TargetAuthority { index: 1 }
        .play(&stage, "new-authority")
        .await?;
    let lasts = Duration::from_secs(40);
    let of_hub = Scenario::HubOutage { lasts }.play(&stage, "no-hub").await?;
    enough(of_hub)?;
    let of_keyferry = Scenario::KeyferryOutage { lasts }
        .play(&stage, "no-keyferry")
        .await?;
    enough(of_keyferry)
}

fn enough(refused: usize) -> TestResult {
    if refused < 30 {
        return Err(format!("only {refused} calls were refused for certain").into());
    }
    Ok(())
}

async fn random_scenarios() -> TestResult {
    let chosen = std::env::var("KEYFERRY_REHEARSALS").unwrap_or_else(|_| "1".to_owned());
    let (seed, numbers) = match chosen.split_once(':') {
        Some((seed, numbers)) => (seed, numbers.split(',').map(str::parse).collect()),
        None => (&*chosen, Ok((0..RANDOM_SCENARIOS).collect())),
    };
    let (seed, numbers): (u64, BTreeSet<u64>) = (seed.parse()?, numbers?);
    let mut hubs = JoinSet::new();
    for hub in 0..HUBS {
        let of_hub = numbers.iter().copied().filter(|it| it % HUBS == hub);
        hubs.spawn(play_each(seed, of_hub.collect()));
    }
    let mut failed = Vec::new();
    while let Some(of_one) = hubs.join_next().await {
        failed.extend(of_one??);
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("seed {seed}: {failed:#?}").into())
}

/// Plays these scenarios one after the other on one hub, and returns what went otherwise.
async fn play_each(seed: u64, numbers: BTreeSet<u64>) -> Result<Vec<String>, TestError> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let stage = Stage::start(ACCESSES_AT_SCALE)
        .await
        .map_err(|error| format!("{error:?}"))?;
    let mut failed = Vec::new();
    for number in numbers {
        let scenario = Scenario::draw(&mut Random::of(seed, number));
        if let Err(error) = scenario.play(&stage, &format!("random-{number}")).await {
            failed.push(error.to_string());
        }
    }
    Ok(failed)
}
