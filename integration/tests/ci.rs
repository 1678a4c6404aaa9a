//! Tests that jobs of a CI system reach a real target with their id-tokens, and that other tokens
//! of such an issuer do not. Objects are in a file and on the hub.

mod audience;
mod deploy;
mod foreign_cluster;
mod forged;
pub(crate) mod gateway;
mod passthrough;
mod refused_start;
mod shapes;
pub(crate) mod spire;
mod stage;

use keyferry_integration::runner::{BoxedSuite, Suite};

use self::stage::Stage;

pub(crate) fn by_file() -> BoxedSuite {
    tests(Suite::new(Stage::by_file))
}

pub(crate) fn on_hub() -> BoxedSuite {
    tests(Suite::new(Stage::on_hub))
}

fn tests(suite: Suite<Stage>) -> BoxedSuite {
    suite
        .test(
            "a_job_deploys_with_its_id_token",
            deploy::a_job_deploys_with_its_id_token,
        )
        .test(
            "the_command_line_gets_githubs_token",
            deploy::the_command_line_gets_githubs_token,
        )
        .test(
            "a_token_for_one_use_is_used_once",
            deploy::a_token_for_one_use_is_used_once,
        )
        .test(
            "a_job_acts_for_no_other_account",
            deploy::a_job_acts_for_no_other_account,
        )
        .test(
            "the_metadata_lead_to_the_token_endpoint",
            deploy::the_metadata_lead_to_the_token_endpoint,
        )
        .test(
            "no_forged_or_mismatched_token_is_accepted",
            forged::no_forged_or_mismatched_token_is_accepted,
        )
        .test(
            "a_service_account_of_another_cluster_is_a_caller",
            foreign_cluster::a_service_account_of_another_cluster_is_a_caller,
        )
        .test(
            "a_hosted_runner_comes_through_a_tls_passthrough",
            passthrough::a_hosted_runner_comes_through_a_tls_passthrough,
        )
        .test(
            "an_audience_gets_tokens_and_no_kubeconfig",
            audience::an_audience_gets_tokens_and_no_kubeconfig,
        )
        .test_alone(
            "the_hub_refuses_an_audience_with_an_address",
            audience::the_hub_refuses_an_audience_with_an_address,
        )
        .test(
            "an_issuer_that_is_the_hubs_is_refused_at_start",
            refused_start::an_issuer_that_is_the_hubs_is_refused_at_start,
        )
        .boxed()
}
