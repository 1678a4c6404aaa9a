//! The commands of people who work with the hub's objects: from a file, without a file, with few
//! rights, and with completion.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use keyferry_integration::control_plane::Whom;
use keyferry_integration::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};
use tokio::process::Command;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PEOPLE: &str = "people";
/// The hub is busy with other tests.
const UNHURRIED: (&str, &str) = ("KEYFERRY_COMPLETION_SECONDS", "60");

/// Runs every check. `trust` is what `keyferry trust target-a` prints for the hub's admin, and
/// `listed` what `keyferry targets` prints.
pub(super) async fn commands_of_people(world: &OnHub, trust: &str, listed: &str) -> TestResult {
    objects_from_a_file(world, trust, listed).await?;
    an_export_without_a_file(world).await?;
    only_one_access(world).await?;
    names_are_completed(world).await?;
    few_rights(world, trust, listed).await
}

/// The output of kubectl, unchanged, says what the hub says. No hub is needed.
async fn objects_from_a_file(world: &OnHub, trust: &str, listed: &str) -> TestResult {
    for form in ["yaml", "json"] {
        let arguments = ["get", "targetclusters,targetaccesses", "-A", "-o", form];
        let objects = world.hub.kubectl(&arguments).await?;
        let path = world.ground.folder().join(format!("objects.{form}"));
        std::fs::write(&path, &objects.stdout)?;
        let path = path.display().to_string();
        assert_eq!(
            ok(keyferry(world, &["targets", "-f", &path]).await?)?,
            listed
        );
        let offline = ok(keyferry(world, &["trust", "target-a", "-f", &path]).await?)?;
        assert_eq!(offline, trust);
        let config = world.broker.config().display().to_string();
        let both = ["targets", "-f", &path, "--config", &config];
        let said = failed(keyferry(world, &both).await?)?;
        assert!(said.contains("both --config and -f are given"), "{said}");
        // The file decides, and the hub mints.
        let hub = world.hub.admin_kubeconfig().display().to_string();
        let access = ["whoami", "targetaccess/apps", "-n", "tenant-a"];
        let whoami = [&access[..], &["-f", &path, "--kubeconfig", &hub]].concat();
        assert!(
            ok(keyferry(world, &whoami).await?)?
                .contains("hub:system:serviceaccount:tenant-a:reconciler")
        );
        use_a_target(world, &path, &hub).await?;
    }
    // The object has changed since Keyferry wrote its status.
    let arguments = ["get", "targetcluster", "target-a", "-o", "json"];
    let mut object: Value = serde_json::from_slice(&world.hub.kubectl(&arguments).await?.stdout)?;
    object["metadata"]["generation"] = json!(1_000);
    let path = world.ground.folder().join("stale.json");
    std::fs::write(&path, object.to_string())?;
    let path = path.display().to_string();
    let said = failed(keyferry(world, &["trust", "target-a", "-f", &path]).await?)?;
    assert!(
        said.contains("the status of TargetCluster \"target-a\" is not about its current spec"),
        "{said}"
    );
    Ok(())
}

/// The direct forms take the access and its target from the file, and the token from the hub.
async fn use_a_target(world: &OnHub, objects: &str, hub: &str) -> TestResult {
    let file = ["-f", objects, "--kubeconfig", hub];
    let token = [&["token", "tenant-a/apps"][..], &file].concat();
    assert!(ok(keyferry(world, &token).await?)?.starts_with("eyJ"));
    let address = world.targets[0].url();
    let kubeconfig = [&["kubeconfig", "-n", "tenant-a"][..], &file].concat();
    let printed = ok(keyferry(world, &kubeconfig).await?)?;
    assert!(printed.contains(&address), "{printed}");
    let exec = [
        &["exec", "-n", "tenant-a"][..],
        &file,
        &["--", "printenv", "KUBECONFIG"],
    ]
    .concat();
    assert!(ok(keyferry(world, &exec).await?)?.contains("keyferry-"));
    let start = ["--from", "targetaccess/apps", "-n", "tenant-a"];
    let can_i = [
        &[
            "can-i",
            "create",
            "selfsubjectreviews.authentication.k8s.io",
        ][..],
        &start,
        &["--objects", objects, "--kubeconfig", hub],
    ]
    .concat();
    assert!(ok(keyferry(world, &can_i).await?)?.starts_with("yes"));
    for (command, with, wanted) in [
        ("token", "--server", "both --server and -f are given"),
        ("token", "--config", "both --config and -f are given"),
        ("kubeconfig", "--exec", "-f and --exec are both given"),
    ] {
        let value = ["https://k.example"];
        let value = if with == "--exec" { &[][..] } else { &value };
        let arguments = [&[command, "tenant-a/apps", with][..], value, &file].concat();
        let said = failed(keyferry(world, &arguments).await?)?;
        assert!(said.contains(wanted), "{said}");
    }
    Ok(())
}

/// The statuses state what the file states; `max-age` is a flag.
async fn an_export_without_a_file(world: &OnHub) -> TestResult {
    let folder = world.ground.folder();
    let (by_file, by_hub) = (folder.join("by-file"), folder.join("by-hub"));
    let shown = |path: &Path| path.display().to_string();
    let (config, hub) = (
        shown(world.broker.config()),
        shown(world.hub.admin_kubeconfig()),
    );
    let to = shown(&by_hub);
    let shortest = shown(&folder.join("by-hub-shortest"));
    ok(keyferry(world, &["export", &shortest, "--kubeconfig", &hub]).await?)?;
    let manifest = std::fs::read(folder.join("by-hub-shortest/manifest.json"))?;
    let manifest: Value = serde_json::from_slice(&manifest)?;
    // The server's is not stated, so it is the shortest that a server can have.
    assert_eq!(manifest["files"][0]["cacheControl"], "public, max-age=30");
    let by_file_to = shown(&by_file);
    let with_file = [
        "export",
        &by_file_to,
        "--config",
        &config,
        "--kubeconfig",
        &hub,
    ];
    ok(keyferry(world, &with_file).await?)?;
    let without = ["export", &to, "--max-age", "30s", "--kubeconfig", &hub];
    ok(keyferry(world, &without).await?)?;
    for file in [
        "manifest.json",
        "openid/v1/jwks",
        ".well-known/openid-configuration",
    ] {
        assert_eq!(
            String::from_utf8(std::fs::read(by_hub.join(file))?)?,
            String::from_utf8(std::fs::read(by_file.join(file))?)?,
            "{file}"
        );
    }
    Ok(())
}

/// A command without a name takes the only access of a namespace, and lists several.
async fn only_one_access(world: &OnHub) -> TestResult {
    let hub = world.hub.admin_kubeconfig().display().to_string();
    let arguments = ["token", "-n", "tenant-a", "--kubeconfig", &hub];
    let output = keyferry(world, &arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("access: tenant-a/apps, the only one"),
        "{said}"
    );
    assert!(ok(output)?.starts_with("eyJ"));
    let command = [
        "exec",
        "-n",
        "tenant-a",
        "--kubeconfig",
        &hub,
        "--",
        "printenv",
        "KUBECONFIG",
    ];
    assert!(ok(keyferry(world, &command).await?)?.contains("keyferry-"));
    let none = ["token", "--kubeconfig", &hub];
    let said = failed(keyferry(world, &none).await?)?;
    assert!(said.contains("namespace default has none"), "{said}");
    world
        .put_access(
            "tenant-a",
            "second",
            "target-a",
            &json!({ "deliveries": [{ "name": "h", "type": "HTTP" }] }),
        )
        .await?;
    let said = failed(keyferry(world, &arguments).await?)?;
    assert!(
        said.contains("namespace tenant-a has 2: apps, second") && said.contains("fix: name one"),
        "{said}"
    );
    let path = keyferry_integration::world::on_hub::access_path("tenant-a", "second");
    world.hub.admin().delete(&path).await?;
    world.until_gone(&path).await
}

/// The script of bash, and the answer that it reads.
async fn names_are_completed(world: &OnHub) -> TestResult {
    let hub = world.hub.admin_kubeconfig().display().to_string();
    let names = async |words: &[&str]| {
        let words = [&["__names"], words].concat();
        let env = [("KEYFERRY_KUBECONFIG", hub.as_str()), UNHURRIED];
        ok(world.ground.binary().run(&words, &env).await?)
    };
    assert_eq!(
        names(&["token", "ten"]).await?,
        "tenant-a/apps\ntenant-b/apps\n"
    );
    assert_eq!(names(&["token", "-n", "tenant-b", ""]).await?, "apps\n");
    assert_eq!(names(&["trust", "target-b"]).await?, "target-b\n");
    assert_eq!(names(&["lint", ""]).await?.trim(), "");
    let program = world.ground.binary().path().display().to_string();
    let script = format!(
        "source <({program} completion bash)\nCOMP_WORDS=(keyferry token tenant-a/)\nCOMP_CWORD=2\n\
         _keyferry_with_names {program} tenant-a/ token\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script])
        .env("KEYFERRY_KUBECONFIG", &hub)
        .env(UNHURRIED.0, UNHURRIED.1)
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), bash.output()).await??;
    assert_eq!(ok(output)?, "tenant-a/apps\n");
    Ok(())
}

/// What users of the hub can do who are not its admins: with a single right, and with the shipped
/// roles.
async fn few_rights(world: &OnHub, trust: &str, listed: &str) -> TestResult {
    world.hub.create_namespace(PEOPLE).await?;
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "target-reader" },
        "rules": [{ "apiGroups": ["keyferry.dev"], "resources": ["targetclusters"], "verbs": ["get"] }],
    });
    world
        .hub
        .admin()
        .create(&format!("{RBAC}/clusterroles"), &reader)
        .await?;
    for role in ["target-reader", "keyferry-platform-admin"] {
        let user = person(world, PEOPLE, role).await?;
        world
            .hub
            .bind_user_to_cluster_role(&format!("system:serviceaccount:{PEOPLE}:{role}"), role)
            .await?;
        let hub = user.path().display().to_string();
        let printed = ok(keyferry(world, &["trust", "target-a", "--kubeconfig", &hub]).await?)?;
        assert_eq!(printed, trust, "{role}");
        // `targets` lists both kinds, which the shipped role may. To issue a token takes a right of
        // the tenant's namespace.
        let is_admin = role == "keyferry-platform-admin";
        let targets = keyferry(world, &["targets", "--kubeconfig", &hub]).await?;
        let refused = if is_admin {
            assert_eq!(ok(targets)?, listed);
            "reading the ServiceAccount on the hub: the hub refused your own user: "
        } else {
            let said = failed(targets)?;
            assert!(
                said.contains("of the hub: the hub refused your own user: ")
                    && said.contains("fix: "),
                "{role}: {said}"
            );
            "reading the TargetAccess on the hub: the hub refused your own user: "
        };
        let token = ["token", "tenant-a/apps", "--kubeconfig", &hub];
        let said = failed(keyferry(world, &token).await?)?;
        assert!(
            said.contains(refused) && said.contains("fix: "),
            "{role}: {said}"
        );
    }
    // A tenant's role reads the accesses, and never a TargetCluster: a server decides for tenants.
    let user = person(world, "tenant-a", "developer").await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "developer", "namespace": "tenant-a" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "tenant-a", "name": "developer" }],
    });
    world
        .hub
        .admin()
        .create(
            &format!("{RBAC}/namespaces/tenant-a/rolebindings"),
            &binding,
        )
        .await?;
    let rule =
        json!({ "apiGroups": ["keyferry.dev"], "resources": ["targetaccesses"], "verbs": ["get"] });
    world
        .hub
        .until_it_counts(
            Whom::User("system:serviceaccount:tenant-a:developer"),
            "tenant-a",
            &rule,
        )
        .await?;
    let hub = user.path().display().to_string();
    for command in ["token", "kubeconfig"] {
        let arguments = [command, "-n", "tenant-a", "--kubeconfig", &hub];
        let said = failed(keyferry(world, &arguments).await?)?;
        assert!(
            said.contains("access: tenant-a/apps, the only one")
                && said.contains("reading the TargetCluster on the hub")
                && said.contains("--server URL"),
            "{said}"
        );
    }
    let said = failed(keyferry(world, &["trust", "target-a", "--kubeconfig", &hub]).await?)?;
    assert!(
        said.contains("reading the TargetCluster on the hub"),
        "{said}"
    );
    Ok(())
}

/// A user of the hub without rights.
async fn person(
    world: &OnHub,
    namespace: &str,
    name: &str,
) -> Result<ServiceAccountKubeconfig, TestError> {
    world.hub.create_service_account(namespace, name).await?;
    Ok(service_account_kubeconfig(&world.hub, namespace, name, 3600).await?)
}

/// A user who may read and change Keyferry's Secrets, and nothing else: no TargetCluster, no
/// TargetAccess.
pub(super) async fn keeper_of_secrets(
    world: &OnHub,
) -> Result<ServiceAccountKubeconfig, TestError> {
    let (namespace, name) = ("keyferry-system", "keeper");
    let user = person(world, PEOPLE, name).await?;
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update", "create"] }]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": name, "namespace": namespace }, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "namespace": PEOPLE, "name": name }],
    });
    let admin = world.hub.admin();
    let path = format!("{RBAC}/namespaces/{namespace}");
    admin.create(&format!("{path}/roles"), &role).await?;
    admin
        .create(&format!("{path}/rolebindings"), &binding)
        .await?;
    let subject = format!("system:serviceaccount:{PEOPLE}:{name}");
    world
        .hub
        .until_it_counts(Whom::User(&subject), namespace, &rules[0])
        .await?;
    Ok(user)
}

async fn keyferry(world: &OnHub, arguments: &[&str]) -> Result<Output, TestError> {
    Ok(world.ground.binary().run(arguments, &[]).await?)
}

fn ok(output: Output) -> Result<String, TestError> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn failed(output: Output) -> Result<String, TestError> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() || !output.stdout.is_empty() {
        return Err(format!("it did not fail: {said}").into());
    }
    Ok(said)
}
