//! Who can, and what a refused user lacks.

use super::{policy_of, request, user};

const SHOP: &str = include_str!("shop.yaml");

#[test]
fn everyone_who_can_is_named_with_every_way() {
    let policy = policy_of(SHOP);
    let answers: String = [
        "get pods a in shop",
        "update configmaps one in shop",
        "update configmaps one in bank",
        "update configmaps two",
        "get /metrics",
        "get /none",
    ]
    .iter()
    .map(|asked| {
        let answer = policy.subjects_who_can(&request(asked));
        let ways = answer.principals.iter().flat_map(|(principal, ways)| {
            ways.iter()
                .map(move |way| format!("  {principal}: {way}\n"))
        });
        let ways: String = ways.collect();
        let faults = answer.faults.iter();
        let faults: String = faults
            .map(|fault| format!("  {}: {fault}\n", fault.binding.id))
            .collect();
        format!("{asked}\n{ways}{faults}")
    })
    .collect();
    insta::assert_snapshot!(answers);
}

/// Each principal of an answer is allowed when it asks itself, and the others are not.
#[test]
fn who_can_agrees_with_decide() {
    let policy = policy_of(SHOP);
    for asked in [
        "get pods a in shop",
        "update secrets x in shop",
        "get /logs/x",
        "delete configmaps one",
    ] {
        let asked = request(asked);
        let answer = policy.subjects_who_can(&asked);
        for (name, principal) in [
            ("x+readers", crate::Principal::Group("readers".to_owned())),
            ("jane", crate::Principal::of_user("jane")),
            ("joe", crate::Principal::of_user("joe")),
            (
                "account shop/app",
                crate::Principal::of_user("system:serviceaccount:shop:app"),
            ),
            (
                "account tools/ci",
                crate::Principal::of_user("system:serviceaccount:tools:ci"),
            ),
        ] {
            let decided = policy.decide(&user(name), &asked).is_allowed();
            assert_eq!(
                answer.principals.contains_key(&principal),
                decided,
                "{name} {asked}"
            );
        }
    }
}

#[test]
fn the_nearest_rules_of_a_refused_user_are_named() {
    let policy = policy_of(SHOP);
    let answers: String = [
        ("jane", "update pods a in bank"),
        ("jane", "update pods a"),
        ("jane", "delete pods a in shop"),
        ("jane", "delete pods a in bank"),
        ("r+readers", "delete configmaps two in shop"),
        ("r+readers", "list configmaps in shop"),
        ("r+readers", "get deployments.apps a"),
        ("r+readers", "get pods.batch a"),
        ("r+readers", "watch secrets.batch a"),
        ("r+readers", "post /metrics"),
        ("r+readers", "get /metrics/x"),
        ("r+readers", "get pods"),
        ("joe", "get pods in shop"),
    ]
    .iter()
    .map(|(name, asked)| {
        let misses = policy.nearest_misses(&user(name), &request(asked), 3);
        let misses: String = misses
            .iter()
            .map(|miss| {
                let differences: Vec<String> =
                    miss.differences.iter().map(ToString::to_string).collect();
                format!("  {}: {}\n", miss.way, differences.join(", "))
            })
            .collect();
        format!("{name}: {asked}\n{misses}")
    })
    .collect();
    insta::assert_snapshot!(answers);
}
