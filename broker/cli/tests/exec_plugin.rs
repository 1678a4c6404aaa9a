//! `keyferry credential` as kubectl runs it, against servers that answer well and servers that do
//! not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

#[path = "exec_plugin/answers.rs"]
mod answers;
#[path = "exec_plugin/cache.rs"]
mod cache;
#[path = "exec_plugin/elsewhere.rs"]
mod elsewhere;
#[path = "exec_plugin/setup.rs"]
mod setup;

use insta::assert_snapshot;
use keyferry_integration::transcript::joined;
use serde_json::{Value, json};
use setup::{Said, Setup, exec_info_json, failed, token};

#[tokio::test(flavor = "multi_thread")]
async fn the_client_is_answered_in_its_own_version() {
    let setup = Setup::start().await;
    for version in ["v1", "v1beta1"] {
        let Said {
            code,
            stdout,
            stderr,
            shown,
        } = setup
            .run(&[], &exec_info_json(version, setup.cluster()))
            .await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert_snapshot!(format!("a-token-for-a-client-of-{version}"), shown);
        let answer: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(
            answer["apiVersion"],
            format!("client.authentication.k8s.io/{version}")
        );
        assert_eq!(
            (answer["kind"].as_str(), answer["status"]["token"].as_str()),
            (Some("ExecCredential"), Some(token(600).as_str()))
        );
        let expiry: jiff::Timestamp = answer["status"]["expirationTimestamp"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(
            expiry.as_second(),
            setup::ends(600) - 60,
            "a minute before the token's end"
        );
        assert!(stdout.ends_with("}\n") && stdout.lines().count() == 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_gets_no_token() {
    let setup = Setup::start().await;
    let cases = [
        ("server", json!("https://evil.example")),
        ("tls-server-name", json!("evil")),
        ("proxy-url", json!("http://evil.example:3128")),
        ("insecure-skip-tls-verify", json!(true)),
        ("certificate-authority-data", json!("")),
        (
            "certificate-authority-data",
            json!(setup::authority("evil")),
        ),
    ];
    let mut shown = Vec::new();
    for (member, value) in cases {
        let mut cluster = setup.cluster();
        cluster[member] = value;
        let said = failed(setup.run(&[], &exec_info_json("v1", cluster)).await);
        shown.push(said.shown);
    }
    assert_snapshot!("another-server", joined(&shown));
    // What stands in the cluster's config is not looked at, and an argument goes before the access
    // in it.
    let mut cluster = setup.cluster();
    cluster["config"] = json!({ "server": "https://evil.example", "audience": "other", "access": "tenant-b/x", "clusterName": "tenant-b/x" });
    assert_eq!(
        setup.run(&[], &exec_info_json("v1", cluster)).await.code,
        Some(0)
    );
    assert_eq!(setup.asked_for(), vec!["tenant-a/prod"; 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_say_where_it_goes_is_refused() {
    let setup = Setup::start().await;
    let without = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {} }).to_string();
    let mut shown = Vec::new();
    for env in [None, Some(without.as_str())] {
        shown.push(failed(setup.run_with(&[], env, &[]).await).shown);
    }
    for wrong in ["v1alpha1", "v2"] {
        let exec_info = exec_info_json(wrong, setup.cluster());
        shown.push(failed(setup.run(&[], &exec_info).await).shown);
    }
    let long = "a".repeat(100_000);
    let exec_info = format!("{{\"kind\":\"{long}\"}}");
    let said = failed(setup.run(&[], &exec_info).await);
    shown.push(said.shown.with_name(&long, "LONG"));
    assert!(setup.asked_for().is_empty(), "the server was not asked");
    // The user's own file alone can allow it.
    let file = setup.client_file("allowUnpinnedServer: true\n");
    let said = setup.run_with(&["--client-config", &file], None, &[]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        answer["apiVersion"], "client.authentication.k8s.io/v1beta1",
        "as clients that say nothing expect"
    );
    let mut other = setup.cluster();
    other["server"] = json!("https://evil.example");
    // What is said is compared even then.
    let exec_info = exec_info_json("v1", other);
    let said = setup.run(&["--client-config", &file], &exec_info).await;
    shown.push(failed(said).shown);
    assert_snapshot!("a-client-that-does-not-say-where-it-goes", joined(&shown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_may_name_its_access() {
    let setup = Setup::start().await;
    let file = setup.client_file("");
    let with = |config: Value| {
        let mut cluster = setup.cluster();
        cluster["config"] = config;
        exec_info_json("v1", cluster)
    };
    let named = setup
        .run_unnamed(
            &file,
            Some(&with(
                json!({ "clusterName": "tenant-a/prod", "server": "https://evil.example" }),
            )),
        )
        .await;
    assert_eq!((named.code, named.stderr.as_str()), (Some(0), ""));
    let other = setup
        .run_unnamed(
            &file,
            Some(&with(json!({ "clusterName": "tenant-a/other" }))),
        )
        .await;
    assert_eq!(other.code, Some(0), "{}", other.stderr);
    assert_eq!(setup.asked_for(), ["tenant-a/prod", "tenant-a/other"]);
    // Whose token it is decides where it may go.
    let mut elsewhere = setup.cluster();
    elsewhere["server"] = json!("https://evil.example");
    elsewhere["config"] = json!({ "clusterName": "tenant-a/third" });
    let exec_info = exec_info_json("v1", elsewhere);
    let said = failed(setup.run_unnamed(&file, Some(&exec_info)).await);
    let mut shown = vec![said.shown];
    for config in [
        json!(null),
        json!({ "access": "tenant-a/prod" }),
        json!({ "clusterName": "prod" }),
        json!({ "clusterName": "--server=https://evil.example" }),
        json!({ "clusterName": ["tenant-a/prod"] }),
    ] {
        let said = failed(setup.run_unnamed(&file, Some(&with(config))).await);
        assert!(!said.stderr.contains("evil"), "{}", said.stderr);
        shown.push(said.shown);
    }
    let unpinned = setup.client_file("allowUnpinnedServer: true\n");
    let exec_info = with(json!({ "clusterName": "tenant-a/prod" }));
    for exec_info in [Some(exec_info.as_str()), None] {
        let said = failed(setup.run_unnamed(&unpinned, exec_info).await);
        shown.push(said.shown);
    }
    assert_snapshot!("a-cluster-that-names-no-access", joined(&shown));
    assert_eq!(
        setup.asked_for().len(),
        3,
        "the server was asked by nobody else"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn further_arguments_lead_nowhere_else() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    let file = setup.client_file("");
    let mut shown = Vec::new();
    for argument in [
        "--server=https://evil.example",
        "--token-file=/etc/shadow",
        "--certificate-authority=/etc/passwd",
    ] {
        let words = ["--client-config", &file, argument];
        shown.push(failed(setup.run(&words, &exec_info).await).shown);
        // A second flag of one name is a mistake and not a choice.
        let said = setup.run(&[argument, argument], &exec_info).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
        shown.push(said.shown);
    }
    for arguments in [
        &["tenant-b/prod"][..],
        &["--", "--server=https://evil.example"],
        &["--client-config", &file, "--client-config=/x"],
    ] {
        let said = setup.run(arguments, &exec_info).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
        shown.push(said.shown);
    }
    assert_snapshot!("further-arguments", joined(&shown));
    assert!(setup.asked_for().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_token_file_that_is_none_is_refused() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    let mut shown = Vec::new();
    for content in [
        "",
        "\u{feff}a.b.c",
        "a.b.c\nd.e.f",
        "a b",
        &"a".repeat(8193),
    ] {
        std::fs::write(setup.token_file(), content).unwrap();
        shown.push(failed(setup.run(&[], &exec_info).await).shown);
    }
    std::fs::remove_file(setup.token_file()).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(setup.token_file())
        .status();
    assert!(pipe.unwrap().success());
    shown.push(failed(setup.run(&[], &exec_info).await).shown);
    std::fs::remove_file(setup.token_file()).unwrap();
    std::fs::create_dir(setup.token_file()).unwrap();
    shown.push(failed(setup.run(&[], &exec_info).await).shown);
    assert_snapshot!("a-callers-token-file-that-is-none", joined(&shown));
    assert!(setup.asked_for().is_empty());
}
