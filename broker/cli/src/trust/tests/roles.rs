//! A target and its roles: one entry, in which each audience has accounts, a life and names of its
//! own.

use insta::assert_snapshot;
use keyferry_api::config::{NamespaceRule, StoredObjects};
use keyferry_go_formats::json::Json;

use super::*;

const MINORS: [Minor; 3] = [Minor::V1_30, Minor::V1_33, Minor::V1_37];

fn stored(name: &str, spec: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
    })
}

fn allow(namespaces: &[&str], account: &str) -> serde_json::Value {
    json!([{ "namespaces": namespaces, "serviceAccounts": [account] }])
}

/// A hub with `prod` and two roles at its cluster, and a role at another one.
fn hub_with_roles(issuer: &str) -> KnownHub {
    let base = json!({
        "address": "https://prod.example.com", "audience": "https://prod", "issuer": issuer,
        "tokenLifetime": { "max": "2h" }, "allow": allow(&["tenant-a"], "reconciler"),
    });
    let role = |base: &str, role: &str, life: &str, allow: serde_json::Value| {
        json!({
            "sameAs": base, "role": role, "audience": format!("https://{base}/roles/{role}"),
            "tokenLifetime": { "default": "15m", "max": life }, "allow": allow,
        })
    };
    let other = json!({ "address": "https://dev.example.com", "audience": "https://dev",
        "issuer": issuer, "allow": allow(&["tenant-a"], "reconciler") });
    let mut configuration =
        of_hub_objects("hub", "https://keys.example.com", "keyferry-system").unwrap();
    let mut objects = StoredObjects::default();
    for (name, spec) in [
        ("prod", base),
        (
            "prod-view",
            role(
                "prod",
                "view",
                "1h",
                allow(&["tenant-a", "tenant-b"], "agent"),
            ),
        ),
        (
            "prod-deploy",
            role("prod", "deploy", "30m", allow(&["tenant-a"], "reconciler")),
        ),
        ("dev", other),
        (
            "dev-view",
            role("dev", "view", "1h", allow(&["tenant-c"], "agent")),
        ),
    ] {
        let read =
            keyferry_api::config::StoredTarget::read(&stored(name, &spec), &configuration.server);
        objects.targets.extend(read);
    }
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    configuration.server.hub_issuer =
        Some(keyferry_api::issuer::Issuer::new("https://hub.example.com").unwrap());
    KnownHub {
        configuration,
        status: None,
        unread_roles: None,
        namespaces: Ok(BTreeMap::new()),
    }
}

fn print_for(line: &[&str], known: &KnownHub) -> Result<Printed, CommandError> {
    let args = Line::try_parse_from(line).unwrap().args;
    print(&args, Some(known))
}

/// The file for the target with its roles.
fn file_with_roles(minor: Minor) -> String {
    let minor = format!("--kubernetes={minor}");
    let known = hub_with_roles("Hub");
    print_for(&["trust", "prod", &minor], &known).unwrap().text
}

/// A token of the hub for these audiences.
fn token_for(audiences: Json, account: &str, lifetime: i64) -> Token {
    let (namespace, name) = account.split_once('/').unwrap();
    let mut built = Token::of_service_account(&ServiceAccountToken {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        lifetime,
        ..token()
    });
    let Json::Object(members) = &mut built.payload else {
        panic!("claims are an object");
    };
    for (name, value) in members {
        if name == "aud" {
            *value = audiences.clone();
        }
    }
    built
}

fn list(audiences: &[&str]) -> Json {
    let audiences = audiences.iter().map(|one| Json::Text((*one).to_owned()));
    Json::List(audiences.collect())
}

fn user_of(file: &str, minor: Minor, token: &Token) -> Option<User> {
    let loaded = config::load_configuration(file.as_bytes(), minor).unwrap();
    let compiled = validate_configuration(&loaded.configuration, minor, &[]).unwrap();
    let now = jiff::Timestamp::from_second(super::token().issued_at).unwrap();
    match verify_token(&compiled, token, &Keys::none(), now).union() {
        Union::Accepted(user) => Some(user.clone()),
        _ => None,
    }
}

/// Case, audiences, account and life of a token, then its user and groups, or `-` for a refusal. An
/// audience in brackets is a text and no list.
const TOKENS: &str = "\
the base | https://prod | tenant-a/reconciler | 7200 | hub:system:serviceaccount:tenant-a:reconciler hub:system:serviceaccounts hub:system:serviceaccounts:tenant-a
a role | https://prod/roles/view | tenant-b/agent | 3600 | hub:view:system:serviceaccount:tenant-b:agent hub:role:view hub:role:view:tenant-b
the base's account in a role | https://prod/roles/deploy | tenant-a/reconciler | 1800 | hub:deploy:system:serviceaccount:tenant-a:reconciler hub:role:deploy hub:role:deploy:tenant-a
the base's account not in the role | https://prod/roles/view | tenant-a/reconciler | 600 | -
the role's account at the base | https://prod | tenant-a/agent | 600 | -
another role's account | https://prod/roles/deploy | tenant-a/agent | 600 | -
a stranger | https://prod/roles/view | tenant-c/agent | 600 | -
two roles | https://prod/roles/view https://prod/roles/deploy | tenant-a/agent | 600 | -
a role and the base | https://prod/roles/view https://prod | tenant-a/agent | 600 | -
the base and a role | https://prod https://prod/roles/deploy | tenant-a/reconciler | 600 | -
the same twice | https://prod/roles/view https://prod/roles/view | tenant-a/agent | 600 | -
a role and another cluster | https://prod/roles/view https://dev | tenant-a/agent | 600 | -
another cluster and a role | https://dev https://prod/roles/view | tenant-a/agent | 600 | -
an unknown role | https://prod/roles/edit | tenant-a/agent | 600 | -
another cluster's role | https://dev/roles/view | tenant-c/agent | 600 | -
no audience | | tenant-a/agent | 600 | -
an audience that is a text | [https://prod/roles/view] | tenant-a/agent | 600 | -
a base life for a role | https://prod/roles/view | tenant-a/agent | 3601 | -
another role's life | https://prod/roles/deploy | tenant-a/reconciler | 1801 | -
too long for the base | https://prod | tenant-a/reconciler | 7201 | -";

#[test]
fn each_audience_admits_its_accounts_for_its_life_under_its_names() {
    let audiences_of = |text: &str| match text.strip_prefix('[') {
        Some(text) => Json::Text(text.trim_end_matches(']').to_owned()),
        None => list(&text.split_whitespace().collect::<Vec<_>>()),
    };
    for minor in MINORS {
        let file = file_with_roles(minor);
        assert_eq!(errors(&file, minor), [], "{minor}:\n{file}");
        for line in TOKENS.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, audiences, account, lifetime, expected] = cells.as_slice() else {
                panic!("{line}");
            };
            let token = token_for(audiences_of(audiences), account, lifetime.parse().unwrap());
            let user = user_of(&file, minor, &token);
            let user = user.map_or_else(
                || "-".to_owned(),
                |user| format!("{} {}", user.username, user.groups.join(" ")),
            );
            assert_eq!(user, *expected, "{minor}: {line}");
        }
    }
}

#[test]
fn a_target_and_its_roles_are_one_entry_in_every_form() {
    let known = hub_with_roles("Hub");
    let printed = print_for(&["trust", "prod"], &known).unwrap();
    assert_snapshot!("a-target-with-roles", with_notes(&printed));
    for format in Format::value_variants() {
        let name = format.to_possible_value().unwrap();
        let flag = format!("--format={}", name.get_name());
        let printed = print_for(&["trust", "prod", &flag], &known).unwrap();
        let file = inside(*format, &printed.text);
        let token = token_for(list(&["https://prod/roles/view"]), "tenant-a/agent", 600);
        let user = user_of(&file, Minor::V1_37, &token).expect("it is let in");
        assert_eq!(user.groups, ["hub:role:view", "hub:role:view:tenant-a"]);
    }
}

#[test]
fn with_managed_issuers_each_role_has_an_entry() {
    let known = hub_with_roles("Keyferry");
    let printed = print_for(&["trust", "prod"], &known).unwrap();
    assert_snapshot!("roles-of-managed-issuers", with_notes(&printed));
}

#[test]
fn a_role_has_no_file_of_its_own() {
    let error = print_for(&["trust", "prod-view"], &hub_with_roles("Hub")).unwrap_err();
    let fix = error.fix.clone().unwrap();
    assert_snapshot!("a-role-alone", format!("{}\nfix: {fix}", error.problem));
}

#[test]
fn a_target_that_admits_nobody_has_no_audience_in_the_file() {
    let without = |name: &str| {
        let mut known = hub_with_roles("Hub");
        let targets = known.configuration.policy.targets.iter_mut();
        for (_, target) in targets.filter(|(known, _)| known.as_str() == name) {
            target.allow = [].into();
        }
        print_for(&["trust", "prod"], &known).unwrap()
    };
    let only_roles = without("prod");
    assert!(
        !only_roles.text.contains("- \"https://prod\"\n"),
        "{}",
        only_roles.text
    );
    let one_role = without("prod-view");
    assert!(!one_role.text.contains("view"), "{}", one_role.text);
    let notes = [only_roles.notes, one_role.notes].concat();
    assert_snapshot!("nobody", notes.join("\n"));
}

#[test]
fn a_cluster_role_is_bound_to_the_group_of_a_role() {
    let known = hub_with_roles("Hub");
    let line = [
        "trust",
        "prod",
        "--bind-role=view=view",
        "--bind-role=deploy=edit@apps",
    ];
    let printed = print_for(&line, &known).unwrap();
    let (_, rbac) = printed.text.split_once("\n---\n").unwrap();
    let notes = printed.notes.join("\n");
    assert_snapshot!("bound-roles", format!("{rbac}\nnotes:\n{notes}"));
    let error = print_for(&["trust", "prod", "--bind-role=edit=view"], &known).unwrap_err();
    assert_snapshot!("an-unknown-role", error.to_string());
    for wrong in [
        "view",
        "=view",
        "view=",
        "view=@apps",
        "view=view@",
        "View=view",
        "system=view",
        "view=view@No",
    ] {
        let flag = format!("--bind-role={wrong}");
        assert!(
            Line::try_parse_from(["trust", "prod", &flag]).is_err(),
            "{wrong}"
        );
    }
}

fn compared(file: &str, known: &KnownHub) -> String {
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), file).unwrap();
    let diff = format!("--diff={}", written.path().display());
    let args = Line::try_parse_from(["trust", "prod", &diff]).unwrap().args;
    diff::of_file(&args, Some(known), written.path())
        .unwrap()
        .text
}

#[test]
fn a_file_is_compared_for_each_audience() {
    let known_hub = hub_with_roles("Hub");
    let file = file_with_roles(Minor::V1_36);
    let mut without_roles = hub_with_roles("Hub");
    let targets = &mut without_roles.configuration.policy.targets;
    targets.retain(|_, target| target.role.is_none());
    let alone = print_for(&["trust", "prod"], &without_roles).unwrap().text;
    let edited = |from: &str, to: &str| {
        assert!(file.contains(from), "{from} is not in {file}");
        file.replace(from, to)
    };
    let account = "'system:serviceaccount:tenant-b:agent'";
    let cases = [
        ("what is printed", file.clone()),
        ("a file from before the roles", alone),
        ("another life of a role", edited("<= 3600", "<= 7200")),
        (
            "another account of a role",
            edited(account, "'system:serviceaccount:tenant-d:agent'"),
        ),
        (
            "a role with the names of the base",
            edited("'hub:view:'", "'hub:'"),
        ),
        (
            "a role with the groups of the base",
            edited("['hub:role:view',", "['hub:system:serviceaccounts',"),
        ),
        (
            "a rule for all of them",
            edited("claims.aud.size() == 1", "claims.aud.size() >= 1"),
        ),
        (
            "a guard that is a ternary",
            edited(
                "view' || (claims.nbf <= claims.exp && claims.exp - claims.nbf <= 3600)",
                "view' || true ? true : claims.exp - claims.nbf <= 3600",
            ),
        ),
    ];
    let mut shown = String::new();
    for (case, file) in &cases {
        shown += &format!("== {case}\n{}\n", compared(file, &known_hub));
    }
    shown += &format!(
        "== roles that are gone\n{}\n",
        compared(&file, &without_roles)
    );
    assert_snapshot!("differences-of-roles", shown);
}

#[test]
fn a_role_is_added_to_the_entry_that_the_target_has() {
    let known = hub_with_roles("Hub");
    let mut without_roles = hub_with_roles("Hub");
    let targets = &mut without_roles.configuration.policy.targets;
    targets.retain(|_, target| target.role.is_none());
    let people = "  - issuer:\n      url: https://people\n      audiences: [k8s]\n    \
        claimMappings:\n      username:\n        claim: sub\n        prefix: \"p:\"\n";
    let before = print_for(&["trust", "prod"], &without_roles).unwrap().text;
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), format!("{before}{people}")).unwrap();
    let merge = format!("--merge={}", written.path().display());
    let merged = print_for(&["trust", "prod", &merge], &known).unwrap().text;
    assert_eq!(merged, format!("{}{people}", file_with_roles(Minor::V1_37)));
}

#[test]
fn three_hundred_accounts_of_each_role_fit() {
    let mut known_hub = hub_with_roles("Hub");
    let names: Vec<String> = (0..300).map(|number| format!("tenant-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for target in known_hub.configuration.policy.targets.values_mut() {
        let rules = target.allow.iter().cloned().map(|mut rule| {
            let names = names
                .iter()
                .map(|name| keyferry_api::name::Namespace::new(*name).unwrap());
            rule.namespaces = NamespaceRule::Named(names.collect());
            rule
        });
        target.allow = rules.collect();
    }
    for minor in MINORS {
        let flag = format!("--kubernetes={minor}");
        let file = print_for(&["trust", "prod", &flag], &known_hub)
            .unwrap()
            .text;
        assert_eq!(errors(&file, minor), []);
        let accepted = |audience: &str, account: &str| {
            user_of(&file, minor, &token_for(list(&[audience]), account, 600)).is_some()
        };
        for number in [0, 9, 150, 299] {
            let agent = format!("tenant-{number}/agent");
            assert!(accepted("https://prod/roles/view", &agent), "{agent}");
            assert!(!accepted("https://prod/roles/deploy", &agent), "{agent}");
            assert!(!accepted("https://prod", &agent), "{agent}");
        }
        assert!(!accepted("https://prod/roles/view", "tenant-300/agent"));
    }
    let text = print_for(&["trust", "prod"], &known_hub).unwrap().text;
    let compared = compared(&text, &known_hub);
    assert!(compared.ends_with("should have"), "{compared}");
}
