//! Opens connections to each server in turn, sends one request over each, and closes it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keyferry_testing::HubOptions;
use rustls::ClientConfig;

use super::callers::{Callers, URI};
use crate::harness::answer_time::AnswerTime;
use crate::harness::empty_handler::{self, DOCUMENT_PATH};
use crate::harness::policy::Ports;
use crate::harness::report::Report;
use crate::harness::server_process::ServerProcess;
use crate::harness::spread::Spread;
use crate::harness::stage::{Ground, SELF, TENANT, exchange_request};
use crate::harness::table::Table;
use crate::harness::tls_connection::{TlsConnection, trusting};
use crate::harness::{Outcome, alternating, cell, process};

const ROUNDS: usize = 9;
/// Connections of each subject in each round.
const CONNECTIONS: usize = 400;
/// How many of them are open at once.
const AT_ONCE: usize = 4;
const SECRET: &str = "callers-ca";

/// One kind of connection.
struct Subject {
    name: &'static str,
    address: SocketAddr,
    pid: u32,
    client: Arc<ClientConfig>,
    request: Vec<u8>,
    rounds: Vec<Round>,
}

/// What one round measured.
struct Round {
    each: Vec<Duration>,
    wall: Duration,
    cpu: Duration,
}

/// Measures everything.
pub async fn all() -> Outcome<Report> {
    let callers = Callers::new()?;
    let (ground, ports, keyferry) = ground(None).await?;
    let (with, with_ports, with_keyferry) = self::ground(Some(&callers)).await?;
    // Its body is as long as that of `/livez`.
    let (empty, empty_address) = empty_handler::serve_apart(&ground, "ok\n".len()).await?;
    let machine = process::machine();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let exchange = |form: &str| exchange_request(form).into_bytes();
    let by_certificate = exchange("grant_type=client_credentials&audience=tenant-a%2Fwarm");
    let by_token = exchange(&with.form(TENANT, SELF, "warm")?);
    let api = |ports: Ports| SocketAddr::from(([127, 0, 0, 1], ports.api));
    let subject = |name, address, pid, client, request| Subject {
        name,
        address,
        pid,
        client,
        request,
        rounds: Vec::new(),
    };
    let (own, of_with) = (keyferry.id(), with_keyferry.id());
    let anonymous = |ground: &Ground| trusting(&ground.ca_pem);
    let mut subjects = vec![
        subject(
            "empty handler, client certificates off",
            empty_address,
            empty.id(),
            anonymous(&ground)?,
            get(DOCUMENT_PATH),
        ),
        subject(
            "`/livez`, client certificates off",
            api(ports),
            own,
            anonymous(&ground)?,
            get("/livez"),
        ),
        subject(
            "`/livez`, asked for one, and none sent",
            api(with_ports),
            of_with,
            anonymous(&with)?,
            get("/livez"),
        ),
        subject(
            "`/livez`, with a certificate",
            api(with_ports),
            of_with,
            callers.client(&with.ca_pem, false)?,
            get("/livez"),
        ),
        subject(
            "`/livez`, with one and an intermediate CA",
            api(with_ports),
            of_with,
            callers.client(&with.ca_pem, true)?,
            get("/livez"),
        ),
        subject(
            "cached exchange by token, none sent",
            api(with_ports),
            of_with,
            anonymous(&with)?,
            by_token,
        ),
        subject(
            "cached exchange by certificate",
            api(with_ports),
            of_with,
            callers.client(&with.ca_pem, false)?,
            by_certificate,
        ),
    ];
    for subject in &mut subjects {
        // Fills caches.
        round(subject, 50).await?;
    }
    for number in 0..ROUNDS {
        process::complain(&format!("round {} of {ROUNDS} ...\n", number + 1))?;
        for index in alternating(number, subjects.len()) {
            if let Some(subject) = subjects.get_mut(index) {
                let measured = round(subject, CONNECTIONS).await?;
                subject.rounds.push(measured);
            }
        }
    }
    Ok(Report::of(machine).with_section("New connections", table(&subjects)))
}

/// A hub and a Keyferry, with a rule for the callers' certificates or without.
async fn ground(callers: Option<&Callers>) -> Outcome<(Ground, Ports, ServerProcess)> {
    let ground = Ground::prepare(HubOptions::default()).await?;
    let (uid, objects) = ground.add_one_access();
    let ports = ground.configure(&objects)?;
    if let Some(callers) = callers {
        let pem = callers.ca_pem.as_bytes();
        ground
            .hub
            .add_secret("keyferry-system", SECRET, &[("ca.crt", pem)]);
        // The embedded hub has no client CA to compare with.
        let rules = format!(
            "  clientCertificates:\n    - caSecretRef: {{name: {SECRET}}}\n      uriSAN: {URI}\n      \
             allowHubClientCA: true\n      serviceAccount: {{namespace: {TENANT}, name: {SELF}, uid: \
             {uid}}}\nhealth:\n"
        );
        let file = ground.file("config.yaml");
        let text = std::fs::read_to_string(&file)?;
        std::fs::write(&file, text.replacen("health:\n", &rules, 1))?;
    }
    let keyferry = ServerProcess::start_keyferry(&ground, ports).await?;
    Ok((ground, ports, keyferry))
}

async fn round(subject: &Subject, connections: usize) -> Outcome<Round> {
    let cpu = || process::cpu_time_of(subject.pid).ok_or("no CPU time is known of the server");
    let (begun, cpu_before) = (process::now(), cpu()?);
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (address, client) = (subject.address, Arc::clone(&subject.client));
        let request = subject.request.clone();
        workers.spawn(async move {
            let mut each = Vec::with_capacity(connections / AT_ONCE);
            for _ in 0..connections / AT_ONCE {
                let begun = process::now();
                let mut connection = TlsConnection::open(address, Arc::clone(&client)).await?;
                connection.ask(&request).await?;
                each.push(begun.elapsed());
            }
            Outcome::Ok(each)
        });
    }
    let mut each = Vec::new();
    while let Some(worker) = workers.join_next().await {
        each.extend(worker??);
    }
    Ok(Round {
        each,
        wall: begun.elapsed(),
        cpu: cpu()?.saturating_sub(cpu_before),
    })
}

fn table(subjects: &[Subject]) -> Table {
    let cpu_of = |subject: &Subject| {
        let (cpu, count) = subject
            .rounds
            .iter()
            .fold((Duration::ZERO, 0), |(cpu, count), round| {
                (cpu + round.cpu, count + round.each.len())
            });
        cpu.as_secs_f64() * 1e6 / count.max(1) as f64
    };
    let empty = subjects.first().map_or(1.0, cpu_of);
    let rows = subjects.iter().map(|subject| {
        let rounds = || subject.rounds.iter();
        let each = rounds().flat_map(|round| round.each.iter().copied());
        let time = AnswerTime::of(each.collect());
        let rate = rounds().map(|round| round.each.len() as f64 / round.wall.as_secs_f64());
        let cpu = cpu_of(subject);
        vec![
            subject.name.to_owned(),
            cell::median(Spread::of(rate), 0),
            cell::number(Some(time.p50), 0),
            cell::number(Some(time.p99), 0),
            cell::number(Some(cpu), 0),
            cell::percent(cpu / empty),
        ]
    });
    Table {
        head: vec![
            "a new connection and one request",
            "connections/s",
            "p50 us",
            "p99 us",
            "server CPU us",
            "of the empty handler's CPU",
        ],
        rows: rows.collect(),
    }
}
