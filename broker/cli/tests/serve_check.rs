//! What `keyferry serve --check --network` says about issuers' keys, with the real program.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

use keyferry_testing::{Authority, EmbeddedHub, Fault, HubOptions, Route};

/// The exit code of the check and what it prints, for an external issuer at this address.
fn check(issuer: &EmbeddedHub, flags: &[&str]) -> (i32, String) {
    check_trusting(issuer.ca_pem(), issuer, flags)
}

/// As [`check`], with this `certificateAuthority`.
fn check_trusting(ca_pem: &str, issuer: &EmbeddedHub, flags: &[&str]) -> (i32, String) {
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
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["serve", "--check", "--config"])
        .arg(&config)
        .args(flags)
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    (output.status.code().unwrap(), said)
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
    let (code, said) = check(&issuer, &NETWORK);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("externalIssuers"), "{said}");
    for (body, says) in [
        (
            r#"{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AA","y":"AA","d":"canary"}]}"#,
            "key set publishes a private EC key: keys[0]",
        ),
        (
            r#"{"keys":[{"kty":"oct","kid":"a","k":"canary"}]}"#,
            "key set publishes a symmetric key: keys[0]",
        ),
        (r#"{"keys":[]}"#, "key set has no usable key among its 0"),
        (
            r#"{"keys":[{"kty":"RSA","kid":"a","use":"enc","n":"AA","e":"AQAB"}]}"#,
            "keys[0] has a use other than sig",
        ),
    ] {
        issuer.set_fault(Route::Jwks, keys(body));
        let (code, said) = check(&issuer, &NETWORK);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("error: externalIssuers[0].url https://127.0.0.1:"),
            "{said}"
        );
        assert!(said.contains(says) && said.contains("\nfix: "), "{said}");
        assert!(!said.contains("canary"), "{said}");
        // Without the flag, nothing is fetched.
        assert_eq!(check(&issuer, &[]).0, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_is_not_read_from_here_is_a_warning() {
    let issuer = EmbeddedHub::start(HubOptions::default()).await.unwrap();
    // No network is allowed, so nothing is sent to the loopback address.
    let (code, said) = check(&issuer, &["--network"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("warning: not checked: externalIssuers[0].url"),
        "{said}"
    );
    assert!(
        said.contains("1 issuer(s) not checked") && !said.contains("no mistakes"),
        "{said}"
    );
    issuer.set_fault(
        Route::Jwks,
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    );
    let (code, said) = check(&issuer, &NETWORK);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 issuer(s) not checked"), "{said}");
    issuer.stop().await;
    let (code, said) = check(&issuer, &NETWORK);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("warning: not checked: externalIssuers[0].url"),
        "{said}"
    );
}

/// The server would refuse every token of these issuers, from wherever it reads their documents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_the_server_cannot_read_either_is_a_mistake() {
    let issuer = EmbeddedHub::start(HubOptions::default()).await.unwrap();
    let mistake = |(code, said): (i32, String), says: &str| {
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("error: externalIssuers[0].url"), "{said}");
        assert!(said.contains(says) && said.contains("\nfix: "), "{said}");
        assert!(!said.contains("no mistakes"), "{said}");
    };
    let other = Authority::new("another CA").unwrap();
    let refused = check_trusting(other.ca_pem(), &issuer, &NETWORK);
    mistake(refused, "its certificate is signed by an unknown CA");
    issuer.set_fault(
        Route::Jwks,
        Fault::Status {
            code: 404,
            retry_after: None,
        },
    );
    mistake(check(&issuer, &NETWORK), "it answered 404, not 200");
    issuer.set_fault(Route::Jwks, keys(&" ".repeat(2 << 20)));
    mistake(check(&issuer, &NETWORK), "its answer is too long");
}
