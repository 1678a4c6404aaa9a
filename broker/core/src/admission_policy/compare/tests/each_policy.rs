//! Compares each shipped policy with an installed one, and what only some of them contain: a
//! second binding, the hub's own audiences, the names of this Keyferry.

use serde_json::{Value, json};

use super::{installed, installed_of, with};
use crate::admission_policy::compare::{BINDING_KIND, POLICY_KIND};
use crate::admission_policy::{
    ALL_POLICIES, AUDIENCE_POLICY, AdmissionPolicyGap, HubSite, LABELS_POLICY, OWN_ACCOUNT,
    PAIRING_CLOSED, PAIRING_POLICY, RETARGET_POLICY,
};

#[test]
fn the_labels_admission_policy_watches_every_way_to_a_label() {
    let (policy, binding) = installed_of(&LABELS_POLICY);
    assert_eq!(
        LABELS_POLICY.compare_with_shipped(&policy, &binding, &HubSite::of_shipped_manifests()),
        Ok(())
    );
    let fewer = with(
        &policy,
        "/spec/matchConstraints/resourceRules/0/resources",
        json!(["namespaces"]),
    );
    assert!(matches!(
        LABELS_POLICY.compare_with_shipped(&fewer, &binding, &HubSite::of_shipped_manifests()),
        Err(AdmissionPolicyGap::Differs {
            kind: POLICY_KIND,
            name: "keyferry-labels",
            ..
        })
    ));
    assert_eq!(
        LABELS_POLICY.compare_with_shipped(
            &Value::Null,
            &binding,
            &HubSite::of_shipped_manifests()
        ),
        Err(AdmissionPolicyGap::Missing {
            kind: POLICY_KIND,
            name: "keyferry-labels"
        })
    );
}

#[test]
fn the_pairing_is_bound_to_everything_by_the_binding_of_its_name() {
    let (policy, binding) = installed_of(&PAIRING_POLICY);
    assert_eq!(
        PAIRING_POLICY.compare_with_shipped(&policy, &binding, &HubSite::of_shipped_manifests()),
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
        let gap = PAIRING_POLICY.compare_with_shipped(
            &policy,
            &with(&binding, pointer, value.clone()),
            &HubSite::of_shipped_manifests(),
        );
        assert!(
            matches!(
                &gap,
                Err(AdmissionPolicyGap::Differs {
                    kind: BINDING_KIND,
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
    let gap = PAIRING_POLICY.compare_with_shipped(&gap, &binding, &HubSite::of_shipped_manifests());
    assert!(
        matches!(
            &gap,
            Err(AdmissionPolicyGap::Differs {
                kind: POLICY_KIND,
                ..
            })
        ),
        "{gap:?}"
    );
    let (other, _) = installed();
    assert_eq!(
        PAIRING_POLICY.compare_with_shipped(&other, &binding, &HubSite::of_shipped_manifests()),
        Err(AdmissionPolicyGap::OtherName {
            kind: POLICY_KIND,
            name: "keyferry-pairing"
        })
    );
}

#[test]
fn every_shipped_policy_is_compared_and_is_no_gap() {
    for admission_policy in ALL_POLICIES {
        let (policy, binding) = installed_of(&admission_policy);
        assert_eq!(
            admission_policy.compare_with_shipped(
                &policy,
                &binding,
                &HubSite::of_shipped_manifests()
            ),
            Ok(()),
            "{}",
            admission_policy.name()
        );
        assert!(
            admission_policy
                .compare_with_shipped(&Value::Null, &binding, &HubSite::of_shipped_manifests())
                .is_err(),
            "{}",
            admission_policy.name()
        );
        assert!(
            admission_policy
                .compare_with_shipped(&policy, &Value::Null, &HubSite::of_shipped_manifests())
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
                .compare_with_shipped(&hollow, &binding, &HubSite::of_shipped_manifests())
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
        ..HubSite::of_shipped_manifests()
    };
    for admission_policy in [PAIRING_POLICY, PAIRING_CLOSED, AUDIENCE_POLICY, OWN_ACCOUNT] {
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
        assert_eq!(
            admission_policy.compare_with_shipped(&filled, &binding, &site),
            Ok(())
        );
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
                admission_policy
                    .compare_with_shipped(&hidden, &binding, &site)
                    .is_err(),
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
        LABELS_POLICY.check_hub_audiences(&installed_of(&LABELS_POLICY).0, &site),
        Ok(()),
        "it has no such list"
    );
}

#[test]
fn the_policies_are_about_the_account_and_the_audience_of_this_keyferry() {
    let (policy, binding) = installed_of(&OWN_ACCOUNT);
    let elsewhere = HubSite {
        username: "system:serviceaccount:other:keyferry".to_owned(),
        ..HubSite::of_shipped_manifests()
    };
    assert!(
        matches!(
            OWN_ACCOUNT.compare_with_shipped(&policy, &binding, &elsewhere),
            Err(AdmissionPolicyGap::Differs { .. })
        ),
        "it holds another account"
    );
    let (policy, binding) = installed_of(&PAIRING_POLICY);
    let another = HubSite {
        caller_audience: "callers.example.com".to_owned(),
        ..HubSite::of_shipped_manifests()
    };
    assert!(matches!(
        PAIRING_POLICY.compare_with_shipped(&policy, &binding, &another),
        Err(AdmissionPolicyGap::Differs { .. })
    ));
    assert_eq!(
        RETARGET_POLICY.compare_with_shipped(
            &installed_of(&RETARGET_POLICY).0,
            &installed_of(&RETARGET_POLICY).1,
            &another
        ),
        Ok(()),
        "an API group of the same name"
    );
}
