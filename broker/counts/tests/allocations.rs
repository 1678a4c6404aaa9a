//! Holds the allocations of an exchange, a delivery and a `verify` within 3 % of those on record:
//! `cargo test -p keyferry-counts --test allocations`. They depend on no load, and a little on which
//! crates are built together and on the length of paths.
//!
//! An exchange is counted from its parsed head to its complete answer, without TLS and HTTP, in the
//! thread that serves it. Of the repetitions the one with the fewest allocations counts: now and
//! then one more is made, when a cache or the audit queue tidies up.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

#[path = "subjects/subjects.rs"]
mod subjects;

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use keyferry_issuer::testing::SmallWorld;
use keyferry_server::audit::AuditLog;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use subjects::delivery::Delivery;
use subjects::evaluation::Evaluation;
use subjects::exchange::{self, Forms};

const REPETITIONS: usize = 50;

/// Allocations of the calling thread, and their bytes.
type Count = (u64, u64);

/// Those of 2026-11-30, in a debug build.
const RECORD: [(&str, Count); 5] = [
    ("exchange", (40, 11_976)),
    ("exchange by client_assertion", (39, 11_937)),
    ("delivery", (1_971, 237_123)),
    ("verify, with the file", (3_550, 345_210)),
    ("verify, one more token", (333, 26_528)),
];

fn fewest(mut count_once: impl FnMut() -> Count) -> Count {
    (0..REPETITIONS).map(|_| count_once()).min().unwrap()
}

fn count(work: impl FnOnce()) -> Count {
    let counted = allocation_counter::measure(work);
    (counted.count_total, counted.bytes_total)
}

fn audit_log() -> Arc<AuditLog> {
    Arc::new(AuditLog::to_sink(std::io::sink()))
}

async fn exchange_once(routes: &Router, request: Request<Body>) {
    let answer = routes.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
}

fn count_exchange(runtime: &Runtime, routes: &Router, form: &str) -> Count {
    fewest(|| {
        let request = Request::post(exchange::PATH)
            .header("content-type", exchange::MEDIA_TYPE)
            .body(Body::from(form.to_owned()))
            .unwrap();
        count(|| runtime.block_on(exchange_once(routes, request)))
    })
}

fn count_delivery(runtime: &Runtime, world: &SmallWorld) -> Count {
    fewest(|| {
        let context = runtime.enter();
        let delivery = Delivery::new(world, audit_log());
        drop(context);
        let counted = count(|| {
            runtime.block_on(delivery.deliver());
        });
        delivery.assert_delivered();
        counted
    })
}

// Another profile may allocate less: the compiler removes what it sees through.
#[cfg(debug_assertions)]
#[test]
fn the_allocations_are_those_on_record() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(subjects::start_world());
    let forms = Forms::new(&world);
    let context = runtime.enter();
    let routes = exchange::routes(&world, audit_log());
    drop(context);
    let evaluation = Evaluation::new(&world);
    let counted = [
        count_exchange(&runtime, &routes, &forms.subject_token),
        count_exchange(&runtime, &routes, &forms.client_assertion),
        count_delivery(&runtime, &world),
        fewest(|| count(|| assert!(evaluation.verify_from_file()))),
        fewest(|| count(|| assert!(evaluation.evaluate_token()))),
    ];
    let (mut table, mut differs) = (String::new(), false);
    for ((name, recorded), counted) in RECORD.into_iter().zip(counted) {
        let is_near =
            |counted: u64, recorded: u64| counted.abs_diff(recorded) * 100 <= recorded * 3;
        differs |= !is_near(counted.0, recorded.0) || !is_near(counted.1, recorded.1);
        let [now, then] =
            [counted, recorded].map(|(number, bytes)| format!("{number} of {bytes} bytes"));
        writeln!(table, "{name}: {now}, on record {then}").unwrap();
    }
    println!("{table}");
    assert!(
        !differs,
        "more than 3 % from the record. fix: cut them, or write them into RECORD\n{table}"
    );
}
