//! What several threads share, under a scheduler that decides which of them goes on.
//!
//! These are the product's own files, compiled with locks and tasks of [`shuttle`]: at each lock it
//! draws the thread that goes on, so that a schedule that a processor rarely takes is as likely as
//! any other. Each module of `promises` has what must hold, and beside it a caller that makes a
//! mistake, which must be found.

// The files have unit tests, which run where they belong.
#![cfg(not(test))]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a promise needs a part of each file, and other crates need the rest"
)]

// The files say `parking_lot::` and `tokio::`, and get these.
extern crate self as tokio;
extern crate shuttle_parking_lot as parking_lot;

#[path = "../../listener/src/bodies.rs"]
mod bodies;
#[path = "../../issuer/src/mint/counted_cache.rs"]
mod counted_cache;
#[path = "../../listener/src/shares.rs"]
mod shares;
#[path = "../../platform/src/single_flight.rs"]
mod single_flight;
#[path = "../../listener/src/source.rs"]
mod source;
#[rustfmt::skip] // it would look for the tests beside this file
#[path = "../../platform/src/stale_cache.rs"]
mod stale_cache;
#[rustfmt::skip] // it would look for the tests beside this file
#[path = "../../server/src/external_callers/used_tokens.rs"]
mod used_tokens;

pub mod promises;

use keyferry_platform::clock;
use shuttle::future::spawn;

/// Channels of Tokio that the files use.
mod sync {
    pub(crate) mod oneshot {
        pub(crate) use futures::channel::oneshot::{Receiver, channel};
    }
}
