//! A hub with Keyferry, all admission policies and many subjects with one right each; two targets.

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::wait;
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{OnHub, audience, secret_path};
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::Duration;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The namespace of the subjects that have one right each.
pub(super) const SUBJECTS: &str = "subjects";
/// Where those rights count, and whose accounts they are about.
pub(super) const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];
/// A Secret with a token that the hub filled in.
pub(super) const ROBOT: &str = "robot";

/// The rights, each of the ServiceAccount `s<number>`: a namespace, or none, and the rules.
pub(super) fn rights() -> Vec<(&'static str, Value)> {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    let core = |resources: &[&str], verbs: &[&str]| rule(&[""], resources, verbs);
    let rbac =
        |resources: &[&str], verbs: &[&str]| rule(&["rbac.authorization.k8s.io"], resources, verbs);
    let named = |mut rule: Value, names: &[&str]| {
        rule["resourceNames"] = json!(names);
        rule
    };
    let token = core(&["serviceaccounts/token"], &["create"]);
    let bindings = rbac(&["rolebindings"], &["create"]);
    vec![
        ("tenant-a", json!([core(&["configmaps"], &["get"])])),
        ("tenant-a", json!([token])),
        ("tenant-b", json!([token])),
        ("tenant-a", json!([named(token.clone(), &["reconciler"])])),
        ("tenant-a", json!([named(token.clone(), &["caller"])])),
        ("", json!([token])),
        (
            "tenant-a",
            json!([core(&["serviceaccounts"], &["create", "get"])]),
        ),
        ("tenant-a", json!([core(&["pods"], &["create"])])),
        ("tenant-b", json!([core(&["pods"], &["create"])])),
        (
            "tenant-a",
            json!([named(core(&["pods"], &["create"]), &["x"])]),
        ),
        ("tenant-a", json!([core(&["pods"], &["get", "list"])])),
        ("tenant-a", json!([core(&["pods/exec"], &["create"])])),
        (
            "tenant-a",
            json!([named(core(&["pods/exec"], &["create"]), &["plain"])]),
        ),
        ("tenant-a", json!([core(&["pods/log"], &["get"])])),
        ("tenant-b", json!([core(&["secrets"], &["get"])])),
        ("tenant-b", json!([core(&["secrets"], &["list"])])),
        (
            "tenant-b",
            json!([named(core(&["secrets"], &["get"]), &["b-kubeconfig"])]),
        ),
        (
            "tenant-b",
            json!([named(core(&["secrets"], &["get"]), &["other"])]),
        ),
        ("tenant-a", json!([core(&["secrets"], &["get", "list"])])),
        (
            SUBJECTS,
            json!([named(core(&["secrets"], &["get"]), &[ROBOT])]),
        ),
        (
            SUBJECTS,
            json!([named(
                core(&["serviceaccounts"], &["impersonate"]),
                &[ROBOT]
            )]),
        ),
        (
            "tenant-a",
            json!([core(&["serviceaccounts"], &["impersonate"])]),
        ),
        (
            "",
            json!([named(core(&["users"], &["impersonate"]), &["minter"])]),
        ),
        (
            "",
            json!([named(core(&["users"], &["impersonate"]), &["nobody"])]),
        ),
        (
            "",
            json!([named(core(&["groups"], &["impersonate"]), &["minters"])]),
        ),
        (
            "",
            json!([
                named(core(&["users"], &["impersonate"]), &["nobody"]),
                named(core(&["groups"], &["impersonate"]), &["minters"]),
            ]),
        ),
        (
            "tenant-a",
            json!([
                bindings,
                named(rbac(&["clusterroles"], &["bind"]), &["reach-minter"])
            ]),
        ),
        (
            "tenant-a",
            json!([
                bindings,
                named(rbac(&["clusterroles"], &["bind"]), &["view"])
            ]),
        ),
        ("tenant-a", json!([bindings])),
        (
            "tenant-a",
            json!([named(rbac(&["clusterroles"], &["bind"]), &["reach-minter"])]),
        ),
        ("", json!([rule(&["*"], &["*"], &["*"])])),
        (
            "",
            json!([rule(&["keyferry.dev"], &["targetclusters"], &["patch"])]),
        ),
    ]
    .into_iter()
    .chain(rights_to_act())
    .chain(rights_that_open_nothing())
    .collect()
}

/// Doors 9 and 10, with and without what they open: at target-c, `stranger` has rights and no
/// access.
fn rights_to_act() -> Vec<(&'static str, Value)> {
    let keyferry = |resource: &str, verb: &str| json!({ "apiGroups": ["keyferry.dev"], "resources": [resource], "verbs": [verb] });
    let admission = |resource: &str, verb: &str| json!({ "apiGroups": ["admissionregistration.k8s.io"], "resources": [resource], "verbs": [verb] });
    let stranger = json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"], "resourceNames": ["stranger"] });
    let bindings = "validatingadmissionpolicybindings";
    vec![
        ("tenant-a", json!([stranger])),
        (
            "tenant-a",
            json!([keyferry("targetaccesses", "create"), stranger]),
        ),
        (
            "",
            json!([
                keyferry("targetaccesses", "create"),
                keyferry("targetclusters", "patch")
            ]),
        ),
        (
            "",
            json!([
                keyferry("targetaccesses", "create"),
                keyferry("targetclusters", "patch"),
                stranger
            ]),
        ),
        ("", json!([admission(bindings, "delete")])),
        ("", json!([admission(bindings, "delete"), stranger])),
        ("", json!([admission(bindings, "create"), stranger])),
        (
            "",
            json!([admission("validatingadmissionpolicies", "create")]),
        ),
        ("tenant-a", json!([admission(bindings, "delete"), stranger])),
    ]
}

/// The rights that open a door, or are near one of the first eight.
pub(super) fn rights_to_change() -> Vec<(&'static str, Value)> {
    let mut all = rights();
    all.truncate(all.len() - rights_that_open_nothing().len());
    all
}

/// The ServiceAccounts with those rights: whoever mints everywhere becomes them.
pub(super) fn subjects_that_act() -> Vec<String> {
    let acts = rights_to_act().len();
    let first = rights().len() - acts - rights_that_open_nothing().len();
    (first..first + acts)
        .map(|number| format!("s{number}"))
        .collect()
}

/// Each is near a right that opens a door.
fn rights_that_open_nothing() -> Vec<(&'static str, Value)> {
    let rows: [(&str, &str, &str, &str, &str); 36] = [
        ("keyferry-system", "", "secrets", "get", "keyferry-seal"),
        (
            "keyferry-system",
            "",
            "secrets",
            "get",
            "keyferry-issuer-target-a",
        ),
        ("", "certificates.k8s.io", "signers", "approve", ""),
        (
            "",
            "certificates.k8s.io",
            "certificatesigningrequests",
            "create",
            "",
        ),
        (
            "",
            "certificates.k8s.io",
            "certificatesigningrequests/approval",
            "update",
            "",
        ),
        (
            "tenant-a",
            "kustomize.toolkit.fluxcd.io",
            "kustomizations",
            "create",
            "",
        ),
        ("", "argoproj.io", "applications", "create", ""),
        ("", "keyferry.dev", "targetaccesses", "delete", ""),
        ("", "keyferry.dev", "targetclusters", "create", ""),
        ("", "keyferry.dev", "targetclusters", "delete", ""),
        ("tenant-a", "keyferry.dev", "targetaccesses", "create", ""),
        ("tenant-a", "", "serviceaccounts", "get", ""),
        ("tenant-a", "", "serviceaccounts/token", "get", ""),
        (
            "tenant-a",
            "authentication.k8s.io",
            "serviceaccounts/token",
            "create",
            "",
        ),
        ("tenant-a", "", "serviceaccounts/token", "create", "nobody"),
        ("subjects", "", "serviceaccounts/token", "create", "nobody"),
        ("tenant-a", "", "pods/portforward", "create", ""),
        ("tenant-a", "", "pods", "delete", ""),
        ("tenant-a", "", "namespaces", "patch", ""),
        ("", "", "nodes", "get", ""),
        ("tenant-b", "", "secrets", "create", ""),
        ("tenant-b", "", "secrets", "delete", ""),
        ("", "rbac.authorization.k8s.io", "clusterroles", "get", ""),
        (
            "tenant-a",
            "rbac.authorization.k8s.io",
            "roles",
            "create",
            "",
        ),
        ("tenant-a", "", "pods", "watch", ""),
        ("tenant-a", "", "pods/status", "update", ""),
        ("tenant-a", "", "pods/eviction", "create", ""),
        ("tenant-a", "", "services", "create", ""),
        ("tenant-a", "", "events", "create", ""),
        ("tenant-b", "", "configmaps", "update", ""),
        ("tenant-b", "apps", "deployments/scale", "update", ""),
        ("tenant-b", "batch", "jobs", "delete", ""),
        ("", "authentication.k8s.io", "tokenreviews", "create", ""),
        (
            "",
            "authorization.k8s.io",
            "subjectaccessreviews",
            "create",
            "",
        ),
        ("", "", "persistentvolumes", "create", ""),
        ("tenant-a", "keyferry.dev", "targetaccesses", "get", ""),
    ];
    rows.into_iter()
        .map(|(namespace, group, resource, verb, name)| {
            let mut rule =
                json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
            if !name.is_empty() {
                rule["resourceNames"] = json!([name]);
            }
            (namespace, json!([rule]))
        })
        .collect()
}

/// The hub with its two targets, and a third one that trusts more accounts by another file.
pub(super) struct Stage {
    on_hub: OnHub,
    third: ControlPlane,
}

impl Deref for Stage {
    type Target = OnHub;

    fn deref(&self) -> &OnHub {
        &self.on_hub
    }
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.on_hub.log_tails()
    }
}

impl Stage {
    pub(super) fn planes(&self) -> [&ControlPlane; 3] {
        let [a, b] = &self.on_hub.targets;
        [a, b, &self.third]
    }

    /// The spec of the TargetCluster of the third target.
    pub(super) fn third_spec(&self) -> Value {
        json!({ "address": self.third.url(), "caBundle": self.third.ca_pem(), "audience": audience("target-c"),
            "allow": [{ "namespaces": TENANTS, "serviceAccounts": ["reconciler"], "deliveries": ["HTTP"] }] })
    }
}

/// Its file maps groups, has another prefix, and trusts three accounts.
async fn start_third(on_hub: &OnHub) -> Result<ControlPlane, TestError> {
    let file = std::fs::read_to_string(on_hub.targets[0].authentication_config_path()?)?;
    let accounts = [
        "tenant-a:reconciler",
        "tenant-b:reconciler",
        "tenant-a:stranger",
    ];
    let accounts = accounts
        .map(|it| format!("'system:serviceaccount:{it}'"))
        .join(", ");
    let file = file
        .replace(&audience("target-a"), &audience("target-c"))
        .replace("'system:serviceaccount:tenant-a:reconciler'", &accounts)
        .replace(
            "prefix: \"hub:\"",
            "prefix: \"other:\"\n      groups:\n        expression: \"['tenants']\"",
        );
    assert!(
        file.contains("other:") && file.contains("tenant-a:stranger"),
        "{file}"
    );
    let spec = ControlPlaneSpec {
        signing_key: SigningKeyKind::EcdsaP256,
        authentication_config: Some(file),
        ..ControlPlaneSpec::named("target-c")
    };
    on_hub.ground.control_plane(spec).await
}

pub(super) async fn start() -> Result<Stage, NotStarted> {
    let on_hub = OnHub::start().await?;
    let third = start_third(&on_hub).await.map_err(NotStarted::failed)?;
    let world = Stage { on_hub, third };
    prepare(&world).await.map_err(NotStarted::failed)?;
    Ok(world)
}

async fn prepare(world: &Stage) -> Result<(), TestError> {
    let hub = &world.hub;
    hub.create_namespace(SUBJECTS).await?;
    for account in [ROBOT, "bystander"] {
        hub.create_service_account(SUBJECTS, account).await?;
    }
    for account in ["caller", "stranger"] {
        hub.create_service_account("tenant-a", account).await?;
    }
    put_rights(hub).await?;
    put_pods(hub).await?;
    for (index, tenant) in TENANTS.into_iter().enumerate() {
        let mut spec = world.target_spec(index);
        spec["allow"] = json!([{ "namespaces": [tenant], "serviceAccounts": ["reconciler"],
            "deliveries": ["HTTP", "KubeConfigSecret"] }]);
        world.put_target(world.targets[index].name(), &spec).await?;
    }
    let on_request = json!({ "callers": ["caller", "stranger"], "deliveries": [{ "name": "http", "type": "HTTP" }] });
    world
        .put_access("tenant-a", "a", "target-a", &on_request)
        .await?;
    let delivered = json!({ "deliveries": [{ "name": "file", "type": "KubeConfigSecret", "objectName": "b-kubeconfig" }] });
    world
        .put_access("tenant-b", "b", "target-b", &delivered)
        .await?;
    for (index, tenant) in TENANTS.into_iter().enumerate() {
        let user = format!("hub:system:serviceaccount:{tenant}:reconciler");
        put_target_rights(&world.targets[index], index, &user).await?;
    }
    world.put_target("target-c", &world.third_spec()).await?;
    for tenant in TENANTS {
        let access = json!({ "deliveries": [{ "name": "http", "type": "HTTP" }] });
        world.put_access(tenant, "c", "target-c", &access).await?;
    }
    put_third_rights(world.planes()[2]).await?;
    let caller = caller_token(hub, "tenant-a", "reconciler").await?;
    world.broker.exchange_in_time(&caller, "tenant-a/c").await?;
    world.broker.exchange_in_time(&caller, "tenant-a/a").await?;
    let secret = secret_path("tenant-b", "b-kubeconfig");
    let minute = Duration::from_secs(60);
    wait::until("the kubeconfig is delivered", minute, || async {
        Ok(hub.admin().exists(&secret).await?)
    })
    .await
}

async fn put_rights(hub: &ControlPlane) -> Result<(), TestError> {
    for (number, (namespace, rules)) in rights().into_iter().enumerate() {
        let name = format!("s{number}");
        hub.create_service_account(SUBJECTS, &name).await?;
        let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": SUBJECTS });
        grant(hub, namespace, &name, &rules, &[subject]).await?;
    }
    let token =
        json!([{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] }]);
    let others = [
        json!({ "kind": "ServiceAccount", "name": ROBOT, "namespace": SUBJECTS }),
        json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "minter" }),
        json!({ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "minters" }),
    ];
    grant(hub, "tenant-a", "others", &token, &others).await?;
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reach-minter" }, "rules": token });
    hub.admin()
        .apply(&format!("{RBAC}/clusterroles/reach-minter"), &role)
        .await?;
    let caller = json!([{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"], "resourceNames": ["reconciler"] }]);
    let subject = json!({ "kind": "ServiceAccount", "name": "caller", "namespace": "tenant-a" });
    grant(hub, "tenant-a", "caller", &caller, &[subject]).await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": ROBOT, "annotations": { "kubernetes.io/service-account.name": ROBOT } } });
    hub.admin()
        .create(&format!("/api/v1/namespaces/{SUBJECTS}/secrets"), &secret)
        .await?;
    Ok(())
}

/// Creates a role and its binding, of a namespace or of the whole cluster.
async fn grant(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
    rules: &Value,
    subjects: &[Value],
) -> Result<(), TestError> {
    let (kind, folder) = match namespace {
        "" => ("ClusterRole", RBAC.to_owned()),
        namespace => ("Role", format!("{RBAC}/namespaces/{namespace}")),
    };
    let plural = |kind: &str| format!("{folder}/{}s", kind.to_lowercase());
    let metadata = json!({ "name": name });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name }, "subjects": subjects,
    });
    let admin = plane.admin();
    admin
        .apply(&format!("{}/{name}", plural(kind)), &role)
        .await?;
    let bindings = plural(&format!("{kind}Binding"));
    admin.apply(&format!("{bindings}/{name}"), &binding).await?;
    Ok(())
}

/// A Pod of the reconciler with a token for its target, and one of another account. They run as far
/// as their status says: there is no kubelet.
async fn put_pods(hub: &ControlPlane) -> Result<(), TestError> {
    let audience = audience("target-a");
    for (name, account, sources) in [
        (
            "worker",
            "reconciler",
            json!([{ "serviceAccountToken": { "path": "token", "audience": audience } }]),
        ),
        (
            "plain",
            "stranger",
            json!([{ "serviceAccountToken": { "path": "token" } }]),
        ),
    ] {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
            "serviceAccountName": account, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "example.com/image" }],
            "volumes": [{ "name": "token", "projected": { "sources": sources } }],
        } });
        let path = "/api/v1/namespaces/tenant-a/pods";
        hub.admin().create(path, &pod).await?;
        let running = json!({ "status": { "phase": "Running" } });
        hub.admin()
            .patch(&format!("{path}/{name}/status"), &running)
            .await?;
    }
    Ok(())
}

async fn put_third_rights(plane: &ControlPlane) -> Result<(), TestError> {
    for namespace in ["apps", "infra"] {
        plane.create_namespace(namespace).await?;
    }
    let group =
        json!({ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "tenants" });
    let read = json!([{ "apiGroups": ["", "apps"], "resources": ["pods", "deployments", "configmaps"], "verbs": ["get", "list", "watch"] }]);
    grant(plane, "apps", "read", &read, &[group]).await?;
    let user = "other:system:serviceaccount:tenant-a:stranger";
    let user = json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user });
    let change = json!([{ "apiGroups": ["apps"], "resources": ["*"], "verbs": ["update", "patch", "delete"] }]);
    grant(plane, "apps", "change", &change, &[user]).await
}

async fn put_target_rights(
    plane: &ControlPlane,
    index: usize,
    user: &str,
) -> Result<(), TestError> {
    for namespace in ["apps", "infra"] {
        plane.create_namespace(namespace).await?;
    }
    let subject = json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user });
    let subjects = [subject];
    let verbs = [vec!["get", "list", "create", "delete"], vec!["get", "list"]];
    let edit = json!([
        { "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": verbs[index] },
        { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"] },
    ]);
    grant(plane, "apps", "edit", &edit, &subjects).await?;
    let read = json!([{ "apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list"] }]);
    grant(plane, "", "reach-read", &read, &subjects).await?;
    // The user may act as an account of infra, which may read Secrets there.
    let act = json!([{ "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["agent"], "verbs": ["impersonate"] }]);
    grant(plane, "infra", "act", &act, &subjects).await?;
    let secrets =
        json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] }]);
    let agent = json!({ "kind": "ServiceAccount", "name": "agent", "namespace": "infra" });
    grant(plane, "infra", "agent", &secrets, &[agent]).await
}
