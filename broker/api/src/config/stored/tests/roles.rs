//! Roles of the hub: which of them the policy has, and as what.

use super::*;

fn base(fields: Value) -> Value {
    with_spec(target("prod", EARLY, "prod"), fields)
}

fn role(name: &str, created: &str, fields: Value) -> Value {
    let mut role = target(name, created, name);
    role["spec"] = json!({
        "sameAs": "prod", "role": "view", "audience": name, "issuer": "Hub",
        "deletionPolicy": "Drain", "suspend": false,
    });
    with_spec(role, fields)
}

fn with_spec(mut target: Value, fields: Value) -> Value {
    for (field, value) in fields.as_object().unwrap() {
        target["spec"][field] = value.clone();
    }
    target
}

fn deleted(mut target: Value, finalizers: Value) -> Value {
    target["metadata"]["deletionTimestamp"] = json!(LATE);
    target["metadata"]["finalizers"] = finalizers;
    target
}

/// What the policy makes of the role `view`: whether it is suspended, or the fault.
fn outcome(targets: &[Value]) -> Result<bool, (Reason, String)> {
    let mut objects = objects(targets);
    let mut assembled = objects.assemble(&own());
    let audiences = objects.audiences();
    assert!(
        audiences.contains("view"),
        "the audience stays reserved: {audiences:?}"
    );
    match assembled.policy.targets.remove(&named("view")) {
        Some(role) => {
            assert_eq!(role.address, "https://prod.example.com");
            Ok(role.suspend)
        }
        None => {
            let fault = assembled.targets.remove(&named("view")).unwrap();
            assert_eq!(
                fault.generation,
                objects.targets[&named("view")].record.spec()
            );
            Err((fault.reason, fault.message))
        }
    }
}

#[test]
fn a_role_is_usable_as_long_as_its_base_is() {
    let view = || role("view", LATE, json!({}));
    let kept = json!([crate::config::FINALIZER]);
    assert_eq!(outcome(&[base(json!({})), view()]), Ok(false));
    assert_eq!(
        outcome(&[base(json!({ "suspend": true })), view()]),
        Ok(true)
    );
    assert_eq!(
        outcome(&[deleted(base(json!({})), kept.clone()), view()]),
        Ok(true),
        "a base that drains keeps what was delivered for its roles, and nothing is minted"
    );
    for (targets, reason, problem) in [
        (
            vec![view()],
            Reason::BaseTargetMissing,
            "TargetCluster/prod does not exist",
        ),
        (
            vec![deleted(base(json!({})), json!([])), view()],
            Reason::BaseTargetMissing,
            "is being deleted",
        ),
        (
            vec![
                deleted(base(json!({ "deletionPolicy": "Immediate" })), kept),
                view(),
            ],
            Reason::BaseTargetMissing,
            "is being deleted",
        ),
        (
            vec![
                base(json!({ "address": "http://prod.example.com" })),
                view(),
            ],
            Reason::BaseTargetMissing,
            "cannot be used itself",
        ),
        (
            vec![
                base(json!({})),
                target("older", "2025-01-01T00:00:00Z", "prod"),
                view(),
            ],
            Reason::BaseTargetMissing,
            "cannot be used itself",
        ),
        (
            vec![
                base(json!({ "hub": true, "clientCertificates": {} })),
                view(),
            ],
            Reason::SpecInvalid,
            "is no cluster",
        ),
        (
            vec![base(json!({ "tokenLifetime": { "max": "1h" } })), view()],
            Reason::SpecInvalid,
            "spec.tokenLifetime.max: 12h is longer",
        ),
        (
            vec![
                base(json!({})),
                role("other", EARLY, json!({ "role": "edit" })),
                role("view", LATE, json!({ "sameAs": "other" })),
            ],
            Reason::SpecInvalid,
            "is a role itself",
        ),
        (
            vec![
                base(json!({})),
                role("view", LATE, json!({ "sameAs": "view" })),
            ],
            Reason::SpecInvalid,
            "names this TargetCluster itself",
        ),
        (
            vec![
                base(json!({})),
                role("view", LATE, json!({ "issuer": "Keyferry" })),
            ],
            Reason::SpecInvalid,
            "spec.issuer: is set beside sameAs",
        ),
        (
            vec![base(json!({})), role("older", EARLY, json!({})), view()],
            Reason::RoleConflict,
            "an older TargetCluster is this role",
        ),
        (
            vec![
                base(json!({})),
                role("older", EARLY, json!({ "probe": "Off" })),
                view(),
            ],
            Reason::RoleConflict,
            "an older TargetCluster is this role",
        ),
    ] {
        let (found, message) = outcome(&targets).unwrap_err();
        assert_eq!(found, reason, "{targets:?}: {message}");
        assert!(message.contains(problem), "{problem}: {message}");
    }
}

#[test]
fn the_older_role_keeps_its_name_and_is_no_matter_of_other_targets() {
    let mut objects = objects(&[
        base(json!({})),
        target("staging", EARLY, "staging"),
        role("view", EARLY, json!({})),
        role("later", LATE, json!({})),
        role("staging-view", LATE, json!({ "sameAs": "staging" })),
        role("edit", LATE, json!({ "role": "edit" })),
    ]);
    let assembled = objects.assemble(&own());
    let faults: Vec<_> = assembled.targets.keys().map(ObjectName::as_str).collect();
    assert_eq!((faults, assembled.policy.targets.len()), (vec!["later"], 5));
    objects.targets.remove(&named("view"));
    assert!(
        objects.assemble(&own()).targets.is_empty(),
        "the name is free again"
    );
}

#[test]
fn a_role_that_drains_is_what_it_was_at_its_base() {
    let kept = json!([crate::config::FINALIZER]);
    let objects = objects(&[
        base(json!({ "targetIssuer": "https://issuer.example.com" })),
        deleted(role("view", LATE, json!({})), kept),
    ]);
    let draining = objects.draining(&named("view")).unwrap().target;
    assert_eq!(draining.address, "https://prod.example.com");
    assert!(draining.target_issuer.is_some());
}
