//! Changes that are predicted, then really applied: what is collected afterwards, and what subjects
//! and users then really get, is what was predicted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_api::name::ObjectName;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_reach::Subject;
use keyferry_reach::what_if::{Comparison, WayChange, compare_worlds};
use keyferry_reach::world::{ChangedObject, World};
use serde_json::{Value, json};

use super::cells::{REQUESTS, attributes_of, read_world, words_of};
use super::stage::{SUBJECTS, Stage, rights_to_change};
use super::truth::Truth;

/// How long controllers may take to follow a change.
const FOLLOW_LIMIT: Duration = Duration::from_secs(30);
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// For how many changes a subject opens every door.
const MAX_OPENED: usize = 16;
/// Who gets the rights.
const SUBJECT: &str = "bystander";

/// Objects that are applied, and those that are removed, at the hub or a target.
pub(super) struct Change {
    pub(super) name: String,
    pub(super) target: Option<usize>,
    pub(super) applied: Vec<Value>,
    /// Kind, namespace and name of each.
    pub(super) removed: Vec<(String, String, String)>,
}

fn hub_change(name: &str, applied: Vec<Value>) -> Change {
    Change {
        name: name.to_owned(),
        target: None,
        applied,
        removed: Vec::new(),
    }
}

fn removal((kind, namespace, name): (&str, &str, &str), target: Option<usize>) -> Change {
    let object = (kind.to_owned(), namespace.to_owned(), name.to_owned());
    Change {
        name: format!("without {object:?}"),
        target,
        applied: Vec::new(),
        removed: vec![object],
    }
}

/// A role and its binding.
fn grant(namespace: &str, rules: &Value, subject: &Value) -> Vec<Value> {
    let (kind, metadata) = match namespace {
        "" => ("ClusterRole", json!({ "name": "changed" })),
        namespace => ("Role", json!({ "name": "changed", "namespace": namespace })),
    };
    vec![
        json!({ "apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": rules }),
        json!({ "apiVersion": RBAC, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "changed" }, "subjects": [subject] }),
    ]
}

/// Every right of the stage for one more subject, changes of policy, and changes at a target.
fn changes(world: &Stage) -> Vec<Change> {
    let subject = json!({ "kind": "ServiceAccount", "name": SUBJECT, "namespace": SUBJECTS });
    let user = json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "hub:system:serviceaccount:tenant-a:reconciler" });
    let mut changes = Vec::new();
    for (namespace, rules) in rights_to_change() {
        let name = format!("{namespace}: {rules}");
        changes.push(hub_change(&name, grant(namespace, &rules, &subject)));
    }
    let target = |rest: &Value| {
        let mut spec = world.target_spec(0);
        for (field, value) in rest.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "target-a" }, "spec": spec })
    };
    let access = |rest: &Value| {
        let mut spec = json!({ "targetClusterRef": { "name": "target-a" }, "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "http", "type": "HTTP" }] });
        for (field, value) in rest.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "a", "namespace": "tenant-a" }, "spec": spec })
    };
    let allow = json!([{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["HTTP", "KubeConfigSecret"] }]);
    let nobody = json!([{ "namespaces": ["tenant-a"], "serviceAccounts": ["default"], "deliveries": ["HTTP"] }]);
    changes.extend([
        hub_change("an access without callers", vec![access(&json!({}))]),
        hub_change(
            "a suspended access",
            vec![access(&json!({ "suspend": true }))],
        ),
        hub_change(
            "a suspended target",
            vec![target(&json!({ "allow": allow, "suspend": true }))],
        ),
        hub_change(
            "a target that allows no account in use",
            vec![target(&json!({ "allow": nobody }))],
        ),
        removal(("TargetAccess", "tenant-a", "a"), None),
        removal(("RoleBinding", "tenant-a", "caller"), None),
        removal(("RoleBinding", "tenant-a", "others"), None),
        removal(("ClusterRoleBinding", "", "s5"), None),
        removal(("ClusterRoleBinding", "", "s30"), None),
        removal(("Role", "tenant-a", "s1"), None),
        removal(("RoleBinding", "apps", "edit"), Some(0)),
        removal(("RoleBinding", "infra", "act"), Some(0)),
        removal(("RoleBinding", "infra", "agent"), Some(0)),
        removal(("ClusterRole", "", "reach-read"), Some(0)),
    ]);
    let deployments =
        json!([{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"] }]);
    for (namespace, rules) in [
        ("apps", deployments.clone()),
        ("infra", deployments.clone()),
        ("", deployments),
        (
            "infra",
            json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] }]),
        ),
        (
            "",
            json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }]),
        ),
        (
            "",
            json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]),
        ),
    ] {
        changes.push(Change {
            name: format!("at a target, {namespace}: {rules}"),
            target: Some(0),
            applied: grant(namespace, &rules, &user),
            removed: Vec::new(),
        });
    }
    changes
}

pub(super) async fn predicted_changes_are_what_is_collected_and_what_subjects_get(
    world: Arc<Stage>,
) -> TestResult {
    let began = Instant::now();
    let before = collect(&world).await?;
    let truth = Truth::new(&world).await?;
    let (mut lines, mut opened, mut reviewed) = (Vec::new(), 0, 0);
    let changes = changes(&world);
    for change in &changes {
        let (predicted, comparison) = predict(&world, &before, change)?;
        let undo = apply(&world, change).await?;
        until_collected(&world, &change.name, &predicted).await?;
        if opened < MAX_OPENED && open_doors(&truth, &world, change, &comparison).await? {
            opened += 1;
        }
        if change.target.is_some() {
            reviewed += review_users(&world, &change.name, &predicted).await?;
        }
        restore(&world, change, undo).await?;
        until_collected(&world, "what was before", &before).await?;
        lines.push(format!("{}: {}", change.name, comparison.ways.len()));
    }
    eprintln!(
        "reach: {} changes predicted, applied and undone; after {opened} of them a subject opened every door, {reviewed} rights reviewed at a target; {:?}",
        changes.len(),
        began.elapsed()
    );
    assert!(
        lines.iter().filter(|line| !line.ends_with(": 0")).count() >= 30,
        "{}",
        lines.join("\n")
    );
    assert!(
        opened >= MAX_OPENED / 2 && reviewed > 0,
        "{opened}, {reviewed}"
    );
    Ok(())
}

fn target_name(world: &Stage, index: usize) -> Result<ObjectName, TestError> {
    Ok(ObjectName::new(world.targets[index].name())?)
}

fn predict(
    on_hub: &Stage,
    before: &World,
    change: &Change,
) -> Result<(World, Comparison), TestError> {
    let target = change
        .target
        .map(|index| target_name(on_hub, index))
        .transpose()?;
    let now = jiff::Timestamp::now();
    let (mut after, mut changed) = (before.clone(), Vec::new());
    for (kind, namespace, name) in &change.removed {
        let object = ChangedObject {
            target: target.clone(),
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        assert_eq!(after.delete(&object)?, None);
        changed.push(object);
    }
    for value in &change.applied {
        let object = ChangedObject::of(value, target.as_ref())?;
        assert_eq!(after.apply(&object, value.clone(), now)?, None);
        changed.push(object);
    }
    assert_eq!(after.settle(before, &changed), Vec::<String>::new());
    let comparison = compare_worlds(before, &after, &changed, now);
    Ok((after, comparison))
}

fn path_of(kind: &str, namespace: &str, name: &str) -> String {
    let group = match kind {
        "TargetCluster" | "TargetAccess" => "/apis/keyferry.dev/v1alpha1",
        _ => "/apis/rbac.authorization.k8s.io/v1",
    };
    let plural = match kind {
        "TargetAccess" => "targetaccesses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    match namespace {
        "" => format!("{group}/{plural}/{name}"),
        namespace => format!("{group}/namespaces/{namespace}/{plural}/{name}"),
    }
}

fn path_of_object(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    path_of(
        &text(&object["kind"]),
        &text(&metadata["namespace"]),
        &text(&metadata["name"]),
    )
}

fn plane<'a>(world: &'a Stage, change: &Change) -> &'a ControlPlane {
    change
        .target
        .map_or(&world.hub, |index| &world.targets[index])
}

/// Applies a change; returns each path with the object that was there.
pub(super) async fn apply(
    world: &Stage,
    change: &Change,
) -> Result<Vec<(String, Option<Value>)>, TestError> {
    let client = plane(world, change).admin();
    let mut undo = Vec::new();
    for (kind, namespace, name) in &change.removed {
        let path = path_of(kind, namespace, name);
        undo.push((path.clone(), Some(client.get(&path).await?)));
        client.delete(&path).await?;
    }
    for object in &change.applied {
        let path = path_of_object(object);
        let former = match client.exists(&path).await? {
            true => Some(client.get(&path).await?),
            false => None,
        };
        client.apply(&path, object).await?;
        undo.push((path, former));
    }
    Ok(undo)
}

pub(super) async fn restore(
    world: &Stage,
    change: &Change,
    undo: Vec<(String, Option<Value>)>,
) -> Result<(), TestError> {
    let client = plane(world, change).admin();
    for (path, former) in undo {
        let Some(former) = former else {
            client.delete(&path).await?;
            continue;
        };
        let mut object = json!({ "apiVersion": former["apiVersion"], "kind": former["kind"],
            "metadata": { "name": former["metadata"]["name"] } });
        if former["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = former["metadata"]["namespace"].clone();
        }
        for field in ["spec", "rules", "roleRef", "subjects"] {
            if !former[field].is_null() {
                object[field] = former[field].clone();
            }
        }
        client.apply(&path, &object).await?;
    }
    Ok(())
}

/// Collects again until no way and no delivery differs.
pub(super) async fn until_collected(on_hub: &Stage, name: &str, wanted: &World) -> TestResult {
    let limit = Instant::now() + FOLLOW_LIMIT;
    loop {
        let collected = collect(on_hub).await?;
        let comparison = compare_worlds(wanted, &collected, &[], jiff::Timestamp::now());
        if comparison.ways.is_empty() && comparison.broken.is_empty() {
            return Ok(());
        }
        if Instant::now() > limit {
            let ways: Vec<&WayChange> = comparison.ways.iter().take(5).collect();
            return Err(format!("{name}: {ways:#?} {:?}", comparison.broken).into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Opens every door as the first subject whose way certainly changes. Returns whether there is one.
async fn open_doors(
    truth: &Truth<'_>,
    world: &Stage,
    change: &Change,
    comparison: &Comparison,
) -> Result<bool, TestError> {
    let is_new = |way: &&WayChange| way.is_certain && way.rights.is_empty() && way.target.is_some();
    let Some(way) = comparison.ways.iter().find(|way| {
        is_new(way) && matches!(way.subject, Subject::ServiceAccount(..)) && way.appears
    }) else {
        return Ok(false);
    };
    let name = way
        .target
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let planes = world.planes();
    let index = planes.iter().position(|plane| plane.name() == name);
    // Authorizers answer from watches, which may be late.
    let limit = Instant::now() + Duration::from_secs(5);
    loop {
        let tokens = truth.tokens_of(&way.subject).await?;
        if tokens.iter().any(|(target, _)| Some(*target) == index) {
            return Ok(true);
        }
        if Instant::now() > limit {
            return Err(
                format!("{}: {} gets no token for {name}", change.name, way.subject).into(),
            );
        }
    }
}

/// Compares the predicted rights of the reconciler with reviews at the changed target.
async fn review_users(on_hub: &Stage, name: &str, predicted: &World) -> Result<usize, TestError> {
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let reconciler = Subject::ServiceAccount("tenant-a".to_owned(), "reconciler".to_owned());
    let plane = &on_hub.targets[0];
    // Rights of the account that the user may act as count too.
    let users = [
        ("hub:system:serviceaccount:tenant-a:reconciler", true),
        ("system:serviceaccount:infra:agent", false),
    ];
    let acting = json!({ "verb": "impersonate", "resource": "serviceaccounts", "namespace": "infra", "name": "agent" });
    let review = |user: &str, attributes: &Value| {
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes } })
    };
    let mut wrong = BTreeSet::new();
    for _ in 0..10 {
        wrong.clear();
        let may_act = plane
            .admin()
            .create(REVIEWS, &review(users[0].0, &acting))
            .await?;
        for request in &REQUESTS {
            let mut is_allowed = false;
            for (user, is_own) in users {
                if is_own || may_act["status"]["allowed"] == true {
                    let asked = review(user, &attributes_of(request));
                    let answer = plane.admin().create(REVIEWS, &asked).await?;
                    is_allowed |= answer["status"]["allowed"] == true;
                }
            }
            let words = words_of(predicted, request);
            let word = words.get(&(plane.name().to_owned(), reconciler.clone()));
            if (word == Some(&"yes")) != is_allowed {
                wrong.insert(format!("{request:?}: {word:?}, but {is_allowed}"));
            }
        }
        if wrong.is_empty() {
            return Ok(REQUESTS.len());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Err(format!("{name}: {wrong:#?}").into())
}

/// Reads the hub and the targets over their API, whose lists leave the kind of their items out.
pub(super) async fn collect(on_hub: &Stage) -> Result<World, TestError> {
    read_world(on_hub, async |plane, kind| {
        Ok(plane.admin().get(&kind.path(None)).await?.to_string())
    })
    .await
}
