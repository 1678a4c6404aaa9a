//! kubernetes-mcp-server, an agent's server for several clusters: each context of its kubeconfig
//! gets the token of its own target by the exec plugin.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::mcp_server::McpServer;
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::user_home::{program_at_home, write_client_file};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, AUDIENCE_B, Access, Broker, BrokerSpec, TENANT, Target, World,
    caller_token, until_trusted,
};
use serde_json::{Value, json};

use super::stage::AT_TARGET;
use crate::identity::roles::{RoleTrust, bind};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "seen-by-the-agent";

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
    let settings = settings(&world, &broker, home.path(), &contexts, true).await?;
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

/// The server has no read-only mode on, and the account may do everything: the role's token is what
/// limits it, also in the hands of someone to whom the agent prints it.
pub(crate) async fn an_mcp_server_with_a_role_may_only_read(world: Arc<World>) -> TestResult {
    let account = format!("{TENANT}:{ACCOUNT}");
    let mut spec = BrokerSpec::of_hub("mcp-role", world.hub());
    let discovery_url = spec.discovery_url()?;
    let minors = [("first", Minor::newest()), ("second", Minor::V1_33)];
    let audience = |name: &str, role: &str| format!("https://mcp-{name}.keyferry.test{role}");
    let mut planes = Vec::new();
    for (name, minor) in minors {
        let (base, role) = (audience(name, ""), audience(name, "/roles/view"));
        let trust = RoleTrust {
            issuer: "https://hub.keyferry.test",
            discovery_url: &discovery_url,
            discovery_ca: world.ca().cert_pem(),
            base: &base,
            role: &role,
            base_accounts: &[&account],
            role_accounts: &[&account],
        };
        let plane = ControlPlaneSpec {
            minor,
            authentication_config: Some(trust.configuration()),
            ..ControlPlaneSpec::named(&format!("mcp-{name}"))
        };
        let plane = world.fleet().start_control_plane(plane).await?;
        let of_role = Target {
            name: format!("{name}-view"),
            address: String::new(),
            further: format!("  sameAs: {name}\n  role: view\n  tokenLifetime: {{max: 1h}}\n"),
            ..Target::of(&plane, &role)
        };
        spec = spec
            .with_target(
                Target::of(&plane, &base)
                    .named(name)
                    .allowing(TENANT, &[ACCOUNT]),
            )
            .with_target(of_role.allowing(TENANT, &[ACCOUNT]))
            .with_access(Access::of(TENANT, name, &format!("{name}-view"), ACCOUNT));
        planes.push(plane);
    }
    let broker = world.start_broker(world.hub(), spec).await?;
    for plane in &planes {
        until_trusted(world.hub(), plane).await?;
        bind(plane, "cluster-admin", "hub:system:serviceaccounts").await?;
        bind(plane, "system:aggregate-to-view", "hub:role:view").await?;
        make_pod(plane).await?;
    }
    let home = tempfile::tempdir()?;
    let contexts = [
        ("first", &planes[0], "tenant-a/first"),
        ("second", &planes[1], "tenant-a/second"),
    ];
    let settings = settings(&world, &broker, home.path(), &contexts, false).await?;
    let server = McpServer::start(world.fleet().parts(), home.path(), &settings).await?;
    let own = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    for (context, plane, access) in contexts {
        let call = async |tool: &str, mut arguments: Value| {
            arguments["context"] = json!(context);
            server.call(tool, &arguments, None).await
        };
        let listed = call("pods_list", json!({})).await?;
        assert!(
            !listed.is_error && listed.text.contains(POD),
            "{context}: {}",
            listed.text
        );
        let object = config_map("by-the-agent").to_string();
        let written = call("resources_create_or_update", json!({ "resource": object })).await?;
        let deleted = json!({ "namespace": "default", "name": POD });
        let deleted = call("pods_delete", deleted).await?;
        for refused in [written, deleted] {
            let user = "User \"hub:view:system:serviceaccount:tenant-a:reconciler\" cannot";
            assert!(
                refused.is_error && refused.text.contains(user),
                "{context}: {}",
                refused.text
            );
        }
        let leaked = broker.exchange_in_time(&own, access).await?.token()?;
        let leaked = plane.as_bearer(&leaked)?;
        for path in [PODS, "/api/v1/namespaces/default/secrets"] {
            let deleted = leaked.delete(path).await;
            let status = deleted.err().and_then(|error| error.status());
            assert_eq!(status, Some(403), "{context}: {path}");
        }
        assert!(plane.admin().exists(&format!("{PODS}/{POD}")).await?);
    }
    Ok(())
}

fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default" },
    })
}

/// Creates a Pod that no node runs.
async fn make_pod(plane: &ControlPlane) -> TestResult {
    plane.create_service_account("default", "default").await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "example.com/none" }],
        },
    });
    plane.admin().create(PODS, &pod).await?;
    Ok(())
}

/// Writes the home folder of the agent's user, and returns the settings of its server.
async fn settings(
    world: &World,
    broker: &Broker,
    home: &Path,
    contexts: &[(&str, &ControlPlane, &str)],
    read_only: bool,
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
        "kubeconfig = \"{}\"\ncluster_provider_strategy = \"kubeconfig\"\nread_only = {read_only}\n",
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
