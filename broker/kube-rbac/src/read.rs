//! Reads RBAC objects from documents, object by object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::label_selector::{LabelSelector, Operator, Requirement};
use crate::object::{
    AggregationRule, Binding, ObjectId, ObjectKind, RbacObject, Role, RoleKind, RoleRef,
    RulesOwner, Subject, SubjectKind,
};
use crate::rule::PolicyRule;

/// The API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";
/// The field manager of the controller that fills aggregated ClusterRoles.
const CONTROLLER: &str = "clusterrole-aggregation-controller";
const VERSION: &str = "rbac.authorization.k8s.io/v1";

/// How an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As a file that a person wrote: a field or value that an apiserver would not accept is
    /// refused, so that no right is lost to a typing error.
    Strict,
    /// As what an apiserver printed: fields of later versions are skipped.
    Stored,
}

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading {kind} {name:?}: {}{fault}", prefix(.field))]
pub struct ReadError {
    /// The kind of the object, as written.
    pub kind: Box<str>,
    /// Its namespace, empty if it has none.
    pub namespace: Box<str>,
    /// Its name, empty if it has none.
    pub name: Box<str>,
    /// The part of the object, such as `rules[3]`; empty for the object itself.
    pub field: Box<str>,
    /// What is wrong with that part.
    pub fault: FieldFault,
}

/// What is wrong with a part of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFault {
    /// A required field is absent.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// A field that the kind does not have.
    #[error("unknown field `{0}`; fix: correct or remove it")]
    Unknown(String),
    /// A value of another type.
    #[error("it is not {0}")]
    Type(&'static str),
    /// A value that is none of those that the field may have.
    #[error("unknown variant `{value}`, expected {}", listed(.expected))]
    Variant {
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static [&'static str],
    },
    /// A namespaced object without a namespace.
    #[error("it has no namespace; fix: write metadata.namespace")]
    NamespaceMissing,
    /// A cluster-wide object with a namespace.
    #[error("a cluster-wide object has no namespace; fix: remove it")]
    NamespaceNotAllowed,
    /// An aggregationRule that selects nothing.
    #[error(
        "the aggregationRule has no clusterRoleSelectors; fix: add one, or remove the aggregationRule"
    )]
    NoSelectors,
    /// A requirement whose operator does not go with its values.
    #[error(
        "{0} does not go with the number of values; fix: In and NotIn need values, Exists and DoesNotExist have none"
    )]
    Values(&'static str),
    /// An object of the group that is no role and no binding.
    #[error("it is no role and no binding")]
    Kind,
    /// A version of the group whose meaning is not known here.
    #[error("its apiVersion is {0:?}; fix: write {VERSION}")]
    Version(String),
    /// One page of a list that has more.
    #[error("the list has further pages; fix: read it whole")]
    ListCut,
}

fn prefix(field: &str) -> String {
    match field {
        "" => String::new(),
        field => format!("{field}: "),
    }
}

fn listed(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    quoted.join(" or ")
}

/// Reads all RBAC objects of a document, which may be a list. Objects of other API groups are
/// skipped: they grant nothing.
///
/// # Errors
/// The first object that cannot be read. To go on after it, split the document with
/// [`list_items`] and read each item with [`read_object`].
pub fn read_objects(document: Value, reading: Reading) -> Result<Vec<RbacObject>, ReadError> {
    let mut objects = Vec::new();
    for item in list_items(document)? {
        objects.extend(read_object(item, reading)?);
    }
    Ok(objects)
}

/// Splits a list, such as `kubectl get -o yaml` prints it or an apiserver answers, into its items.
/// Any other document is its only item.
///
/// # Errors
/// The list is not complete, or its items are no list.
pub fn list_items(document: Value) -> Result<Vec<Value>, ReadError> {
    let mut pending = vec![document];
    let mut items = Vec::new();
    while let Some(mut document) = pending.pop() {
        let (version, kind) = (text_of(&document, "apiVersion"), text_of(&document, "kind"));
        let item_kind = kind.strip_suffix("List").filter(|item_kind| {
            (version == "v1" && item_kind.is_empty())
                || (version == VERSION && ObjectKind::named(item_kind).is_some())
        });
        let Some(item_kind) = item_kind else {
            items.push(document);
            continue;
        };
        let refuse = |fault| ReadError::of(&document, "", fault);
        if !text_of(&document["metadata"], "continue").is_empty() {
            return Err(refuse(FieldFault::ListCut));
        }
        let listed = match document["items"].take() {
            Value::Null => Vec::new(),
            Value::Array(listed) => listed,
            _ => {
                return Err(ReadError::of(
                    &document,
                    "items",
                    FieldFault::Type("a list"),
                ));
            }
        };
        // An apiserver leaves both fields out in the items of a list of one kind.
        let complete = |mut item: Value| {
            if let Value::Object(fields) = &mut item
                && !item_kind.is_empty()
            {
                fields.entry("apiVersion").or_insert_with(|| VERSION.into());
                fields.entry("kind").or_insert_with(|| item_kind.into());
            }
            item
        };
        // The last one is taken first.
        pending.extend(listed.into_iter().rev().map(complete));
    }
    Ok(items)
}

/// Reads one object. It is `None` for an object of another API group.
///
/// # Errors
/// The object is of this group and cannot be read.
pub fn read_object(object: Value, reading: Reading) -> Result<Option<RbacObject>, ReadError> {
    let version = text_of(&object, "apiVersion");
    if version.split_once('/').map(|(group, _)| group) != Some(GROUP) {
        return Ok(None);
    }
    let refuse = |field: &str, fault| ReadError::of(&object, field, fault);
    if version != VERSION {
        return Err(refuse("", FieldFault::Version(version)));
    }
    let Some(kind) = ObjectKind::named(&text_of(&object, "kind")) else {
        return Err(refuse("", FieldFault::Kind));
    };
    read_kind(kind, &object, reading)
        .map(Some)
        .map_err(|Located { field, fault }| refuse(&field, fault))
}

fn read_kind(kind: ObjectKind, object: &Value, reading: Reading) -> Result<RbacObject, Located> {
    let fields = Fields::new(object, String::new(), reading)?;
    let metadata = Fields::new(fields.required("metadata")?, "metadata".to_owned(), reading)?;
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace")?;
    match (kind.is_namespaced(), namespace.is_empty()) {
        (true, true) => return Err(Located::at("", FieldFault::NamespaceMissing)),
        (false, false) => return Err(Located::at("", FieldFault::NamespaceNotAllowed)),
        _ => {}
    }
    let id = ObjectId {
        kind,
        namespace,
        name,
    };
    Ok(match kind {
        ObjectKind::Role | ObjectKind::ClusterRole => {
            let own = match kind {
                ObjectKind::ClusterRole => &["rules", "aggregationRule"][..],
                _ => &["rules"],
            };
            fields.allow_only(&[&["apiVersion", "kind", "metadata"], own].concat())?;
            RbacObject::Role(Role {
                id,
                labels: metadata.text_map("labels")?,
                rules: fields.list("rules", read_rule)?,
                rules_owner: rules_owner(metadata.items("managedFields")?),
                aggregation: match fields.optional("aggregationRule") {
                    Some(rule) if kind == ObjectKind::ClusterRole => {
                        Some(read_aggregation(rule, reading)?)
                    }
                    _ => None,
                },
            })
        }
        ObjectKind::RoleBinding | ObjectKind::ClusterRoleBinding => {
            fields.allow_only(&["apiVersion", "kind", "metadata", "roleRef", "subjects"])?;
            let role_ref = Fields::new(fields.required("roleRef")?, "roleRef".to_owned(), reading)?;
            RbacObject::Binding(Binding {
                role_ref: read_role_ref(&role_ref, kind)?,
                subjects: fields.list("subjects", read_subject)?,
                id,
            })
        }
    })
}

/// Finds who owns the field `rules`. Managed fields in a form that is not known say nothing.
fn rules_owner(managed_fields: &[Value]) -> RulesOwner {
    if managed_fields.is_empty() {
        return RulesOwner::Unknown;
    }
    let mut writers = managed_fields
        .iter()
        .filter(|entry| !entry["fieldsV1"]["f:rules"].is_null())
        .map(|entry| text_of(entry, "manager"));
    match (writers.next().as_deref(), writers.next()) {
        (Some(CONTROLLER), None) => RulesOwner::Controller,
        _ => RulesOwner::Other,
    }
}

fn read_rule(fields: &Fields<'_>) -> Result<PolicyRule, Located> {
    fields.allow_only(&[
        "verbs",
        "apiGroups",
        "resources",
        "resourceNames",
        "nonResourceURLs",
    ])?;
    Ok(PolicyRule {
        verbs: fields.texts("verbs")?,
        api_groups: fields.texts("apiGroups")?,
        resources: fields.texts("resources")?,
        resource_names: fields.texts("resourceNames")?,
        non_resource_urls: fields.texts("nonResourceURLs")?,
    })
}

fn read_aggregation(rule: &Value, reading: Reading) -> Result<AggregationRule, Located> {
    let fields = Fields::new(rule, "aggregationRule".to_owned(), reading)?;
    fields.allow_only(&["clusterRoleSelectors"])?;
    let cluster_role_selectors = fields.list("clusterRoleSelectors", read_selector)?;
    if cluster_role_selectors.is_empty() && reading == Reading::Strict {
        return Err(Located::at("", FieldFault::NoSelectors));
    }
    Ok(AggregationRule {
        cluster_role_selectors,
    })
}

fn read_selector(fields: &Fields<'_>) -> Result<LabelSelector, Located> {
    fields.allow_only(&["matchLabels", "matchExpressions"])?;
    Ok(LabelSelector {
        match_labels: fields.text_map("matchLabels")?,
        match_expressions: fields.list("matchExpressions", read_requirement)?,
    })
}

fn read_requirement(fields: &Fields<'_>) -> Result<Requirement, Located> {
    fields.allow_only(&["key", "operator", "values"])?;
    let name = fields.required_text("operator")?;
    let Some(operator) = Operator::named(&name) else {
        return Err(fields.refuse("operator", variant(name, &Operator::NAMES)));
    };
    let values = fields.texts("values")?;
    if operator.takes_values() == values.is_empty() {
        return Err(fields.refuse("values", FieldFault::Values("the operator")));
    }
    Ok(Requirement {
        key: fields.required_text("key")?,
        operator,
        values,
    })
}

fn read_role_ref(fields: &Fields<'_>, binding: ObjectKind) -> Result<RoleRef, Located> {
    fields.allow_only(&["apiGroup", "kind", "name"])?;
    let kind = match fields.required_text("kind")?.as_str() {
        "Role" => RoleKind::Role,
        "ClusterRole" => RoleKind::ClusterRole,
        other => RoleKind::Unsupported(other.to_owned()),
    };
    if fields.reading == Reading::Strict {
        let expected: &'static [&'static str] = match binding {
            ObjectKind::ClusterRoleBinding => &["ClusterRole"],
            _ => &["Role", "ClusterRole"],
        };
        if !expected.contains(&kind.name()) {
            return Err(fields.refuse("kind", variant(kind.name().to_owned(), expected)));
        }
    }
    fields.expect_group(&["", GROUP], &[GROUP])?;
    Ok(RoleRef {
        kind,
        name: fields.required_text("name")?,
    })
}

fn read_subject(fields: &Fields<'_>) -> Result<Subject, Located> {
    fields.allow_only(&["apiGroup", "kind", "name", "namespace"])?;
    let kind = match fields.required_text("kind")?.as_str() {
        "User" => SubjectKind::User,
        "Group" => SubjectKind::Group,
        "ServiceAccount" => SubjectKind::ServiceAccount,
        other => SubjectKind::Unsupported(other.to_owned()),
    };
    match &kind {
        SubjectKind::ServiceAccount => fields.expect_group(&[""], &[""])?,
        SubjectKind::Unsupported(other) if fields.reading == Reading::Strict => {
            let expected = &["User", "Group", "ServiceAccount"];
            return Err(fields.refuse("kind", variant(other.clone(), expected)));
        }
        _ => fields.expect_group(&["", GROUP], &[GROUP])?,
    }
    Ok(Subject {
        kind,
        name: fields.required_text("name")?,
        namespace: fields.text("namespace")?,
    })
}

fn variant(value: String, expected: &'static [&'static str]) -> FieldFault {
    FieldFault::Variant { value, expected }
}

/// The text of a member; empty if it is no text.
fn text_of(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

impl ReadError {
    fn of(object: &Value, field: &str, fault: FieldFault) -> Self {
        Self {
            kind: text_of(object, "kind").into(),
            namespace: text_of(&object["metadata"], "namespace").into(),
            name: text_of(&object["metadata"], "name").into(),
            field: field.into(),
            fault,
        }
    }
}

/// A fault and the part of the object that has it.
struct Located {
    field: String,
    fault: FieldFault,
}

impl Located {
    fn at(field: &str, fault: FieldFault) -> Self {
        Self {
            field: field.to_owned(),
            fault,
        }
    }
}

/// The members of one object, and where it is. A member that is `null` counts as absent, as for an
/// apiserver.
struct Fields<'a> {
    members: &'a Map<String, Value>,
    path: String,
    reading: Reading,
}

impl<'a> Fields<'a> {
    fn new(value: &'a Value, path: String, reading: Reading) -> Result<Self, Located> {
        match value {
            Value::Object(members) => Ok(Self {
                members,
                path,
                reading,
            }),
            _ => Err(Located {
                field: path,
                fault: FieldFault::Type("an object"),
            }),
        }
    }

    fn refuse(&self, member: &str, fault: FieldFault) -> Located {
        Located {
            field: self.path_of(member),
            fault,
        }
    }

    fn path_of(&self, member: &str) -> String {
        match self.path.as_str() {
            "" => member.to_owned(),
            path => format!("{path}.{member}"),
        }
    }

    fn allow_only(&self, own: &[&str]) -> Result<(), Located> {
        let mut names = self.members.keys();
        match names.find(|name| !own.contains(&name.as_str())) {
            Some(name) if self.reading == Reading::Strict => Err(Located {
                field: self.path.clone(),
                fault: FieldFault::Unknown(name.clone()),
            }),
            _ => Ok(()),
        }
    }

    /// Checks an `apiGroup`, which the authorizer never reads, in a file that a person wrote.
    fn expect_group(
        &self,
        allowed: &[&str],
        expected: &'static [&'static str],
    ) -> Result<(), Located> {
        let group = self.text("apiGroup")?;
        if self.reading == Reading::Strict && !allowed.contains(&group.as_str()) {
            return Err(self.refuse("apiGroup", variant(group, expected)));
        }
        Ok(())
    }

    fn optional(&self, member: &str) -> Option<&'a Value> {
        self.members.get(member).filter(|value| !value.is_null())
    }

    fn required(&self, member: &'static str) -> Result<&'a Value, Located> {
        self.optional(member).ok_or_else(|| Located {
            field: self.path.clone(),
            fault: FieldFault::Missing(member),
        })
    }

    fn required_text(&self, member: &'static str) -> Result<String, Located> {
        self.required(member)?;
        self.text(member)
    }

    /// A text; empty if it is absent.
    fn text(&self, member: &str) -> Result<String, Located> {
        match self.optional(member) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(self.refuse(member, FieldFault::Type("a text"))),
        }
    }

    fn items(&self, member: &str) -> Result<&'a [Value], Located> {
        match self.optional(member) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.refuse(member, FieldFault::Type("a list"))),
        }
    }

    fn texts(&self, member: &str) -> Result<Vec<String>, Located> {
        let items = self.items(member)?.iter().enumerate();
        let text = |(index, item): (usize, &Value)| match item {
            Value::String(text) => Ok(text.clone()),
            _ => Err(self.refuse(&format!("{member}[{index}]"), FieldFault::Type("a text"))),
        };
        items.map(text).collect()
    }

    fn text_map(&self, member: &str) -> Result<BTreeMap<String, String>, Located> {
        let Some(value) = self.optional(member) else {
            return Ok(BTreeMap::new());
        };
        let fields = Fields::new(value, self.path_of(member), self.reading)?;
        let names = fields.members.keys();
        names
            .map(|name| Ok((name.clone(), fields.text(name)?)))
            .collect()
    }

    fn list<T>(
        &self,
        member: &str,
        read: impl Fn(&Fields<'_>) -> Result<T, Located>,
    ) -> Result<Vec<T>, Located> {
        let items = self.items(member)?.iter().enumerate();
        items
            .map(|(index, item)| {
                let path = self.path_of(&format!("{member}[{index}]"));
                read(&Fields::new(item, path, self.reading)?)
            })
            .collect()
    }
}
