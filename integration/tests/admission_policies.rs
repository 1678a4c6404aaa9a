//! Tests the admission policies of examples/admission-policies on real apiservers of both minor
//! versions: what each policy refuses and allows, by every way of writing. The writers are tenants,
//! platform admins, cluster admins, the kubelet, and Keyferry's own account with its shipped
//! rights.

mod approver;
mod audience;
mod author;
mod kept;
mod keyferry_self;
mod kubelet;
mod labels;
mod latency;
mod pairing;
mod people;
mod restart;
mod retarget;
mod stage;

use std::time::Duration;

use keyferry_integration::runner::{BoxedSuite, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .limit(Duration::from_secs(400))
        .concurrent_tests(4)
        .test("every_expression_passes_the_type_check", stage::type_checks)
        .test("a_listed_audience_is_for_its_pairs_alone", pairing::table)
        .test("no_way_of_asking_gets_round_the_pairs", pairing::ways_round)
        .test("the_kubelet_obeys_and_is_served", kubelet::bound_pods)
        .test("an_author_needs_the_right_to_mint", author::table)
        .test(
            "the_installed_author_policy_is_known_and_a_hollow_one_too",
            author::active_policy_is_recognised,
        )
        .test(
            "tokens_go_elsewhere_by_the_verb_retarget_alone",
            retarget::table,
        )
        .test(
            "an_audience_of_the_hub_is_no_targets_and_another_takes_its_verb",
            audience::table,
        )
        .test("labels_of_access_change_by_their_verb_alone", labels::table)
        .test(
            "keyferry_asks_for_nothing_but_its_own",
            keyferry_self::table,
        )
        .test(
            "keyferry_writes_no_secret_that_is_a_credential_of_the_hub",
            keyferry_self::secrets,
        )
        .test(
            "keyferry_requests_no_certificate_but_its_own",
            keyferry_self::certificates,
        )
        .test(
            "keyferry_changes_only_what_it_delivered",
            keyferry_self::deliveries,
        )
        .test(
            "keyferry_changes_only_its_finalizer_of_targets_and_accesses",
            keyferry_self::targets,
        )
        .test(
            "a_status_steers_no_binding",
            keyferry_self::a_status_steers_no_binding,
        )
        .test("the_pairing_and_its_definition_stay", kept::stay)
        .test_alone(
            "keyferry_gets_tokens_for_the_named_audiences_alone",
            keyferry_self::audiences,
        )
        .test_alone(
            "nothing_is_approved_without_the_policies_it_depends_on",
            approver::nothing_is_approved_without_the_policies,
        )
        .test_alone(
            "without_the_object_only_closed_namespaces_are_closed",
            kept::without_the_object,
        )
        .test_alone(
            "without_the_definition_a_new_start_closes_the_hub",
            kept::without_the_definition,
        )
        .test_alone(
            "a_broken_pairing_spares_the_hub",
            audience::a_broken_pairing_spares_the_hub,
        )
        .test_alone(
            "the_command_checks_what_it_prints",
            audience::the_command_checks_what_it_prints,
        )
        .boxed()
}

/// The measurement, which needs a machine that does nothing else.
pub(crate) fn latency() -> BoxedSuite {
    Suite::new(Stage::start)
        .exclusive()
        .limit(restart::limit())
        .test("of_a_token_request", latency::measured)
        .test_alone("of_a_restart", restart::measured)
        .test_alone(
            "of_a_restart_with_a_config_map",
            restart::measured_with_a_config_map,
        )
        .boxed()
}
