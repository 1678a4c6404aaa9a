use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_kube_authn::config::{self, AuthenticationConfiguration};
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::report::Report;
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::validate_configuration;
use keyferry_kube_authn::verify::{Keys, verify_token};
use keyferry_kube_authn::{Code, Minor};
use serde_json::{Value, json};

use crate::explain::{Explanation, MAX_ROWS, all, explaining};

fn shown(message: &str, all: &[Explanation]) -> Vec<&'static str> {
    let found = explaining(message, all);
    found
        .iter()
        .take(MAX_ROWS)
        .map(|found| found.reason)
        .collect()
}

/// A message as people find it: alone, in a line of klog, in JSON.
fn pasted(message: &str) -> [String; 3] {
    [
        message.to_owned(),
        format!(
            "E0128 00:43:20.037068       1 authentication.go:63] \"Unable to authenticate the \
             request\" err=\"[invalid bearer token, {}]\"",
            message.replace('"', "\\\"")
        ),
        json!({"level": "error", "ts": "2026-02-09T15:21:41Z", "error": message}).to_string(),
    ]
}

/// Each line has the code that is to be the first one, and a message as it was pasted.
const PASTED: &str = include_str!("pasted.txt");

#[test]
fn messages_that_people_paste_lead_to_their_cause() {
    let all: Vec<Explanation> = all().collect();
    let mut wrong = Vec::new();
    for line in PASTED.lines() {
        let (code, message) = line.split_once('\t').unwrap();
        let shown = shown(message, &all);
        if shown.first() != Some(&code) {
            wrong.push(format!("{code}: {message}: {shown:?}"));
        }
    }
    assert!(
        PASTED.lines().count() >= 50 && wrong.is_empty(),
        "{}",
        wrong.join("\n")
    );
}

#[test]
fn a_bare_401_shows_its_most_frequent_causes() {
    let all: Vec<Explanation> = all().collect();
    let of_token = shown("invalid bearer token", &all);
    assert!(
        of_token.contains(&"IssuerDiffers") && of_token.contains(&"ConfigurationNotActive"),
        "{of_token:?}"
    );
    let of_status = shown("401", &all);
    assert_eq!(of_status.len(), MAX_ROWS);
    assert_eq!(of_status.first(), Some(&"IssuerDiffers"));
}

/// Every text of a code is found, whatever stands for its values and around it.
#[test]
fn every_text_that_a_code_knows_is_found() {
    let all: Vec<Explanation> = all().collect();
    let values = [
        "\"https://a.example.com/x\"",
        "10.0.0.1:6443",
        "[\"a\" \"b c\"]",
        "it's",
    ];
    let sharing = |text: &String| all.iter().filter(|one| one.texts.contains(text)).count();
    let (mut texts, mut wrong) = (0, Vec::new());
    for explanation in &all {
        for text in &explanation.texts {
            if super::normal(text).replace('…', "").trim().len() < super::MIN_TEXT {
                wrong.push(format!("{}: {text:?} is too short", explanation.reason));
            }
            texts += 1;
            let mut message = String::new();
            for (index, part) in text.split('…').enumerate() {
                if index > 0 {
                    message += values.get((index + texts) % values.len()).unwrap();
                }
                message += part;
            }
            for message in pasted(&message) {
                let found = explaining(&message, &all);
                let place = found
                    .iter()
                    .position(|one| one.reason == explanation.reason);
                let is_shown = place.is_some_and(|place| place < MAX_ROWS);
                if place.is_none() || (sharing(text) <= MAX_ROWS && !is_shown) {
                    let found: Vec<&str> = found.iter().map(|one| one.reason).collect();
                    wrong.push(format!("{}: {message}: {found:?}", explanation.reason));
                }
            }
        }
    }
    assert!(
        texts > 120 && wrong.is_empty(),
        "{texts}\n{}",
        wrong.join("\n")
    );
}

const FILE: &str = "apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://hub.example.com
    audiences: [prod]
  claimMappings:
    username:
      claim: sub
      prefix: 'hub:'
";

/// Changes of the file that a kube-apiserver refuses: a text of the file, and what takes its place.
const FAULTS: [(&str, &str); 44] = [
    ("apiVersion", "# apiVersion"),
    ("kind", "# kind"),
    (
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v9",
    ),
    ("apiserver.config.k8s.io/v1beta1", "a/b/c"),
    ("jwt:\n", "jwt:\n\t- x\n"),
    ("claim: sub", "claim: 5"),
    ("claim: sub", "claimz: sub"),
    ("claim: sub", "claim: sub\n      claim: sub"),
    ("https://hub.example.com", "''"),
    ("https://hub.example.com", "'https://a b'"),
    ("https://hub.example.com", "http://hub.example.com"),
    ("https://hub.example.com", "https://u:p@hub.example.com"),
    ("https://hub.example.com", "https://hub.example.com?a=b"),
    ("https://hub.example.com", "https://hub.example.com#a"),
    (
        "audiences: [prod]",
        "audiences: [prod]\n    discoveryURL: https://hub.example.com",
    ),
    ("[prod]", "[]"),
    ("[prod]", "['']"),
    ("[prod]", "[a, a]\n    audienceMatchPolicy: MatchAny"),
    ("[prod]", "[a, b]"),
    ("[prod]", "[prod]\n    audienceMatchPolicy: MatchAll"),
    ("[prod]", "[prod]\n    certificateAuthority: x"),
    ("[prod]", "[prod]\n    egressSelectorType: x"),
    (
        "claim: sub",
        "claim: sub\n      expression: \"'h:' + claims.sub\"",
    ),
    ("claim: sub\n      prefix: 'hub:'", "{}"),
    ("claim: sub", "expression: \"'h:' + claims.sub\""),
    ("claim: sub\n      prefix: 'hub:'", "claim: sub"),
    (
        "claim: sub\n      prefix: 'hub:'",
        "expression: 'claims.sub +'",
    ),
    (
        "claim: sub\n      prefix: 'hub:'",
        "expression: \"'h:' + claims.email\"",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{claim: a, requiredValue: b, message: c}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{claim: a, requiredValue: b}, {claim: a, requiredValue: b}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{expression: 'true'}, {expression: 'true'}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{expression: 'true', requiredValue: b}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{expression: claims.a}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  claimValidationRules: [{message: a}]\n  claimMappings",
    ),
    (
        "  claimMappings",
        "  userValidationRules: [{message: a}]\n  claimMappings",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: '', valueExpression: claims.a}]\n",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: a, valueExpression: claims.a}]\n",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: a.b/C, valueExpression: claims.a}]\n",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: a.k8s.io/c, valueExpression: claims.a}]\n",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: a.b/c}]\n",
    ),
    (
        "  claimMappings:\n",
        "  claimMappings:\n    extra: [{key: a.b/c, valueExpression: claims.a}, {key: a.b/c, valueExpression: claims.a}]\n",
    ),
    (
        "jwt:",
        "anonymous: {enabled: false, conditions: [{path: /a}]}\njwt:",
    ),
    (
        "- issuer",
        "- &a\n  issuer: {url: https://hub.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: 'a:'}}\n- issuer",
    ),
    (
        "kind: AuthenticationConfiguration",
        "kind: AuthorizationConfiguration",
    ),
];

/// The messages of the evaluator are kube-apiserver's own, and each leads back to its code.
#[test]
fn messages_about_files_lead_to_their_code() {
    let all: Vec<Explanation> = all().collect();
    let (mut codes, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for minor in [Minor::V1_30, Minor::V1_33, Minor::V1_37] {
        for (old, new) in FAULTS {
            let text = FILE.replacen(old, new, 1);
            let findings = lint_file(text.as_bytes(), minor, &[]);
            let refused = findings.iter().filter(|one| {
                // Traps have messages of lint, not of kube-apiserver.
                one.severity == Severity::Error && !one.message.starts_with(one.code.cause())
            });
            let mut any = false;
            for finding in refused {
                any = true;
                codes.insert(finding.code);
                for message in pasted(&finding.message) {
                    let shown = shown(&message, &all);
                    if !shown.contains(&finding.code.name()) {
                        wrong.push(format!("{}: {message}: {shown:?}", finding.code));
                    }
                }
            }
            let undetermined = findings.iter().any(|one| one.code.is_undetermined());
            if !any && !undetermined && minor == Minor::V1_37 {
                wrong.push(format!("the change {new:?} is not refused: {findings:?}"));
            }
        }
    }
    assert!(
        codes.len() >= 30 && wrong.is_empty(),
        "{codes:?}\n{}",
        wrong.join("\n")
    );
}

/// A token that the file refuses: the rest of its entry, the header, and changed claims.
fn refusal(entry: &str, header: &str, changes: &Value, minor: Minor) -> Option<(Code, String)> {
    let mut claims = json!({
        "iss": "https://hub.example.com", "aud": "prod", "sub": "jane", "exp": 1_790_000_300,
        "iat": 1_790_000_000, "groups": ["a"]
    });
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let token = format!("{}.{}.AA", encode(header), encode(&claims.to_string()));
    let file = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- \
         issuer: {{url: https://hub.example.com, audiences: [prod]}}\n{entry}"
    );
    let configuration: AuthenticationConfiguration =
        config::load_configuration(file.as_bytes(), minor)
            .unwrap()
            .configuration;
    let compiled = validate_configuration(&configuration, minor, &[]).unwrap();
    let now = jiff::Timestamp::from_second(1_790_000_000).unwrap();
    let token = Token::read(token.as_bytes()).unwrap();
    let keys = Keys::for_all(br#"{"keys":[{"kty":"DSA"}]}"#);
    let keys = if header.contains("odd") {
        keys
    } else {
        Keys::none()
    };
    let verdict = verify_token(&compiled, &token, &keys, now);
    let reason = Report::of_verdict(&compiled, &verdict, Vec::new()).reason?;
    Some((reason.code, reason.message))
}

const BY_SUB: &str = "  claimMappings: {username: {claim: sub, prefix: 'h:'}}\n";
const HEADER: &str = r#"{"alg":"RS256"}"#;

#[test]
fn messages_about_tokens_lead_to_their_code() {
    let all: Vec<Explanation> = all().collect();
    let mapped = |mappings: &str| format!("  claimMappings: {{{mappings}}}\n");
    let rule = |rule: &str| format!("  claimValidationRules: [{{{rule}}}]\n{BY_SUB}");
    let user = "username: {claim: sub, prefix: 'h:'}";
    let same = json!({});
    let cases: Vec<(String, &str, Value)> = vec![
        (BY_SUB.to_owned(), HEADER, json!({"iss": "https://other"})),
        (BY_SUB.to_owned(), HEADER, json!({"aud": "other"})),
        (BY_SUB.to_owned(), HEADER, json!({"aud": 5})),
        (BY_SUB.to_owned(), HEADER, json!({"exp": 1_789_000_000})),
        (BY_SUB.to_owned(), HEADER, json!({"nbf": 1_795_000_000})),
        (
            BY_SUB.to_owned(),
            HEADER,
            json!({"_claim_names": {"groups": "src"}}),
        ),
        (BY_SUB.to_owned(), r#"{"alg":"HS256"}"#, same.clone()),
        (BY_SUB.to_owned(), "[]", same.clone()),
        (
            BY_SUB.to_owned(),
            r#"{"alg":"RS256","kid":"odd"}"#,
            same.clone(),
        ),
        (BY_SUB.to_owned(), HEADER, json!({"sub": null})),
        (
            mapped("username: {claim: n, prefix: ''}").replace("claim: n", "claim: name"),
            HEADER,
            json!({"name": 5}),
        ),
        (
            mapped("username: {claim: email, prefix: ''}"),
            HEADER,
            json!({"email": "a@b", "email_verified": false}),
        ),
        (
            mapped("username: {claim: email, prefix: ''}"),
            HEADER,
            json!({"email": "a@b", "email_verified": "true"}),
        ),
        (
            mapped(&format!("{user}, groups: {{claim: roles, prefix: ''}}")),
            HEADER,
            json!({"roles": 5}),
        ),
        (
            mapped(&format!("{user}, uid: {{claim: id}}")),
            HEADER,
            same.clone(),
        ),
        (
            mapped(&format!("{user}, uid: {{claim: id}}")),
            HEADER,
            json!({"id": 5}),
        ),
        (
            mapped("username: {expression: claims.name}"),
            HEADER,
            same.clone(),
        ),
        (
            mapped("username: {expression: claims.name}"),
            HEADER,
            json!({"name": 5}),
        ),
        (
            mapped("username: {expression: claims.name}"),
            HEADER,
            json!({"name": ""}),
        ),
        (
            mapped(&format!("{user}, groups: {{expression: claims.roles}}")),
            HEADER,
            same.clone(),
        ),
        (
            mapped(&format!("{user}, groups: {{expression: claims.roles}}")),
            HEADER,
            json!({"roles": 5}),
        ),
        (
            mapped(&format!("{user}, uid: {{expression: claims.id}}")),
            HEADER,
            same.clone(),
        ),
        (
            mapped(&format!("{user}, uid: {{expression: claims.id}}")),
            HEADER,
            json!({"id": 5}),
        ),
        (
            mapped(&format!(
                "{user}, extra: [{{key: a.b/c, valueExpression: claims.x}}]"
            )),
            HEADER,
            same.clone(),
        ),
        (
            mapped(&format!(
                "{user}, extra: [{{key: a.b/c, valueExpression: claims.x}}]"
            )),
            HEADER,
            json!({"x": 5}),
        ),
        (rule("claim: hd, requiredValue: a"), HEADER, same.clone()),
        (
            rule("claim: hd, requiredValue: a"),
            HEADER,
            json!({"hd": 5}),
        ),
        (
            rule("claim: hd, requiredValue: a"),
            HEADER,
            json!({"hd": "b"}),
        ),
        (
            rule("expression: claims.x == 'a', message: denied"),
            HEADER,
            same.clone(),
        ),
        (
            rule("expression: claims.sub == 'a', message: denied"),
            HEADER,
            same.clone(),
        ),
        (
            format!(
                "{BY_SUB}  userValidationRules: [{{expression: \"user.extra['a'][0] == 'b'\", message: denied}}]\n"
            ),
            HEADER,
            same.clone(),
        ),
        (
            format!(
                "{BY_SUB}  userValidationRules: [{{expression: \"user.username == 'b'\", message: denied}}]\n"
            ),
            HEADER,
            same,
        ),
    ];
    let (mut codes, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for minor in [Minor::V1_30, Minor::V1_33, Minor::V1_37] {
        for (entry, header, changes) in &cases {
            let Some((code, message)) = refusal(entry, header, changes, minor) else {
                wrong.push(format!("accepted: {entry} {changes}"));
                continue;
            };
            codes.insert(code);
            for message in pasted(&message) {
                let shown = shown(&message, &all);
                if !shown.contains(&code.name()) {
                    wrong.push(format!("{code}: {message}: {shown:?}"));
                }
            }
        }
    }
    assert!(
        codes.len() >= 28 && wrong.is_empty(),
        "{codes:?}\n{}",
        wrong.join("\n")
    );
}
