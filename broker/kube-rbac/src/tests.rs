//! Tests of whole policies.

mod aggregation;
mod answers;
mod decisions;
mod escalation;
mod impersonation;
mod reading;
mod scale;

use serde_json::Value;

use crate::{Attributes, Policy, Reading, ResourceRequest, User, read_objects};

/// The policy of a YAML text, read as a file that a person wrote.
fn policy_of(text: &str) -> Policy {
    let mut policy = Policy::default();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    for document in documents {
        for object in read_objects(document, Reading::Strict).unwrap() {
            policy.insert(object);
        }
    }
    policy
}

/// `VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] [in NAMESPACE]`, or `VERB /PATH`.
fn request(text: &str) -> Attributes {
    let (text, namespace) = text.split_once(" in ").unwrap_or((text, ""));
    let mut words = text.split(' ');
    let (verb, object) = (words.next().unwrap(), words.next().unwrap());
    if object.starts_with('/') {
        return Attributes::path(verb, object);
    }
    let (object, subresource) = object.split_once('/').unwrap_or((object, ""));
    let (resource, group) = object.split_once('.').unwrap_or((object, ""));
    let request = ResourceRequest {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: words.next().unwrap_or_default().to_owned(),
    };
    Attributes::resource(verb, request)
}

/// `NAME[+GROUP]…`, or `account NAMESPACE/NAME`.
fn user(text: &str) -> User {
    if let Some((namespace, name)) = text
        .strip_prefix("account ")
        .and_then(|account| account.split_once('/'))
    {
        return User::service_account(namespace, name);
    }
    let mut words = text.split('+');
    let name = words.next().unwrap_or_default();
    User::new(name, &words.collect::<Vec<_>>())
}
