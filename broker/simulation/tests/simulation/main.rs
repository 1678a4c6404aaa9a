//! Three replicas of the real parts, a hub and a network that fail, callers and administrators: all
//! in virtual time and from one seed.
//!
//! Real are the authoriser, the exchange, the mint, the publication, the key journal, the managed
//! issuer, the Lease, the delivery queue and the deliveries, with their own loops. Replaced are the
//! hub, the watches' network, the audit log's file, the clocks and the randomness. Equal seeds give
//! equal traces.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a world that cannot be built fails its test, and a seed is for a person to read"
)]

mod admin;
mod draw;
mod hub_keys;
mod mistake;
mod objects;
mod oracle;
mod plan;
mod ports;
mod replica;
mod schedule;
mod world;

use std::collections::BTreeSet;
use std::ops::Range;

use parking_lot::Mutex;

use self::mistake::Mistake;
use self::oracle::Counts;
use self::schedule::{Outcome, run_schedule};

/// The schedules of `cargo test`, which should not take long.
const FIRST_SCHEDULES: u64 = 100;
/// The schedules of each run of all checks.
const SCHEDULES: u64 = 2_000;
/// The schedules of the full run.
const ALL_SCHEDULES: u64 = 100_000;

/// Runs the schedules on as many threads as there are cores, and calls `judge` with each outcome.
fn run_all(seeds: Range<u64>, judge: impl Fn(u64, &Outcome) + Sync) -> Counts {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut total = Counts::default();
    std::thread::scope(|scope| {
        let judge = &judge;
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let seeds = seeds.clone();
                scope.spawn(move || {
                    let mut counts = Counts::default();
                    for seed in seeds.filter(|seed| seed % threads == worker) {
                        let outcome = run_schedule(seed, None, false);
                        judge(seed, &outcome);
                        counts.add(outcome.counts);
                    }
                    counts
                })
            })
            .collect();
        for worker in workers {
            total.add(worker.join().unwrap());
        }
    });
    total
}

/// No schedule breaks an invariant.
fn assert_all_hold(seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let broken = Mutex::new(Vec::new());
    let counts = run_all(seeds, |seed, outcome| {
        if !outcome.violations.is_empty() {
            // At once: a full run takes an hour.
            println!("seed {seed}: {:#?}", outcome.violations);
            broken.lock().push(seed);
        }
    });
    assert_eq!(broken.into_inner(), [0; 0], "seeds that break an invariant");
    // A world in which nothing happens would hold every invariant.
    assert!(counts.exchanges > count * 15, "{counts:?}");
    assert!(counts.deliveries > count, "{counts:?}");
    assert!(counts.refusals > count * 10, "{counts:?}");
    assert!(counts.keys_signing > count, "{counts:?}");
    assert!(counts.leader_changes > count, "{counts:?}");
    assert!(counts.revocations > count / 10, "{counts:?}");
}

#[test]
fn every_schedule_holds_the_invariants() {
    assert_all_hold(0..FIRST_SCHEDULES);
}

#[test]
#[ignore = "a run of all checks has time for it"]
fn every_schedule_of_each_run_holds_the_invariants() {
    assert_all_hold(0..SCHEDULES);
}

#[test]
#[ignore = "the full run has time for it"]
fn every_schedule_of_the_full_run_holds_the_invariants() {
    assert_all_hold(SCHEDULES..SCHEDULES + ALL_SCHEDULES);
}

/// Within how many seeds the invariants find a mistake.
const FOUND_WITHIN: u64 = 40;

/// Asserts that the invariants find each mistake.
fn assert_found(mistakes: &[Mistake]) {
    let mut missed = Vec::new();
    for mistake in mistakes {
        let finds = |seed: &u64| {
            let outcome = run_schedule(*seed, Some(*mistake), false);
            !outcome.violations.is_empty()
        };
        match (0..FOUND_WITHIN).find(finds) {
            Some(seed) => println!("{mistake:?}: found by seed {seed}"),
            None => missed.push(*mistake),
        }
    }
    assert_eq!(missed, []);
}

#[test]
fn every_planted_mistake_is_found() {
    assert_found(&[
        Mistake::LeaderIgnoresLease,
        Mistake::LeaderClockSlow,
        Mistake::LeaderTermOutlived,
        Mistake::NoActivationDelay,
        Mistake::JournalNotShared,
        Mistake::JournalRolledBack,
        Mistake::RecordDropped,
        Mistake::RecordLate,
        Mistake::WatchBlind,
    ]);
}

#[test]
fn a_seed_gives_its_trace_and_another_seed_another() {
    let hashes: BTreeSet<u64> = (0..20)
        .map(|seed| {
            let [one, two] = [(), ()].map(|()| {
                let mut outcome = run_schedule(seed, None, true);
                // What happens at one moment has no order.
                outcome.lines.sort();
                outcome
            });
            assert_eq!(one.lines, two.lines, "seed {seed}");
            assert_eq!(one.hash, two.hash, "seed {seed}");
            one.hash
        })
        .collect();
    assert_eq!(hashes.len(), 20);
}

/// Prints what happens in one schedule: `KEYFERRY_SEED=7 cargo test -p keyferry-simulation --test
/// simulation -- --ignored --nocapture one_seed`.
#[test]
#[ignore = "for a person who looks at one seed"]
fn one_seed_is_shown() {
    let seed = std::env::var("KEYFERRY_SEED").map_or(0, |seed| seed.parse().unwrap());
    let outcome = run_schedule(seed, None, true);
    for line in &outcome.lines {
        println!("{line}");
    }
    println!("{:?}\n{:#?}", outcome.counts, outcome.violations);
    assert_eq!(outcome.violations, [""; 0]);
}
