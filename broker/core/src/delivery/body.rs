//! A rendered object, and the metadata that every delivered object carries.

use std::collections::BTreeSet;

use keyferry_api::config::{Delivery, SecretShape};
use keyferry_api::name;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use zeroize::Zeroize;

use super::form::Form;
use super::ownership::{
    DIGEST_ANNOTATION, EXPIRES_AT, FURTHER_NAMES, KEY_ID, OwnedObject, RENEW_AT, TARGET_ANNOTATION,
    TOKEN_ID,
};
use super::place::ObjectPlace;
use super::{CredentialNote, Snapshot, client_certificate};

/// An object ready to be sent. It may contain a token, so it cannot be printed, and its secret data
/// is wiped on drop.
pub struct ObjectBody {
    value: Value,
    form: Form,
}

impl ObjectBody {
    /// The inputs that it was rendered from, apart from the token.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Prepares the object to replace one that was read. It gets the UID and resourceVersion of
    /// that object as preconditions, and keeps the labels, annotations, finalizers and further
    /// owners that others set.
    #[must_use]
    pub fn for_replacement(mut self, uid: &str, version: &str, held: &Value) -> Self {
        for field in ["labels", "annotations"] {
            let Some(theirs) = held
                .pointer(&format!("/metadata/{field}"))
                .and_then(Value::as_object)
            else {
                continue;
            };
            let Some(ours) = self
                .value
                .pointer_mut(&format!("/metadata/{field}"))
                .and_then(Value::as_object_mut)
            else {
                continue;
            };
            let earlier = further_names(held, field);
            for (key, value) in theirs {
                let is_theirs = !key.starts_with("keyferry.dev/") && !earlier.contains(key);
                if is_theirs && !ours.contains_key(key) {
                    ours.insert(key.clone(), value.clone());
                }
            }
        }
        if let Some(metadata) = self
            .value
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
        {
            // Finalizers and further owners belong to others, so keep them.
            if let Some(finalizers) = held.pointer("/metadata/finalizers") {
                metadata.insert("finalizers".to_owned(), finalizers.clone());
            }
            let others = held
                .pointer("/metadata/ownerReferences")
                .and_then(Value::as_array);
            if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
                owners.extend(
                    others
                        .into_iter()
                        .flatten()
                        .filter(|owner| owner["controller"] != true)
                        .cloned(),
                );
            }
            metadata.insert("uid".to_owned(), json!(uid));
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        self
    }

    /// Whether it can replace an object that was read, whose type cannot change.
    pub fn has_type_of(&self, held: &OwnedObject<'_>) -> bool {
        self.value["type"] == held.object()["type"]
    }

    /// A copy of an object that was read, with the same metadata and no data. It empties an object
    /// that stays after its deletion because of others' finalizers.
    #[must_use]
    pub fn without_data(held: &OwnedObject<'_>) -> Self {
        let mut value = held.object().clone();
        wipe_strings(&mut value);
        for field in ["data", "stringData"] {
            if let Some(data) = value.get_mut(field) {
                *data = json!({});
            }
        }
        // The apiserver refuses a Secret of this type without the two.
        if value["type"] == client_certificate::SECRET_TYPE {
            value["data"] = json!({ "tls.crt": "", "tls.key": "" });
        }
        Self {
            value,
            form: Form::default(),
        }
    }

    /// The rendered object, for tests.
    #[cfg(test)]
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }
}

impl Serialize for ObjectBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Drop for ObjectBody {
    fn drop(&mut self) {
        wipe_strings(&mut self.value);
    }
}

/// An object as read. It may be a Secret: it cannot be printed, and its secret data is wiped on
/// drop.
pub struct ReadObject(Value);

impl ReadObject {
    /// Wraps an object that was read.
    pub fn new(object: Value) -> Self {
        Self(object)
    }

    /// The object.
    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl Drop for ReadObject {
    fn drop(&mut self) {
        wipe_strings(&mut self.0);
    }
}

fn wipe_strings(object: &mut Value) {
    for field in ["data", "stringData"] {
        let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) else {
            continue;
        };
        for value in data.values_mut() {
            if let Value::String(text) = value {
                text.zeroize();
            }
        }
    }
}

/// The labels and annotations that an access asks for beside Keyferry's own, so that they go when it
/// asks for them no more.
fn written_further_names(shape: &SecretShape) -> Option<String> {
    let names = [
        ("labels", &shape.labels),
        ("annotations", &shape.annotations),
    ];
    let names: Vec<String> = names
        .into_iter()
        .flat_map(|(field, entries)| entries.keys().map(move |key| format!("{field}:{key}")))
        .collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Those of one field that an object which was read was written with. Its annotation is a tenant's
/// to edit, who then keeps or loses labels of its own Secret.
fn further_names(held: &Value, field: &str) -> BTreeSet<String> {
    let names = held
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(FURTHER_NAMES))
        .and_then(Value::as_str)
        .unwrap_or_default();
    names
        .split(' ')
        .filter_map(|name| name.strip_prefix(field)?.strip_prefix(':'))
        .map(str::to_owned)
        .collect()
}

/// Adds to the fields of a delivery type what every object carries: its name, its owner, and its
/// renewal time.
pub(super) fn add_metadata(
    mut object: Value,
    place: &ObjectPlace,
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    note: Option<&CredentialNote<'_>>,
) -> ObjectBody {
    let access = snapshot.access.name.name.as_str();
    let mut labels = object.get("labels").cloned().unwrap_or_else(|| json!({}));
    labels["app.kubernetes.io/managed-by"] = json!("keyferry");
    // A label's value is limited to 63 characters; an object's name may be longer.
    if access.len() <= 63
        && access
            .split('.')
            .all(|part| name::check_label(part).is_ok())
    {
        labels["keyferry.dev/access-name"] = json!(access);
    }
    let mut annotations = json!({});
    if let Some(members) = object.as_object_mut() {
        members.remove("labels");
        annotations = members.remove("annotations").unwrap_or(annotations);
    }
    object["apiVersion"] = json!(place.kind.api_version());
    object["kind"] = json!(place.kind.as_str());
    object["metadata"] = json!({
        "name": place.name, "namespace": place.namespace, "labels": labels,
        "ownerReferences": [{
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "name": access, "uid": snapshot.owner.as_str(), "controller": true,
        }],
    });
    let form = Form::of(&object, &annotations, delivery, snapshot);
    annotations[TARGET_ANNOTATION] = json!(snapshot.target.name.as_str());
    if let Some(names) = delivery.secret.as_ref().and_then(written_further_names) {
        annotations[FURTHER_NAMES] = json!(names);
    }
    if let Some(note) = note {
        annotations[EXPIRES_AT] = json!(note.expires_at.to_string());
        annotations[RENEW_AT] = json!(note.renew_at.to_string());
        annotations[TOKEN_ID] = json!(note.id);
        if let Some(key_id) = note.key_id {
            annotations[KEY_ID] = json!(key_id);
        }
    }
    object["metadata"]["annotations"] = annotations;
    object["metadata"]["annotations"][DIGEST_ANNOTATION] = json!(form.digest_with(&object));
    ObjectBody {
        value: object,
        form,
    }
}
