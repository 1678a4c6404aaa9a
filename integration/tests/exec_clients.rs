//! Clients that renew their own tokens: the exec plugin in the real kubectl and client-go, and the
//! token directory in client-go, kubectl, and the Kubernetes clients of Python and JavaScript.

mod agent;
mod assertion;
mod certificate;
mod directory;
mod kubectl_proxy;
mod mcp;
mod plugin;
mod stage;

use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{BoxedSuite, Needed, NotStarted, Suite};
use keyferry_integration::world::World;

/// Starts the world and prepares the client programs, because building and installing them takes
/// longer than a test may.
async fn start() -> Result<World, NotStarted> {
    let world = World::start().await?;
    let parts = world.fleet().parts();
    parts
        .locate(Part::ClientGo)
        .await
        .map_err(FleetError::from)?;
    for client in [
        Client::PythonKubernetes,
        Client::JavaScriptKubernetes,
        Client::McpServer,
    ] {
        parts.install(client).await.map_err(FleetError::from)?;
    }
    Ok(world)
}

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(start)
        .needs([
            Needed::Part(Part::ClientGo),
            Needed::Client(Client::PythonKubernetes),
            Needed::Client(Client::JavaScriptKubernetes),
            Needed::Client(Client::McpServer),
        ])
        .test(
            "client_credentials_with_an_assertion_by_x_oauth2",
            assertion::client_credentials_with_an_assertion_by_x_oauth2,
        )
        .test(
            "an_mcp_server_gets_a_token_for_each_target",
            mcp::an_mcp_server_gets_a_token_for_each_target,
        )
        .test(
            "an_mcp_server_with_a_role_may_only_read",
            mcp::an_mcp_server_with_a_role_may_only_read,
        )
        .test(
            "kubectl_and_client_go_run_the_plugin",
            plugin::kubectl_and_client_go_run_the_plugin,
        )
        .test(
            "kubectls_own_rules_decide_about_the_plugin",
            plugin::kubectls_own_rules_decide_about_the_plugin,
        )
        .test(
            "kubectl_gets_no_token_for_another_server",
            plugin::kubectl_gets_no_token_for_another_server,
        )
        .test(
            "who_asks_and_may_is_told_where_the_target_is",
            plugin::who_asks_and_may_is_told_where_the_target_is,
        )
        .test(
            "many_kubectl_share_one_fetch",
            plugin::many_kubectl_share_one_fetch,
        )
        .test(
            "kubectl_finds_the_plugin_and_completes_it",
            plugin::kubectl_finds_the_plugin_and_completes_it,
        )
        .test(
            "kubectl_proxy_renews_the_token_of_a_client_that_has_none",
            kubectl_proxy::renews_the_token_of_a_client_that_has_none,
        )
        .test(
            "a_plain_kubeconfig_in_python_and_javascript",
            directory::a_plain_kubeconfig_in_python_and_javascript,
        )
        .test(
            "an_agent_writes_and_keeps_what_it_wrote",
            agent::an_agent_writes_and_keeps_what_it_wrote,
        )
        .test(
            "commands_read_a_renewed_certificate",
            certificate::commands_read_a_renewed_certificate,
        )
        .test(
            "an_agent_without_a_server_and_the_shipped_sidecar",
            agent::an_agent_without_a_server_and_the_shipped_sidecar,
        )
        .test_alone(
            "a_rotation_of_the_directory_disturbs_nobody",
            directory::a_rotation_of_the_directory_disturbs_nobody,
        )
        .boxed()
}
