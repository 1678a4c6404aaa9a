//! Identities and grants that change while tokens are cached or being minted: a recreated
//! ServiceAccount, a deleted access, a missing right, a forbidden audience or issuer, and
//! Keyferry's own token.

mod own_token;
mod plain_hub;
mod recreated;
mod removed;
mod rights;
pub(crate) mod roles;
mod stage;
mod under_way;

use keyferry_integration::runner::{BoxedSuite, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .concurrent_tests(4)
        .test(
            "keyferrys_own_token_expires_and_is_renewed",
            own_token::keyferrys_own_token_expires_and_is_renewed,
        )
        .test("a_recreated_account_on_the_newest", |stage| async move {
            recreated::is_another(&stage, stage.hub(), "recreated-newest").await
        })
        .test("a_recreated_account_on_1_33", |stage| async move {
            recreated::is_another(&stage, stage.old_hub(), "recreated-oldest").await
        })
        .test(
            "recreated_behind_a_late_watch_on_the_newest",
            |stage| async move {
                recreated::behind_a_late_watch(&stage, stage.hub(), "late-newest").await
            },
        )
        .test(
            "recreated_behind_a_late_watch_on_1_33",
            |stage| async move {
                recreated::behind_a_late_watch(&stage, stage.old_hub(), "late-oldest").await
            },
        )
        .test(
            "an_access_is_removed_while_its_token_is_held",
            removed::an_access_is_removed_while_its_token_is_held,
        )
        .test(
            "an_access_is_removed_while_its_token_is_minted",
            under_way::an_access_is_removed_while_its_token_is_minted,
        )
        .test(
            "an_access_is_moved_while_its_token_is_minted",
            under_way::an_access_is_moved_while_its_token_is_minted,
        )
        .test(
            "a_missing_role_binding_is_told_and_heals",
            rights::a_missing_role_binding_is_told_and_heals,
        )
        .test(
            "an_issuer_that_targets_must_refuse",
            plain_hub::an_issuer_that_targets_must_refuse,
        )
        .test(
            "an_audience_of_the_hub_is_never_minted",
            plain_hub::an_audience_of_the_hub_is_never_minted,
        )
        .test(
            "a_caller_audience_of_the_hub_stops_the_start",
            plain_hub::a_caller_audience_of_the_hub_stops_the_start,
        )
        .test(
            "a_role_has_no_right_of_its_account_on_the_newest",
            roles::a_role_has_no_right_of_its_account_on_the_newest,
        )
        .test(
            "a_role_has_no_right_of_its_account_on_1_33",
            roles::a_role_has_no_right_of_its_account_on_1_33,
        )
        .boxed()
}
