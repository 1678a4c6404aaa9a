//! Asks whether a subject can delete Deployments in apps at prod, and gives tenant-a/ci a right.

use std::collections::BTreeSet;

use keyferry_api::name::ObjectName;
use keyferry_reach::Subject;
use keyferry_reach::answer::{Answers, Question, Verdict, answer_question};
use keyferry_reach::world::World;

use super::snapshot::{delete_deployments, now};

/// The targets of a question about one.
pub(super) fn with_target(name: &str) -> BTreeSet<ObjectName> {
    BTreeSet::from([ObjectName::new(name).unwrap()])
}

pub(super) fn ask(world: &World, subject: Option<&str>) -> Answers {
    ask_at(world, &with_target("prod"), subject)
}

fn ask_at(world: &World, targets: &BTreeSet<ObjectName>, subject: Option<&str>) -> Answers {
    let question = Question {
        request: Some(delete_deployments("apps")),
        targets: targets.clone(),
        subject: subject.map(|text| text.parse::<Subject>().unwrap()),
        is_thorough: true,
        now: now(),
    };
    answer_question(world, &question)
}

pub(super) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Yes { .. } => "yes",
        Verdict::No { .. } => "no",
        Verdict::Undetermined { .. } => "undetermined",
    }
}

/// The answer in one line: its word, and the first way, miss or doubts.
pub(super) fn line(world: &World, subject: &str) -> String {
    line_at(world, &with_target("prod"), subject)
}

/// The same about other targets.
pub(super) fn line_at(world: &World, targets: &BTreeSet<ObjectName>, subject: &str) -> String {
    let answers = ask_at(world, targets, Some(subject));
    let answer = answers.answers.first().unwrap();
    let detail = match &answer.verdict {
        Verdict::Yes { ways, .. } => {
            let way = ways.first().unwrap();
            let hops = way.hub.iter().chain(&way.target);
            let hops: Vec<String> = hops
                .map(|hop| match hop.door {
                    Some(door) => format!("[{door}] {}", hop.text),
                    None => hop.text.clone(),
                })
                .collect();
            hops.join(" | ")
        }
        Verdict::No { nearest_miss } => nearest_miss.clone().unwrap_or_default(),
        Verdict::Undetermined { doubts } => {
            let doubts: Vec<String> = doubts
                .iter()
                .map(keyferry_reach::Doubt::description)
                .collect();
            doubts.join(" | ")
        }
    };
    format!("{}: {detail}", word(&answer.verdict))
}

/// A role and its binding for ServiceAccount tenant-a/ci, beside the usual world.
pub(super) fn with_right(namespace: &str, rules: &str) -> String {
    let (kind, place) = match namespace {
        "" => ("Cluster", String::new()),
        namespace => ("", format!(", namespace: {namespace}")),
    };
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Role\nmetadata: {{name: given{place}}}\nrules: [{rules}]\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}RoleBinding\nmetadata: {{name: given{place}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}Role, name: given}}\n\
         subjects: [{{kind: ServiceAccount, name: ci, namespace: tenant-a}}]\n"
    )
}

pub(super) const CORE: &str = "apiGroups: ['']";
pub(super) const RBAC: &str = "apiGroups: [rbac.authorization.k8s.io]";

pub(super) fn rule(groups: &str, resources: &str, verbs: &str) -> String {
    format!("{{{groups}, resources: [{resources}], verbs: [{verbs}]}}")
}

pub(super) fn named(groups: &str, resources: &str, verbs: &str, names: &str) -> String {
    format!("{{{groups}, resources: [{resources}], verbs: [{verbs}], resourceNames: [{names}]}}")
}
