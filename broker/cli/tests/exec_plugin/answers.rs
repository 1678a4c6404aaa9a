//! Servers that do not answer as a Keyferry does, and outputs that nobody reads.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::{Html, IntoResponse, Redirect};
use insta::assert_snapshot;
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_integration::transcript::joined;
use serde_json::{Value, json};

use crate::setup::{Setup, exec_info_json, failed, good, jwt, token};

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_token_is_refused() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    setup.set_response(|| Html("<h1>please log in</h1>").into_response());
    let mut shown = vec![failed(setup.run(&[], &exec_info).await).shown];
    let now = jiff::Timestamp::now().as_second();
    let without = |member: &str| {
        let mut answer = good(&token(600), 540);
        answer.as_object_mut().unwrap().remove(member);
        answer
    };
    let with = |member: &str, value: Value| {
        let mut answer = good(&token(600), 540);
        answer[member] = value;
        answer
    };
    let http = json!({ "name": "prod", "server": "http://prod.example.com" });
    let answers = [
        (
            "an expired token",
            good(&jwt(&json!({ "exp": now - 10 })), 540),
        ),
        ("a token without an expiry", good(&jwt(&json!({})), 540)),
        ("expires_in of 0", good(&token(600), 0)),
        ("no JWT", good("not-a-token", 540)),
        ("expires_in of 115 days", good(&token(600), 10_000_000)),
        ("token_type DPoP", with("token_type", json!("DPoP"))),
        ("no expires_in", without("expires_in")),
        ("no cluster", without("keyferry_cluster")),
        ("a cluster by plain HTTP", with("keyferry_cluster", http)),
    ];
    for (name, answer) in answers {
        setup.set_response(move || axum::Json(answer.clone()).into_response());
        let said = failed(setup.run(&[], &exec_info).await);
        shown.push(said.shown.with_variables(&[("ANSWER", name)]));
    }
    assert_snapshot!("an-answer-that-is-no-token", joined(&shown));
    // None of them was kept.
    setup.set_response(|| axum::Json(good(&token(600), 540)).into_response());
    assert_eq!(setup.run(&[], &exec_info).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_token_goes_to_no_other_host() {
    let setup = Setup::start().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reached);
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::create("other", folder.path()).unwrap();
    let routes = axum::Router::new().fallback(move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { axum::Json(good(&token(600), 540)) }
    });
    let other = HttpsServer::start(&ca.serving("other", &[]).unwrap(), routes)
        .await
        .unwrap();
    let elsewhere = format!("{}/v1/token", other.url());
    setup.set_response(move || Redirect::temporary(&elsewhere).into_response());
    let env = [("HTTPS_PROXY", other.url()), ("ALL_PROXY", other.url())];
    let env: Vec<(&str, &str)> = env
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let said = failed(
        setup
            .run_with(&[], Some(&exec_info_json("v1", setup.cluster())), &env)
            .await,
    );
    assert_snapshot!("an-answer-that-redirects", said.shown);
    assert_eq!(
        (setup.asked_for().len(), reached.load(Ordering::SeqCst)),
        (1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_is_logged_and_a_closed_output_is_a_failure() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    let env = [("RUST_LOG", "trace"), ("RUST_BACKTRACE", "full")];
    let said = setup.run_with(&[], Some(&exec_info), &env).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let mut wrong = setup.cluster();
    wrong["server"] = json!("https://evil.example");
    failed(
        setup
            .run_with(&[], Some(&exec_info_json("v1", wrong)), &env)
            .await,
    );

    let file = setup.client_file("");
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = setup.command(&["--client-config", &file], Some(&exec_info));
    let output = command
        .stdout(closed)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
