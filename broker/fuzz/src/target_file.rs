//! What a target's kube-apiserver is predicted to do with its file and with a token.

use std::sync::LazyLock;

use keyferry_cel_kubernetes::{CompileFault, Environment, EvaluateFault, Input, Scope, UserInfo};
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify::verify_signature;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::lint::{Severity, lint_file, to_sarif};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, SignatureCheck, Union, verify_token};
use serde_json::{Map, Value, json};

use crate::now;
use crate::tokens::{KEYS, seed_keys};

/// The oldest release and the newest: what differs between releases differs between them.
const MINORS: [Minor; 2] = [Minor::ALL[0], Minor::ALL[Minor::ALL.len() - 1]];

/// The file of a target that trusts the seeds' issuer.
const TARGET_FILE: &[u8] = br#"
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://hub.example.com, audiences: [keyferry.dev]}
  claimMappings: {username: {claim: sub, prefix: "hub:"}}
"#;

/// A file that a target refuses has an error among its findings, and one that cannot be judged has a
/// warning. A finding is at a line of the file.
pub(crate) fn authentication_configuration(data: &[u8]) {
    for minor in MINORS {
        let findings = lint_file(data, minor, &[]);
        let lines = 1 + data.iter().filter(|byte| b"\n\r".contains(byte)).count();
        // U+0085, U+2028 and U+2029 end a line for Go's YAML too.
        let unicode_lines = String::from_utf8_lossy(data)
            .matches(['\u{85}', '\u{2028}', '\u{2029}'])
            .count();
        // Of a key without its colon at the end, Go's YAML names the line after it.
        let last = lines + unicode_lines + 1;
        for finding in &findings {
            let line = finding.line.unwrap_or_default();
            assert!(usize::try_from(line).is_ok_and(|line| line <= last));
            assert!(!finding.message.is_empty() && !finding.fix.is_empty());
        }
        assert_eq!(findings, lint_file(data, minor, &[]), "it is decided once");
        let sarif = to_sarif(&findings, "file.yaml", "0");
        assert_eq!(
            sarif["runs"][0]["results"].as_array().map(Vec::len),
            Some(findings.len())
        );
        let loaded = load_configuration(data, minor);
        let accepted = loaded
            .as_ref()
            .is_ok_and(|loaded| validate_configuration(&loaded.configuration, minor, &[]).is_ok());
        let first = findings.iter().map(|finding| finding.severity).min();
        assert!(
            accepted || first.is_some_and(|severity| severity <= Severity::Warning),
            "{findings:?}"
        );
    }
}

/// An expression compiles alike twice, keeps its text, and a rule gives a bool or fails.
pub(crate) fn cel(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for environment in &*ENVIRONMENTS {
        for (scope, input) in [
            (Scope::Claims, Input::Claims(&CLAIMS)),
            (Scope::User, Input::User(&USER)),
        ] {
            let compiled = environment.compile(scope, text);
            let expression = match (compiled, environment.compile(scope, text)) {
                (Ok(expression), Ok(_)) => expression,
                (Err(fault), Err(again)) => {
                    assert_eq!(fault, again);
                    let undetermined = matches!(fault, CompileFault::Undetermined(_));
                    assert!(undetermined || !fault.to_string().is_empty());
                    continue;
                }
                (one, other) => panic!("{one:?}, and then {other:?}"),
            };
            assert_eq!(expression.text(), text);
            let value = expression.evaluate(input);
            match &value {
                Ok(value) => assert!(!expression.is_bool() || value.as_bool().is_some()),
                Err(EvaluateFault::Failed { message, .. }) => assert!(!message.is_empty()),
                Err(_) => {}
            }
            // Compared as text: no NaN equals another.
            assert_eq!(
                format!("{value:?}"),
                format!("{:?}", expression.evaluate(input))
            );
        }
    }
}

static ENVIRONMENTS: LazyLock<[Environment; 2]> = LazyLock::new(|| MINORS.map(Environment::new));

static CLAIMS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let claims = json!({
        "sub": "alice", "groups": ["dev", "ops"], "email": "a@example.com",
        "email_verified": true, "n": 7, "nested": { "a": { "b": "c" }, "list": [1, "2", null] },
    });
    claims.as_object().cloned().unwrap_or_default()
});

static USER: LazyLock<UserInfo> = LazyLock::new(|| UserInfo {
    username: "hub:alice".to_owned(),
    uid: "1".to_owned(),
    groups: vec!["dev".to_owned()],
    ..UserInfo::default()
});

static TARGETS: LazyLock<[Compiled; 2]> = LazyLock::new(|| {
    MINORS.map(|minor| {
        let loaded = load_configuration(TARGET_FILE, minor).expect("a file");
        validate_configuration(&loaded.configuration, minor, &[]).expect("it is valid")
    })
});

/// A target accepts only a token whose signature was checked, and one whose signature Keyferry
/// accepts is not refused for its signature.
pub(crate) fn target_token(data: &[u8]) {
    let Ok(token) = Token::read(data) else {
        return;
    };
    let ours = std::str::from_utf8(data)
        .ok()
        .and_then(|text| UnverifiedJwt::parse(text).ok());
    let signed = ours.is_some_and(|jwt| verify_signature(&jwt, &seed_keys()).is_ok());
    let keys = Keys::for_all(KEYS);
    for compiled in &*TARGETS {
        let verdict = verify_token(compiled, &token, &keys, now());
        match verdict.union() {
            Union::Accepted(user) => {
                assert_eq!(verdict.signature, SignatureCheck::Checked);
                assert!(user.username.starts_with("hub:"), "{user:?}");
            }
            Union::Rejected(rejection) => {
                let stage = format!("{:?}", rejection.stage);
                let of_signature = ["Parse", "Algorithm", "Signature"].contains(&stage.as_str());
                assert!(!signed || !of_signature, "{rejection:?}");
            }
            Union::Skipped | Union::Undetermined(_) => {}
        }
        let report = keyferry_kube_authn::report::Report::of_verdict(compiled, &verdict, vec![]);
        assert!(serde_json::to_string(&report).is_ok());
    }
}
