//! Tests clients: the kubeconfig in the real kubectl and in client-go, and Keyferry's command line
//! with and without a server.

mod client_key;
mod command;
mod connections;
mod document;
mod errors;
mod exec;
mod kubeconfigs;
mod targets;
mod through_server;
mod without_server;

use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, NotStarted, Suite};
use keyferry_integration::world::World;

/// Starts the world and builds the client program, which on a new machine takes longer than a test
/// may.
async fn start() -> Result<World, NotStarted> {
    let world = World::start().await?;
    world
        .fleet()
        .parts()
        .locate(Part::ClientGo)
        .await
        .map_err(FleetError::from)?;
    Ok(world)
}

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(start)
        .needs([Needed::Part(Part::ClientGo)])
        .test(
            "kubectl_takes_the_kubeconfig_as_it_is",
            document::kubectl_takes_the_kubeconfig_as_it_is,
        )
        .test(
            "client_go_takes_the_kubeconfig_as_it_is",
            document::client_go_takes_the_kubeconfig_as_it_is,
        )
        .test(
            "the_client_key_beside_the_ca_goes_nowhere",
            client_key::the_client_key_beside_the_ca_goes_nowhere,
        )
        .test(
            "a_token_by_the_command_line_through_a_server",
            through_server::a_token_by_the_command_line_through_a_server,
        )
        .test(
            "a_kubeconfig_by_the_command_line_through_a_server",
            through_server::a_kubeconfig_by_the_command_line_through_a_server,
        )
        .test(
            "exec_runs_the_command_and_leaves_nothing",
            exec::exec_runs_the_command_and_leaves_nothing,
        )
        .test(
            "the_command_line_without_a_server",
            without_server::the_command_line_without_a_server,
        )
        .test(
            "without_a_server_the_users_own_rights_count",
            without_server::without_a_server_the_users_own_rights_count,
        )
        .test(
            "targets_lists_what_the_file_allows",
            targets::targets_lists_what_the_file_allows,
        )
        .test(
            "errors_name_the_fix_and_nothing_secret",
            errors::errors_name_the_fix_and_nothing_secret,
        )
        .test(
            "each_cause_of_a_failed_connection_has_its_text",
            connections::each_cause_of_a_failed_connection_has_its_text,
        )
        .test(
            "a_caller_token_that_would_be_refused_is_not_sent",
            connections::a_caller_token_that_would_be_refused_is_not_sent,
        )
        .test(
            "kubeconfig_is_honoured_as_kubectl_does",
            kubeconfigs::kubeconfig_is_honoured_as_kubectl_does,
        )
        .test(
            "the_users_own_file_serves_every_command",
            kubeconfigs::the_users_own_file_serves_every_command,
        )
        .boxed()
}
