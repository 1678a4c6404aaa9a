//! `namespaceSelector`, limited to label keys that tenants cannot set on their own namespace.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::check::Check;
use crate::schema::{atomic, choice_names, validation_rule};

/// The label that the apiserver itself sets on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The prefix of labels that an admission policy reserves to platform admins.
const GUARDED_PREFIX: &str = "access.keyferry.dev/";

/// Whether a selector may use this label of a namespace.
pub fn selects_by(key: &str) -> bool {
    key == NAME_LABEL || key.starts_with(GUARDED_PREFIX)
}

/// How a term compares a label with its values.
#[derive(Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Operator {
    /// Every operator with its name.
    const ALL: &'static [(&'static str, Self)] = &[
        ("In", Self::In),
        ("NotIn", Self::NotIn),
        ("Exists", Self::Exists),
        ("DoesNotExist", Self::DoesNotExist),
    ];
}

/// A `metav1.LabelSelector` as written.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [validation_rule(
    "(has(self.matchLabels) && size(self.matchLabels) > 0) \
     || (has(self.matchExpressions) && self.matchExpressions.exists(term, term.operator == 'In' \
     || (term.operator == 'Exists' && term.key != 'kubernetes.io/metadata.name')))",
    "it would select every new namespace; add a term with In, or with Exists on a guarded label",
)]))]
pub(super) struct LabelSelector {
    /// Labels that must all be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend("maxProperties" = 8),
        transform = label_values,
        extend("x-kubernetes-validations" = [validation_rule(
            "self.all(key, key == 'kubernetes.io/metadata.name' \
             || key.startsWith('access.keyferry.dev/'))",
            GUARDED_KEYS,
        )]),
    )]
    match_labels: BTreeMap<String, String>,
    /// Terms that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = atomic)]
    match_expressions: Vec<Requirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [validation_rule(
    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
    "In and NotIn need at least one value; Exists and DoesNotExist take none",
)]))]
struct Requirement {
    /// The label.
    #[schemars(
        length(max = 317),
        extend("x-kubernetes-validations" = [validation_rule(
            "self == 'kubernetes.io/metadata.name' || self.startsWith('access.keyferry.dev/')",
            GUARDED_KEYS,
        )]),
    )]
    key: String,
    /// Which values the label may have.
    #[schemars(extend("enum" = choice_names(Operator::ALL)))]
    operator: String,
    /// The values of In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)), transform = atomic)]
    values: Vec<String>,
}

/// The message of a rule on label keys.
const GUARDED_KEYS: &str =
    "use kubernetes.io/metadata.name or a key that begins with access.keyferry.dev/";

/// A label's value has at most 63 characters.
fn label_values(schema: &mut Schema) {
    let value = json!({ "type": "string", "maxLength": 63 });
    schema.insert("additionalProperties".to_owned(), value);
}

/// A checked selector. It is never empty: an empty one would mean every namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl NamespaceSelector {
    /// Whether a namespace with these labels is selected. All terms must match, as in
    /// `metav1.LabelSelector`.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.terms.is_empty()
            && self.terms.iter().all(|term| match term {
                Term::In(key, values) => {
                    labels.get(key).is_some_and(|value| values.contains(value))
                }
                Term::NotIn(key, values) => {
                    labels.get(key).is_none_or(|value| !values.contains(value))
                }
                Term::Exists(key) => labels.contains_key(key),
                Term::DoesNotExist(key) => !labels.contains_key(key),
            })
    }

    /// Whether it uses labels that only an admission policy protects from users who may edit a
    /// namespace.
    pub fn needs_guarded_labels(&self) -> bool {
        let key = |term: &Term| match term {
            Term::In(key, _)
            | Term::NotIn(key, _)
            | Term::Exists(key)
            | Term::DoesNotExist(key) => key.starts_with(GUARDED_PREFIX),
        };
        self.terms.iter().any(key)
    }

    pub(super) fn read(selector: LabelSelector, path: &str, check: &mut Check<'_>) -> Option<Self> {
        let written = selector.match_labels.len() + selector.match_expressions.len();
        let mut terms = Vec::new();
        for (key, value) in selector.match_labels {
            guarded(&key, &format!("{path}.matchLabels.{key}"), check);
            terms.push(Term::In(key, vec![value]));
        }
        for (index, requirement) in selector.match_expressions.into_iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            guarded(&requirement.key, &format!("{path}.key"), check);
            terms.extend(term(requirement, &path, check));
        }
        if written == 0 {
            check.wrong(
                path,
                "is empty, which would select every namespace",
                "name a label, or list the namespaces by name",
            );
        }
        let complete = written > 0 && terms.len() == written;
        if complete && !terms.iter().any(Term::excludes_unlabelled) {
            check.wrong(
                path,
                "would select every new namespace",
                "add a term with In, or with Exists on a guarded label",
            );
        }
        complete.then_some(Self { terms })
    }
}

/// Writes the selector as `kubectl -l` takes it.
impl fmt::Display for NamespaceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match term {
                Term::In(key, values) => match values.as_slice() {
                    [value] => write!(f, "{key}={value}")?,
                    values => write!(f, "{key} in ({})", values.join(","))?,
                },
                Term::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Term::Exists(key) => write!(f, "{key}")?,
                Term::DoesNotExist(key) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

impl Term {
    /// Whether the term excludes namespaces without labels. A negative term does not, nor does the
    /// label that all namespaces have.
    fn excludes_unlabelled(&self) -> bool {
        match self {
            Self::In(..) => true,
            Self::Exists(key) => key != NAME_LABEL,
            Self::NotIn(..) | Self::DoesNotExist(..) => false,
        }
    }
}

fn guarded(key: &str, path: &str, check: &mut Check<'_>) {
    if !selects_by(key) {
        check.wrong(
            path,
            format!("the label key {key:?} can be set by anyone who may edit a namespace"),
            format!(
                "use {NAME_LABEL} or a key that begins with {GUARDED_PREFIX}, which an \
                admission policy guards"
            ),
        );
    }
}

fn term(requirement: Requirement, path: &str, check: &mut Check<'_>) -> Option<Term> {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    let operator = check.choose(
        &format!("{path}.operator"),
        &operator,
        "an operator",
        Operator::ALL,
    )?;
    match (operator, values.is_empty()) {
        (Operator::In, false) => Some(Term::In(key, values)),
        (Operator::NotIn, false) => Some(Term::NotIn(key, values)),
        (Operator::Exists, true) => Some(Term::Exists(key)),
        (Operator::DoesNotExist, true) => Some(Term::DoesNotExist(key)),
        (Operator::In | Operator::NotIn, true) => {
            check.wrong(
                &format!("{path}.values"),
                "is empty",
                "In and NotIn need at least one value",
            );
            None
        }
        (Operator::Exists | Operator::DoesNotExist, false) => {
            check.wrong(
                &format!("{path}.values"),
                "is not empty",
                "Exists and DoesNotExist take no values",
            );
            None
        }
    }
}
