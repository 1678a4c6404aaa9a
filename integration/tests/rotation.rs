//! Changes the hub's signing key in every possible way, while real targets of two minor versions
//! judge the tokens that Keyferry issues.
//!
//! | what happens | test |
//! |---|---|
//! | the hub signs with a new key that was never published; then the next one is published first, and an old one is dropped too early; meanwhile others make the targets fetch keys at the worst moment | `under_load_max_age_30`, `under_load_max_age_60` |
//! | one of two apiservers of the hub lags | `a_lagging_apiserver_makes_nothing_flap` |
//! | the hub signs with a key that it does not list yet; a second replica | `a_hub_that_signs_before_it_lists_costs_nothing` |
//! | an apiserver shows a rogue key once, other bytes under a known kid, another issuer | `an_odd_apiserver_changes_nothing` |
//! | another client edits, dates back, deletes or restores the key journal | `a_forged_record_is_not_believed` |
//! | a key is revoked, and the earlier key journal is restored | `a_revoked_key_is_forgotten_by_its_targets` |
//! | a key is revoked whose tokens are in delivered Secrets; then the only key, with which the hub keeps signing | `a_revocation_rewrites_what_was_delivered` |
//! | hub and target have the same issuer, and the hub gets a second one | `a_second_issuer_at_the_hub_fixes_a_collision` |
//! | the hub is stopped and Keyferry restarted | `the_state_directory_outlives_the_process` |
//!
//! The tests of managed issuers, in `rotation/managed_issuer.rs`, wait for the same reasons and run
//! beside these.

mod load;
pub(crate) mod long;
mod managed_issuer;
mod odd;
pub(crate) mod on_hub;
mod people;
mod record;
mod revoked;
mod second_issuer;
pub(crate) mod stage;
mod state;
mod under_load;

use std::time::Duration;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::Ground;
use under_load::Soaks;

pub(crate) fn suite() -> BoxedSuite {
    // The longest first. Each waits for the activation delay of keys, so they wait together.
    Suite::new(Ground::start)
        .concurrent_tests(10)
        .limit(Duration::from_secs(600))
        .beside(on_hub::suite())
        .beside(managed_issuer::suite())
        .test("under_load_max_age_60", |ground| {
            under_load::rotate(ground, 60, Soaks::Together)
        })
        .test("under_load_max_age_30", |ground| {
            under_load::rotate(ground, 30, Soaks::InTurn)
        })
        .test(
            "a_hub_that_signs_before_it_lists_costs_nothing",
            odd::signs_first,
        )
        .test("a_lagging_apiserver_makes_nothing_flap", odd::lagging)
        .test(
            "a_revoked_key_is_forgotten_by_its_targets",
            revoked::revoked,
        )
        .test("a_forged_record_is_not_believed", record::forged)
        .test("the_state_directory_outlives_the_process", state::outlives)
        .test("an_odd_apiserver_changes_nothing", odd::rogue)
        .test(
            "a_second_issuer_at_the_hub_fixes_a_collision",
            second_issuer::fixes,
        )
        .boxed()
}
