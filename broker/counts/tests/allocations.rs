//! Holds the allocations of an exchange, a delivery and a `verify` exactly: `cargo test -p
//! keyferry-counts --test allocations`. They depend on no machine and no load.
//!
//! An exchange is counted from its parsed head to its complete answer, without TLS and HTTP, in the
//! thread that serves it. Of the repetitions the one with the fewest allocations counts: now and
//! then one more is made, when a cache or the audit queue tidies up.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

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
    let mut table = String::new();
    for (name, (allocations, bytes)) in [
        (
            "exchange",
            count_exchange(&runtime, &routes, &forms.subject_token),
        ),
        (
            "exchange by client_assertion",
            count_exchange(&runtime, &routes, &forms.client_assertion),
        ),
        ("delivery", count_delivery(&runtime, &world)),
        (
            "verify, with the file",
            fewest(|| count(|| assert!(evaluation.verify_from_file()))),
        ),
        (
            "verify, one more token",
            fewest(|| count(|| assert!(evaluation.evaluate_token()))),
        ),
    ] {
        writeln!(table, "{name}: {allocations} allocations, {bytes} bytes").unwrap();
    }
    insta::assert_snapshot!(table);
}
