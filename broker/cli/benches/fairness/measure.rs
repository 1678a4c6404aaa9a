//! Measures the neighbour without and with each flood, in turn.

use std::time::Duration;

use super::flood::{FLOOD, Flood, Flooded, Way};
use super::ground::Stage;
use super::neighbour::{ASK, Asked, Neighbour};
use super::plan::{PLANS, Plan};
use crate::harness::answer_time::AnswerTime;
use crate::harness::load_process::LoadProcess;
use crate::harness::process::{waits_of, waits_per_second};
use crate::harness::stage::TENANT;
use crate::harness::{Outcome, alternating, process};

/// The time for the server to send delayed refusals and to close connections.
const REST: Duration = Duration::from_secs(1);

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    rounds: usize,
    window: Duration,
}

/// All measurements of one run.
pub struct Figures {
    /// The machine of the run.
    pub machine: String,
    /// Each flood with its rounds.
    pub subjects: Vec<Subject>,
}

/// One flood and what it did.
pub struct Subject {
    /// Its name in the tables.
    pub name: &'static str,
    /// One entry for each round.
    pub rounds: Vec<Round>,
}

/// One window without the flood, and one with it.
pub struct Round {
    /// The neighbour's response times without it.
    pub before: AnswerTime,
    /// The neighbour's response times with it.
    pub during: AnswerTime,
    /// The cores that the server used with it; `None` where the system does not report it.
    pub server_cores: Option<f64>,
    /// How long the server's threads waited for a core with it, in milliseconds a second.
    pub server_waits: f64,
    /// The same of the neighbour.
    pub neighbour_waits: f64,
    /// What came of the flood; `None` for the row without one.
    pub flooded: Option<Flooded>,
}

impl Scale {
    /// For figures.
    pub const FULL: Self = Self {
        rounds: 5,
        window: Duration::from_secs(2),
    };
    /// For a run that only shows that everything still runs.
    pub const SMOKE: Self = Self {
        rounds: 1,
        window: Duration::from_millis(300),
    };
}

/// Measures all floods, or that of one row. Each window without a flood is between two others with
/// one, so that a drift of the machine shows in both.
pub async fn measure_all(scale: Scale, row: u64) -> Outcome<Figures> {
    let machine = process::machine();
    let stage = Stage::start().await?;
    let plans: Vec<&Plan> = (0..)
        .zip(&PLANS)
        .filter(|(index, _)| row == 0 || row == *index)
        .map(|(_, plan)| plan)
        .collect();
    process::complain(&format!("the server is process {}\n", stage.server.id()))?;
    for plan in &plans {
        check_answer(&stage, plan).await?;
    }
    let neighbour = Neighbour {
        address: stage.address(),
        ca_pem: stage.ground.ca_pem.clone(),
        request: stage.exchange(TENANT)?,
        duration: scale.window,
    };
    let mut subjects: Vec<Subject> = plans
        .iter()
        .map(|plan| Subject {
            name: plan.name,
            rounds: Vec::new(),
        })
        .collect();
    for number in 0..scale.rounds {
        process::complain(&format!("round {} of {} ...\n", number + 1, scale.rounds))?;
        for index in alternating(number, plans.len()) {
            if let (Some(plan), Some(subject)) = (plans.get(index), subjects.get_mut(index)) {
                process::complain(&format!("  {} ...\n", plan.name))?;
                let round = measure_round(&stage, plan, &neighbour).await;
                let round = round.map_err(|error| format!("{}: {error}", plan.name))?;
                subject.rounds.push(round);
            }
        }
    }
    stage.ground.hub.stop().await;
    Ok(Figures { machine, subjects })
}

/// Sends one request of a flood, because a flood of wrong requests would measure something else.
async fn check_answer(stage: &Stage, plan: &Plan) -> Outcome<()> {
    let Some(request) = (plan.requests)(stage)?.pop() else {
        return Ok(());
    };
    let status = stage.status_of(&request).await?;
    if plan.is_granted == (status == 200) {
        Ok(())
    } else {
        Err(format!(
            "{}: the first request was answered with {status}",
            plan.name
        )
        .into())
    }
}

async fn measure_round(stage: &Stage, plan: &Plan, neighbour: &Neighbour) -> Outcome<Round> {
    let before = measure_neighbour(stage, neighbour).await?.asked.time;
    let flood = match plan.way {
        Some(way) => Some(start_flood(stage, plan, way).await?),
        None => None,
    };
    let during = measure_neighbour(stage, neighbour).await?;
    let flooded = match flood {
        Some(flood) => {
            flood.stop()?;
            Some(flood.result().await?)
        }
        None => None,
    };
    stage.ground.empty_audit_log()?;
    tokio::time::sleep(REST).await;
    Ok(Round {
        before,
        during: during.asked.time,
        server_cores: during.server_cores,
        server_waits: during.server_waits,
        neighbour_waits: during.asked.waits,
        flooded,
    })
}

/// Starts a flood, and returns once it has used up the bursts that the limits allow.
async fn start_flood(stage: &Stage, plan: &Plan, way: Way) -> Outcome<LoadProcess> {
    let order = Flood {
        address: stage.address(),
        ca_pem: stage.ground.ca_pem.clone(),
        way,
        requests: (plan.requests)(stage)?,
        connections: plan.connections,
    };
    let mut flood = LoadProcess::start(FLOOD, &order).await?;
    flood.begin_window().await?;
    Ok(flood)
}

/// What one window showed.
struct Measured {
    asked: Asked,
    server_cores: Option<f64>,
    server_waits: f64,
}

async fn measure_neighbour(stage: &Stage, neighbour: &Neighbour) -> Outcome<Measured> {
    let server = stage.server.id();
    let mut asking = LoadProcess::start(ASK, neighbour).await?;
    asking.begin_window().await?;
    let waits_before = waits_of(server);
    let cpu = asking.end_window(server).await?;
    Ok(Measured {
        server_waits: waits_per_second(server, &waits_before, neighbour.duration),
        asked: asking.result().await?,
        server_cores: cpu.map(|cpu| cpu.as_secs_f64() / neighbour.duration.as_secs_f64()),
    })
}
