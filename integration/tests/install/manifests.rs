//! Manifests as values, without the differences between two ways of installing the same objects.

use std::collections::BTreeMap;

use keyferry_integration::runner::TestError;
use serde_json::{Value, json};

/// Objects by kind, namespace and name.
pub(crate) type Objects = BTreeMap<(String, String, String), Value>;

/// Reads a YAML stream. Two documents about one object are an error.
pub(crate) fn objects(text: &str) -> Result<Objects, TestError> {
    let mut objects = Objects::new();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &document["metadata"];
        let name = (
            text(&document["kind"]),
            text(&metadata["namespace"]),
            text(&metadata["name"]),
        );
        if let Some(twice) = objects.insert(name, document) {
            return Err(format!(
                "{} {} is there twice",
                twice["kind"], twice["metadata"]["name"]
            )
            .into());
        }
    }
    Ok(objects)
}

/// The objects of some kinds.
pub(crate) fn of_kinds(objects: &Objects, kinds: &[&str]) -> Objects {
    objects
        .iter()
        .filter(|((kind, ..), _)| kinds.contains(&kind.as_str()))
        .map(|(name, object)| (name.clone(), object.clone()))
        .collect()
}

/// Removes what Helm writes onto every object and what kustomize hashes.
pub(crate) fn without_packaging(objects: Objects) -> Result<Objects, TestError> {
    let mut plain = Objects::new();
    for ((kind, namespace, name), mut object) in objects {
        drop_packaging(&mut object["metadata"]);
        // On a Pod this label is used for selection; elsewhere it is information only.
        drop_label(&mut object["metadata"], "app.kubernetes.io/name");
        if kind == "Deployment" {
            drop_packaging(&mut object["spec"]["template"]["metadata"]);
            object["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!(CONFIG);
            // The apiserver's own default for an image with a tag.
            if let Some(container) =
                object["spec"]["template"]["spec"]["containers"][0].as_object_mut()
            {
                container.remove("imagePullPolicy");
            }
        }
        let name = if kind == "ConfigMap" && name.starts_with(CONFIG) {
            CONFIG.to_owned()
        } else {
            name
        };
        if kind == "ConfigMap" {
            object["metadata"]["name"] = json!(name);
            let text = object["data"]["config.yaml"].as_str().unwrap_or_default();
            object["data"]["config.yaml"] = serde_saphyr::from_str(text)?;
        }
        plain.insert((kind, namespace, name), object);
    }
    Ok(plain)
}

/// The name of the ServerConfiguration's ConfigMap, without a hash.
const CONFIG: &str = "keyferry-config";

const PACKAGING: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
];

fn drop_packaging(metadata: &mut Value) {
    PACKAGING
        .iter()
        .for_each(|label| drop_label(metadata, label));
    for annotation in ["keyferry.dev/configuration", "helm.sh/resource-policy"] {
        drop_entry(metadata, "annotations", annotation);
    }
}

fn drop_label(metadata: &mut Value, label: &str) {
    drop_entry(metadata, "labels", label);
}

/// Removes an entry, and also the map if it becomes empty.
fn drop_entry(metadata: &mut Value, field: &str, key: &str) {
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    map.remove(key);
    if map.is_empty() {
        metadata.remove(field);
    }
}

/// Checks that both sides have the same objects with the same content.
pub(crate) fn assert_same(left: &Objects, right: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    for (name, object) in left {
        let other = right.get(name).unwrap_or(&Value::Null);
        assert!(
            object == other,
            "{name:?}\n{}",
            first_difference(object, other)
        );
    }
}

/// Describes the first difference of two values, for a person.
fn first_difference(left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let differs = |key: &&String| a.get(*key) != b.get(*key);
            keys.into_iter()
                .find(differs)
                .map_or_else(String::new, |key| {
                    format!(
                        ".{key}{}",
                        first_difference(
                            a.get(key).unwrap_or(&Value::Null),
                            b.get(key).unwrap_or(&Value::Null)
                        )
                    )
                })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let at = a
                .iter()
                .zip(b)
                .position(|(one, other)| one != other)
                .unwrap_or_default();
            format!("[{at}]{}", first_difference(&left[at], &right[at]))
        }
        _ => format!(": {left} and {right}"),
    }
}
