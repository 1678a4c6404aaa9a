//! An installed policy that is as shipped is no gap, and each change that weakens it is one.

#![allow(clippy::unwrap_used)]

mod each_policy;

use serde_json::{Value, json};

use super::{BINDING_KIND, POLICY_KIND, parse_shipped};
use crate::admission_policy::{AUTHOR_POLICY, AdmissionPolicy, AdmissionPolicyGap, HubSite};

const NAME: &str = "keyferry-author";

fn check(policy: &Value, binding: &Value) -> Result<(), AdmissionPolicyGap> {
    AUTHOR_POLICY.compare_with_shipped(policy, binding, &HubSite::of_shipped_manifests())
}

fn installed() -> (Value, Value) {
    installed_of(&AUTHOR_POLICY)
}

/// The two objects as an apiserver returns them.
fn installed_of(admission_policy: &AdmissionPolicy) -> (Value, Value) {
    let mut policy = parse_shipped(
        POLICY_KIND,
        admission_policy.policy_name,
        admission_policy.policy,
    )
    .unwrap();
    let mut binding = parse_shipped(
        BINDING_KIND,
        admission_policy.name,
        admission_policy.binding,
    )
    .unwrap();
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
            matches!(
                &gap,
                Err(AdmissionPolicyGap::Differs {
                    kind: POLICY_KIND,
                    ..
                })
            ),
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
            matches!(
                &gap,
                Err(AdmissionPolicyGap::Differs {
                    kind: BINDING_KIND,
                    ..
                })
            ),
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
            kind: POLICY_KIND,
            name: NAME
        })
    );
    assert_eq!(
        check(&policy, &Value::Null),
        Err(AdmissionPolicyGap::Missing {
            kind: BINDING_KIND,
            name: NAME
        })
    );
    assert_eq!(
        check(&binding, &policy),
        Err(AdmissionPolicyGap::OtherName {
            kind: POLICY_KIND,
            name: NAME
        })
    );
    let renamed = with(&policy, "/metadata/name", json!("keyferry-author-2"));
    assert_eq!(
        check(&renamed, &binding),
        Err(AdmissionPolicyGap::OtherName {
            kind: POLICY_KIND,
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
            kind: BINDING_KIND,
            name: NAME
        })
    );
    assert!(check(&json!({}), &json!([])).is_err());
}
