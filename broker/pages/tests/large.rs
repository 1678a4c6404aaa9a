//! Makes every page of a large fleet, and measures them in release mode:
//! `cargo test --release -p keyferry-pages --test large -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs
)]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use keyferry_fleet::generated;
use keyferry_fleet::judge::judge;
use keyferry_pages::viewer_page;

const MAX_PAGE_BYTES: usize = 100 * 1024;
const MAX_PAGE_TIME: Duration = Duration::from_millis(50);

/// Without optimisation, the test is about the weight alone.
fn accesses() -> usize {
    if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    }
}

#[test]
fn the_pages_of_a_large_fleet_are_light_and_made_quickly() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let fleet = judge(&generated::snapshot(300, accesses(), 7, now), now);
    let lists = ["fleet", "tenants", "expiry", "keys", "denials"].map(str::to_owned);
    let targets = fleet.targets.iter().map(|it| format!("target/{}", it.name));
    let tenants = fleet.tenants.iter();
    let tenants = tenants.map(|it| format!("tenant/{}", it.namespace));
    let paths: Vec<String> = lists.into_iter().chain(targets).chain(tenants).collect();
    let (mut times, mut heaviest) = (Vec::new(), (0, ""));
    for path in &paths {
        for query in ["", "q=a&sort=name", "sort=runway"] {
            let begun = Instant::now();
            let page = viewer_page(&fleet, path, query);
            times.push(begun.elapsed());
            assert!(page.exists, "{path}");
            heaviest = heaviest.max((page.html.len(), path));
        }
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    println!(
        "{} pages of {} accesses: p50 {:?}, p99 {p99:?}, longest {:?}; heaviest {} KiB: {}",
        times.len(),
        fleet.accesses.len(),
        times[times.len() / 2],
        times[times.len() - 1],
        heaviest.0 >> 10,
        heaviest.1
    );
    assert!(heaviest.0 <= MAX_PAGE_BYTES, "{heaviest:?}");
    if !cfg!(debug_assertions) {
        assert!(p99 <= MAX_PAGE_TIME, "{p99:?}");
    }
}
