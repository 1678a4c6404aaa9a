//! What an apiserver answers, and how that differs from keyferry-kube-rbac.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream;
use keyferry_kube_rbac::{Decision, Policy, Reading, read_objects};
use serde_json::{Value, json};

use super::objects::{NAMESPACES, generate_objects};
use super::questions::{Question, generate_questions};
use crate::control_plane::{ControlPlane, Whom};
use crate::runner::TestError;

const API: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The label of every generated object.
const LABEL: &str = "keyferry-rbac-round";
const CONCURRENT_REVIEWS: usize = 64;
const CONCURRENT_WRITES: usize = 16;

/// The answer of an apiserver to a question.
#[derive(Clone, Debug)]
pub struct Truth {
    /// The question.
    pub question: Question,
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, in the words of its authorizer.
    pub reason: String,
}

/// The stored policy of one round, and the answers to its questions.
#[derive(Debug)]
pub struct Round {
    /// All RBAC objects that the apiserver has, also its own.
    pub policy: Policy,
    /// The questions and their answers.
    pub truths: Vec<Truth>,
}

/// An answer that differs.
#[derive(Debug)]
pub struct Difference(String);

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes the objects of a round in place of those of the round before, reads the policy back, and
/// asks the questions.
///
/// # Errors
/// The apiserver refuses an object or a question, or does not act on the objects in time.
pub async fn collect_round(
    plane: &ControlPlane,
    seed: u64,
    round: u64,
    questions: usize,
) -> Result<Round, TestError> {
    write_round(plane, seed, round).await?;
    ask_round(plane, seed, round, questions).await
}

/// Reads the policy of an apiserver and asks questions about it.
///
/// # Errors
/// The apiserver refuses a question.
pub async fn ask_round(
    plane: &ControlPlane,
    seed: u64,
    round: u64,
    questions: usize,
) -> Result<Round, TestError> {
    let policy = read_stored_policy(plane).await?;
    let questions = generate_questions(&policy, seed, round, questions);
    let started = Instant::now();
    let count = questions.len();
    let truths: Vec<Truth> = stream::iter(questions)
        .map(|question| ask(plane, question))
        .buffered(CONCURRENT_REVIEWS)
        .try_collect()
        .await?;
    let allowed = truths.iter().filter(|truth| truth.allowed).count();
    eprintln!(
        "1.{}: seed {seed}, round {round}: {count} questions, {allowed} allowed, {:?}",
        plane.minor().number(),
        started.elapsed()
    );
    Ok(Round { policy, truths })
}

/// Reads all RBAC objects of an apiserver.
///
/// # Errors
/// A list cannot be had or read.
pub async fn read_stored_policy(plane: &ControlPlane) -> Result<Policy, TestError> {
    let mut policy = Policy::default();
    for resource in [
        "clusterroles",
        "clusterrolebindings",
        "roles",
        "rolebindings",
    ] {
        let list = plane.admin().get(&format!("{API}/{resource}")).await?;
        for object in read_objects(list, Reading::Stored)? {
            policy.insert(object);
        }
    }
    Ok(policy)
}

async fn ask(plane: &ControlPlane, question: Question) -> Result<Truth, TestError> {
    let review = plane.admin().create(REVIEWS, &question.to_review()).await?;
    let status = &review["status"];
    assert!(status["evaluationError"].is_null(), "{review}");
    let (allowed, reason) = (
        status["allowed"] == true,
        status["reason"].as_str().unwrap_or_default(),
    );
    // From 1.37 on, the chain of authorizers names the one that has no opinion.
    let own_reason = match allowed {
        true => reason,
        false => reason.strip_prefix("rbac: ").unwrap_or(reason),
    };
    Ok(Truth {
        allowed,
        reason: own_reason.to_owned(),
        question,
    })
}

/// Writes the objects of a round in place of those of the round before, and waits until the
/// apiserver acts on them.
///
/// # Errors
/// The apiserver refuses an object, or does not act on it in time.
pub async fn write_round(plane: &ControlPlane, seed: u64, round: u64) -> Result<(), TestError> {
    for namespace in NAMESPACES {
        plane.create_namespace(namespace).await?;
    }
    remove_rounds(plane).await?;
    let mut objects = generate_objects(seed, round);
    for object in &mut objects {
        object["metadata"]["labels"][LABEL] = json!(round.to_string());
    }
    write_objects(plane, objects).await?;
    until_all_count(plane, &format!("round-{round}")).await
}

/// Writes RBAC objects, in no particular order.
///
/// # Errors
/// The apiserver refuses one.
pub async fn write_objects(plane: &ControlPlane, objects: Vec<Value>) -> Result<(), TestError> {
    stream::iter(objects)
        .map(|object| write_object(plane, object))
        .buffer_unordered(CONCURRENT_WRITES)
        .try_collect()
        .await
}

/// Waits until the authorizer has seen all that was written. It sees the objects of one kind in the
/// order in which they were written, so this writes one more of each kind.
///
/// # Errors
/// The authorizer does not see them in time.
pub async fn until_all_count(plane: &ControlPlane, name: &str) -> Result<(), TestError> {
    for object in last_objects(name) {
        write_object(plane, object).await?;
    }
    for namespace in ["", NAMESPACES[0]] {
        let rule = last_rule(namespace);
        plane
            .until_it_counts(Whom::User(name), namespace, &rule)
            .await?;
    }
    Ok(())
}

async fn remove_rounds(plane: &ControlPlane) -> Result<(), TestError> {
    let all = ["clusterroles", "clusterrolebindings"].map(str::to_owned);
    let of_namespaces = NAMESPACES.iter().flat_map(|namespace| {
        ["roles", "rolebindings"].map(|resource| format!("namespaces/{namespace}/{resource}"))
    });
    for collection in all.into_iter().chain(of_namespaces) {
        let path = format!("{API}/{collection}?labelSelector={LABEL}");
        plane.admin().delete(&path).await?;
    }
    Ok(())
}

async fn write_object(plane: &ControlPlane, object: Value) -> Result<(), TestError> {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let collection = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{API}/namespaces/{namespace}/{kind}s"),
        None => format!("{API}/{kind}s"),
    };
    // By PUT: the controller of aggregated ClusterRoles writes by server-side apply, and so may create
    // one again that was deleted a moment ago.
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    plane
        .admin()
        .replace(&format!("{collection}/{name}"), &object)
        .await?;
    Ok(())
}

fn last_rule(namespace: &str) -> Value {
    let resource = format!("last{namespace}");
    json!({ "apiGroups": ["last.test"], "resources": [resource], "verbs": ["get"] })
}

/// An object of each kind that grants [`last_rule`].
fn last_objects(name: &str) -> Vec<Value> {
    let group = "rbac.authorization.k8s.io";
    let subject = json!({ "apiGroup": group, "kind": "User", "name": name });
    ["", NAMESPACES[0]]
        .into_iter()
        .flat_map(|namespace| {
            let mut metadata = json!({ "name": name, "labels": { LABEL: "last" } });
            let mut prefix = "Cluster";
            if !namespace.is_empty() {
                metadata["namespace"] = json!(namespace);
                prefix = "";
            }
            let version = format!("{group}/v1");
            let role = format!("{prefix}Role");
            [
                json!({
                    "apiVersion": version, "kind": role, "metadata": metadata,
                    "rules": [last_rule(namespace)],
                }),
                json!({
                    "apiVersion": version, "kind": format!("{prefix}RoleBinding"),
                    "metadata": metadata, "subjects": [subject],
                    "roleRef": { "apiGroup": group, "kind": role, "name": name },
                }),
            ]
        })
        .collect()
}

/// Compares an answer with the decision of keyferry-kube-rbac, also its reason.
pub fn compare(policy: &Policy, truth: &Truth) -> Option<Difference> {
    let Truth {
        question: Question { user, attributes },
        allowed,
        reason,
    } = truth;
    let decision = policy.decide(user, attributes);
    let is_equal = decision.is_allowed() == *allowed
        && match &decision {
            Decision::Superuser => reason.is_empty(),
            // The apiserver visits bindings in no particular order.
            Decision::Allowed(_) => policy.ways(user, attributes).iter().any(|way| {
                *reason == format!("RBAC: allowed by {}", way.in_words_of_the_authorizer())
            }),
            Decision::Denied { .. } => fault_set(reason) == fault_set(&decision.reason()),
        };
    (!is_equal).then(|| {
        Difference(format!(
            "{user:?} {attributes}\n  apiserver: {allowed} {reason}\n  kube-rbac: {} {}",
            decision.is_allowed(),
            decision.reason()
        ))
    })
}

/// The faults of a refusal, which come in no particular order.
fn fault_set(reason: &str) -> BTreeSet<&str> {
    let faults = reason.strip_prefix("RBAC: ").unwrap_or(reason);
    let faults = faults
        .strip_prefix('[')
        .and_then(|faults| faults.strip_suffix(']'))
        .unwrap_or(faults);
    faults.split(", ").collect()
}
