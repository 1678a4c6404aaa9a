//! Checks whether an admission policy of `examples/admission-policies` is on the hub as shipped,
//! and bound to everything.
//!
//! Without `keyferry-author`, anyone with the right to write a TargetAccess can mint through it.
//! Without `keyferry-pairing`, anyone with the right to create tokens can mint for every target.
//! Without `keyferry-labels`, anyone with the right to edit a namespace can make a selector match
//! it. The meaning of each of the others is in its constant below.
//!
//! An object of the right name proves nothing: validations can be emptied, conditions added,
//! namespaces excluded. So the whole spec is compared, and every unknown field counts as a gap. Two
//! lists of a policy belong to each hub: `hubAudiences`, which must contain every audience that the
//! hub is known to have, and `callerAudience`.
//!
//! Two gaps cannot be seen in any object: an apiserver that runs without its
//! ValidatingAdmissionPolicy plugin, and accesses that were written while a policy was missing.

mod fill;

use std::collections::BTreeSet;

use serde_json::Value;

pub use self::fill::{FillError, manifests};

/// A shipped policy and one of its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// The name of the binding.
    name: &'static str,
    policy_name: &'static str,
    policy: &'static str,
    binding: &'static str,
    meaning: &'static str,
}

impl AdmissionPolicy {
    /// A policy whose binding has the same name and is in the same file.
    const fn of(name: &'static str, manifest: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            policy_name: name,
            policy: manifest,
            binding: manifest,
            meaning,
        }
    }
}

const PAIRING_MANIFEST: &str = include_str!("../../../examples/admission-policies/pairing.yaml");
const PAIRING_BINDINGS: &str =
    include_str!("../../../examples/admission-policies/pairing-binding.yaml");
const SELF_MANIFEST: &str = include_str!("../../../examples/admission-policies/self.yaml");

/// Requires that the author of a TargetAccess may mint for its ServiceAccount.
pub const AUTHOR: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-author",
    include_str!("../../../examples/admission-policies/author.yaml"),
    "no token is written to an object",
);

/// Allows a target's audience only in tokens of its grants, regardless of who mints them.
pub const PAIRING: AdmissionPolicy = AdmissionPolicy {
    name: "keyferry-pairing",
    policy_name: "keyferry-pairing",
    policy: PAIRING_MANIFEST,
    binding: PAIRING_BINDINGS,
    meaning: "anyone who may create tokens may mint for the targets' audiences",
};

/// The same for namespaces that their admin closed; it also refuses while the AudiencePairing is
/// missing.
pub const PAIRING_CLOSED: AdmissionPolicy = AdmissionPolicy {
    name: "keyferry-pairing-closed",
    meaning: "namespaces labelled access.keyferry.dev/closed are open while the AudiencePairing is \
        missing",
    ..PAIRING
};

/// Restricts changes of the labels by which a TargetCluster selects namespaces to users with the
/// verb for it.
pub const LABELS: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-labels",
    include_str!("../../../examples/admission-policies/labels.yaml"),
    "anyone who may edit a namespace may make a namespaceSelector match it",
);

/// Forbids a TargetCluster to use an audience of the hub; any other audience needs the verb
/// `claim`.
pub const AUDIENCE: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-audience",
    include_str!("../../../examples/admission-policies/audience.yaml"),
    "anyone who may create TargetClusters may take an audience that others on the hub need",
);

/// Allows redirecting a target's tokens only with the verb `retarget`.
pub const RETARGET: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-retarget",
    include_str!("../../../examples/admission-policies/retarget.yaml"),
    "anyone who may edit a TargetCluster may redirect its tokens",
);

/// Limits what Keyferry's own account may request from the hub.
pub const OWN_ACCOUNT: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-self",
    SELF_MANIFEST,
    "Keyferry's own account may ask for credentials of the hub, where RBAC lets it mint",
);

/// Limits which Secrets Keyferry's own account may write.
pub const OWN_SECRETS: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-self-secrets",
    SELF_MANIFEST,
    "Keyferry's own account may write Secrets that the hub fills with a token that does not end",
);

/// Prevents the deletion of the AudiencePairing and of its definition.
pub const KEPT: AdmissionPolicy = AdmissionPolicy::of(
    "keyferry-kept",
    include_str!("../../../examples/admission-policies/kept.yaml"),
    "the AudiencePairing and its definition can be deleted, and then keyferry-pairing \
     restricts no caller",
);

/// All shipped admission policies.
pub const ALL: [AdmissionPolicy; 9] = [
    AUTHOR,
    PAIRING,
    PAIRING_CLOSED,
    LABELS,
    AUDIENCE,
    RETARGET,
    OWN_ACCOUNT,
    OWN_SECRETS,
    KEPT,
];

/// The values that each hub sets in the shipped manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSite {
    /// Keyferry's own namespace.
    pub namespace: String,
    /// The name of its ServiceAccount without any rights in that namespace.
    pub canary: String,
    /// The username under which the hub knows Keyferry.
    pub username: String,
    /// The audience of tokens for Keyferry itself.
    pub caller_audience: String,
    /// The audiences that the hub is known to accept, and its issuer.
    pub hub_audiences: BTreeSet<String>,
}

impl HubSite {
    /// The values in the shipped manifests, for a hub of which nothing is known.
    pub fn shipped() -> Self {
        Self {
            namespace: fill::NAMESPACE.to_owned(),
            canary: fill::CANARY.to_owned(),
            username: fill::USERNAME.to_owned(),
            caller_audience: fill::CALLER_AUDIENCE.to_owned(),
            hub_audiences: BTreeSet::new(),
        }
    }
}

/// Maximum depth of a comparison, deeper than any field of a policy in the API.
const DEEPEST: usize = 12;

/// Why an admission policy is not known to be effective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionPolicyGap {
    /// The object does not exist.
    #[error("there is no {kind} {name}")]
    Missing {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The object is being deleted.
    #[error("the {kind} {name} is being deleted")]
    BeingDeleted {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The given object does not have the expected name and kind.
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
    /// The binding only audits or warns, and does not deny.
    #[error("spec.validationActions of the ValidatingAdmissionPolicyBinding {0} do not hold Deny")]
    NotDenied(&'static str),
    /// `hubAudiences` is not a plain list of strings.
    #[error("hubAudiences of the ValidatingAdmissionPolicy {0} is not a list of quoted texts")]
    HubAudiencesUnread(&'static str),
    /// `hubAudiences` lacks an audience that the hub accepts.
    #[error(
        "hubAudiences of the ValidatingAdmissionPolicy {name} lacks {missing}, which this hub uses \
         itself; keyferry admission-policies prints it filled in"
    )]
    HubAudiencesIncomplete {
        /// The name of the policy.
        name: &'static str,
        /// The missing audiences, at most the first three.
        missing: String,
    },
    /// The manifest in this program is invalid; a test excludes this.
    #[error("the shipped manifest of {0} cannot be read")]
    Unreadable(&'static str),
}

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

impl AdmissionPolicy {
    /// The name of the binding. It equals the policy's name, unless the policy has a second
    /// binding.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The name of the policy.
    pub fn policy_name(&self) -> &'static str {
        self.policy_name
    }

    /// What is possible without this policy, as a text for people.
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Compares the hub's policy and binding with the shipped ones.
    ///
    /// The objects are as the API returns them (`admissionregistration.k8s.io/v1`), or `null` if
    /// there is none. Ignored are metadata, the texts of refusals, what the apiserver fills in, and
    /// which audiences `hubAudiences` lists: for those see
    /// [`AdmissionPolicy::check_hub_audiences`].
    ///
    /// # Errors
    /// [`AdmissionPolicyGap`] names the first thing that is missing or different.
    pub fn check(
        &self,
        policy: &Value,
        binding: &Value,
        site: &HubSite,
    ) -> Result<(), AdmissionPolicyGap> {
        let wanted = [
            (POLICY, self.policy_name, policy, self.policy),
            (BINDING, self.name, binding, self.binding),
        ];
        for (kind, name, found, manifest) in wanted {
            let mut expected = shipped(kind, name, &fill::for_site(manifest, site))
                .ok_or(AdmissionPolicyGap::Unreadable(name))?;
            present(kind, name, found)?;
            // This list differs on each hub, so take the hub's own.
            if let (Some(list), Some(own)) =
                (hub_audiences(found), expected_hub_audiences(&mut expected))
            {
                *own = list.clone();
            }
            if let Some(field) = difference("spec", &expected["spec"], &found["spec"], 0) {
                return Err(AdmissionPolicyGap::Differs { kind, name, field });
            }
        }
        if hub_audiences(policy).is_some() {
            self.listed_hub_audiences(policy)?;
        }
        let actions = binding["spec"]["validationActions"].as_array();
        if actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny")) {
            Ok(())
        } else {
            Err(AdmissionPolicyGap::NotDenied(self.name))
        }
    }

    /// Checks that `hubAudiences` contains every audience that the hub is known to use itself. A
    /// policy without that list passes.
    ///
    /// # Errors
    /// [`AdmissionPolicyGap::HubAudiencesIncomplete`], [`AdmissionPolicyGap::HubAudiencesUnread`].
    pub fn check_hub_audiences(
        &self,
        policy: &Value,
        site: &HubSite,
    ) -> Result<(), AdmissionPolicyGap> {
        if hub_audiences(policy).is_none() {
            return Ok(());
        }
        let listed = self.listed_hub_audiences(policy)?;
        let missing: Vec<&str> = site
            .hub_audiences
            .iter()
            .filter(|known| !listed.contains(*known))
            .map(String::as_str)
            .take(3)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(AdmissionPolicyGap::HubAudiencesIncomplete {
            name: self.policy_name,
            missing: missing.join(", "),
        })
    }

    /// Returns the entries of `hubAudiences`.
    ///
    /// # Errors
    /// [`AdmissionPolicyGap::HubAudiencesUnread`] if it is not a list of strings, or if there is
    /// none.
    pub fn listed_hub_audiences(
        &self,
        policy: &Value,
    ) -> Result<BTreeSet<String>, AdmissionPolicyGap> {
        let unread = AdmissionPolicyGap::HubAudiencesUnread(self.policy_name);
        hub_audiences(policy)
            .and_then(Value::as_str)
            .and_then(fill::texts)
            .ok_or(unread)
    }
}

fn present(
    kind: &'static str,
    name: &'static str,
    found: &Value,
) -> Result<(), AdmissionPolicyGap> {
    if found.is_null() {
        return Err(AdmissionPolicyGap::Missing { kind, name });
    }
    if found["metadata"]["name"] != name || found.get("kind").is_some_and(|found| found != kind) {
        return Err(AdmissionPolicyGap::OtherName { kind, name });
    }
    if found["metadata"]["deletionTimestamp"].is_null() {
        Ok(())
    } else {
        Err(AdmissionPolicyGap::BeingDeleted { kind, name })
    }
}

fn shipped(kind: &str, name: &str, manifest: &str) -> Option<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).ok()?;
    objects
        .into_iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The expression of the variable `hubAudiences`.
fn hub_audiences(policy: &Value) -> Option<&Value> {
    let variables = policy["spec"]["variables"].as_array()?;
    variables
        .iter()
        .find(|variable| variable["name"] == "hubAudiences")?
        .get("expression")
}

fn expected_hub_audiences(policy: &mut Value) -> Option<&mut Value> {
    let variables = policy.pointer_mut("/spec/variables")?.as_array_mut()?;
    variables
        .iter_mut()
        .find(|variable| variable["name"] == "hubAudiences")?
        .get_mut("expression")
}

/// Returns the path of the first difference. The shipped value leads, so a deeply nested foreign
/// value costs nothing.
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
                let more = found
                    .iter()
                    .filter(|(name, _)| !expected.contains_key(*name) && !is_free(name));
                more.into_iter()
                    .find(|(name, value)| !is_nothing(name, value, depth + 1))
                    .map(|(name, _)| below(name))
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.find_map(|(index, (expected, found))| {
                difference(&format!("{path}[{index}]"), expected, found, depth + 1)
            })
        }
        _ if expected == found => None,
        _ => here(),
    }
}

/// Whether a field may differ: texts for people, and the actions. [`check`] checks the actions
/// itself; more of them than `Deny` do no harm.
fn is_free(name: &str) -> bool {
    matches!(
        name,
        "message" | "messageExpression" | "reason" | "validationActions"
    )
}

/// Whether a value is a default of the apiserver or means the same as an absent field: an empty
/// selector selects everything.
fn is_nothing(name: &str, value: &Value, depth: usize) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => {
            depth <= DEEPEST
                && members
                    .iter()
                    .all(|(name, value)| is_nothing(name, value, depth + 1))
        }
        Value::String(text) => matches!(
            (name, text.as_str()),
            ("matchPolicy", "Equivalent") | ("scope", "*")
        ),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        ALL, AUDIENCE, AUTHOR, AdmissionPolicy, AdmissionPolicyGap, BINDING, HubSite, LABELS,
        OWN_ACCOUNT, PAIRING, PAIRING_CLOSED, POLICY, RETARGET, shipped,
    };

    const NAME: &str = "keyferry-author";

    fn check(policy: &Value, binding: &Value) -> Result<(), AdmissionPolicyGap> {
        AUTHOR.check(policy, binding, &HubSite::shipped())
    }

    fn installed() -> (Value, Value) {
        installed_of(&AUTHOR)
    }

    /// The two objects as an apiserver returns them.
    fn installed_of(admission_policy: &AdmissionPolicy) -> (Value, Value) {
        let mut policy = shipped(
            POLICY,
            admission_policy.policy_name,
            admission_policy.policy,
        )
        .unwrap();
        let mut binding =
            shipped(BINDING, admission_policy.name, admission_policy.binding).unwrap();
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
        assert_eq!(
            check(&policy, &with(&binding, "/spec/matchResources", everything)),
            Ok(())
        );
        assert_eq!(
            check(&with(&policy, "/spec/matchConditions", json!([])), &binding),
            Ok(())
        );
    }

    #[test]
    fn a_hollow_policy_is_a_gap() {
        let (policy, binding) = installed();
        let rule = policy["spec"]["matchConstraints"]["resourceRules"][0].clone();
        let other_rule = |name: &str, value: Value| {
            json!([with(&json!({ "r": rule }), &format!("/r/{name}"), value)["r"]])
        };
        let always = json!([{ "expression": "true" }]);
        let expression = policy["spec"]["validations"][0]["expression"]
            .as_str()
            .unwrap();
        let looser = json!([{ "expression": format!("{expression} || true") }]);
        let cases = [
            ("/spec/validations", json!([])),
            ("/spec/validations", Value::Null),
            ("/spec/validations", always),
            ("/spec/validations", looser),
            (
                "/spec/matchConditions",
                json!([{ "name": "none", "expression": "false" }]),
            ),
            ("/spec/failurePolicy", json!("Ignore")),
            ("/spec/failurePolicy", Value::Null),
            (
                "/spec/paramKind",
                json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
            ),
            (
                "/spec/variables",
                json!([{ "name": "x", "expression": "1" }]),
            ),
            (
                "/spec/auditAnnotations",
                json!([{ "key": "x", "valueExpression": "'y'" }]),
            ),
            ("/spec/matchConstraints/matchPolicy", json!("Exact")),
            (
                "/spec/matchConstraints/namespaceSelector",
                json!({ "matchLabels": { "a": "b" } }),
            ),
            (
                "/spec/matchConstraints/objectSelector",
                json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }),
            ),
            ("/spec/matchConstraints/excludeResourceRules", json!([rule])),
            ("/spec/matchConstraints/resourceRules", json!([])),
            ("/spec/matchConstraints/resourceRules", json!([rule, rule])),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("operations", json!(["CREATE"])),
            ),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("resources", json!(["targetclusters"])),
            ),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("apiVersions", json!(["v1"])),
            ),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("apiGroups", json!(["example.com"])),
            ),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("resourceNames", json!(["one"])),
            ),
            (
                "/spec/matchConstraints/resourceRules",
                other_rule("scope", json!("Cluster")),
            ),
            ("/spec/somethingNew", json!(true)),
        ];
        for (pointer, value) in cases {
            let gap = check(&with(&policy, pointer, value.clone()), &binding);
            assert!(
                matches!(&gap, Err(AdmissionPolicyGap::Differs { kind: POLICY, .. })),
                "{pointer} = {value}: {gap:?}"
            );
        }
        let gap = check(
            &with(&policy, "/spec/failurePolicy", json!("Ignore")),
            &binding,
        )
        .unwrap_err();
        assert_eq!(
            gap.to_string(),
            "spec.failurePolicy of the ValidatingAdmissionPolicy keyferry-author is not as shipped \
             with this version"
        );
    }

    #[test]
    fn a_binding_that_leaves_something_out_is_a_gap() {
        let (policy, binding) = installed();
        let cases = [
            ("/spec/policyName", json!("other")),
            (
                "/spec/paramRef",
                json!({ "name": "x", "parameterNotFoundAction": "Allow" }),
            ),
            (
                "/spec/matchResources",
                json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } }),
            ),
            (
                "/spec/matchResources",
                json!({ "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "DoesNotExist" }] } }),
            ),
            (
                "/spec/matchResources",
                json!({ "excludeResourceRules": [{ "resources": ["*"] }] }),
            ),
            (
                "/spec/matchResources",
                json!({ "resourceRules": [{ "resources": ["pods"] }] }),
            ),
            ("/spec/matchResources", json!({ "matchPolicy": "Exact" })),
        ];
        for (pointer, value) in cases {
            let gap = check(&policy, &with(&binding, pointer, value.clone()));
            assert!(
                matches!(&gap, Err(AdmissionPolicyGap::Differs { kind: BINDING, .. })),
                "{pointer} = {value}: {gap:?}"
            );
        }
        for actions in [
            json!([]),
            json!(["Audit"]),
            json!(["Warn", "Audit"]),
            json!("Deny"),
            Value::Null,
        ] {
            assert_eq!(
                check(&policy, &with(&binding, "/spec/validationActions", actions)),
                Err(AdmissionPolicyGap::NotDenied(NAME))
            );
        }
    }

    #[test]
    fn what_is_absent_or_going_is_a_gap() {
        let (policy, binding) = installed();
        assert_eq!(
            check(&Value::Null, &binding),
            Err(AdmissionPolicyGap::Missing {
                kind: POLICY,
                name: NAME
            })
        );
        assert_eq!(
            check(&policy, &Value::Null),
            Err(AdmissionPolicyGap::Missing {
                kind: BINDING,
                name: NAME
            })
        );
        assert_eq!(
            check(&binding, &policy),
            Err(AdmissionPolicyGap::OtherName {
                kind: POLICY,
                name: NAME
            })
        );
        let renamed = with(&policy, "/metadata/name", json!("keyferry-author-2"));
        assert_eq!(
            check(&renamed, &binding),
            Err(AdmissionPolicyGap::OtherName {
                kind: POLICY,
                name: NAME
            })
        );
        let going = with(
            &binding,
            "/metadata/deletionTimestamp",
            json!("2026-01-02T03:04:05Z"),
        );
        assert_eq!(
            check(&policy, &going),
            Err(AdmissionPolicyGap::BeingDeleted {
                kind: BINDING,
                name: NAME
            })
        );
        assert!(check(&json!({}), &json!([])).is_err());
    }

    #[test]
    fn the_labels_admission_policy_watches_every_way_to_a_label() {
        let (policy, binding) = installed_of(&LABELS);
        assert_eq!(LABELS.check(&policy, &binding, &HubSite::shipped()), Ok(()));
        let fewer = with(
            &policy,
            "/spec/matchConstraints/resourceRules/0/resources",
            json!(["namespaces"]),
        );
        assert!(matches!(
            LABELS.check(&fewer, &binding, &HubSite::shipped()),
            Err(AdmissionPolicyGap::Differs {
                kind: POLICY,
                name: "keyferry-labels",
                ..
            })
        ));
        assert_eq!(
            LABELS.check(&Value::Null, &binding, &HubSite::shipped()),
            Err(AdmissionPolicyGap::Missing {
                kind: POLICY,
                name: "keyferry-labels"
            })
        );
    }

    #[test]
    fn the_pairing_is_bound_to_everything_by_the_binding_of_its_name() {
        let (policy, binding) = installed_of(&PAIRING);
        assert_eq!(
            PAIRING.check(&policy, &binding, &HubSite::shipped()),
            Ok(())
        );
        let cases = [
            (
                "/spec/matchResources",
                json!({ "namespaceSelector": { "matchLabels": { "access.keyferry.dev/closed": "true" } } }),
            ),
            (
                "/spec/paramRef",
                json!({ "name": "other", "parameterNotFoundAction": "Allow" }),
            ),
            (
                "/spec/paramRef",
                json!({ "selector": {}, "parameterNotFoundAction": "Allow" }),
            ),
        ];
        for (pointer, value) in cases {
            let gap = PAIRING.check(
                &policy,
                &with(&binding, pointer, value.clone()),
                &HubSite::shipped(),
            );
            assert!(
                matches!(
                    &gap,
                    Err(AdmissionPolicyGap::Differs {
                        kind: BINDING,
                        name: "keyferry-pairing",
                        ..
                    })
                ),
                "{pointer} = {value}: {gap:?}"
            );
        }
        let gap = with(
            &policy,
            "/spec/matchConditions",
            json!([{ "name": "none", "expression": "false" }]),
        );
        let gap = PAIRING.check(&gap, &binding, &HubSite::shipped());
        assert!(
            matches!(&gap, Err(AdmissionPolicyGap::Differs { kind: POLICY, .. })),
            "{gap:?}"
        );
        let (other, _) = installed();
        assert_eq!(
            PAIRING.check(&other, &binding, &HubSite::shipped()),
            Err(AdmissionPolicyGap::OtherName {
                kind: POLICY,
                name: "keyferry-pairing"
            })
        );
    }

    #[test]
    fn every_shipped_policy_is_compared_and_is_no_gap() {
        for admission_policy in ALL {
            let (policy, binding) = installed_of(&admission_policy);
            assert_eq!(
                admission_policy.check(&policy, &binding, &HubSite::shipped()),
                Ok(()),
                "{}",
                admission_policy.name()
            );
            assert!(
                admission_policy
                    .check(&Value::Null, &binding, &HubSite::shipped())
                    .is_err(),
                "{}",
                admission_policy.name()
            );
            assert!(
                admission_policy
                    .check(&policy, &Value::Null, &HubSite::shipped())
                    .is_err(),
                "{}",
                admission_policy.name()
            );
            let hollow = with(
                &policy,
                "/spec/validations",
                json!([{ "expression": "true" }]),
            );
            assert!(
                admission_policy
                    .check(&hollow, &binding, &HubSite::shipped())
                    .is_err(),
                "{}",
                admission_policy.name()
            );
        }
    }

    #[test]
    fn a_hubs_own_audiences_are_a_list_that_holds_all_of_them() {
        let with_list = |policy: &Value, list: &str| {
            let mut policy = policy.clone();
            let variables = policy["spec"]["variables"].as_array_mut().unwrap();
            let own = variables
                .iter_mut()
                .find(|variable| variable["name"] == "hubAudiences")
                .unwrap();
            own["expression"] = json!(list);
            policy
        };
        let site = HubSite {
            hub_audiences: ["https://hub.example.com".to_owned()].into(),
            ..HubSite::shipped()
        };
        for admission_policy in [PAIRING, PAIRING_CLOSED, AUDIENCE, OWN_ACCOUNT] {
            let (policy, binding) = installed_of(&admission_policy);
            let gap = admission_policy
                .check_hub_audiences(&policy, &site)
                .unwrap_err();
            assert!(
                gap.to_string().contains("lacks https://hub.example.com"),
                "as shipped, it is a placeholder: {gap}"
            );
            let filled = with_list(&policy, "[\n 'https://hub.example.com', \"x\" ]");
            assert_eq!(admission_policy.check_hub_audiences(&filled, &site), Ok(()));
            assert_eq!(admission_policy.check(&filled, &binding, &site), Ok(()));
            for no_list in [
                "[] + ['https://hub.example.com']",
                "['https://hub.example.com'",
                "params.list",
                "['\\x41']",
                "['a' 'b']",
                "['a']['b']",
            ] {
                let hidden = with_list(&policy, no_list);
                assert!(
                    admission_policy.check(&hidden, &binding, &site).is_err(),
                    "{no_list}"
                );
                assert!(
                    admission_policy
                        .check_hub_audiences(&hidden, &site)
                        .is_err(),
                    "{no_list}"
                );
            }
        }
        assert_eq!(
            LABELS.check_hub_audiences(&installed_of(&LABELS).0, &site),
            Ok(()),
            "it has no such list"
        );
    }

    #[test]
    fn the_policies_are_about_the_account_and_the_audience_of_this_keyferry() {
        let (policy, binding) = installed_of(&OWN_ACCOUNT);
        let elsewhere = HubSite {
            username: "system:serviceaccount:other:keyferry".to_owned(),
            ..HubSite::shipped()
        };
        assert!(
            matches!(
                OWN_ACCOUNT.check(&policy, &binding, &elsewhere),
                Err(AdmissionPolicyGap::Differs { .. })
            ),
            "it holds another account"
        );
        let (policy, binding) = installed_of(&PAIRING);
        let another = HubSite {
            caller_audience: "callers.example.com".to_owned(),
            ..HubSite::shipped()
        };
        assert!(matches!(
            PAIRING.check(&policy, &binding, &another),
            Err(AdmissionPolicyGap::Differs { .. })
        ));
        assert_eq!(
            RETARGET.check(
                &installed_of(&RETARGET).0,
                &installed_of(&RETARGET).1,
                &another
            ),
            Ok(()),
            "an API group of the same name"
        );
    }
}
