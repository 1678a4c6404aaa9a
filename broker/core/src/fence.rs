//! Whether an admission policy of `examples/fences` is in force: as shipped, and bound to everything.
//!
//! Without `keyferry-author`, whoever may write a TargetAccess mints by it; without `keyferry-pairing`, whoever may create tokens mints for
//! every target; without `keyferry-labels`, whoever may edit a namespace has a selector hold it. An object of that name proves nothing: validations can be emptied, conditions
//! added, namespaces left out. So the whole spec is compared, and what is not known counts as a gap. What no object can show stays open:
//! an apiserver that runs without its ValidatingAdmissionPolicy plugin, and accesses that were written while a policy was not there.

use serde_json::Value;

/// A policy and the binding of its name, as they are shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    name: &'static str,
    policy: &'static str,
    binding: &'static str,
}

const AUTHOR_MANIFEST: &str = include_str!("../../../examples/fences/author.yaml");

const LABELS_MANIFEST: &str = include_str!("../../../examples/fences/labels.yaml");

/// Who writes a TargetAccess may mint for its ServiceAccount.
pub const AUTHOR: Fence = Fence { name: "keyferry-author", policy: AUTHOR_MANIFEST, binding: AUTHOR_MANIFEST };

/// A target's audience is for its pairs alone, whoever mints.
pub const PAIRING: Fence = Fence {
    name: "keyferry-pairing",
    policy: include_str!("../../../examples/fences/pairing.yaml"),
    binding: include_str!("../../../examples/fences/pairing-binding.yaml"),
};

/// Labels by which a TargetCluster selects namespaces are changed by whoever has the verb for it.
pub const LABELS: Fence = Fence { name: "keyferry-labels", policy: LABELS_MANIFEST, binding: LABELS_MANIFEST };

/// Deeper than anything that the API knows in a policy.
const DEEPEST: usize = 12;

/// Why a fence is not known to be in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceGap {
    /// There is none.
    #[error("there is no {kind} {name}")]
    Missing {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// It will be gone in a moment.
    #[error("the {kind} {name} is being deleted")]
    BeingDeleted {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The objects given are not those of that name.
    #[error("the {kind} is not named {name}")]
    OtherName {
        /// The kind of the object.
        kind: &'static str,
        /// The name that it should have.
        name: &'static str,
    },
    /// A field differs from what is shipped with this version.
    #[error("{field} of the {kind} {name} is not as shipped with this version")]
    Differs {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
        /// The path of the field.
        field: String,
    },
    /// The binding audits or warns, and lets pass.
    #[error("spec.validationActions of the ValidatingAdmissionPolicyBinding {0} do not hold Deny")]
    NotDenied(&'static str),
    /// The manifest in this program is broken, which a test excludes.
    #[error("the shipped manifest of {0} cannot be read")]
    Unreadable(&'static str),
}

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

impl Fence {
    /// The name of the policy, and of its binding.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Compares the two objects as the API gives them (`admissionregistration.k8s.io/v1`), or `null` where there is none, with the shipped
    /// ones. Metadata, texts of refusals and what the apiserver fills in make no difference.
    ///
    /// # Errors
    /// [`FenceGap`] names the first thing that is missing or different.
    pub fn check(&self, policy: &Value, binding: &Value) -> Result<(), FenceGap> {
        let name = self.name;
        for (kind, found, manifest) in [(POLICY, policy, self.policy), (BINDING, binding, self.binding)] {
            let expected = shipped(kind, name, manifest).ok_or(FenceGap::Unreadable(name))?;
            self.present(kind, found)?;
            if let Some(field) = difference("spec", &expected["spec"], &found["spec"], 0) {
                return Err(FenceGap::Differs { kind, name, field });
            }
        }
        let actions = binding["spec"]["validationActions"].as_array();
        if actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny")) { Ok(()) } else { Err(FenceGap::NotDenied(name)) }
    }

    fn present(&self, kind: &'static str, found: &Value) -> Result<(), FenceGap> {
        let name = self.name;
        if found.is_null() {
            return Err(FenceGap::Missing { kind, name });
        }
        if found["metadata"]["name"] != name || found.get("kind").is_some_and(|found| found != kind) {
            return Err(FenceGap::OtherName { kind, name });
        }
        if found["metadata"]["deletionTimestamp"].is_null() { Ok(()) } else { Err(FenceGap::BeingDeleted { kind, name }) }
    }
}

fn shipped(kind: &str, name: &str, manifest: &str) -> Option<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).ok()?;
    objects.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The path of the first difference. The shipped value leads, so a deep foreign one costs nothing.
fn difference(path: &str, expected: &Value, found: &Value, depth: usize) -> Option<String> {
    let here = || Some(path.to_owned());
    match (expected, found) {
        _ if depth > DEEPEST => here(),
        (Value::Object(expected), Value::Object(found)) => {
            let below = |name: &str| format!("{path}.{name}");
            let wanted = expected.iter().filter(|(name, _)| !is_free(name));
            let differs = |(name, expected): (&String, &Value)| match found.get(name) {
                Some(found) => difference(&below(name), expected, found, depth + 1),
                None => Some(below(name)),
            };
            wanted.into_iter().find_map(differs).or_else(|| {
                let more = found.iter().filter(|(name, _)| !expected.contains_key(*name) && !is_free(name));
                more.into_iter().find(|(name, value)| !is_nothing(name, value, depth + 1)).map(|(name, _)| below(name))
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.find_map(|(index, (expected, found))| difference(&format!("{path}[{index}]"), expected, found, depth + 1))
        }
        _ if expected == found => None,
        _ => here(),
    }
}

/// Texts for people, and the actions, which [`check`] looks at itself: more of them than `Deny` is no harm.
fn is_free(name: &str) -> bool {
    matches!(name, "message" | "messageExpression" | "reason" | "validationActions")
}

/// What the apiserver fills in, and what means the same as nothing: an empty selector selects everything.
fn is_nothing(name: &str, value: &Value, depth: usize) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => depth <= DEEPEST && members.iter().all(|(name, value)| is_nothing(name, value, depth + 1)),
        Value::String(text) => matches!((name, text.as_str()), ("matchPolicy", "Equivalent") | ("scope", "*")),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::{AUTHOR, BINDING, Fence, FenceGap, LABELS, PAIRING, POLICY, shipped};

    const NAME: &str = "keyferry-author";

    fn check(policy: &Value, binding: &Value) -> Result<(), FenceGap> {
        AUTHOR.check(policy, binding)
    }

    fn installed() -> (Value, Value) {
        installed_of(&AUTHOR)
    }

    /// The two objects as an apiserver gives them back.
    fn installed_of(fence: &Fence) -> (Value, Value) {
        let mut policy = shipped(POLICY, fence.name, fence.policy).unwrap();
        let mut binding = shipped(BINDING, fence.name, fence.binding).unwrap();
        let constraints = &mut policy["spec"]["matchConstraints"];
        constraints["matchPolicy"] = json!("Equivalent");
        constraints["namespaceSelector"] = json!({});
        constraints["objectSelector"] = json!({});
        constraints["resourceRules"][0]["scope"] = json!("*");
        policy["metadata"]["generation"] = json!(3);
        policy["status"] = json!({ "typeChecking": {} });
        binding["metadata"]["resourceVersion"] = json!("7");
        (policy, binding)
    }

    fn with(object: &Value, pointer: &str, value: Value) -> Value {
        let mut object = object.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[name] = value;
        object
    }

    #[test]
    fn what_is_shipped_is_no_gap() {
        let (policy, binding) = installed();
        assert_eq!(check(&policy, &binding), Ok(()));
        let silent = with(&binding, "/spec/validationActions", json!(["Deny"]));
        assert_eq!(check(&policy, &silent), Ok(()));
        let mut told = policy.clone();
        told["spec"]["validations"][0]["messageExpression"] = json!("'ask the platform team'");
        assert_eq!(check(&told, &binding), Ok(()));
        let everything = json!({ "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": { "matchLabels": {} } });
        assert_eq!(check(&policy, &with(&binding, "/spec/matchResources", everything)), Ok(()));
        assert_eq!(check(&with(&policy, "/spec/matchConditions", json!([])), &binding), Ok(()));
    }

    #[test]
    fn a_hollow_policy_is_a_gap() {
        let (policy, binding) = installed();
        let rule = policy["spec"]["matchConstraints"]["resourceRules"][0].clone();
        let other_rule = |name: &str, value: Value| json!([with(&json!({ "r": rule }), &format!("/r/{name}"), value)["r"]]);
        let always = json!([{ "expression": "true" }]);
        let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
        let looser = json!([{ "expression": format!("{expression} || true") }]);
        let cases = [
            ("/spec/validations", json!([])),
            ("/spec/validations", Value::Null),
            ("/spec/validations", always),
            ("/spec/validations", looser),
            ("/spec/matchConditions", json!([{ "name": "none", "expression": "false" }])),
            ("/spec/failurePolicy", json!("Ignore")),
            ("/spec/failurePolicy", Value::Null),
            ("/spec/paramKind", json!({ "apiVersion": "v1", "kind": "ConfigMap" })),
            ("/spec/variables", json!([{ "name": "x", "expression": "1" }])),
            ("/spec/auditAnnotations", json!([{ "key": "x", "valueExpression": "'y'" }])),
            ("/spec/matchConstraints/matchPolicy", json!("Exact")),
            ("/spec/matchConstraints/namespaceSelector", json!({ "matchLabels": { "a": "b" } })),
            ("/spec/matchConstraints/objectSelector", json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] })),
            ("/spec/matchConstraints/excludeResourceRules", json!([rule])),
            ("/spec/matchConstraints/resourceRules", json!([])),
            ("/spec/matchConstraints/resourceRules", json!([rule, rule])),
            ("/spec/matchConstraints/resourceRules", other_rule("operations", json!(["CREATE"]))),
            ("/spec/matchConstraints/resourceRules", other_rule("resources", json!(["targetclusters"]))),
            ("/spec/matchConstraints/resourceRules", other_rule("apiVersions", json!(["v1"]))),
            ("/spec/matchConstraints/resourceRules", other_rule("apiGroups", json!(["example.com"]))),
            ("/spec/matchConstraints/resourceRules", other_rule("resourceNames", json!(["one"]))),
            ("/spec/matchConstraints/resourceRules", other_rule("scope", json!("Cluster"))),
            ("/spec/somethingNew", json!(true)),
        ];
        for (pointer, value) in cases {
            let gap = check(&with(&policy, pointer, value.clone()), &binding);
            assert!(matches!(&gap, Err(FenceGap::Differs { kind: POLICY, .. })), "{pointer} = {value}: {gap:?}");
        }
        let gap = check(&with(&policy, "/spec/failurePolicy", json!("Ignore")), &binding).unwrap_err();
        assert_eq!(
            gap.to_string(),
            "spec.failurePolicy of the ValidatingAdmissionPolicy keyferry-author is not as shipped with this version"
        );
    }

    #[test]
    fn a_binding_that_leaves_something_out_is_a_gap() {
        let (policy, binding) = installed();
        let cases = [
            ("/spec/policyName", json!("other")),
            ("/spec/paramRef", json!({ "name": "x", "parameterNotFoundAction": "Allow" })),
            ("/spec/matchResources", json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } })),
            ("/spec/matchResources", json!({ "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "DoesNotExist" }] } })),
            ("/spec/matchResources", json!({ "excludeResourceRules": [{ "resources": ["*"] }] })),
            ("/spec/matchResources", json!({ "resourceRules": [{ "resources": ["pods"] }] })),
            ("/spec/matchResources", json!({ "matchPolicy": "Exact" })),
        ];
        for (pointer, value) in cases {
            let gap = check(&policy, &with(&binding, pointer, value.clone()));
            assert!(matches!(&gap, Err(FenceGap::Differs { kind: BINDING, .. })), "{pointer} = {value}: {gap:?}");
        }
        for actions in [json!([]), json!(["Audit"]), json!(["Warn", "Audit"]), json!("Deny"), Value::Null] {
            assert_eq!(check(&policy, &with(&binding, "/spec/validationActions", actions)), Err(FenceGap::NotDenied(NAME)));
        }
    }

    #[test]
    fn what_is_absent_or_going_is_a_gap() {
        let (policy, binding) = installed();
        assert_eq!(check(&Value::Null, &binding), Err(FenceGap::Missing { kind: POLICY, name: NAME }));
        assert_eq!(check(&policy, &Value::Null), Err(FenceGap::Missing { kind: BINDING, name: NAME }));
        assert_eq!(check(&binding, &policy), Err(FenceGap::OtherName { kind: POLICY, name: NAME }));
        let renamed = with(&policy, "/metadata/name", json!("keyferry-author-2"));
        assert_eq!(check(&renamed, &binding), Err(FenceGap::OtherName { kind: POLICY, name: NAME }));
        let going = with(&binding, "/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z"));
        assert_eq!(check(&policy, &going), Err(FenceGap::BeingDeleted { kind: BINDING, name: NAME }));
        assert!(check(&json!({}), &json!([])).is_err());
    }

    #[test]
    fn the_labels_fence_watches_every_way_to_a_label() {
        let (policy, binding) = installed_of(&LABELS);
        assert_eq!(LABELS.check(&policy, &binding), Ok(()));
        let fewer = with(&policy, "/spec/matchConstraints/resourceRules/0/resources", json!(["namespaces"]));
        assert!(matches!(LABELS.check(&fewer, &binding), Err(FenceGap::Differs { kind: POLICY, name: "keyferry-labels", .. })));
        assert_eq!(LABELS.check(&Value::Null, &binding), Err(FenceGap::Missing { kind: POLICY, name: "keyferry-labels" }));
    }

    #[test]
    fn the_pairing_is_bound_to_everything_by_the_binding_of_its_name() {
        let (policy, binding) = installed_of(&PAIRING);
        assert_eq!(PAIRING.check(&policy, &binding), Ok(()));
        let cases = [
            ("/spec/matchResources", json!({ "namespaceSelector": { "matchLabels": { "access.keyferry.dev/closed": "true" } } })),
            ("/spec/paramRef", json!({ "name": "other", "parameterNotFoundAction": "Allow" })),
            ("/spec/paramRef", json!({ "selector": {}, "parameterNotFoundAction": "Allow" })),
        ];
        for (pointer, value) in cases {
            let gap = PAIRING.check(&policy, &with(&binding, pointer, value.clone()));
            assert!(matches!(&gap, Err(FenceGap::Differs { kind: BINDING, name: "keyferry-pairing", .. })), "{pointer} = {value}: {gap:?}");
        }
        let gap = PAIRING.check(&with(&policy, "/spec/matchConditions", json!([{ "name": "none", "expression": "false" }])), &binding);
        assert!(matches!(&gap, Err(FenceGap::Differs { kind: POLICY, .. })), "{gap:?}");
        let (other, _) = installed();
        assert_eq!(PAIRING.check(&other, &binding), Err(FenceGap::OtherName { kind: POLICY, name: "keyferry-pairing" }));
    }
}
