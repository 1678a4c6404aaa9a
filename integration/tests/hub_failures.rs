//! The hub fails in every possible way. Keyferry's responses to its callers stay bounded in time,
//! and nothing wrong is issued or cached.

mod crowd;
mod faults;
mod mint_faults;
mod other_account;
mod policy_not_ready;
mod proxied;
mod review_faults;
mod setup;
mod slow_mint;
mod stopped;
mod two_hubs;
mod unread_journal;
mod watches;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .concurrent_tests(8)
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
            "an_admission_policy_that_is_not_ready_spares_known_callers",
            policy_not_ready::spares_known_callers,
        )
        .test(
            "lost_watches_stop_decisions_after_the_limit",
            watches::stop_decisions_after_the_limit,
        )
        .test(
            "a_lost_watch_alone_stops_nothing",
            watches::one_alone_stops_nothing,
        )
        .test(
            "cached_tokens_end_while_the_key_journal_is_unread",
            unread_journal::stops_cached_tokens_after_the_limit,
        )
        .test(
            "a_server_sends_to_its_proxy_what_is_for_the_hub",
            proxied::the_server_sends_to_its_proxy_what_is_for_the_hub,
        )
        .test(
            "commands_send_to_their_proxy_what_is_for_the_hub",
            proxied::commands_send_to_their_proxy_what_is_for_the_hub,
        )
        .test_alone(
            "a_second_hub_serves_while_the_first_is_killed",
            two_hubs::the_second_serves_while_the_first_is_killed,
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
        .boxed()
}
