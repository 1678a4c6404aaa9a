//! One object, and whether the API and the file's reader accept it.

use serde_json::{Value, json};

use super::stage::NAMESPACE;

/// Which of the two readers accept an object. A refusal names the field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// Both accept it.
    Yes,
    /// Neither accepts it.
    No(&'static str),
    /// Only the API accepts it; and why the file's reader does not, or may say more.
    ByApi(&'static str, &'static str),
    /// Only the file's reader accepts it; and why the API does not.
    ByFile(&'static str, &'static str),
}

/// An object and the expected result of both readers.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) object: Value,
    pub(super) changed: String,
    pub(super) taken: Taken,
}

/// A valid TargetCluster.
pub(super) fn target() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "prod" },
        "spec": {
            "address": "https://prod.example.com:6443",
            "audience": "https://prod.example.com",
            "allow": [{ "namespaces": [NAMESPACE], "serviceAccounts": ["reconciler"] }],
        },
    })
}

/// A valid TargetAccess.
pub(super) fn access() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "prod", "namespace": NAMESPACE },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
    })
}

/// Cases of a base object with one member of its spec set to each of the values in turn. With a
/// leading slash, it is a member of the object.
pub(super) fn each(
    base: &Value,
    member: &'static str,
    values: impl IntoIterator<Item = (Value, Taken)>,
) -> Vec<Case> {
    let pointer = if member.starts_with('/') {
        member.to_owned()
    } else {
        format!("/spec/{}", member.replace('.', "/"))
    };
    let case = |(value, taken): (Value, Taken)| {
        let mut object = base.clone();
        set(&mut object, &pointer, value.clone());
        let mut changed = format!("{member} = {value}");
        if changed.len() > 160 {
            changed = changed.chars().take(160).chain("...".chars()).collect();
        }
        Case {
            object,
            changed,
            taken,
        }
    };
    values.into_iter().map(case).collect()
}

/// The case of a base object without one member of its spec.
pub(super) fn without(base: &Value, member: &'static str, taken: Taken) -> Case {
    let mut object = base.clone();
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove(member);
    }
    Case {
        object,
        changed: format!("without {member}"),
        taken,
    }
}

/// The case of a base object with another spec.
pub(super) fn spec(base: &Value, spec: Value, taken: Taken) -> Case {
    let changed = format!("spec = {spec}");
    let mut object = base.clone();
    object["spec"] = spec;
    Case {
        object,
        changed,
        taken,
    }
}

/// Values with the same expected result.
pub(super) fn all<T: Into<Value>>(
    taken: Taken,
    values: impl IntoIterator<Item = T>,
) -> Vec<(Value, Taken)> {
    values
        .into_iter()
        .map(|value| (value.into(), taken))
        .collect()
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        if place.is_null() {
            *place = json!({});
        }
        place = match (name.parse::<usize>(), place.is_array()) {
            (Ok(index), true) => &mut place[index],
            _ => &mut place[name],
        };
    }
    *place = value;
}
