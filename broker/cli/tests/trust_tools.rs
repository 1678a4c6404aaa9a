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
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};
use serde_json::{Value, json};

/// Calls the program in the folder of the shipped files.
fn keyferry(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(args)
        .current_dir(shipped(""))
        // None of these needs anything of the machine.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

/// Calls the program and returns all that a person sees.
fn transcript_of(args: &[&str], stdin: &str) -> Transcript {
    Transcript::new("keyferry", args, &keyferry(args, stdin))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../auth-configs")
        .join(name)
}

const SEVERAL_HUBS: &str = "several-hubs.yaml";

#[test]
fn verify_leaves_with_what_it_found() {
    let verify = ["verify", "--auth-config", SEVERAL_HUBS];
    let issuer = ["--issuer", "https://hub-eu.keyferry.test"];
    let account = |name| [&verify[..], &["--service-account", name], &issuer].concat();
    for (case, args, stdin) in [
        ("verify-accepts", account("tenant-a/reconciler"), ""),
        ("verify-refuses", account("tenant-b/reconciler"), ""),
        ("verify-without-a-token", verify.to_vec(), ""),
        (
            "verify-without-a-file",
            vec!["verify", "--auth-config", "/nowhere", "-"],
            "x",
        ),
        (
            "verify-for-a-release-before-the-first",
            [&verify[..], &["--kubernetes", "1.29", "-"]].concat(),
            "x",
        ),
        (
            "verify-of-an-undetermined-file",
            vec!["verify", "--auth-config", "-", "--service-account", "a/b"],
            "1: x\n\"1\": y\n",
        ),
    ] {
        assert_snapshot!(case, transcript_of(&args, stdin));
    }
}

#[test]
fn verify_reads_a_token_from_standard_input_and_repeats_none() {
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2h1Yi1ldS5rZXlmZXJyeS50ZXN0In0.c2VjcmV0LXNpZ25hdHVyZQ";
    let verify = ["verify", "--auth-config", SEVERAL_HUBS];
    for format in ["text", "json"] {
        let args = [&verify[..], &["-", "-o", format]].concat();
        assert_snapshot!(
            format!("verify-of-a-token-as-{format}"),
            transcript_of(&args, token)
        );
    }
    let mistakes = [
        &[token][..],
        &[token, token],
        &["--target-token-file", token],
        &["-", token],
    ];
    let answers = mistakes.map(|mistake| {
        let args = [&verify[..], mistake].concat();
        let answer = keyferry(&args, "");
        let printed = text(&answer.stdout).to_owned() + text(&answer.stderr);
        assert!(
            token.split('.').all(|part| !printed.contains(part)),
            "{printed}"
        );
        Transcript::new("keyferry", &args, &answer).with_name(token, "TOKEN")
    });
    assert_snapshot!("verify-of-a-token-in-an-argument", joined(&answers));
}

#[test]
fn verify_answers_a_batch_line_by_line() {
    let config = std::fs::read_to_string(shipped(SEVERAL_HUBS)).unwrap();
    let account = json!({"namespace": "tenant-a", "name": "reconciler", "issuer": "https://hub-us.keyferry.test", "audience": "https://prod.example.com"});
    let case = json!({"id": 7, "minor": "1.33", "config": config, "now": 1_790_000_000, "serviceAccount": account});
    let cases = format!("{case}\nno case\n");
    assert_snapshot!(
        "verify-of-a-batch",
        transcript_of(&["verify", "--batch", "-"], &cases)
    );
}

#[test]
fn lint_tells_errors_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (shipped(SEVERAL_HUBS), folder.path().join("bad file.yaml"));
    let text = std::fs::read_to_string(&good).unwrap();
    std::fs::write(&bad, text.replace("prefix: \"hub-us:\"", "prefix: \"\"")).unwrap();
    let folders = [folder.path().to_owned(), shipped("")].map(|it| it.display().to_string());
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let lint = |args: &[&str]| {
        transcript_of(&[&["lint"], args].concat(), "")
            .with_name(&folders[0], "/FOLDER")
            .with_name(folders[1].trim_end_matches('/'), "/SHIPPED")
            .with_name(
                concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
                "\"VERSION\"",
            )
    };
    assert_snapshot!("lint-finds-no-error", lint(&[good]));
    for format in ["text", "json", "sarif"] {
        let answer = lint(&[good, bad, "-o", format]);
        assert_snapshot!(format!("lint-finds-errors-as-{format}"), answer);
    }
    let own = ["--own-issuer", "https://hub-us.keyferry.test"];
    assert_snapshot!(
        "lint-of-the-targets-own-issuer",
        lint(&[&[good][..], &own].concat())
    );
    assert_snapshot!("lint-without-a-file", lint(&["/nowhere"]));
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
    let file = text(&printed.stdout);
    assert_snapshot!("trust", Transcript::new("keyferry", &line, &printed));
    assert_snapshot!(
        "lint-of-what-trust-prints",
        transcript_of(&["lint", "-"], file)
    );
    assert_snapshot!(
        "verify-of-what-trust-prints",
        transcript_of(
            &["verify", "--auth-config", "-", "--service-account", "a/b"],
            file
        )
    );
    assert_snapshot!("trust-without-a-target", transcript_of(&["trust"], ""));
}

#[test]
fn trust_takes_what_the_configuration_says() {
    for (case, target) in [
        ("trust-of-a-configuration", "prod"),
        ("trust-of-an-unknown-target", "nowhere"),
    ] {
        let config = "../examples/in-cluster/config.yaml";
        let issuer = "https://hub.example.com";
        let args = ["trust", target, "--config", config, "--issuer", issuer];
        assert_snapshot!(case, transcript_of(&args, ""));
    }
}

#[test]
fn explain_knows_codes_of_the_server_and_of_targets() {
    for code in ["KeySettling", "AudienceDiffers"] {
        assert_snapshot!(
            format!("explain-{code}"),
            transcript_of(&["explain", code], "")
        );
    }
    assert_eq!(
        keyferry(&["explain", "audiencediffers"], "").stdout,
        keyferry(&["explain", "AudienceDiffers"], "").stdout
    );
    assert_snapshot!(
        "explain-of-an-unknown-code",
        transcript_of(&["explain", "AudienceDiffer"], "")
    );
    let all = keyferry(&["explain", "-o", "json"], "").stdout;
    let all: Value = serde_json::from_slice(&all).unwrap();
    assert!(all.as_array().unwrap().len() > 140);
}

#[test]
fn explain_shows_a_few_causes_of_a_pasted_line_with_their_fixes() {
    let line = "E0128 00:43:20.037068 1 authentication.go:63] \"Unable to authenticate the request\" \
        err=\"invalid bearer token\"";
    assert_snapshot!(
        "explain-of-several-causes",
        transcript_of(&["explain", line], "")
    );
    assert_snapshot!(
        "explain-of-one-cause",
        transcript_of(&["explain", "oidc: email not verified"], "")
    );
}

#[test]
fn lint_looks_inside_and_says_what_a_file_is() {
    let inner = "  a.yaml: |\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: \
        AuthenticationConfiguration\n    jwt:\n    - issuer:\n        url: \
        https://token.actions.githubusercontent.com\n        audiences: [prod]\n      \
        claimMappings:\n        username: {claim: sub, prefix: 'gh:'}\n";
    let configmap = format!("kind: ConfigMap\nmetadata: {{name: oidc}}\ndata:\n{inner}");
    assert_snapshot!(
        "lint-of-a-config-map",
        transcript_of(&["lint", "-"], &configmap)
    );
    let verify = ["verify", "--auth-config", "-", "--service-account", "a/b"];
    assert_snapshot!("verify-of-a-config-map", transcript_of(&verify, &configmap));
    let other = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n";
    assert_snapshot!("lint-of-another-kind", transcript_of(&["lint", "-"], other));
    // The apiserver quotes a file without a kind whole; its first line is enough.
    let vectors = "# Vectors\nlifetime: 300\n";
    assert_snapshot!(
        "lint-without-a-kind",
        transcript_of(&["lint", "-"], vectors)
    );
}
