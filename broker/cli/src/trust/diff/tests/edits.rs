//! Every field of real files, changed alone, is named alone; and what changes no value is silent.
//! RBAC at a target is its admin's: no object of the hub says what it should be, so none is compared.

use keyferry_kube_authn::config::load_configuration;
use serde_json::{Value, json};

use super::super::super::tests::ca;
use super::*;

/// What the target should have, with every field that `trust` prints.
fn whole(authority: &Path) -> TrustInputs {
    let authority = format!("--discovery-ca={}", authority.display());
    let url = "--discovery-url=https://keys.example.com/.well-known/openid-configuration";
    let flags = [url, authority.as_str()];
    let line = HUB
        .iter()
        .copied()
        .filter(|flag| !flag.starts_with("--bind"));
    let args = Line::try_parse_from(line.chain(flags)).unwrap().args;
    inputs::read(&args, None).unwrap()
}

/// The audience of the entries, and its TargetCluster.
const ONE_AUDIENCE: &[(&str, &str)] = &[("https://prod", "prod")];

/// The fields that differ between the entries of two files, each once.
fn differing_fields(base: &str, edited: &str, index: usize) -> Vec<String> {
    let entry = |text: &str| {
        let loaded = load_configuration(text.as_bytes(), Minor::V1_36).unwrap();
        loaded.configuration.jwt.into_iter().nth(index).unwrap()
    };
    let differences = entry::differences("", &entry(edited), &entry(base), ONE_AUDIENCE);
    let mut fields: Vec<String> = differences.into_iter().map(|it| it.path).collect();
    fields.dedup();
    fields
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Sets what a JSON pointer names, or appends it to a list with `-` at the end; null removes it.
fn edit(document: &mut Value, pointer: &str, value: &Value) {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) if last == "-" => items.push(value.clone()),
        Value::Array(items) => {
            let index: usize = last.parse().unwrap();
            match value.is_null() {
                true => drop(items.remove(index)),
                false => items[index] = value.clone(),
            }
        }
        Value::Object(members) => {
            match value.is_null() {
                true => members.remove(last),
                false => members.insert(last.to_owned(), value.clone()),
            };
        }
        _ => panic!("{pointer} leads to no list and no object"),
    }
}

fn auth_config(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../auth-configs");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn each_changed_field_is_named_and_nothing_else() {
    let (authority, other) = (ca(), ca());
    let other = std::fs::read_to_string(other.path()).unwrap();
    let both = std::fs::read_to_string(authority.path()).unwrap() + &other;
    let expected = whole(authority.path());
    let printed = super::super::super::file(&expected.text(), Minor::V1_36);
    let subjects = |list: &str| json!(format!("claims.sub in [{list}]"));
    let (a, b) = (
        "'system:serviceaccount:tenant-a:reconciler'",
        "'system:serviceaccount:tenant-b:ci'",
    );
    let claim_rule = json!({ "claim": "hd", "requiredValue": "example.com" });
    let rules = "/claimValidationRules";
    let rows: Vec<(&str, String, Value, &str)> = [
        (
            "printed",
            "/issuer/discoveryURL",
            json!("https://else/x"),
            "issuer.discoveryURL",
        ),
        (
            "printed",
            "/issuer/discoveryURL",
            Value::Null,
            "issuer.discoveryURL",
        ),
        (
            "printed",
            "/issuer/certificateAuthority",
            json!(other),
            "issuer.certificateAuthority",
        ),
        (
            "printed",
            "/issuer/certificateAuthority",
            json!(both),
            "issuer.certificateAuthority",
        ),
        (
            "printed",
            "/issuer/certificateAuthority",
            Value::Null,
            "issuer.certificateAuthority",
        ),
        (
            "printed",
            "/issuer/audiences/0",
            json!("https://stage"),
            "issuer.audiences",
        ),
        (
            "printed",
            "/issuer/audiences/0",
            json!("https://prod/"),
            "issuer.audiences",
        ),
        (
            "printed",
            "/issuer/audiences/-",
            json!("https://stage"),
            "issuer.audiences",
        ),
        (
            "printed",
            "/issuer/egressSelectorType",
            json!("cluster"),
            "issuer.egressSelectorType",
        ),
        (
            "printed",
            "/claimMappings/username/claim",
            json!("email"),
            "claimMappings.username.claim",
        ),
        (
            "printed",
            "/claimMappings/username/prefix",
            json!("h:"),
            "claimMappings.username.prefix",
        ),
        (
            "printed",
            "/claimMappings/username/prefix",
            json!(""),
            "claimMappings.username.prefix",
        ),
        (
            "printed",
            "/claimMappings/groups/expression",
            json!("['a']"),
            "claimMappings.groups.expression",
        ),
        (
            "printed",
            "/claimMappings/groups",
            Value::Null,
            "claimMappings.groups.expression",
        ),
        (
            "printed",
            "/claimMappings/uid/expression",
            json!("claims.sub"),
            "claimMappings.uid.expression",
        ),
        (
            "printed",
            "/claimMappings/uid",
            Value::Null,
            "claimMappings.uid.expression",
        ),
        (
            "printed",
            "/claimMappings/extra",
            json!([{ "key": "a.b/c", "valueExpression": "claims.sub" }]),
            "claimMappings.extra[0]",
        ),
        (
            "printed",
            "/userValidationRules",
            json!([{ "expression": "true" }]),
            "userValidationRules[0]",
        ),
        (
            "github-actions.yaml",
            "/issuer/audiences/0",
            json!("https://stage"),
            "issuer.audiences",
        ),
        (
            "github-actions.yaml",
            "/claimMappings/username/expression",
            json!("claims.sub"),
            "claimMappings.username.expression",
        ),
        (
            "github-actions.yaml",
            "/claimMappings/extra/0/valueExpression",
            json!("claims.run_id"),
            "claimMappings.extra[0].valueExpression",
        ),
        (
            "github-actions.yaml",
            "/claimMappings/extra/1",
            Value::Null,
            "claimMappings.extra",
        ),
        (
            "github-actions.yaml",
            "/claimMappings/extra/-",
            json!({ "key": "a.b/c", "valueExpression": "'d'" }),
            "claimMappings.extra[2]",
        ),
        (
            "several-hubs.yaml",
            "/claimMappings/username/prefix",
            json!("hub-us:"),
            "claimMappings.username.prefix",
        ),
        (
            "several-hubs.yaml",
            "/issuer/discoveryURL",
            json!("https://k/x"),
            "issuer.discoveryURL",
        ),
    ]
    .map(|(base, pointer, value, field)| (base, pointer.to_owned(), value, field))
    .into_iter()
    .chain(
        [
            ("printed", "/0/expression", subjects(a), "[0].expression"),
            (
                "printed",
                "/0/expression",
                subjects(&format!("{a}, {b}, 'c'")),
                "[0].expression",
            ),
            (
                "printed",
                "/0/expression",
                subjects(&format!("{a}, 'c'")),
                "[0].expression",
            ),
            (
                "printed",
                "/0/expression",
                json!("claims.sub != ''"),
                "[0].expression",
            ),
            ("printed", "/0/message", json!("no"), "[0].message"),
            ("printed", "/0", Value::Null, ""),
            (
                "printed",
                "/1/expression",
                json!("claims.exp - claims.iat <= 7201"),
                "[1].expression",
            ),
            (
                "printed",
                "/1/expression",
                json!("claims.exp - claims.iat < 7200"),
                "[1].expression",
            ),
            ("printed", "/1/message", json!("no"), "[1].message"),
            ("printed", "/1", Value::Null, ""),
            (
                "printed",
                "/2/expression",
                json!("claims.aud.size() >= 1"),
                "[2].expression",
            ),
            ("printed", "/2/message", Value::Null, "[2].message"),
            ("printed", "/2", Value::Null, ""),
            ("printed", "/-", claim_rule, "[3]"),
            (
                "printed",
                "/-",
                json!({ "expression": "claims.sub == 'a'" }),
                "[3]",
            ),
            (
                "github-actions.yaml",
                "/1/expression",
                json!("claims.ref == 'refs/heads/x'"),
                "[1].expression",
            ),
            ("github-actions.yaml", "/3", Value::Null, ""),
            (
                "several-hubs.yaml",
                "/0/message",
                json!("no"),
                "[0].message",
            ),
            ("several-hubs.yaml", "/2", Value::Null, ""),
        ]
        .map(|(base, pointer, value, field)| (base, format!("{rules}{pointer}"), value, field)),
    )
    .collect();
    assert!(rows.len() >= 40, "{}", rows.len());
    for (base, pointer, value, field) in rows {
        let text = match base {
            "printed" => printed.clone(),
            file => auth_config(file),
        };
        let mut edited = parsed(&text);
        edit(&mut edited, &format!("/jwt/0{pointer}"), &value);
        let named = differing_fields(&text, &edited.to_string(), 0);
        let field = match pointer.starts_with(rules) {
            true => format!(".claimValidationRules{field}"),
            false => format!(".{field}"),
        };
        assert_eq!(named, [field], "{base} with {pointer}: {value}");
        if base == "printed" {
            let whole = compare(edited.to_string().as_bytes(), &expected, Minor::V1_36).unwrap();
            let mut lines = whole.differences.iter();
            assert!(
                lines.any(|line| line.contains(&named[0])),
                "{:?}",
                whole.differences
            );
        }
    }
}

#[test]
fn an_issuer_that_is_changed_lost_or_doubled_is_named() {
    let expected = expected();
    let lines = |change: &dyn Fn(&mut Value)| {
        let mut document = parsed(&printed());
        change(&mut document);
        match compare(document.to_string().as_bytes(), &expected, Minor::V1_36) {
            Ok(compared) => compared.differences.join("\n"),
            Err(problem) => problem.to_string(),
        }
    };
    let url = |url: &str| {
        let url = json!(url);
        lines(&|it| edit(it, "/jwt/0/issuer/url", &url))
    };
    assert_snapshot!(
        "an-edited-issuer",
        [
            url("https://hub.example.com/"),
            url("https://other.example.com"),
            lines(&|it| edit(it, "/jwt/0", &Value::Null)),
            lines(&|it| {
                let entry = it["jwt"][0].clone();
                edit(it, "/jwt/-", &entry);
            }),
        ]
        .join("\n")
    );
}

#[test]
fn what_changes_no_value_is_silent() {
    let authority = ca();
    let pem = std::fs::read_to_string(authority.path()).unwrap();
    let expected = whole(authority.path());
    let printed = super::super::super::file(&expected.text(), Minor::V1_36);
    let replaced = |from: &str, to: &str| {
        assert!(printed.contains(from), "{from} is not in {printed}");
        printed.replace(from, to)
    };
    let with = |pointer: &str, value: Value| {
        let mut document = parsed(&printed);
        edit(&mut document, pointer, &value);
        document.to_string()
    };
    let rule = |index: usize, expression: &str| {
        with(
            &format!("/jwt/0/claimValidationRules/{index}/expression"),
            json!(expression),
        )
    };
    let reordered = |pointer: &str| {
        let mut document = parsed(&printed);
        document
            .pointer_mut(pointer)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .reverse();
        document.to_string()
    };
    let no_comments: Vec<&str> = printed
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let wrapped: Vec<&str> = (0..body.len())
        .step_by(40)
        .map(|at| &body[at..body.len().min(at + 40)])
        .collect();
    let rewrapped = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        wrapped.join("\n")
    );
    let head = printed.split_once("jwt:\n").unwrap();
    let (a, b) = (
        "system:serviceaccount:tenant-a:reconciler",
        "system:serviceaccount:tenant-b:ci",
    );
    let authority_field = "/jwt/0/issuer/certificateAuthority";
    let rows = [
        ("as JSON", parsed(&printed).to_string()),
        (
            "as indented JSON",
            serde_json::to_string_pretty(&parsed(&printed)).unwrap(),
        ),
        (
            "flow style",
            replaced(
                "audiences:\n        - \"https://prod\"",
                "audiences: [\"https://prod\"]",
            ),
        ),
        ("without comments", no_comments.join("\n")),
        (
            "with a comment",
            replaced("    claimMappings:", "    # ours\n    claimMappings:"),
        ),
        (
            "with a comment at the end of a line",
            replaced("claim: sub", "claim: sub # as minted"),
        ),
        (
            "blank lines",
            replaced("    claimMappings:", "\n\n    claimMappings:"),
        ),
        ("a document mark", format!("---\n{printed}")),
        (
            "single quotes",
            replaced("prefix: \"hub:\"", "prefix: 'hub:'"),
        ),
        (
            "no quotes",
            replaced(
                "url: \"https://hub.example.com\"",
                "url: https://hub.example.com",
            ),
        ),
        (
            "an escape",
            replaced("prefix: \"hub:\"", "prefix: \"\\u0068ub:\""),
        ),
        (
            "a folded text",
            replaced(
                "message: the token is for several audiences",
                "message: >-\n          the token is\n          for several audiences",
            ),
        ),
        ("the older version", replaced("/v1\n", "/v1beta1\n")),
        ("other issuer after", format!("{printed}{PEOPLE}")),
        (
            "other issuer before",
            format!("{}jwt:\n{PEOPLE}{}", head.0, head.1),
        ),
        (
            "an empty list",
            with("/jwt/0/userValidationRules", json!([])),
        ),
        (
            "the policy of one audience",
            with("/jwt/0/issuer/audienceMatchPolicy", json!("MatchAny")),
        ),
        (
            "rules in another order",
            reordered("/jwt/0/claimValidationRules"),
        ),
        (
            "subjects in another order",
            rule(0, &format!("claims.sub in ['{b}', '{a}']")),
        ),
        (
            "subjects in other quotes",
            rule(0, &format!("claims.sub in [\"{a}\",\"{b}\"]")),
        ),
        (
            "a subject twice",
            rule(0, &format!("claims.sub in ['{a}','{b}','{a}']")),
        ),
        (
            "a comma at the end",
            rule(0, &format!("claims.sub in ['{a}','{b}',]")),
        ),
        (
            "line ends in an expression",
            rule(1, "claims.exp -\n  claims.iat\n  <= 7200\n"),
        ),
        (
            "no blanks in an expression",
            rule(1, "claims.exp-claims.iat<=7200"),
        ),
        ("blanks beside brackets", rule(2, " claims.aud.size( )==1 ")),
        (
            "the CA in shorter lines",
            with(authority_field, json!(rewrapped)),
        ),
        (
            "the CA twice",
            with(authority_field, json!(format!("{pem}{pem}"))),
        ),
        (
            "the CA with text around it",
            with(authority_field, json!(format!("subject: CA\n{pem}\n\n"))),
        ),
    ];
    assert!(rows.len() >= 25, "{}", rows.len());
    for (case, text) in rows {
        assert_ne!(text, printed, "{case} changes nothing");
        let compared = compare(text.as_bytes(), &expected, Minor::V1_36).unwrap();
        assert!(
            compared.differences.is_empty(),
            "{case}: {:?}",
            compared.differences
        );
    }
}
