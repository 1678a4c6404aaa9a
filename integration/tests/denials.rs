//! Tests everything that must be refused, on both surfaces: the same few bytes outside, the true
//! reason in the audit log, nothing issued and nothing minted. Each denial is beside an allowed
//! request that differs in one thing only.

mod bad_tokens;
mod callers;
mod methods;
mod namespaces;
mod one_answer;
mod setup;
mod surfaces;
mod tokens;

use keyferry_integration::runner::{BoxedSuite, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(setup::start)
        .test(
            "a_denial_says_the_same_whatever_the_cause",
            one_answer::a_denial_says_the_same_whatever_the_cause,
        )
        .test(
            "only_who_may_use_a_target_learns_its_state",
            one_answer::only_who_may_use_a_target_learns_its_state,
        )
        .test(
            "an_account_that_allow_does_not_hold",
            callers::an_account_that_allow_does_not_hold,
        )
        .test(
            "a_caller_of_another_tenant",
            callers::a_caller_of_another_tenant,
        )
        .test(
            "callers_that_are_not_listed",
            callers::callers_that_are_not_listed,
        )
        .test(
            "a_listed_caller_needs_rbac",
            callers::a_listed_caller_needs_rbac,
        )
        .test(
            "a_grant_through_a_group_counts",
            callers::a_grant_through_a_group_counts,
        )
        .test(
            "tokens_that_are_no_caller_tokens",
            tokens::tokens_that_are_no_caller_tokens,
        )
        .test("requests_without_a_token", tokens::requests_without_a_token)
        .test(
            "a_method_that_is_not_taken",
            methods::a_method_that_is_not_taken,
        )
        .test(
            "a_path_that_is_nearly_right",
            methods::a_path_that_is_nearly_right,
        )
        .test(
            "a_token_that_was_handed_out_is_no_caller_token",
            tokens::a_token_that_was_handed_out_is_no_caller_token,
        )
        .test(
            "a_namespace_by_its_label_and_no_longer",
            namespaces::a_namespace_by_its_label_and_no_longer,
        )
        .test(
            "kube_system_is_not_selected",
            namespaces::kube_system_is_not_selected,
        )
        .test(
            "keyferrys_own_namespace_is_closed",
            namespaces::keyferrys_own_namespace_is_closed,
        )
        .boxed()
}
