//! What `keyferry serve --check --network` says about issuers' keys, with the real program.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};
use keyferry_keys::jwt::SigningAlgorithm;
use keyferry_keys::testing::key;
use keyferry_platform::clock::{Clock as _, SystemClock};
use keyferry_testing::{Authority, EmbeddedHub, Fault, HubOptions, Route};

/// All that a person sees of the check, for an external issuer at this address.
fn check(issuer: &EmbeddedHub, flags: &[&str]) -> Transcript {
    check_trusting(issuer.ca_pem(), issuer, flags)
}

/// As [`check`], with this `certificateAuthority`.
fn check_trusting(ca_pem: &str, issuer: &EmbeddedHub, flags: &[&str]) -> Transcript {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let (url, ca) = (issuer.url(), serde_json::Value::from(ca_pem));
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
         publicURL: https://keyferry.test\n\
         discovery: {{tls: {{secretName: tls}}}}\napi: {{tls: {{secretName: tls}}}}\n\
         externalIssuers:\n- url: {url}\n  audience: keyferry\n  certificateAuthority: {ca}\n  \
         rules: [{{claims: {{repository_id: '1', ref: refs/heads/main}}}}]\n  \
         serviceAccount: {{namespace: tenant-a, name: deployer}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let words = [&["serve", "--check", "--config", "config.yaml"][..], flags].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(&words)
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    Transcript::new("keyferry", &words, &output).with_name(url, "https://ISSUER")
}

const NETWORK: [&str; 3] = ["--network", "--allow-target-cidr", "127.0.0.0/8"];

fn keys(body: &str) -> Fault {
    Fault::Garbage {
        body: body.as_bytes().to_vec(),
        content_type: "application/jwk-set+json".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_whose_keys_cannot_be_used_is_a_mistake() {
    let issuer = EmbeddedHub::start(HubOptions::default()).await.unwrap();
    assert_snapshot!("an-issuer-with-keys", check(&issuer, &NETWORK));
    let unasked = check(&issuer, &[]);
    assert_snapshot!("an-issuer-that-is-not-asked", unasked);
    for (case, body) in [
        (
            "a-private-key",
            r#"{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AA","y":"AA","d":"canary"}]}"#,
        ),
        (
            "a-symmetric-key",
            r#"{"keys":[{"kty":"oct","kid":"a","k":"canary"}]}"#,
        ),
        ("no-key", r#"{"keys":[]}"#),
        (
            "a-key-for-encryption",
            r#"{"keys":[{"kty":"RSA","kid":"a","use":"enc","n":"AA","e":"AQAB"}]}"#,
        ),
    ] {
        issuer.set_fault(Route::Jwks, keys(body));
        let shown = check(&issuer, &NETWORK);
        assert!(!shown.to_string().contains("canary"), "{shown}");
        assert_snapshot!(format!("an-issuer-with-{case}"), shown);
        assert_eq!(
            check(&issuer, &[]).to_string(),
            unasked.to_string(),
            "without the flag, nothing is fetched"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_is_not_read_from_here_is_a_warning() {
    let issuer = EmbeddedHub::start(HubOptions::default()).await.unwrap();
    // No network is allowed, so nothing is sent to the loopback address.
    let refused = check(&issuer, &["--network"]);
    issuer.set_fault(
        Route::Jwks,
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    );
    let unavailable = check(&issuer, &NETWORK);
    issuer.stop().await;
    let shown = [refused, unavailable, check(&issuer, &NETWORK)];
    assert_snapshot!("an-issuer-that-is-not-read-from-here", joined(&shown));
}

/// The server would refuse every token of these issuers, from wherever it reads their documents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_the_server_cannot_read_either_is_a_mistake() {
    let issuer = EmbeddedHub::start(HubOptions::default()).await.unwrap();
    let other = Authority::new("another CA").unwrap();
    let unknown_ca = check_trusting(other.ca_pem(), &issuer, &NETWORK);
    issuer.set_fault(
        Route::Jwks,
        Fault::Status {
            code: 404,
            retry_after: None,
        },
    );
    let not_found = check(&issuer, &NETWORK);
    issuer.set_fault(Route::Jwks, keys(&" ".repeat(2 << 20)));
    let shown = [unknown_ca, not_found, check(&issuer, &NETWORK)];
    assert_snapshot!("an-issuer-that-the-server-cannot-read", joined(&shown));
}

/// All that a person sees of the check of a token, which is the text of the file `token`.
fn check_token(objects: &str, token: &str, path: &str) -> Transcript {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
         publicURL: https://keyferry.test\n{objects}\
         discovery: {{tls: {{secretName: tls}}}}\napi: {{tls: {{secretName: tls}}}}\n\
         externalIssuers:\n- url: https://agent.buildkite.com\n  system: Buildkite\n  \
         audience: https://keys.test\n  \
         rules: [{{claims: {{pipeline_id: p, queue_id: q, build_branch: main}}}}]\n  \
         serviceAccount: {{namespace: tenant-a, name: deployer}}\n"
    );
    std::fs::write(folder.path().join("config.yaml"), text).unwrap();
    std::fs::write(folder.path().join("token"), token).unwrap();
    let words = [
        "serve",
        "--check",
        "--config",
        "config.yaml",
        "--caller-token",
        path,
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(words)
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    Transcript::new("keyferry", &words, &output).with_name(token, "TOKEN")
}

#[test]
fn a_callers_token_is_compared_with_the_rules_and_never_printed() {
    let now = SystemClock::start().now().wall.as_second();
    let token = |branch: &str, issued: i64| {
        key(SigningAlgorithm::Es256).token(&serde_json::json!({
            "iss": "https://agent.buildkite.com", "aud": "https://keys.test", "sub": "x",
            "iat": issued, "exp": issued + 300, "jti": "one",
            "pipeline_id": "p", "queue_id": "q", "build_branch": branch,
        }))
    };
    let accepted = token("main", now);
    let in_a_file = check_token("", &accepted, "token");
    let on_the_hub = check_token("objects: CustomResources\n", &accepted, "token");
    let shown = [
        in_a_file,
        check_token("", &token("next\u{202e}\nfix: x", now), "token"),
        check_token("", &token("main", now - 900), "token"),
        check_token("", "no token", "token"),
        check_token("", &"x".repeat(100_000), "token"),
        check_token("", &accepted, &accepted),
    ];
    for transcript in shown.iter().chain([&on_the_hub]) {
        let text = transcript.to_string();
        let payload = accepted.split('.').nth(1).unwrap();
        assert!(!text.contains(payload), "{text}");
    }
    assert!(
        on_the_hub
            .to_string()
            .contains("accepts it for ServiceAccount")
    );
    assert_snapshot!("a-callers-token", joined(&shown));
}
