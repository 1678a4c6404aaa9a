//! Measures requests per second, alternating with an empty handler of the same listener.

use std::net::SocketAddr;
use std::time::Duration;

use super::generator::{Load, Order};
use super::interleaving::{Interleaving, Turn};
use crate::harness::spread::Spread;
use crate::harness::stage::{DELEGATE, SELF, Stage};
use crate::harness::tls_connection::{self, Size};
use crate::harness::{Outcome, alternating, empty_handler};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 15;
/// The number of turns of each subject in a round. They are many and short: on a shared machine,
/// compared measurements must be close in time.
const TURNS: usize = 8;
const WARM_UP: Duration = Duration::from_millis(20);
const DURATION: Duration = Duration::from_millis(100);

/// One measured subject.
pub struct Subject {
    /// Its name in the tables.
    pub name: &'static str,
    /// One sample for each round.
    pub samples: Vec<Sample>,
    /// The index of the subject that it is compared with.
    pub baseline: Option<usize>,
    /// The size of its response.
    pub size: Size,
    load: Load,
}

/// The result of one round of one subject, over all of its turns.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The responses per second.
    pub rate: f64,
    /// The median response time in its median turn, in microseconds.
    pub p50: f64,
    /// The response time that 99 of 100 did not exceed, in microseconds.
    pub p99: f64,
    /// This process's CPU time per response in microseconds; `None` where the system does not
    /// report it.
    pub cpu: Option<f64>,
}

impl Sample {
    fn of(turns: &[Turn]) -> Option<Self> {
        let answers = turns.iter().map(|turn| turn.answered.count).sum::<u64>() as f64;
        let cpu: Option<Duration> = turns.iter().map(|turn| turn.cpu).sum();
        let middle = |time: fn(&Turn) -> f64| Some(Spread::of(turns.iter().map(time))?.median);
        Some(Self {
            rate: answers / (DURATION.as_secs_f64() * turns.len() as f64),
            p50: middle(|turn| turn.answered.time.p50)?,
            p99: middle(|turn| turn.answered.time.p99)?,
            cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / answers.max(1.0)),
        })
    }
}

/// Measures all subjects.
pub async fn measure(stage: &Stage) -> Outcome<Vec<Subject>> {
    let exchange = probe(
        stage,
        stage.ports.api,
        stage.ground.exchange_requests(CONNECTIONS, SELF, "warm")?,
        "exchange, the ServiceAccount itself",
    )
    .await?;
    let delegated = probe(
        stage,
        stage.ports.api,
        stage
            .ground
            .exchange_requests(CONNECTIONS, DELEGATE, "delegated")?,
        "exchange, delegated caller",
    )
    .await?;
    let by_assertion = probe(
        stage,
        stage.ports.api,
        stage.ground.assertion_requests(CONNECTIONS, SELF, "warm")?,
        "exchange by client_assertion, beside the first",
    )
    .await?;
    let get = |path: &str| vec![format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")];
    let jwks = probe(stage, stage.ports.discovery, get("/openid/v1/jwks"), "JWKS").await?;
    let metadata = probe(
        stage,
        stage.ports.discovery,
        get("/.well-known/openid-configuration"),
        "discovery document",
    )
    .await?;
    let empty_post = empty(
        stage,
        &exchange,
        "empty handler, as many bytes as an exchange",
    )
    .await?;
    let empty_get = empty(stage, &jwks, "empty handler, as many bytes as the JWKS").await?;
    let mut exchanges = [
        empty_post,
        Subject {
            baseline: Some(0),
            ..exchange
        },
        Subject {
            baseline: Some(0),
            ..delegated
        },
        Subject {
            baseline: Some(1),
            ..by_assertion
        },
    ];
    let mut documents = [
        empty_get,
        Subject {
            baseline: Some(4),
            ..jwks
        },
        Subject {
            baseline: Some(4),
            ..metadata
        },
    ];
    take_turns(stage, &mut exchanges).await?;
    take_turns(stage, &mut documents).await?;
    Ok(exchanges.into_iter().chain(documents).collect())
}

/// Runs all rounds of these subjects.
async fn take_turns(stage: &Stage, subjects: &mut [Subject]) -> Outcome<()> {
    let count = subjects.len();
    let turns = (0..ROUNDS * TURNS).flat_map(|turn| alternating(turn, count));
    let order = Order {
        loads: subjects
            .iter()
            .map(|subject| subject.load.clone())
            .collect(),
        turns: turns.collect(),
    };
    let mut measured = Interleaving::start(&order).await?;
    for round in order.turns.chunks(TURNS * count) {
        let mut turns = vec![Vec::new(); count];
        for index in round {
            stage.ground.empty_audit_log()?;
            let turn = measured.next().await?;
            turns.get_mut(*index).ok_or("a turn of nobody")?.push(turn);
        }
        for (subject, turns) in subjects.iter_mut().zip(&turns) {
            subject.samples.extend(Sample::of(turns));
        }
    }
    stage.ground.empty_audit_log()
}

/// Sends one request, so that the size of the response is known and every required token is minted.
async fn probe(
    stage: &Stage,
    port: u16,
    requests: Vec<String>,
    name: &'static str,
) -> Outcome<Subject> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let request = requests.first().ok_or("there is nothing to send")?;
    let size = tls_connection::probe(address, &stage.ground.ca_pem, request.as_bytes()).await?;
    let load = Load {
        address,
        ca_pem: stage.ground.ca_pem.clone(),
        requests,
        connections: CONNECTIONS,
        warm_up: WARM_UP,
        duration: DURATION,
        pause: Duration::ZERO,
    };
    Ok(Subject {
        name,
        samples: Vec::new(),
        baseline: None,
        size,
        load,
    })
}

/// A handler that reads the same request and returns a response of the same length on the wire,
/// without other work.
async fn empty(stage: &Stage, like: &Subject, name: &'static str) -> Outcome<Subject> {
    let requests = || like.load.requests.clone();
    let short = empty_handler::serve_here(&stage.ground, 1).await?;
    let short = probe(stage, short.port(), requests(), name).await?.size;
    let bytes = empty_handler::body_length(like.size, short);
    let address = empty_handler::serve_here(&stage.ground, bytes).await?;
    probe(stage, address.port(), requests(), name).await
}
