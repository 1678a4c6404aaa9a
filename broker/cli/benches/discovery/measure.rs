//! Measures all servers under all loads, alternating between the servers.

use std::time::Duration;

use keyferry_testing::HubOptions;

use super::figures::{Figures, Memory, Sample, Subject};
use super::load::{LOAD, Load, Received};
use super::server::Server;
use crate::harness::load_process::LoadProcess;
use crate::harness::stage::Ground;
use crate::harness::{Outcome, alternating, process};

const SENDERS: usize = 64;
/// The number of senders, each of which makes one handshake at a time.
const HANDSHAKES: usize = 16;
const SLOW: usize = 1000;
const ROUNDS: usize = 5;
const FURTHER_ROUNDS: usize = 3;
/// Enough rounds to distinguish memory that levels off from memory that grows.
const CROWDED_ROUNDS: usize = 10;
const WARM_UP: Duration = Duration::from_millis(300);
const DURATION: Duration = Duration::from_secs(2);
/// How long a server is idle before its memory is read.
const REST: Duration = Duration::from_secs(2);

/// Measures everything.
pub async fn all() -> Outcome<Figures> {
    let ground = Ground::prepare(HubOptions::default()).await?;
    let ports = ground.configure("")?;
    let keyferry = Server::keyferry(&ground, ports).await?;
    let url = format!("https://127.0.0.1:{}{}", ports.discovery, keyferry.keys);
    let keys = ground.client()?.get(url).send().await?.bytes().await?;
    let empty = Server::empty(&ground, keyferry.probe(&ground, keyferry.keys).await?).await?;
    let mut servers = vec![empty, keyferry];
    // Finish building the peer before anything is measured.
    let no_peer = match Server::spire(&ground, &keys).await? {
        Ok(spire) => {
            servers.push(spire);
            None
        }
        Err(missing) => Some(missing.to_string()),
    };
    let machine = process::machine();
    tokio::time::sleep(REST).await;
    let mut memory: Vec<Memory> = servers.iter().map(Memory::of).collect();

    process::complain("kept connections ...\n")?;
    let mut kept = subjects(&ground, &servers, true).await?;
    let bench = Bench {
        ground: &ground,
        servers: &servers,
    };
    bench.run(&mut kept, 1, KEPT, &mut memory).await?;
    weigh(&mut memory, &servers, |memory, now| memory.warm = now);
    bench.run(&mut kept, ROUNDS - 1, KEPT, &mut memory).await?;
    process::complain("new connections ...\n")?;
    let mut new = subjects(&ground, &servers, false).await?;
    bench
        .run(&mut new, FURTHER_ROUNDS, NEW, &mut memory)
        .await?;
    tokio::time::sleep(REST).await;
    weigh(&mut memory, &servers, |memory, now| memory.after_load = now);
    process::complain("slow clients ...\n")?;
    let mut crowded = subjects(&ground, &servers, false).await?;
    bench
        .run(&mut crowded, CROWDED_ROUNDS, CROWDED, &mut memory)
        .await?;
    Ok(Figures {
        machine,
        kept,
        new,
        crowded,
        slow: SLOW,
        memory,
        no_peer,
    })
}

/// The keys of each server, and also the provider metadata if requested.
async fn subjects(ground: &Ground, servers: &[Server], both: bool) -> Outcome<Vec<Subject>> {
    let mut subjects = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let keys = [(
            server.keys,
            if server.metadata.is_some() {
                ", keys"
            } else {
                ""
            },
        )];
        let metadata = server
            .metadata
            .filter(|_| both)
            .map(|path| (path, ", provider metadata"));
        for (path, what) in keys.into_iter().chain(metadata) {
            let size = server.probe(ground, path).await?;
            subjects.push(Subject {
                name: format!("{}{what}", server.name),
                server: index,
                size,
                samples: Vec::new(),
            });
        }
    }
    Ok(subjects)
}

/// The shape of a load.
#[derive(Clone, Copy)]
struct Pattern {
    senders: usize,
    new: bool,
    slow: usize,
}

const KEPT: Pattern = Pattern {
    senders: SENDERS,
    new: false,
    slow: 0,
};
const NEW: Pattern = Pattern {
    senders: HANDSHAKES,
    new: true,
    slow: 0,
};
const CROWDED: Pattern = Pattern { slow: SLOW, ..KEPT };

struct Bench<'a> {
    ground: &'a Ground,
    servers: &'a [Server],
}

impl Bench<'_> {
    async fn run(
        &self,
        subjects: &mut [Subject],
        rounds: usize,
        pattern: Pattern,
        memory: &mut [Memory],
    ) -> Outcome<()> {
        for round in 0..rounds {
            for index in alternating(round, subjects.len()) {
                let Some(subject) = subjects.get_mut(index) else {
                    continue;
                };
                let Some(server) = self.servers.get(subject.server) else {
                    continue;
                };
                let path = server
                    .metadata
                    .filter(|_| subject.name.ends_with("metadata"))
                    .unwrap_or(server.keys);
                let (sample, resident) = self.sample(server, path, pattern).await?;
                subject.samples.push(sample);
                if let Some(memory) = memory.get_mut(subject.server).filter(|_| pattern.slow > 0) {
                    memory.crowded.extend(resident);
                    tokio::time::sleep(REST).await;
                    memory.left.extend(process::resident_kib(server.id()));
                }
            }
        }
        Ok(())
    }

    /// Runs one load from beginning to end, and reads the server's memory before its end.
    async fn sample(
        &self,
        server: &Server,
        path: &str,
        pattern: Pattern,
    ) -> Outcome<(Sample, Option<u64>)> {
        let load = Load {
            address: server.address,
            ca_pem: self.ground.ca_pem.clone(),
            request: Server::request(path),
            senders: pattern.senders,
            new_connections: pattern.new,
            slow: pattern.slow,
            // Long enough for each slow client to have been answered once.
            warm_up: if pattern.slow > 0 {
                Duration::from_secs(6)
            } else {
                WARM_UP
            },
            duration: DURATION,
        };
        let mut load_process = LoadProcess::start(LOAD, &load).await?;
        load_process.begin_window().await?;
        let spent = load_process.end_window(server.id()).await?;
        let resident = process::resident_kib(server.id());
        let received: Received = load_process.result().await?;
        let count = received.answered.count;
        if count == 0 {
            return Err(format!("{} gave no answer in time", server.name).into());
        }
        let cpu = spent.map(|spent| spent.as_secs_f64() * 1e6 / count as f64);
        Ok((
            Sample {
                received,
                rate: count as f64 / DURATION.as_secs_f64(),
                cpu,
            },
            resident,
        ))
    }
}

impl Memory {
    fn of(server: &Server) -> Self {
        let idle = process::resident_kib(server.id());
        Self {
            name: server.name,
            idle,
            warm: None,
            after_load: None,
            crowded: Vec::new(),
            left: Vec::new(),
        }
    }
}

fn weigh(memory: &mut [Memory], servers: &[Server], put: impl Fn(&mut Memory, Option<u64>)) {
    for (memory, server) in memory.iter_mut().zip(servers) {
        put(memory, process::resident_kib(server.id()));
    }
}
