//! Opens connections to each server in turn, sends one request over each, and closes it.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keyferry_testing::HubOptions;
use rustls::ClientConfig;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::callers::{Callers, URI};
use super::empty::{self, Order};
use super::keyferry_process::Keyferry;
use super::policy::{self, Ports};
use super::process;
use super::stage::{Ground, SELF, TENANT};
use super::table::Table;
use super::tls_connection::TlsConnection;
use crate::Outcome;

const ROUNDS: usize = 9;
/// Connections of each subject in each round.
const CONNECTIONS: usize = 400;
/// How many of them are open at once.
const AT_ONCE: usize = 4;
const READY: Duration = Duration::from_secs(15);
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

/// Another server's process, which is killed when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures everything, and describes the machine.
pub async fn all() -> Outcome<(String, Table)> {
    let callers = Callers::new()?;
    let (ground, ports, keyferry) = ground(None).await?;
    let (with, with_ports, with_keyferry) = self::ground(Some(&callers)).await?;
    let (empty, empty_address) = empty_handler(&ground).await?;
    let machine = process::machine();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let exchange = |form: &str| {
        format!(
            "POST /v1/token HTTP/1.1\r\nHost: a\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        )
        .into_bytes()
    };
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
    let anonymous = |ground: &Ground| Callers::anonymous(&ground.ca_pem);
    let mut subjects = vec![
        subject(
            "empty handler, client certificates off",
            empty_address,
            empty.0.id(),
            anonymous(&ground)?,
            get("/openid/v1/jwks"),
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
        for index in 0..subjects.len() {
            // Forwards and backwards, so that all have the same neighbours.
            let last = subjects.len() - 1;
            let index = if number % 2 == 0 { index } else { last - index };
            if let Some(subject) = subjects.get_mut(index) {
                let measured = round(subject, CONNECTIONS).await?;
                subject.rounds.push(measured);
            }
        }
    }
    Ok((machine, table(&subjects)))
}

/// A hub and a Keyferry, with a rule for the callers' certificates or without.
async fn ground(callers: Option<&Callers>) -> Outcome<(Ground, Ports, Keyferry)> {
    let ground = Ground::prepare(HubOptions::default()).await?;
    ground.hub.add_namespace(TENANT, &[]);
    let uid = ground.hub.add_service_account(TENANT, SELF);
    let mut objects = policy::access(TENANT, "warm", "prod", SELF, &[]);
    objects += &policy::target("prod", "1h", &[TENANT.to_owned()], &[SELF.to_owned()]);
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
    let keyferry = Keyferry::start(&ground, ports).await?;
    Ok((ground, ports, keyferry))
}

/// An empty handler whose body is as long as that of `/livez`.
async fn empty_handler(ground: &Ground) -> Outcome<(Other, SocketAddr)> {
    let order = Order {
        certificate: ground.file("tls.crt"),
        key: ground.file("tls.key"),
        bytes: "ok\n".len(),
    };
    let orders = ground.file("empty.json");
    std::fs::write(&orders, serde_json::to_vec(&order)?)?;
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .arg(empty::SERVE)
        .stdin(std::fs::File::open(orders)?)
        .stdout(Stdio::piped())
        .spawn()?;
    let said = child
        .stdout
        .take()
        .ok_or("the empty handler has no output")?;
    let process = Other(child);
    let mut lines = BufReader::new(tokio::process::ChildStdout::from_std(said)?).lines();
    let line = tokio::time::timeout(READY, lines.next_line())
        .await
        .map_err(|_| "the empty handler did not start")??;
    let address = line.ok_or("the empty handler said nothing")?.parse()?;
    Ok((process, address))
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
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(each)
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
        let mut each: Vec<Duration> = subject
            .rounds
            .iter()
            .flat_map(|round| round.each.iter().copied())
            .collect();
        each.sort();
        let at = |percent: usize| {
            let index = each.len().saturating_sub(1) * percent / 100;
            each.get(index).copied().unwrap_or_default().as_micros()
        };
        let mut rates: Vec<u128> = subject
            .rounds
            .iter()
            .map(|round| round.each.len() as u128 * 1_000_000 / round.wall.as_micros().max(1))
            .collect();
        rates.sort_unstable();
        let rate = rates.get(rates.len() / 2).copied().unwrap_or_default();
        let cpu = cpu_of(subject);
        vec![
            subject.name.to_owned(),
            rate.to_string(),
            at(50).to_string(),
            at(99).to_string(),
            format!("{cpu:.0}"),
            format!("{:.0} %", 100.0 * cpu / empty),
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
