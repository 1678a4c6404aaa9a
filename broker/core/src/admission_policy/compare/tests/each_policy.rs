//! Compares each shipped policy with an installed one, and what only some of them contain: a
//! second binding, the hub's own audiences, the names of this Keyferry.

use serde_json::{Value, json};

use super::{installed, installed_of, with};
use crate::admission_policy::compare::{BINDING, POLICY};
use crate::admission_policy::{
    ALL, AUDIENCE, AdmissionPolicyGap, HubSite, LABELS, OWN_ACCOUNT, PAIRING, PAIRING_CLOSED,
    RETARGET,
};

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
