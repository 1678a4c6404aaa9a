//! Faults are injected into a real hub with its etcd, into the network and the disk, and into
//! Keyferry itself. Meanwhile no token goes to the wrong caller and none is issued without its audit
//! record, nothing is left half-written, every answer comes in bounded time, and all goes on once
//! the fault has ended.
//!
//! `docs/development/conformance.md` has the table of faults, with the tests of other suites.

mod at_length;
mod disk;
mod journal;
mod killed;
mod lease;
mod long_load;
mod lost_answer;
mod managed_key;
mod outage;
mod stage;
mod upgrade;

use std::time::Duration;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use keyferry_integration::world::Ground;
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .concurrent_tests(4)
        .test(
            "a_full_disk_issues_nothing_and_tears_no_record",
            disk::a_full_disk_issues_nothing_and_tears_no_record,
        )
        .test(
            "a_blocked_audit_log_issues_nothing_until_it_is_read",
            disk::a_blocked_audit_log_issues_nothing_until_it_is_read,
        )
        .test(
            "an_answer_lost_on_the_way_is_recorded_and_repeated",
            lost_answer::an_answer_lost_on_the_way_is_recorded_and_repeated,
        )
        .test_alone(
            "killed_at_a_write_of_a_delivery_the_next_leader_finishes",
            killed::killed_at_a_write_of_a_delivery_the_next_leader_finishes,
        )
        .test_alone(
            "killed_at_the_first_write_of_a_managed_key_there_is_one_key",
            managed_key::killed_at_the_first_write_of_a_managed_key_there_is_one_key,
        )
        .test_alone(
            "two_leaders_never_write_over_each_other",
            lease::two_leaders_never_write_over_each_other,
        )
        .test_alone(
            "a_store_or_a_hub_that_fails_gives_no_wrong_answer",
            outage::a_store_or_a_hub_that_fails_gives_no_wrong_answer,
        )
        .boxed()
}

/// The tests that take minutes.
pub(crate) fn at_length() -> BoxedSuite {
    Suite::new(Stage::start)
        .only_on_request()
        .limit(Duration::from_secs(1800))
        .needs(upgrade::UPGRADES.map(|minor| Needed::Part(Part::ApiServer(minor))))
        .beside(Suite::new(Ground::start).test(
            "a_hub_that_is_upgraded_gives_no_wrong_answer",
            upgrade::a_hub_that_is_upgraded_gives_no_wrong_answer,
        ))
        .test_alone(
            "killed_at_each_request_of_a_delivery_the_next_leader_finishes",
            at_length::killed_at_each_request_of_a_delivery_the_next_leader_finishes,
        )
        .test_alone(
            "killed_at_the_rotation_of_a_managed_key_it_rotates_once",
            managed_key::killed_at_the_rotation_of_a_managed_key_it_rotates_once,
        )
        .test_alone(
            "killed_at_a_write_of_the_key_journal_it_stays_whole",
            journal::killed_at_a_write_of_the_key_journal_it_stays_whole,
        )
        .boxed()
}

/// Mixed load for half an hour, or for `KEYFERRY_LONG_LOAD_MINUTES`.
pub(crate) fn long_load() -> BoxedSuite {
    Suite::new(Stage::start)
        .only_on_request()
        .exclusive()
        .limit(Duration::from_secs(60 * 60 * 24))
        .test(
            "mixed_load_leaves_nothing_behind",
            long_load::mixed_load_leaves_nothing_behind,
        )
        .boxed()
}
