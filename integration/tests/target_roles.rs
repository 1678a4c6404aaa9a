//! A target and its roles on real kube-apiservers: each cell of account, role, verb, resource and
//! namespace is decided by the policy, by `verify`'s evaluator and by the apiserver, and they must
//! agree. It shares the fleet of `control_planes`. The hub's admin mints, so no admission policy
//! stands before the target's file.

mod constrained;
mod many;
mod stolen_key;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::fleet::Fleet;
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Suite, TestError, TestResult};
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Union, verify_token};
use serde_json::{Value, json};

const ISSUER: &str = "https://hub.keyferry.test";
const NAMESPACES: [&str; 2] = ["role-a", "role-b"];
const ACCOUNTS: usize = 12;
/// Name, role, and the audience of its tokens.
const TARGETS: [(&str, Option<&str>, &str); 3] = [
    ("prod", None, "https://prod.keyferry.test"),
    (
        "prod-view",
        Some("view"),
        "https://prod.keyferry.test/roles/view",
    ),
    (
        "prod-deploy",
        Some("deploy"),
        "https://prod.keyferry.test/roles/deploy",
    ),
];
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
const RESOURCES: [(&str, &str); 8] = [
    ("", "pods"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "services"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "ingresses"),
];
/// What the ClusterRoles of the bindings allow, beside nothing else.
const EVERYTHING_READ: [&str; 3] = ["get", "list", "watch"];
const DEPLOYED: [&str; 3] = ["create", "update", "patch"];
const CONCURRENT_REVIEWS: usize = 64;
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Adds the tests to the suite that owns the fleet. Alone, because they change the target's file.
pub(crate) fn tests(suite: Suite<Fleet>) -> Suite<Fleet> {
    suite
        .test_alone("roles_are_decided_alike_on_the_newest", |fleet| {
            decided_alike(fleet, "target-new")
        })
        .test_alone("roles_are_decided_alike_on_1_33", |fleet| {
            decided_alike(fleet, "target-old")
        })
        .test_alone("sixteen_roles_of_300_accounts_on_the_newest", |fleet| {
            many::sixteen_roles_of_300_accounts(fleet, "target-new")
        })
        .test_alone("sixteen_roles_of_300_accounts_on_1_33", |fleet| {
            many::sixteen_roles_of_300_accounts(fleet, "target-old")
        })
}

/// Whether the policy lets an account use a target.
fn is_allowed(target: usize, namespace: usize, account: usize) -> bool {
    match target {
        0 => account % 4 != 3,
        1 => (account + namespace).is_multiple_of(2),
        _ => account % 3 != namespace,
    }
}

/// What the bindings at the target give: what is bound to the base is bound to no role.
fn may(target: usize, namespace: &str, verb: &str, resource: &str) -> bool {
    match target {
        0 => true,
        1 => EVERYTHING_READ.contains(&verb) && resource != "secrets",
        _ => namespace == NAMESPACES[0] && resource == "deployments" && DEPLOYED.contains(&verb),
    }
}

async fn decided_alike(fleet: Arc<Fleet>, target: &'static str) -> TestResult {
    let (hub, target) = (fleet.control_plane("hub")?, fleet.control_plane(target)?);
    for namespace in NAMESPACES {
        hub.create_namespace(namespace).await?;
        for account in 0..ACCOUNTS {
            hub.create_service_account(namespace, &name_of(account))
                .await?;
        }
    }
    let documents = DocumentServer::start(target.ca()).await?;
    let discovery_url = documents.publish(&hub).await?;
    let bindings = ["view=roles-test-view", "deploy=roles-test-deploy@role-a"];
    let objects = objects_of(&target);
    let folder = print_trust(&fleet, &target, &discovery_url, &objects, &bindings).await?;
    let file = std::fs::read_to_string(folder.path().join("authentication.yaml"))?;
    target.set_authentication_config(&file).await?;
    apply_bindings(&target, folder.path()).await?;

    let compiled = compile(&target, &file)?;
    let users = ask_users(&hub, &target, &compiled).await?;
    refuse_other_tokens(&hub, &target, &compiled).await?;
    let forged = stolen_key::is_held_to_account_role_and_life(&hub, &target, &compiled).await?;
    let cells = ask_cells(&target, &users).await?;
    eprintln!(
        "{}: {} users, {cells} cells, {forged} tokens of a stolen key",
        target.name(),
        users.len()
    );
    assert!(cells >= 5000, "{cells} cells");
    constrained::a_role_acts_as_an_account_where_it_may(&hub, &target).await
}

/// The target's file as `verify` judges by it.
fn compile(target: &ControlPlane, file: &str) -> Result<Compiled, TestError> {
    let minor: keyferry_kube_authn::Minor = format!("1.{}", target.minor().number()).parse()?;
    let loaded = load_configuration(file.as_bytes(), minor).map_err(|it| it.to_string())?;
    let compiled = validate_configuration(&loaded.configuration, minor, &[]);
    Ok(compiled.map_err(|invalid| invalid.message())?)
}

fn name_of(account: usize) -> String {
    format!("worker-{account}")
}

/// The TargetClusters of a target: the base, and its roles.
fn objects_of(target: &ControlPlane) -> Vec<Value> {
    let mut objects = Vec::new();
    for (index, (name, role, audience)) in TARGETS.into_iter().enumerate() {
        let allow = NAMESPACES.iter().enumerate().map(|(place, namespace)| {
            let accounts = (0..ACCOUNTS).filter(|account| is_allowed(index, place, *account));
            let accounts: Vec<String> = accounts.map(name_of).collect();
            json!({ "namespaces": [namespace], "serviceAccounts": accounts })
        });
        let spec = json!({ "audience": audience, "allow": allow.collect::<Vec<_>>() });
        objects.push(object_of(target, name, role, spec));
    }
    objects
}

/// A TargetCluster that is the cluster itself, or a role of `prod` there.
fn object_of(target: &ControlPlane, name: &str, role: Option<&str>, mut spec: Value) -> Value {
    match role {
        Some(role) => {
            spec["sameAs"] = json!("prod");
            spec["role"] = json!(role);
            spec["tokenLifetime"] = json!({ "default": "10m", "max": "20m" });
        }
        None => {
            spec["address"] = json!(target.url());
            spec["caBundle"] = json!(target.ca_pem());
            spec["tokenLifetime"] = json!({ "max": "1h" });
        }
    }
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": name }, "spec": spec,
    })
}

/// Prints the target's file and the bindings of its roles by `keyferry trust`.
async fn print_trust(
    fleet: &Fleet,
    target: &ControlPlane,
    discovery_url: &str,
    objects: &[Value],
    bindings: &[&str],
) -> Result<tempfile::TempDir, TestError> {
    let folder = tempfile::tempdir_in(fleet.folder())?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut documents = vec![json!({
        "apiVersion": "config.keyferry.dev/v1alpha1", "kind": "ServerConfiguration",
        "hubName": "hub", "publicURL": "https://keys.keyferry.test", "hub": { "issuer": ISSUER },
    })];
    documents.extend_from_slice(objects);
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    std::fs::write(path("keyferry.yaml"), documents.join("\n---\n"))?;
    std::fs::write(path("ca.crt"), target.ca_pem())?;
    let (config, authority) = (path("keyferry.yaml"), path("ca.crt"));
    let kubernetes = format!("1.{}", target.minor().number());
    let output = folder.path().display().to_string();
    let mut arguments = vec![
        "trust",
        "prod",
        "--config",
        &config,
        "--discovery-url",
        discovery_url,
        "--discovery-ca",
        &authority,
        "--kubernetes",
        &kubernetes,
        "--output-dir",
        &output,
    ];
    for binding in bindings {
        arguments.extend(["--bind-role", binding]);
    }
    let printed = KeyferryBinary::build().await?.run(&arguments, &[]).await?;
    let notes = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(printed.status.success(), "{notes}");
    Ok(folder)
}

/// Gives the base everything, by its groups and by the user of each account, and the roles what
/// `trust` printed.
async fn apply_bindings(target: &ControlPlane, folder: &std::path::Path) -> TestResult {
    let group = "rbac.authorization.k8s.io";
    let cluster_role = |name: &str, rules: Value| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
            "metadata": { "name": name }, "rules": rules,
        })
    };
    let groups: BTreeSet<&str> = RESOURCES.iter().map(|(group, _)| *group).collect();
    let readable: Vec<&str> = RESOURCES.iter().map(|(_, resource)| *resource).collect();
    let readable: Vec<&str> = readable.into_iter().filter(|it| *it != "secrets").collect();
    let of_groups = NAMESPACES.map(|namespace| format!("hub:system:serviceaccounts:{namespace}"));
    let mut subjects: Vec<(String, &str)> =
        vec![("hub:system:serviceaccounts".to_owned(), "Group")];
    subjects.extend(of_groups.into_iter().map(|name| (name, "Group")));
    for namespace in NAMESPACES {
        subjects.extend((0..ACCOUNTS).map(|account| {
            let account = name_of(account);
            (
                format!("hub:system:serviceaccount:{namespace}:{account}"),
                "User",
            )
        }));
    }
    let subjects = subjects
        .iter()
        .map(|(name, kind)| json!({ "apiGroup": group, "kind": kind, "name": name }));
    let objects = [
        cluster_role(
            "roles-test-view",
            json!([{ "apiGroups": groups, "resources": readable, "verbs": EVERYTHING_READ }]),
        ),
        cluster_role(
            "roles-test-deploy",
            json!([{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": DEPLOYED }]),
        ),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": "roles-test-base" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": subjects.collect::<Vec<_>>(),
        }),
    ];
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    let base = folder.join("bindings.yaml");
    std::fs::write(&base, objects.join("\n---\n"))?;
    apply_manifests(target, &[&base, &folder.join("rbac.yaml")]).await?;
    let everything = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] });
    let read = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] });
    let deploy = json!({ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"] });
    for (whom, namespace, rule) in [
        (Whom::Group("hub:system:serviceaccounts"), "", everything),
        (Whom::Group("hub:role:view"), "", read),
        (Whom::Group("hub:role:deploy"), NAMESPACES[0], deploy),
    ] {
        target.until_it_counts(whom, namespace, &rule).await?;
    }
    Ok(())
}

/// A user of the target, as its apiserver names it.
struct TargetUser {
    target: usize,
    name: String,
    groups: Vec<String>,
}

/// What `verify` says of a token: its user and groups.
fn predicted(compiled: &Compiled, token: &str) -> Option<(String, Vec<String>)> {
    let token = Token::read(token.as_bytes()).ok()?;
    let now = jiff::Timestamp::now();
    match verify_token(compiled, &token, &Keys::none(), now).union() {
        Union::Accepted(user) => Some((user.username.clone(), user.groups.clone())),
        _ => None,
    }
}

/// What the apiserver says of a token: its user and groups, without the one that every user has.
async fn answered(
    target: &ControlPlane,
    token: &str,
) -> Result<Option<(String, Vec<String>)>, TestError> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let user = match target.as_bearer(token)?.create(path, &review).await {
        Ok(review) => review["status"]["userInfo"].clone(),
        Err(error) if error.status() == Some(401) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let groups = user["groups"].as_array().into_iter().flatten();
    let groups = groups.filter_map(Value::as_str).map(str::to_owned);
    let groups = groups
        .filter(|group| group != "system:authenticated")
        .collect();
    let name = user["username"].as_str().unwrap_or_default().to_owned();
    Ok(Some((name, groups)))
}

/// The user and groups of an account at a target.
fn user_of(role: Option<&str>, namespace: &str, account: &str) -> (String, Vec<String>) {
    let subject = format!("system:serviceaccount:{namespace}:{account}");
    let (user, group) = match role {
        Some(role) => (format!("hub:{role}:{subject}"), format!("hub:role:{role}")),
        None => (
            format!("hub:{subject}"),
            "hub:system:serviceaccounts".to_owned(),
        ),
    };
    let of_namespace = format!("{group}:{namespace}");
    (user, vec![group, of_namespace])
}

/// Mints a token of each account for each target, and compares who it is there.
async fn ask_users(
    hub: &ControlPlane,
    target: &ControlPlane,
    compiled: &Compiled,
) -> Result<Vec<TargetUser>, TestError> {
    let mut users = Vec::new();
    for (index, (name, role, audience)) in TARGETS.into_iter().enumerate() {
        for (place, namespace) in NAMESPACES.into_iter().enumerate() {
            for account in 0..ACCOUNTS {
                let account_name = name_of(account);
                let minted = hub
                    .token_request(namespace, &account_name, &[audience], 600)
                    .await?;
                let subject = format!("system:serviceaccount:{namespace}:{account_name}");
                let expected = is_allowed(index, place, account)
                    .then(|| user_of(role, namespace, &account_name));
                let said = answered(target, &minted.token).await?;
                assert_eq!(said, expected, "{name}: {subject} at the apiserver");
                assert_eq!(
                    predicted(compiled, &minted.token),
                    expected,
                    "{name}: {subject}"
                );
                users.extend(said.map(|(name, groups)| TargetUser {
                    target: index,
                    name,
                    groups,
                }));
            }
        }
    }
    Ok(users)
}

/// Tokens that the hub signs, and that are for several of the audiences, or live too long.
async fn refuse_other_tokens(
    hub: &ControlPlane,
    target: &ControlPlane,
    compiled: &Compiled,
) -> TestResult {
    let [(_, _, base), (_, _, view), (_, _, deploy)] = TARGETS;
    for (case, audiences, seconds) in [
        ("two roles", vec![view, deploy], 600),
        ("a role and the base", vec![view, base], 600),
        ("the base and a role", vec![base, view], 600),
        ("the same twice", vec![view, view], 600),
        (
            "a role and another target",
            vec![view, "https://elsewhere.test"],
            600,
        ),
        (
            "another target and a role",
            vec!["https://elsewhere.test", view],
            600,
        ),
        (
            "an unknown role",
            vec!["https://prod.keyferry.test/roles/edit"],
            600,
        ),
        ("the base's life for a role", vec![view], 1260),
        ("too long for the base", vec![base], 3660),
    ] {
        // This account may use all three.
        let minted = hub
            .token_request(NAMESPACES[1], "worker-9", &audiences, seconds)
            .await;
        let minted = match minted {
            Ok(minted) => minted,
            // An apiserver may refuse to mint for the same audience twice.
            Err(_) if case == "the same twice" => continue,
            Err(error) => return Err(error.into()),
        };
        assert_eq!(
            answered(target, &minted.token).await?,
            None,
            "{case} at the apiserver"
        );
        assert_eq!(predicted(compiled, &minted.token), None, "{case}");
    }
    Ok(())
}

/// A user at the target, a verb, a group and resource, and a namespace.
type Cell<'u> = (
    &'u TargetUser,
    &'static str,
    (&'static str, &'static str),
    &'static str,
);

/// Asks the apiserver about each cell, and returns their number.
async fn ask_cells(target: &ControlPlane, users: &[TargetUser]) -> Result<usize, TestError> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for user in users {
        for verb in VERBS {
            for resource in RESOURCES {
                cells.extend(NAMESPACES.map(|namespace| (user, verb, resource, namespace)));
            }
        }
    }
    let count = cells.len();
    // The futures are made first: the compiler does not see that a stream that makes them is Send.
    let asked: Vec<_> = cells
        .into_iter()
        .map(|cell| ask_cell(target, cell))
        .collect();
    let asked = stream::iter(asked).buffered(CONCURRENT_REVIEWS);
    let differing: Vec<Option<String>> = asked.try_collect().await?;
    let differing: Vec<String> = differing.into_iter().flatten().collect();
    assert!(
        differing.is_empty(),
        "{} disagreements: {:?}",
        differing.len(),
        differing.first()
    );
    Ok(count)
}

/// The cell, if the apiserver answers something else than the bindings say.
async fn ask_cell(
    target: &ControlPlane,
    (user, verb, (group, resource), namespace): Cell<'_>,
) -> Result<Option<String>, TestError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name, "groups": user.groups,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "namespace": namespace,
            },
        },
    });
    let answer = target.admin().create(REVIEWS, &review).await?;
    let is_allowed = answer["status"]["allowed"] == true;
    let cell = format!(
        "{} {verb} {resource} in {namespace}: {is_allowed}",
        user.name
    );
    Ok((is_allowed != may(user.target, namespace, verb, resource)).then_some(cell))
}
