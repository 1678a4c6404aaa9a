//! `verify`, `lint`, `trust` and `explain` as processes: exit codes, what is printed where, and
//! what never is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn keyferry(args: &[&str], stdin: &str) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(args)
        // None of these needs anything of the machine.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../auth-configs")
        .join(name)
}

fn several_hubs() -> String {
    shipped("several-hubs.yaml").to_str().unwrap().to_owned()
}

const ALLOWED: [&str; 4] = [
    "--service-account",
    "tenant-a/reconciler",
    "--issuer",
    "https://hub-eu.keyferry.test",
];

#[test]
fn verify_leaves_with_what_it_found() {
    let file = several_hubs();
    let verify = ["verify", "--auth-config", &file];
    let accepted = keyferry(&[&verify[..], &ALLOWED].concat(), "");
    assert_eq!((accepted.code, accepted.err.as_str()), (0, ""));
    assert!(
        accepted
            .out
            .contains("hub-eu:system:serviceaccount:tenant-a:reconciler")
            && accepted.out.contains("the newest known here")
    );
    let refused = keyferry(
        &[
            &verify[..],
            &[
                "--service-account",
                "tenant-b/reconciler",
                ALLOWED[2],
                ALLOWED[3],
            ],
        ]
        .concat(),
        "",
    );
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert_eq!(keyferry(&verify, "").code, 2, "no token");
    assert_eq!(
        keyferry(&["verify", "--auth-config", "/nowhere", "-"], "x").code,
        2
    );
    assert_eq!(
        keyferry(&[&verify[..], &["--kubernetes", "1.29", "-"]].concat(), "x").code,
        2
    );
    let odd = keyferry(
        &["verify", "--auth-config", "-", "--service-account", "a/b"],
        "1: x\n\"1\": y\n",
    );
    assert_eq!(odd.code, 3, "{}", odd.out);
}

#[test]
fn verify_reads_a_token_from_standard_input_and_repeats_none() {
    let file = several_hubs();
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2h1Yi1ldS5rZXlmZXJyeS50ZXN0In0.c2VjcmV0LXNpZ25hdHVyZQ";
    let read = keyferry(
        &["verify", "--auth-config", &file, "-", "-o", "json"],
        token,
    );
    assert_eq!(read.code, 1, "{}{}", read.out, read.err);
    let report: Value = serde_json::from_str(&read.out).unwrap();
    assert_eq!(report["verdict"], "Rejected");
    assert_eq!(report["schema"], "keyferry.dev/trust-report/v1");
    for mistake in [
        vec![token],
        vec![token, token],
        vec!["--target-token-file", token],
        vec!["-", token],
    ] {
        let answer = keyferry(
            &[&["verify", "--auth-config", &file], &mistake[..]].concat(),
            "",
        );
        assert_eq!(answer.code, 2, "{}", answer.err);
        for part in token.split('.') {
            assert!(
                !answer.err.contains(part) && !answer.out.contains(part),
                "{}",
                answer.err
            );
        }
    }
}

#[test]
fn verify_answers_a_batch_line_by_line() {
    let config = std::fs::read_to_string(several_hubs()).unwrap();
    let account = json!({"namespace": "tenant-a", "name": "reconciler", "issuer": "https://hub-us.keyferry.test", "audience": "https://prod.example.com"});
    let case = json!({"id": 7, "minor": "1.33", "config": config, "now": 1_790_000_000, "serviceAccount": account});
    let answer = keyferry(&["verify", "--batch", "-"], &format!("{case}\nno case\n"));
    assert_eq!(answer.code, 0, "{}", answer.err);
    let reports: Vec<Value> = answer
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&reports[0]["id"], &reports[0]["verdict"]),
        (&json!(7), &json!("Accepted"))
    );
    assert_eq!(reports[1]["reason"]["code"], "NotACase");
    assert_eq!(reports.len(), 2);
}

#[test]
fn lint_tells_errors_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (several_hubs(), folder.path().join("bad file.yaml"));
    std::fs::write(
        &bad,
        std::fs::read_to_string(&good)
            .unwrap()
            .replace("prefix: \"hub-us:\"", "prefix: \"\""),
    )
    .unwrap();
    let bad = bad.to_str().unwrap();
    let clean = keyferry(&["lint", &good], "");
    assert_eq!(clean.code, 0, "{}", clean.out);
    let text = keyferry(&["lint", &good, bad], "");
    assert_eq!(text.code, 1);
    assert!(
        text.out
            .contains("error EmptyPrefix jwt[1].claimMappings.username.prefix")
            && text.out.contains("fix: "),
        "{}",
        text.out
    );
    let found: Value =
        serde_json::from_str(&keyferry(&["lint", &good, bad, "-o", "json"], "").out).unwrap();
    assert_eq!(found[0]["file"], good);
    assert!(
        found[1]["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|finding| finding["code"] == "EmptyPrefix" && finding["severity"] == "Error")
    );
    let log: Value =
        serde_json::from_str(&keyferry(&["lint", &good, bad, "-o", "sarif"], "").out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(
        log["runs"].as_array().unwrap().len(),
        1,
        "code hosts take one run"
    );
    let results = log["runs"][0]["results"].as_array().unwrap();
    let artifact_uri = |result: &Value| {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let broken = results
        .iter()
        .find(|result| result["ruleId"] == "EmptyPrefix")
        .unwrap();
    assert!(
        artifact_uri(broken).ends_with("/bad%20file.yaml"),
        "{}",
        artifact_uri(broken)
    );
    assert!(
        results
            .iter()
            .any(|result| artifact_uri(result).ends_with("several-hubs.yaml"))
    );
    let own = keyferry(
        &[
            "lint",
            &good,
            "--own-issuer",
            "https://hub-us.keyferry.test",
        ],
        "",
    );
    assert!(
        own.code == 1 && own.out.contains("IssuerIsTargets"),
        "{}",
        own.out
    );
    assert_eq!(keyferry(&["lint", "/nowhere"], "").code, 2);
}

#[test]
fn what_trust_prints_lints_and_lets_in() {
    let line = [
        "trust",
        "prod",
        "--issuer",
        "https://hub",
        "--audience",
        "prod",
        "--prefix",
        "hub:",
        "--allow",
        "a/b",
    ];
    let printed = keyferry(&line, "");
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(
        printed.err.contains("no RBAC is printed"),
        "{}",
        printed.err
    );
    let linted = keyferry(&["lint", "-"], &printed.out);
    assert!(
        linted.code == 0 && linted.out.contains("-: 0 errors, 0 warnings, 1 notes"),
        "{}",
        linted.out
    );
    let let_in = keyferry(
        &["verify", "--auth-config", "-", "--service-account", "a/b"],
        &printed.out,
    );
    assert!(
        let_in.code == 0 && let_in.out.contains("hub:system:serviceaccount:a:b"),
        "{}",
        let_in.out
    );
    assert_eq!(keyferry(&["trust"], "").code, 2);
}

#[test]
fn trust_takes_what_the_configuration_says() {
    let config =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/in-cluster/config.yaml");
    let config = config.to_str().unwrap();
    let printed = keyferry(
        &[
            "trust",
            "prod",
            "--config",
            config,
            "--issuer",
            "https://hub.example.com",
        ],
        "",
    );
    assert_eq!(printed.code, 0, "{}", printed.err);
    for part in ["discoveryURL", "claims.sub in", "prefix: \"hub:\""] {
        assert!(
            printed.out.contains(part),
            "{part} is not in\n{}",
            printed.out
        );
    }
    let unknown = keyferry(
        &[
            "trust",
            "nowhere",
            "--config",
            config,
            "--issuer",
            "https://hub.example.com",
        ],
        "",
    );
    assert!(
        unknown.code == 1 && unknown.err.contains("prod"),
        "{}",
        unknown.err
    );
}

#[test]
fn explain_knows_codes_of_the_server_and_of_targets() {
    for code in ["KeySettling", "AudienceDiffers", "audiencediffers"] {
        let answer = keyferry(&["explain", code], "");
        assert!(
            answer.code == 0
                && ["What happened:\n", "Fix:\n", "Where it shows:\n"]
                    .iter()
                    .all(|part| answer.out.contains(part)),
            "{}",
            answer.out
        );
    }
    let unknown = keyferry(&["explain", "AudienceDiffer"], "");
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("AudienceDiffers"), "{}", unknown.err);
    let all: Value = serde_json::from_str(&keyferry(&["explain", "-o", "json"], "").out).unwrap();
    assert!(all.as_array().unwrap().len() > 140);
}

#[test]
fn explain_shows_a_few_causes_of_a_pasted_line_with_their_fixes() {
    let line = "E0128 00:43:20.037068 1 authentication.go:63] \"Unable to authenticate the request\" \
        err=\"invalid bearer token\"";
    let answer = keyferry(&["explain", line], "");
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(answer.out.matches("\n  fix: ").count(), 5, "{}", answer.out);
    assert!(!answer.out.contains("keyferry explain"), "{}", answer.out);
    let one = keyferry(&["explain", "oidc: email not verified"], "");
    assert!(one.out.starts_with("EmailNotVerified\n"), "{}", one.out);
}

#[test]
fn lint_looks_inside_and_says_what_a_file_is() {
    let inner = "  a.yaml: |\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: \
        AuthenticationConfiguration\n    jwt:\n    - issuer:\n        url: \
        https://token.actions.githubusercontent.com\n        audiences: [prod]\n      \
        claimMappings:\n        username: {claim: sub, prefix: 'gh:'}\n";
    let configmap = format!("kind: ConfigMap\nmetadata: {{name: oidc}}\ndata:\n{inner}");
    let linted = keyferry(&["lint", "-"], &configmap);
    assert_eq!(linted.code, 1, "{}", linted.out);
    for part in [
        "-: data.a.yaml of a ConfigMap oidc",
        "-:8:7: error PublicIssuerOpen",
        "stranger",
    ] {
        assert!(linted.out.contains(part), "{part}: {}", linted.out);
    }
    let verified = keyferry(
        &["verify", "--auth-config", "-", "--service-account", "a/b"],
        &configmap,
    );
    assert!(
        verified.out.contains("data.a.yaml of a ConfigMap oidc"),
        "{}",
        verified.out
    );
    let other = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n";
    let other = keyferry(&["lint", "-"], other);
    assert_eq!(other.code, 1);
    assert!(
        other
            .out
            .contains("fix: this is the file of --authorization-config"),
        "{}",
        other.out
    );
}
