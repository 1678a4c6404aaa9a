//! Random questions about a policy.

use keyferry_kube_rbac::{
    Attributes, Binding, Policy, PolicyRule, RequestTarget, ResourceRequest, SubjectKind, User,
};
use serde_json::{Value, json};

use super::{
    ACCOUNTS, API_GROUPS, GROUPS, NAMES, NAMESPACES, PATHS, RESOURCES, SUBRESOURCES, USERS, VERBS,
};
use crate::random::Random;

/// A user, and what it wants to do.
#[derive(Clone, Debug)]
pub struct Question {
    /// The user.
    pub user: User,
    /// What it wants to do.
    pub attributes: Attributes,
}

/// Generates questions about a policy. The same seed, round and policy give the same questions.
pub fn generate_questions(policy: &Policy, seed: u64, round: u64, count: usize) -> Vec<Question> {
    let mut random = Random::of(!seed, round);
    let bindings: Vec<&Binding> = policy.bindings().collect();
    (0..count)
        .map(|_| match bindings.as_slice() {
            bindings if !bindings.is_empty() && random.percent(75) => {
                let binding = bindings[random.below(bindings.len())];
                near_a_rule(&mut random, policy, binding)
            }
            _ => Question {
                user: any_user(&mut random),
                attributes: any_attributes(&mut random),
            },
        })
        .collect()
}

/// What a rule of the binding's role allows a subject, often with one part changed.
fn near_a_rule(random: &mut Random, policy: &Policy, binding: &Binding) -> Question {
    let rules = policy
        .granted_role(binding)
        .map_or(&[][..], |role| &role.rules);
    let attributes = match rules {
        [] => any_attributes(random),
        rules => {
            let rule = &rules[random.below(rules.len())];
            allowed_by(random, rule, binding)
        }
    };
    let mut question = Question {
        user: subject_of(random, binding),
        attributes,
    };
    if random.percent(55) {
        change_one_part(random, &mut question);
    }
    question
}

fn subject_of(random: &mut Random, binding: &Binding) -> User {
    let Some(subject) = binding.subjects.get(random.below(binding.subjects.len())) else {
        return any_user(random);
    };
    match subject.kind {
        SubjectKind::Group => {
            let mut user = any_user(random);
            user.groups.push(subject.name.clone());
            user
        }
        SubjectKind::ServiceAccount => {
            let namespace = subject.namespace_in(&binding.id.namespace);
            User::service_account(namespace, &subject.name)
        }
        _ => User::new(&subject.name, &some_groups(random)),
    }
}

fn allowed_by(random: &mut Random, rule: &PolicyRule, binding: &Binding) -> Attributes {
    let verb = instance_of(random, &rule.verbs, &VERBS);
    if !rule.non_resource_urls.is_empty() {
        let url = rule.non_resource_urls[random.below(rule.non_resource_urls.len())].as_str();
        let rest = random.pick(&["", "x", "/x", "/x/y", "*"]);
        let path = match url.strip_suffix('*') {
            Some(prefix) => format!("{}{rest}", prefix.trim_end_matches('*')),
            None => url.to_owned(),
        };
        return Attributes::path(&verb, &path);
    }
    let mut request = ResourceRequest {
        group: instance_of(random, &rule.api_groups, &API_GROUPS),
        name: match rule.resource_names.as_slice() {
            [] => random.pick(&NAMES).to_owned(),
            names => names[random.below(names.len())].clone(),
        },
        namespace: match binding.id.namespace.as_str() {
            "" => any_namespace(random),
            namespace => namespace.to_owned(),
        },
        ..ResourceRequest::default()
    };
    let resource = match rule.resources.as_slice() {
        [] => String::new(),
        resources => resources[random.below(resources.len())].clone(),
    };
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
        None if resource == "*" && random.percent(50) => {
            (resource, random.pick(&SUBRESOURCES).to_owned())
        }
        None => (resource, String::new()),
    };
    request.resource = match resource.as_str() {
        "*" => random.pick(&RESOURCES).to_owned(),
        _ => resource,
    };
    request.subresource = subresource;
    Attributes::resource(&verb, request)
}

/// One of the list's values; any for the wildcard.
fn instance_of(random: &mut Random, list: &[String], all: &[&str]) -> String {
    match list.get(random.below(list.len())).map(String::as_str) {
        None | Some("*") => random.pick(all).to_owned(),
        Some(value) => value.to_owned(),
    }
}

fn change_one_part(random: &mut Random, question: &mut Question) {
    let part = random.below(9);
    match part {
        0 => question.user = any_user(random),
        1 => question.user.groups.clear(),
        2 => question.attributes.verb = random.pick(&VERBS).to_owned(),
        _ => {}
    }
    let request = match &mut question.attributes.target {
        RequestTarget::Path(path) => {
            match part {
                3..=5 => *path = any_path(random),
                6 => path.push_str("/x"),
                7 => {
                    path.pop();
                }
                _ => {}
            }
            return;
        }
        RequestTarget::Resource(request) => request,
    };
    match part {
        3 => request.group = random.pick(&API_GROUPS).to_owned(),
        4 => request.resource = random.pick(&RESOURCES).to_owned(),
        5 => request.subresource = String::new(),
        6 => request.subresource = random.pick(&SUBRESOURCES).to_owned(),
        7 => request.name = random.pick(&NAMES).to_owned(),
        8 => request.namespace = any_namespace(random),
        _ => {}
    }
}

fn any_user(random: &mut Random) -> User {
    if random.percent(40) {
        let namespace = random.pick(&NAMESPACES);
        return User::service_account(namespace, random.pick(&ACCOUNTS));
    }
    User::new(random.pick(&USERS), &some_groups(random))
}

fn some_groups(random: &mut Random) -> Vec<&'static str> {
    let mut groups: Vec<&str> = (0..random.below(3)).map(|_| random.pick(&GROUPS)).collect();
    if random.percent(1) {
        groups.push("system:masters");
    }
    groups
}

fn any_namespace(random: &mut Random) -> String {
    match random.percent(20) {
        true => String::new(),
        false => random.pick(&NAMESPACES).to_owned(),
    }
}

fn any_path(random: &mut Random) -> String {
    random.pick(&PATHS).to_owned()
}

fn any_attributes(random: &mut Random) -> Attributes {
    let verb = match random.percent(3) {
        true => "*",
        false => random.pick(&VERBS),
    };
    if random.percent(20) {
        return Attributes::path(verb, &any_path(random));
    }
    let subresource = match random.percent(40) {
        true => random.pick(&SUBRESOURCES),
        false => "",
    };
    Attributes::resource(
        verb,
        ResourceRequest {
            group: random.pick(&API_GROUPS).to_owned(),
            resource: match random.below(40) {
                0 => "*".to_owned(),
                1 => "pods/log".to_owned(),
                _ => random.pick(&RESOURCES).to_owned(),
            },
            subresource: subresource.to_owned(),
            namespace: any_namespace(random),
            name: random.pick(&NAMES).to_owned(),
        },
    )
}

impl Question {
    /// The question as a SubjectAccessReview.
    pub fn to_review(&self) -> Value {
        let mut spec = json!({ "user": self.user.name, "groups": self.user.groups });
        match &self.attributes.target {
            RequestTarget::Path(path) => {
                spec["nonResourceAttributes"] =
                    json!({ "verb": self.attributes.verb, "path": path });
            }
            RequestTarget::Resource(request) => {
                spec["resourceAttributes"] = json!({
                    "verb": self.attributes.verb, "group": request.group,
                    "resource": request.resource, "subresource": request.subresource,
                    "namespace": request.namespace, "name": request.name,
                });
            }
        }
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        })
    }
}
