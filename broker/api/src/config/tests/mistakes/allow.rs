//! Mistakes in the allow rules of a TargetCluster, and in their namespace selectors.

use super::{case, check};

#[test]
fn of_an_allow_rule() {
    const RULE: &str = "    - namespaces: [tenant-a, kube-system]\n      serviceAccounts: \
        [reconciler, deployer]\n";
    let rule = |to: &str, path, problem, fix| {
        case(
            RULE,
            format!("    - {}\n", to.replace('\n', "\n      ")),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        rule(
            "namespaces: [a] #here",
            "spec.allow[0].serviceAccounts",
            "missing",
            "add it",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [] #here",
            "spec.allow[0].serviceAccounts",
            "is empty",
            "exact name",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: null #here",
            "spec.allow[0].serviceAccounts",
            "null",
            "a list",
        ),
        rule(
            "namespaces: [] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces",
            "is empty",
            "exact name",
        ),
        rule(
            "namespaces: a #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces",
            "list is expected",
            "write a list",
        ),
        rule(
            "serviceAccounts: [a] #here",
            "spec.allow[0]",
            "neither namespaces nor",
            "by name",
        ),
        rule(
            "namespaces: ['*'] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[0]",
            "\"*\"",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a, 'tenant-*'] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[1]",
            "tenant-*",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts:\n  - a\n  - '*' #here",
            "spec.allow[0].serviceAccounts[1]",
            "\"*\"",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [tenant-a/b] #here",
            "spec.allow[0].serviceAccounts[0]",
            "tenant-a/b",
            "exact name",
        ),
        rule(
            "namespaces: [a, a] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[1]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a, b, a] #here",
            "spec.allow[0].serviceAccounts[2]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a, 5] #here",
            "spec.allow[0].serviceAccounts[1]",
            "integer `5`",
            "quotes",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [] #here",
            "spec.allow[0].deliveries",
            "is empty",
            "at least one",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [http] #here",
            "spec.allow[0].deliveries[0]",
            "not a delivery; there are ArgoCDSecret",
            "exact",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: ['*'] #here",
            "spec.allow[0].deliveries[0]",
            "not a delivery",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [HTTP, HTTP] #here",
            "spec.allow[0].deliveries[1]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\nuser: b #here",
            "spec.allow[0].user",
            "unknown field",
            "spelling",
        ),
        case(
            RULE,
            "    - everybody #here\n",
            "spec.allow[0]",
            "mapping is expected",
            "write a mapping",
        ),
    ]);
}

#[test]
fn of_a_selector() {
    const RULE: &str = "    - namespaces: [tenant-a, kube-system]\n      serviceAccounts: \
        [reconciler, deployer]\n";
    const SELECTOR: &str = "spec.allow[0].namespaceSelector";
    let with = |to: String, path, problem, fix| {
        case(
            RULE,
            format!("    - serviceAccounts: [a]\n      {to}\n"),
            path,
            problem,
            fix,
        )
    };
    let selector = |to: &str, path, problem, fix| {
        with(format!("namespaceSelector: {to} #here"), path, problem, fix)
    };
    let term = |to: &str, path, problem, fix| {
        with(
            format!("namespaceSelector: {{matchExpressions: [{{{to}}}]}} #here"),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        selector("{}", SELECTOR, "every namespace", "by name"),
        selector(
            "{matchLabels: {}, matchExpressions: []}",
            SELECTOR,
            "every namespace",
            "by name",
        ),
        selector(
            "{matchLabels: {team: a}}",
            "spec.allow[0].namespaceSelector.matchLabels.team",
            "\"team\"",
            "access.keyferry.dev/",
        ),
        selector(
            "{matchLabels: {access.keyferry.dev: a}}",
            "spec.allow[0].namespaceSelector.matchLabels.access.keyferry.dev",
            "can be set",
            "guards",
        ),
        selector(
            "{matchLabels: {access.keyferry.dev/x: true}}",
            "spec.allow[0].namespaceSelector.matchLabels.access.keyferry.dev/x",
            "boolean",
            "quotes",
        ),
        selector(
            "{matchLabel: {}, matchLabels: {access.keyferry.dev/x: a}}",
            "spec.allow[0].namespaceSelector.matchLabel",
            "unknown field",
            "spelling",
        ),
        selector("[a]", SELECTOR, "mapping is expected", "write a mapping"),
        case(
            RULE,
            "    - serviceAccounts: [a] #here\n      namespaces: [a]\n      namespaceSelector: \
             {matchLabels: {access.keyferry.dev/x: a}}\n",
            "spec.allow[0]",
            "both",
            "keep one",
        ),
        term(
            "key: team, operator: In, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].key",
            "can be set",
            "guards",
        ),
        term(
            "key: access.keyferry.dev/x, operator: in, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].operator",
            "not an operator",
            "DoesNotExist",
        ),
        term(
            "key: access.keyferry.dev/x, operator: In",
            "spec.allow[0].namespaceSelector.matchExpressions[0].values",
            "is empty",
            "at least one",
        ),
        term(
            "key: access.keyferry.dev/x, operator: Exists, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].values",
            "not empty",
            "no values",
        ),
        term(
            "key: access.keyferry.dev/x, operator: NotIn, values: [a]",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        term(
            "key: access.keyferry.dev/x, operator: DoesNotExist",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        // Every namespace has this label, so its existence narrows nothing.
        term(
            "key: kubernetes.io/metadata.name, operator: Exists",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        term(
            "key: kubernetes.io/metadata.name, operator: Exists}, {key: access.keyferry.dev/x, \
             operator: DoesNotExist",
            SELECTOR,
            "every new namespace",
            "guarded",
        ),
    ]);
}
