//! Tests the controller on a real hub: it turns TargetClusters and TargetAccesses into objects that
//! lead to real targets.

mod addresses;
mod certificate_limit;
mod cluster_api;
mod drain;
mod faults;
mod foreign;
mod granted;
pub(crate) mod killed;
mod languages;
pub(crate) mod leader;
pub(crate) mod lease;
mod metadata;
mod profile;
mod role;
mod seen;
pub(crate) mod tenant;
mod watch;
pub(crate) mod written;

use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(languages::start)
        .needs([
            Needed::Client(Client::PythonKubernetes),
            Needed::Client(Client::JavaScriptKubernetes),
        ])
        .concurrent_tests(8)
        .test(
            "a_declared_access_gets_its_secret_and_the_secret_leads_to_the_target",
            written::a_secret_leads_to_the_target,
        )
        .test(
            "the_secrets_kubeconfig_in_python_and_javascript",
            languages::the_secrets_kubeconfig_in_python_and_javascript,
        )
        .test(
            "the_command_line_reads_the_same_objects",
            written::the_command_line_reads_the_same_objects,
        )
        .test(
            "a_role_leads_to_the_cluster_of_its_base",
            role::a_role_leads_to_the_cluster_of_its_base,
        )
        .test(
            "a_shape_that_is_not_allowed_writes_nothing",
            granted::a_shape_that_is_not_allowed_writes_nothing,
        )
        .test(
            "a_tenant_learns_nothing_of_targets_that_are_not_its_own",
            granted::a_tenant_learns_nothing_of_targets_that_are_not_its_own,
        )
        .test(
            "what_is_no_longer_allowed_is_deleted",
            granted::what_is_no_longer_allowed_is_deleted,
        )
        .test(
            "another_account_under_the_name_gets_another_token",
            granted::another_account_under_the_name_gets_another_token,
        )
        .test(
            "an_author_who_may_not_mint_is_refused",
            granted::an_author_who_may_not_mint_is_refused,
        )
        .test(
            "objects_of_others_stay_as_they_are",
            foreign::objects_of_others_stay_as_they_are,
        )
        .test(
            "a_second_secret_for_one_server_is_not_written",
            foreign::a_second_secret_for_one_server_is_not_written,
        )
        .test(
            "what_others_add_stays_and_what_they_change_is_fixed",
            foreign::what_others_add_to_an_object_stays_and_what_they_change_is_fixed,
        )
        .test(
            "a_deleted_access_keeps_its_objects_and_nothing_else",
            drain::a_deleted_access_keeps_its_objects_and_nothing_else,
        )
        .test(
            "a_deleted_target_keeps_what_was_delivered",
            drain::a_deleted_target_keeps_what_was_delivered_and_mints_nothing,
        )
        .test(
            "what_is_no_longer_allowed_does_not_drain",
            drain::what_is_no_longer_allowed_does_not_drain,
        )
        .test(
            "a_move_to_a_suspended_target_takes_the_earlier_object",
            faults::a_move_to_a_suspended_target_takes_the_earlier_object,
        )
        .test(
            "immediate_takes_the_objects_at_once",
            drain::immediate_takes_the_objects_at_once,
        )
        .test(
            "a_namespace_that_goes_takes_all_of_it",
            drain::a_namespace_that_goes_takes_all_of_it,
        )
        .test(
            "a_delivery_that_is_taken_out_takes_its_object",
            drain::a_delivery_that_is_taken_out_takes_its_object,
        )
        .test(
            "a_ca_that_is_missing_wrong_or_replaced",
            faults::a_ca_that_is_missing_wrong_or_replaced,
        )
        .test(
            "a_client_certificate_beside_the_ca_is_told",
            faults::a_client_certificate_beside_the_ca_is_told_and_never_delivered,
        )
        .test(
            "a_missing_binding_is_named_and_fixed",
            faults::a_missing_binding_is_named_and_fixed,
        )
        .test(
            "a_missing_right_to_mint_is_named_and_fixed",
            faults::a_missing_right_to_mint_is_named_and_fixed,
        )
        .test("a_quota_that_is_used_up", faults::a_quota_that_is_used_up)
        .test(
            "what_a_shape_cannot_carry_is_not_written",
            faults::what_a_shape_cannot_carry_is_not_written,
        )
        .test(
            "a_suspended_access_keeps_what_it_has",
            faults::a_suspended_access_keeps_what_it_has,
        )
        .test(
            "one_audience_has_one_target",
            faults::one_audience_has_one_target,
        )
        .test(
            "a_target_that_lets_in_anybody_is_told",
            faults::a_target_that_lets_in_anybody_is_told,
        )
        .test(
            "nothing_is_sent_into_the_hubs_networks",
            addresses::nothing_is_sent_into_the_hubs_networks,
        )
        .test(
            "a_redirect_of_a_target_is_not_followed",
            addresses::a_redirect_of_a_target_is_not_followed,
        )
        .test(
            "a_target_with_probe_off_is_never_connected_to",
            addresses::a_target_with_probe_off_is_never_connected_to,
        )
        .test(
            "what_became_of_it_is_told_once",
            seen::what_became_of_an_access_is_told_once,
        )
        .test(
            "kubectl_waits_for_it_and_lists_it",
            seen::kubectl_waits_for_it_and_lists_it,
        )
        .test(
            "a_secret_of_a_cluster_api_cluster_is_left_to_it",
            cluster_api::a_secret_of_a_cluster_is_left_to_it,
        )
        .test(
            "a_foreign_cluster_profile_stays_and_ours_carries_the_way",
            profile::a_foreign_profile_stays_and_ours_carries_the_way,
        )
        .test(
            "a_flood_of_a_known_caller_fills_no_log",
            granted::a_flood_of_a_known_caller_fills_no_log,
        )
        .test_alone(
            "without_the_author_policy_no_token_is_written",
            leader::without_the_author_policy_no_token_is_written,
        )
        .test_alone(
            "without_its_admission_policies_a_target_says_so",
            leader::without_its_admission_policies_a_target_says_so,
        )
        .test_alone(
            "one_target_cannot_shut_the_hub",
            leader::one_target_cannot_shut_the_hub,
        )
        .test_alone(
            "a_leader_that_wakes_too_late_writes_nothing",
            leader::a_leader_that_wakes_too_late_writes_nothing,
        )
        .test_alone(
            "a_tenants_certificate_requests_are_bounded",
            certificate_limit::a_tenants_requests_are_bounded_across_names_and_leaders,
        )
        .test_alone(
            "a_lease_that_is_deleted_or_edited",
            lease::a_lease_that_is_deleted_or_edited,
        )
        .test_alone(
            "finalizers_cost_no_memory_that_stays",
            metadata::finalizers_cost_no_memory_that_stays,
        )
        .test_alone(
            "killed_again_and_again_it_leaves_nothing_half_done",
            killed::killed_again_and_again_it_leaves_nothing_half_done,
        )
        .test_alone(
            "a_watch_that_is_told_gone_misses_nothing",
            watch::a_watch_that_is_told_gone_misses_nothing,
        )
        // The last one, because its objects stay: to remove their finalizers would take longer.
        .test_alone(
            "large_objects_cost_no_memory_at_a_start",
            metadata::large_objects_cost_no_memory_at_a_start,
        )
        .boxed()
}
