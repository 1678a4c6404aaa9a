//! kubernetes-mcp-server, an agent's server for several clusters: each context of its kubeconfig
//! gets the token of its own target by the exec plugin.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::mcp_server::McpServer;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::user_home::{program_at_home, write_client_file};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, AUDIENCE_B, Access, Broker, BrokerSpec, TENANT, Target, World,
    caller_token,
};
use serde_json::{Value, json};

use super::stage::AT_TARGET;

pub(crate) async fn an_mcp_server_gets_a_token_for_each_target(world: Arc<World>) -> TestResult {
    let spec = BrokerSpec::of_hub("mcp", world.hub())
        .with_target(Target::of(world.target_a(), AUDIENCE_A).allowing(TENANT, &[ACCOUNT]))
        .with_target(Target::of(world.target_b(), AUDIENCE_B).allowing(TENANT, &[ACCOUNT]))
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT))
        .with_access(Access::of(TENANT, "b", "target-b", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    let home = tempfile::tempdir()?;
    let contexts = [
        ("first", world.target_a(), "tenant-a/a"),
        ("second", world.target_b(), "tenant-a/b"),
        // The address of one target with the access of another.
        ("mixed", world.target_b(), "tenant-a/a"),
    ];
    let settings = settings(&world, &broker, home.path(), &contexts).await?;
    let server = McpServer::start(world.fleet().parts(), home.path(), &settings).await?;
    let list = async |context: &str| {
        let arguments = json!({ "context": context });
        server.call("namespaces_list", &arguments, None).await
    };
    for (context, plane, _) in &contexts[..2] {
        let denied = list(context).await?;
        let user = format!("User \"{AT_TARGET}\" cannot list");
        assert!(
            denied.is_error && denied.text.contains(&user),
            "{context}: {}",
            denied.text
        );
        allow_listing(plane).await?;
        let listed = list(context).await?;
        assert!(
            !listed.is_error && listed.text.contains("kube-system"),
            "{context}: {}",
            listed.text
        );
    }
    let mixed = list("mixed").await?;
    assert!(
        mixed.is_error && !mixed.text.contains("kube-system"),
        "{}",
        mixed.text
    );
    let mut targets: Vec<String> = broker
        .audit()?
        .iter()
        .filter(|record| record["decision"] == "granted")
        .filter_map(|record| record["target"].as_str().map(str::to_owned))
        .collect();
    targets.sort();
    targets.dedup();
    assert_eq!(targets, ["target-a", "target-b"]);
    Ok(())
}

/// Writes the home folder of the agent's user, and returns the settings of its server.
async fn settings(
    world: &World,
    broker: &Broker,
    home: &Path,
    contexts: &[(&str, &ControlPlane, &str)],
) -> Result<String, TestError> {
    let plugin = program_at_home(world.binary().path(), home)?;
    let caller = home.join("caller-token");
    std::fs::write(&caller, caller_token(world.hub(), TENANT, ACCOUNT).await?)?;
    let file = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: {}\n\
         certificateAuthority: {}\ntokenFile: {}\n",
        broker.api_url(),
        broker.ca_path().display(),
        caller.display(),
    );
    write_client_file(home, &file)?;
    let mut kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "first", "clusters": [], "users": [], "contexts": [] });
    let mut add = |list: &str, item: Value| {
        if let Some(list) = kubeconfig[list].as_array_mut() {
            list.push(item);
        }
    };
    for (name, plane, access) in contexts {
        let cluster = json!({ "server": plane.url(), "certificate-authority-data": STANDARD.encode(plane.ca_pem()) });
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "args": ["credential", access],
            "interactiveMode": "Never", "provideClusterInfo": true,
        });
        add("clusters", json!({ "name": name, "cluster": cluster }));
        add("users", json!({ "name": name, "user": { "exec": exec } }));
        add(
            "contexts",
            json!({ "name": name, "context": { "cluster": name, "user": name } }),
        );
    }
    let path = home.join("agent.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    Ok(format!(
        "kubeconfig = \"{}\"\ncluster_provider_strategy = \"kubeconfig\"\nread_only = true\n",
        path.display()
    ))
}

async fn allow_listing(plane: &ControlPlane) -> TestResult {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "agents" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/agents";
    plane.admin().apply(path, &role).await?;
    plane.bind_user_to_cluster_role(AT_TARGET, "agents").await?;
    Ok(())
}
