//! Subjects × targets × requests: no decided cell is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::name::{Namespace, ObjectName};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::ISSUER;
use keyferry_kube_rbac::{Attributes, ResourceRequest};
use keyferry_reach::answer::{Question, Verdict, answer_question};
use keyferry_reach::world::World;
use keyferry_reach::{ListKind, Subject};
use serde_json::{Value, json};

use super::stage::{ROBOT, SUBJECTS, Stage, rights};
use super::truth::{TargetTruth, Tokens, Truth};

/// Verb, group, resource, namespace and name of a request.
pub(super) type Request = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

pub(super) const REQUESTS: [Request; 16] = [
    ("get", "apps", "deployments", "apps", ""),
    ("list", "apps", "deployments", "apps", ""),
    ("create", "apps", "deployments", "apps", ""),
    ("delete", "apps", "deployments", "apps", "web"),
    ("get", "apps", "deployments/scale", "apps", "web"),
    ("patch", "apps", "deployments", "apps", "web"),
    ("get", "apps", "deployments", "infra", ""),
    ("list", "apps", "deployments", "", ""),
    ("get", "", "secrets", "apps", "one"),
    ("get", "", "secrets", "apps", "two"),
    ("list", "", "secrets", "apps", ""),
    ("get", "", "secrets", "infra", "x"),
    ("list", "", "secrets", "infra", ""),
    ("list", "", "nodes", "", ""),
    ("get", "", "namespaces", "", "apps"),
    ("delete", "", "namespaces", "", "apps"),
];

/// The requests above, and each verb with four resources.
fn requests() -> Vec<Request> {
    let verbs = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ];
    let resources = [
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("", "pods"),
        ("", "configmaps"),
    ];
    let in_apps = verbs.iter().flat_map(|verb| {
        resources
            .iter()
            .map(move |(group, resource)| (*verb, *group, *resource, "apps", "any"))
    });
    let elsewhere = ["get", "list", "delete"].into_iter().flat_map(|verb| {
        resources
            .iter()
            .map(move |(group, resource)| (verb, *group, *resource, "infra", ""))
    });
    REQUESTS
        .into_iter()
        .chain(in_apps)
        .chain(elsewhere)
        .collect()
}

pub(super) async fn every_decided_cell_is_what_the_target_does(world: Arc<Stage>) -> TestResult {
    let began = std::time::Instant::now();
    let snapshot = read_world(&world, print_list).await?;
    let live = super::live::read_answers(&world, None).await?;
    let first = ("get", "apps", "deployments", "apps", "");
    let read_from_files = words_of(&snapshot, &first).into_iter();
    let read_from_files: BTreeMap<(String, String), String> = read_from_files
        .map(|((target, subject), word)| ((target, subject.to_string()), word.to_owned()))
        .collect();
    assert_eq!(live, read_from_files);
    // With the same objects in a file, writing such objects opens nothing: no way is added.
    let config = super::live::config_of_hub(&world).await?;
    let of_config = super::live::read_answers(&world, Some(&config)).await?;
    let has_way = |answers: &BTreeMap<(String, String), String>| {
        answers.values().filter(|answer| *answer == "yes").count()
    };
    assert!(has_way(&of_config) > 10, "{of_config:?}");
    for (cell, answer) in &of_config {
        let of_objects = live.get(cell).map(String::as_str);
        let agrees = of_objects == Some("yes") || of_objects == Some(answer.as_str());
        assert!(agrees, "{cell:?}: {answer}, with objects {of_objects:?}");
    }
    let subjects = subjects();
    let truth = Truth::new(&world).await?;
    let mut tokens: BTreeMap<Subject, Tokens> = BTreeMap::new();
    for subject in &subjects {
        tokens.insert(subject.clone(), truth.tokens_of(subject).await?);
    }
    let mut target_truth = TargetTruth::new(&world);
    let (mut cells, mut yes, mut undetermined, mut wrong) = (0, 0, 0, Vec::new());
    let requests = requests();
    for (number, request) in requests.iter().enumerate() {
        let words = words_of(&snapshot, request);
        for (subject, tokens) in &tokens {
            for (index, plane) in world.planes().into_iter().enumerate() {
                let mut truth = false;
                for (_, token) in tokens.iter().filter(|(target, _)| *target == index) {
                    let attributes = attributes_of(request);
                    truth |= target_truth
                        .allows(index, token, number, &attributes)
                        .await?;
                }
                let key = (plane.name().to_owned(), subject.clone());
                let word = words.get(&key).copied().unwrap_or("no");
                cells += 1;
                yes += usize::from(truth);
                match (word, truth) {
                    ("undetermined", _) => undetermined += 1,
                    ("yes", true) | ("no", false) => {}
                    _ => wrong.push(format!(
                        "{subject} at {}: {request:?}: {word}, but {truth}",
                        plane.name()
                    )),
                }
            }
        }
    }
    eprintln!(
        "reach: {cells} cells ({} subjects, 3 targets, {} requests), {yes} of them really yes; {undetermined} undetermined, {} wrong; {:?}",
        subjects.len(),
        requests.len(),
        wrong.len(),
        began.elapsed()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(yes * 50 > cells, "the truth has both answers");
    assert!(cells >= 10_800, "{cells} cells");
    assert!(undetermined * 50 <= cells, "98 % are decided");
    Ok(())
}

fn subjects() -> BTreeSet<Subject> {
    let account = |namespace: &str, name: &str| {
        Subject::ServiceAccount(namespace.to_owned(), name.to_owned())
    };
    let numbered = (0..rights().len()).map(|number| account(SUBJECTS, &format!("s{number}")));
    numbered
        .chain([
            account(SUBJECTS, ROBOT),
            account(SUBJECTS, "bystander"),
            account("tenant-a", "reconciler"),
            account("tenant-a", "caller"),
            account("tenant-a", "stranger"),
            account("tenant-b", "reconciler"),
            account("tenant-b", "default"),
            Subject::User("minter".to_owned()),
            Subject::User("nobody".to_owned()),
            Subject::Group("minters".to_owned()),
            Subject::Group("others".to_owned()),
        ])
        .collect()
}

pub(super) fn attributes_of((verb, group, resource, namespace, name): &Request) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    json!({ "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name })
}

/// The answers to one request, without those that are no.
pub(super) fn words_of(
    world: &World,
    (verb, group, resource, namespace, name): &Request,
) -> BTreeMap<(String, Subject), &'static str> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let request = ResourceRequest {
        group: (*group).to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
    };
    let question = Question {
        request: Some(Attributes::resource(verb, request)),
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: false,
        now: jiff::Timestamp::now(),
    };
    let answers = answer_question(world, &question).answers.into_iter();
    answers
        .map(|answer| {
            let word = match answer.verdict {
                Verdict::Yes { .. } => "yes",
                Verdict::No { .. } => "no",
                Verdict::Undetermined { .. } => "undetermined",
            };
            ((answer.target.to_string(), answer.subject), word)
        })
        .collect()
}

/// Reads the hub and the targets list by list, as the files of a snapshot.
pub(super) async fn read_world(
    on_hub: &Stage,
    read_list: impl AsyncFn(&ControlPlane, ListKind) -> Result<String, TestError>,
) -> Result<World, TestError> {
    let mut world = World::new(Namespace::new("keyferry-system")?);
    world.hub.issuer = Some(ISSUER.to_owned());
    for kind in ListKind::ALL {
        let text = read_list(&on_hub.hub, kind).await?;
        world.add_file(&format!("hub/{}.yaml", kind.resource()), &text)?;
    }
    for plane in on_hub.planes() {
        let folder = format!("targets/{}", ObjectName::new(plane.name())?);
        for kind in ListKind::RBAC {
            let text = read_list(plane, kind).await?;
            world.add_file(&format!("{folder}/rbac/{}.yaml", kind.resource()), &text)?;
        }
        let file = std::fs::read_to_string(plane.authentication_config_path()?)?;
        world.add_file(&format!("{folder}/authentication.yaml"), &file)?;
        let version = plane.admin().get("/version").await?;
        let release = version["gitVersion"].as_str().unwrap_or_default();
        world.add_file(&format!("{folder}/release"), release)?;
    }
    Ok(world)
}

/// What a person gets of a list by kubectl.
async fn print_list(plane: &ControlPlane, kind: ListKind) -> Result<String, TestError> {
    let output = plane
        .kubectl(&["get", kind.resource(), "-A", "-o", "yaml"])
        .await?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
