//! The hub fails in every possible way. Keyferry's responses to its callers stay bounded in time,
//! and nothing wrong is issued or cached.
#![allow(
    clippy::print_stderr,
    reason = "a test tells the person who waits what it measured"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "hub_failures/crowd.rs"]
mod crowd;
#[path = "hub_failures/faults.rs"]
mod faults;
#[path = "hub_failures/mint_faults.rs"]
mod mint_faults;
#[path = "hub_failures/other_account.rs"]
mod other_account;
#[path = "hub_failures/review_faults.rs"]
mod review_faults;
#[path = "hub_failures/setup.rs"]
mod setup;
#[path = "hub_failures/slow_mint.rs"]
mod slow_mint;
#[path = "hub_failures/stopped.rs"]
mod stopped;
#[path = "hub_failures/watches.rs"]
mod watches;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;
use keyferry_integration::world::World;

fn main() -> ExitCode {
    Suite::new(World::start)
        .at_once(8)
        .test(
            "a_stopped_hub_leaves_known_callers_until_the_limit",
            stopped::known_callers_until_the_limit,
        )
        .test(
            "a_faulty_token_request_is_bounded_and_not_kept",
            mint_faults::bounded_and_not_kept,
        )
        .test(
            "a_faulty_token_review_is_bounded_and_not_kept",
            review_faults::bounded_and_not_kept,
        )
        .test(
            "a_token_for_another_account_is_dropped",
            other_account::is_dropped,
        )
        .test(
            "lost_watches_stop_decisions_after_the_limit",
            watches::stop_decisions_after_the_limit,
        )
        .test(
            "a_lost_watch_alone_stops_nothing",
            watches::one_alone_stops_nothing,
        )
        .test_alone(
            "a_slow_mint_delays_no_warm_hit",
            slow_mint::delays_no_warm_hit,
        )
        .test_alone(
            "ten_thousand_cold_callers_make_one_token_request",
            crowd::makes_one_token_request,
        )
        .test_alone("the_first_of_ten_thousand_hangs_up", crowd::loses_its_first)
        .run()
}
