//! Each promise in many schedules, and beside it a mistake that they must find.

#![allow(missing_docs)]

use keyferry_threads::promises::{cache, calls, memory, tokens};

const SCHEDULES: usize = 1_000;

#[test]
fn a_token_for_one_use_is_granted_once() {
    assert_eq!(tokens::added_before_the_grant(SCHEDULES), 0);
    assert_ne!(tokens::asked_before_it_is_added(SCHEDULES), 0);
}

#[test]
fn a_source_never_has_more_than_its_share_and_all_of_it_comes_back() {
    assert_eq!(memory::taken_before_it_is_used(SCHEDULES), 0);
    assert_ne!(memory::looked_at_and_not_taken(SCHEDULES), 0);
}

#[test]
fn one_call_of_a_key_is_under_way() {
    assert_eq!(calls::joined(SCHEDULES), 0);
    assert_eq!(calls::joined_while_the_first_hangs_up(SCHEDULES), 0);
    assert_ne!(calls::not_joined(SCHEDULES), 0);
}

#[test]
fn a_value_that_is_there_is_not_fetched_again() {
    assert_eq!(cache::fetched(SCHEDULES), 0);
    assert_ne!(cache::looked_up_and_refreshed(SCHEDULES), 0);
}

#[test]
fn a_cache_counts_exactly_what_it_has() {
    assert_eq!(cache::added_twice(SCHEDULES), 0);
    assert_eq!(cache::added_and_removed(SCHEDULES), 0);
    assert_ne!(cache::both_find_room(SCHEDULES), 0);
}
