//! Managed issuers, where every cluster has kubeadm's default issuer. Tests how they avoid the
//! collision, rotations that lose no token, roles, and the limits of a stolen key.

mod collision;
mod deleted;
mod reach;
mod role;
mod rotation;
mod stage;
mod stolen;

use keyferry_integration::runner::Suite;
use stage::Stage;

/// The tests, with the longest first.
pub(crate) fn suite() -> Suite<Stage> {
    Suite::new(Stage::start)
        .test(
            "rotations_under_load_lose_no_token",
            rotation::rotations_under_load_lose_no_token,
        )
        .test(
            "a_deleted_key_set_is_revoked",
            deleted::a_deleted_key_set_is_revoked,
        )
        .test(
            "a_role_has_a_managed_issuer_of_its_own",
            role::a_role_has_a_managed_issuer_of_its_own,
        )
        .test(
            "the_hubs_issuer_collides_and_both_fixes_are_told",
            collision::the_hubs_issuer_collides_and_both_fixes_are_told,
        )
        .test(
            "managed_issuers_are_off_until_enabled",
            collision::managed_issuers_are_off_until_enabled,
        )
        .test(
            "a_tenant_reaches_each_target_with_its_managed_issuer",
            reach::a_tenant_reaches_each_target_with_its_managed_issuer,
        )
        .test(
            "a_stolen_key_reaches_only_the_allowed_pair",
            stolen::a_stolen_key_reaches_only_the_allowed_pair,
        )
}
