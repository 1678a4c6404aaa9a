//! One object, and who takes it.

use serde_json::{Value, json};

use super::stage::NAMESPACE;

/// Who takes an object. A refusal names the field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// Both.
    Yes,
    /// Neither.
    No(&'static str),
    /// The API alone; and why the file's reader does not, or may say more.
    ByApi(&'static str, &'static str),
    /// The file's reader alone; and why the API does not.
    ByFile(&'static str, &'static str),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) object: Value,
    pub(super) changed: String,
    pub(super) taken: Taken,
}

/// A TargetCluster that is as it should be.
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

/// A TargetAccess that is as it should be.
pub(super) fn access() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "prod", "namespace": NAMESPACE },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
    })
}

/// Cases of a base with one member of its spec (or, with a leading slash, of the object) set to one
/// value after the other.
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

/// The case of a base without one member of its spec.
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

/// The case of a base with a whole spec.
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

/// Values that are all taken alike.
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
