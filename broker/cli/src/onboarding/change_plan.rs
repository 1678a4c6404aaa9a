//! What a command would change, object by object and field by field. The plan is made and shown
//! before anything is written, and exactly what it holds is written.
//!
//! A list that is in place keeps its entries: what a command names is added to it. Only with
//! [`Removals::Pruned`] do entries go that the command does not name.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_client::object_view::ObjectHead;
use keyferry_kube_authn::prediction::hash_of;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::apply::{
    Applier, ApplyError, ObjectPurpose, PlannedObject, is_left_alone, set_version, title,
};

/// The longest value that is shown of a field that stays. One that goes is shown whole, and so is
/// what replaces it.
const MAX_SHOWN_CHARS: usize = 160;

/// Whether a command may remove what it does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removals {
    /// Everything in place stays.
    Kept,
    /// What the command does not name is removed.
    Pruned,
}

/// What becomes of one field or one entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldMark {
    /// It is new.
    Added,
    /// It goes, or makes room for another value.
    Removed,
    /// It is in place.
    Unchanged,
}

/// One field, or one entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldChange {
    /// The field, like `spec.deliveries[]`.
    pub(crate) path: String,
    /// What becomes of it.
    pub(crate) mark: FieldMark,
    /// Its value, in one line.
    pub(crate) value: String,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectChange {
    /// It is new, with everything that is shown of it.
    Created,
    /// It is there; these are its fields.
    Compared(Vec<FieldChange>),
    /// It is there, and is left as it is.
    LeftAsItIs,
    /// It is deleted.
    Deleted,
    /// It could not be read.
    Unknown(String),
}

/// One object of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedChange {
    /// The object, as it is written.
    pub(crate) planned: PlannedObject,
    /// What becomes of it.
    pub(crate) change: ObjectChange,
}

/// What a command would change in one cluster, in the order in which it writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangePlan {
    /// The objects.
    pub(crate) changes: Vec<PlannedChange>,
}

impl PlannedChange {
    /// Compares an object with the existing one, and merges the two.
    ///
    /// # Errors
    /// [`ApplyError::OtherRole`]: the API cannot change the role of a binding.
    pub(crate) fn of(planned: PlannedObject, removals: Removals) -> Result<Self, ApplyError> {
        let Some(existing) = planned.read.clone() else {
            let change = match planned.purpose {
                ObjectPurpose::Applied => ObjectChange::Created,
                ObjectPurpose::Deleted => ObjectChange::Deleted,
            };
            return Ok(Self { planned, change });
        };
        if planned.purpose == ObjectPurpose::Deleted {
            return Ok(Self {
                planned,
                change: ObjectChange::Deleted,
            });
        }
        if is_left_alone(&planned.head) {
            return Ok(Self {
                planned,
                change: ObjectChange::LeftAsItIs,
            });
        }
        if let Some(wanted) = RoleReference::of(&planned.object) {
            let found = RoleReference::of(&existing);
            if found.as_ref() != Some(&wanted) {
                return Err(ApplyError::OtherRole {
                    object: title(&planned.head),
                    found: found.map_or_else(String::new, |found| found.describe()),
                    wanted: wanted.describe(),
                });
            }
        }
        let kind = planned.head.kind.as_str();
        let mut object = planned.object;
        if removals == Removals::Kept {
            keep_entries(kind, &mut object, &existing);
        }
        let version = ObjectHead::of(&existing).metadata.resource_version;
        set_version(&mut object, version);
        let change = ObjectChange::Compared(compared(kind, &existing, &object));
        Ok(Self {
            planned: PlannedObject::change_of(object, existing),
            change,
        })
    }

    fn removes(&self) -> bool {
        match &self.change {
            ObjectChange::Deleted => true,
            ObjectChange::Compared(fields) => {
                fields.iter().any(|field| field.mark == FieldMark::Removed)
            }
            _ => false,
        }
    }

    /// Returns what the plan removes and the object still has after it was written.
    pub(crate) fn not_removed(&self, after: &Value) -> Vec<String> {
        let ObjectChange::Compared(fields) = &self.change else {
            return Vec::new();
        };
        let still = compared(&self.planned.head.kind, after, &self.planned.object);
        fields
            .iter()
            .filter(|field| field.mark == FieldMark::Removed && still.contains(field))
            .map(|field| format!("{}: {}", field.path, field.value))
            .collect()
    }

    /// Describes the change: one line about the object, and one about each field.
    fn describe(&self) -> String {
        let title = title(&self.planned.head);
        let fields = match &self.change {
            ObjectChange::Created => return format!("+ {title}"),
            ObjectChange::Deleted => return format!("- {title}"),
            ObjectChange::LeftAsItIs => return format!("  {title}: exists, left as it is"),
            ObjectChange::Unknown(why) => {
                return format!("? {title}: whether it exists is unknown: {why}");
            }
            ObjectChange::Compared(fields) => fields,
        };
        let unchanged = fields.iter().all(|one| one.mark == FieldMark::Unchanged);
        let mut lines = vec![match unchanged {
            true => format!("  {title}: unchanged"),
            false => format!("~ {title}"),
        }];
        for field in fields.iter().filter(|_| !unchanged) {
            let mark = match field.mark {
                FieldMark::Added => '+',
                FieldMark::Removed => '-',
                FieldMark::Unchanged => '=',
            };
            lines.push(format!("  {mark} {}: {}", field.path, field.value));
        }
        lines.join("\n")
    }
}

impl Applier<'_> {
    /// Reads the existing object where the caller has not, and compares. Writes nothing.
    ///
    /// # Errors
    /// [`ApplyError::OtherRole`], or the object cannot be read.
    pub(crate) async fn plan(
        &self,
        mut planned: PlannedObject,
        removals: Removals,
    ) -> Result<PlannedChange, ApplyError> {
        if planned.read.is_none() {
            planned.read = self.existing(&planned.head).await?;
        }
        PlannedChange::of(planned, removals)
    }
}

impl ChangePlan {
    /// Returns the objects as they are written.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &PlannedObject> {
        self.changes
            .iter()
            .map(|change| &change.planned)
            .filter(|planned| planned.purpose == ObjectPurpose::Applied)
    }

    /// Describes the plan to a person: `+` new, `-` removed, `=` unchanged.
    pub(crate) fn describe(&self) -> String {
        let lines: Vec<String> = self.changes.iter().map(PlannedChange::describe).collect();
        lines.join("\n")
    }

    /// Names the objects of which the plan removes something.
    pub(crate) fn removals(&self) -> Vec<String> {
        self.changes
            .iter()
            .filter(|change| change.removes())
            .map(|change| title(&change.planned.head))
            .collect()
    }
}

/// A RoleBinding or ClusterRoleBinding, reduced to its role.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleBinding {
    role_ref: Option<RoleReference>,
}

/// The role of a binding.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoleReference {
    api_group: String,
    kind: String,
    name: String,
}

impl RoleReference {
    fn of(object: &Value) -> Option<Self> {
        RoleBinding::deserialize(object).ok()?.role_ref
    }

    fn describe(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// The list of objects of this kind that several runs, and other people, add entries to.
fn shared_list(kind: &str) -> Option<[&'static str; 2]> {
    match kind {
        "RoleBinding" | "ClusterRoleBinding" => Some(["", "subjects"]),
        "Role" | "ClusterRole" => Some(["", "rules"]),
        "TargetAccess" => Some(["spec", "deliveries"]),
        "TargetCluster" => Some(["spec", "allow"]),
        _ => None,
    }
}

fn entries(object: &Value, [parent, field]: [&str; 2]) -> Vec<Value> {
    let parent = match parent {
        "" => Some(object),
        parent => object.get(parent),
    };
    let list = parent.and_then(|parent| parent.get(field)?.as_array());
    list.cloned().unwrap_or_default()
}

/// Adds the entries of an existing list that the object lacks, in front of its own.
fn keep_entries(kind: &str, object: &mut Value, existing: &Value) {
    let Some([parent, field]) = shared_list(kind) else {
        return;
    };
    let mut kept = entries(existing, [parent, field]);
    let wanted = entries(object, [parent, field]);
    let is_access = field == "deliveries";
    // Without an entry, an access delivers HTTP and Exec: the first entry must not end these.
    if is_access && kept.is_empty() && !wanted.is_empty() {
        kept = ["HTTP", "Exec"]
            .map(|one| json!({ "name": one.to_ascii_lowercase(), "type": one }))
            .to_vec();
    }
    for entry in wanted {
        let there = kept.iter().any(|kept| match is_access {
            true => kept.get("type") == entry.get("type"),
            false => *kept == entry,
        });
        if !there {
            kept.push(entry);
        }
    }
    if kept.is_empty() {
        return;
    }
    let parent = match parent {
        "" => Some(object),
        parent => object.get_mut(parent),
    };
    if let Some(parent) = parent.and_then(Value::as_object_mut) {
        parent.insert(field.to_owned(), Value::Array(kept));
    }
}

/// Compares what is written with what exists. Fields that are not written belong to others.
fn compared(kind: &str, existing: &Value, object: &Value) -> Vec<FieldChange> {
    let mut fields = Vec::new();
    let list = shared_list(kind);
    let hidden = kind == "Secret";
    for (name, value) in object.as_object().into_iter().flatten() {
        if ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
            continue;
        }
        leaves(
            name,
            Some(value),
            existing.get(name),
            list,
            hidden,
            &mut fields,
        );
    }
    if let Some([parent, field]) = list {
        let path = match parent {
            "" => format!("{field}[]"),
            parent => format!("{parent}.{field}[]"),
        };
        let before = entries(existing, [parent, field]);
        let after = entries(object, [parent, field]);
        for entry in &before {
            let mark = match after.contains(entry) {
                true => FieldMark::Unchanged,
                false => FieldMark::Removed,
            };
            fields.push(field_change(&path, mark, entry, hidden));
        }
        for entry in after.iter().filter(|entry| !before.contains(entry)) {
            fields.push(field_change(&path, FieldMark::Added, entry, hidden));
        }
    }
    fields
}

/// Compares the values below a path, except the shared list.
fn leaves(
    path: &str,
    after: Option<&Value>,
    before: Option<&Value>,
    list: Option<[&str; 2]>,
    hidden: bool,
    fields: &mut Vec<FieldChange>,
) {
    let is_list = list.is_some_and(|[parent, field]| match parent {
        "" => path == field,
        parent => {
            path.strip_prefix(parent)
                .and_then(|rest| rest.strip_prefix('.'))
                == Some(field)
        }
    });
    if is_list {
        return;
    }
    if let Some(Value::Object(after)) = after
        && !after.is_empty()
    {
        let none = Map::new();
        let before = before.and_then(Value::as_object).unwrap_or(&none);
        for (name, value) in after {
            let path = format!("{path}.{name}");
            leaves(&path, Some(value), before.get(name), list, hidden, fields);
        }
        return;
    }
    match (before, after) {
        (Some(before), Some(after)) if before == after => {
            fields.push(field_change(path, FieldMark::Unchanged, after, hidden));
        }
        (before, after) => {
            let removed = before.map(|value| field_change(path, FieldMark::Removed, value, hidden));
            let added = after.map(|value| field_change(path, FieldMark::Added, value, hidden));
            fields.extend(removed.into_iter().chain(added));
        }
    }
}

/// `hidden`: only a hash of the value is shown.
fn field_change(path: &str, mark: FieldMark, value: &Value, hidden: bool) -> FieldChange {
    let shown = match value.as_str() {
        Some(text) if hidden => hash_of(
            &STANDARD
                .decode(text)
                .unwrap_or_else(|_| text.as_bytes().to_vec()),
        ),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    let most = match mark {
        FieldMark::Unchanged => MAX_SHOWN_CHARS,
        FieldMark::Added | FieldMark::Removed => usize::MAX,
    };
    FieldChange {
        path: path.to_owned(),
        mark,
        value: keyferry_api::foreign_text::one_line(&shown, most),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn access(deliveries: Value) -> Value {
        json!({
            "kind": "TargetAccess",
            "metadata": { "name": "prod", "namespace": "tenant-a", "resourceVersion": "7" },
            "spec": {
                "serviceAccountName": "reconciler", "targetClusterRef": { "name": "prod" },
                "deliveries": deliveries,
            },
        })
    }

    fn planned(object: Value, existing: &Value, removals: Removals) -> PlannedChange {
        PlannedChange::of(PlannedObject::change_of(object, existing.clone()), removals).unwrap()
    }

    fn without_deliveries() -> Value {
        let mut object = access(json!([]));
        object["spec"].as_object_mut().unwrap().remove("deliveries");
        object
    }

    fn types(change: &PlannedChange) -> Vec<String> {
        entries(&change.planned.object, ["spec", "deliveries"])
            .iter()
            .map(|entry| entry["type"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn a_second_run_with_fewer_flags_keeps_every_delivery() {
        let flux = json!({ "name": "flux", "type": "FluxConfigMap", "objectName": "apps" });
        let existing = access(json!([flux]));
        let again = planned(without_deliveries(), &existing, Removals::Kept);
        assert_eq!(again.planned.object["spec"]["deliveries"], json!([flux]));
        assert!(!again.removes(), "{again:?}");
        assert_snapshot!("a-second-run", again.describe());
        // The same delivery under another name is in place; another one is added.
        let more = access(json!([
            { "name": "fluxconfigmap", "type": "FluxConfigMap" },
            { "name": "kubeconfigsecret", "type": "KubeConfigSecret" },
        ]));
        let more = planned(more, &existing, Removals::Kept);
        assert_eq!(types(&more), ["FluxConfigMap", "KubeConfigSecret"]);
        assert!(!more.removes(), "{more:?}");
        assert_snapshot!("another-delivery", more.describe());
        assert_eq!(more.planned.object["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_first_delivery_does_not_end_tokens_on_request() {
        let wanted = access(json!([{ "name": "fluxconfigmap", "type": "FluxConfigMap" }]));
        let change = planned(wanted, &without_deliveries(), Removals::Kept);
        assert_eq!(types(&change), ["HTTP", "Exec", "FluxConfigMap"]);
    }

    #[test]
    fn only_pruning_removes_and_it_is_shown() {
        let existing = access(json!([{ "name": "flux", "type": "FluxConfigMap" }]));
        let pruned = planned(without_deliveries(), &existing, Removals::Pruned);
        assert!(pruned.removes());
        assert_snapshot!("a-pruned-delivery", pruned.describe());
        // Another manager that owns the entry too keeps it there, and that is said.
        assert_eq!(pruned.not_removed(&existing).len(), 1);
        assert_eq!(pruned.not_removed(&without_deliveries()), [""; 0]);
        let plan = ChangePlan {
            changes: vec![pruned],
        };
        assert_eq!(plan.removals(), ["TargetAccess prod in tenant-a"]);
    }

    /// What is removed cannot be read again afterwards.
    #[test]
    fn what_goes_is_shown_whole_and_what_stays_is_cut() {
        let long = |end: &str| format!("{}{end}", "a".repeat(3 * MAX_SHOWN_CHARS));
        let mut existing = access(json!([{ "name": long("-delivery"), "type": "HTTP" }]));
        existing["spec"]["serviceAccountName"] = json!(long("-before"));
        existing["spec"]["targetClusterRef"]["name"] = json!(long("-same"));
        let mut object = existing.clone();
        object["spec"]["serviceAccountName"] = json!(long("-after"));
        object["spec"]["deliveries"] = json!([]);
        let shown = planned(object, &existing, Removals::Pruned).describe();
        for whole in [
            format!("  - spec.serviceAccountName: {}\n", long("-before")),
            format!("  + spec.serviceAccountName: {}\n", long("-after")),
        ] {
            assert!(shown.contains(&whole), "{shown}");
        }
        let entry = shown
            .lines()
            .find(|line| line.starts_with("  - spec.deliveries[]: "));
        assert!(entry.unwrap().contains("-delivery"), "{shown}");
        assert!(!shown.contains("-same"), "{shown}");
    }

    #[test]
    fn another_value_counts_as_removed() {
        let existing = access(json!([]));
        let mut other = existing.clone();
        other["spec"]["serviceAccountName"] = json!("other");
        let change = planned(other, &existing, Removals::Kept);
        assert!(change.removes());
        assert_snapshot!("another-account", change.describe());
    }

    #[test]
    fn subjects_and_rules_of_earlier_runs_stay() {
        let binding = |subjects: Value| {
            json!({
                "kind": "ClusterRoleBinding", "metadata": { "name": "keyferry-hub-view" },
                "roleRef": { "kind": "ClusterRole", "name": "view" }, "subjects": subjects,
            })
        };
        let user = |name: &str| json!({ "kind": "User", "name": name });
        let existing = binding(json!([user("hub:a"), user("hub:b")]));
        let change = planned(binding(json!([user("hub:c")])), &existing, Removals::Kept);
        assert_eq!(
            change.planned.object["subjects"],
            json!([user("hub:a"), user("hub:b"), user("hub:c")])
        );
        let mut other = binding(json!([user("hub:c")]));
        other["roleRef"]["name"] = json!("edit");
        let refused =
            PlannedChange::of(PlannedObject::change_of(other, existing), Removals::Pruned);
        assert!(matches!(refused, Err(ApplyError::OtherRole { .. })));
    }

    #[test]
    fn a_secret_is_shown_by_hashes() {
        let secret = |text: &str| json!({ "kind": "Secret", "metadata": { "name": "prod-ca" }, "data": { "ca.crt": STANDARD.encode(text) } });
        let change = planned(secret("new"), &secret("old"), Removals::Kept);
        assert!(change.removes());
        assert_snapshot!("another-secret", change.describe());
    }
}
