//! Tests the messages of the command line about a server that it cannot reach, and about a caller
//! token that it refuses to send.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use insta::assert_snapshot;
use keyferry_integration::runner::TestResult;
use keyferry_integration::transcript::joined;
use keyferry_integration::world::World;

use super::command::{failed, server, token_file};

pub(crate) async fn each_cause_of_a_failed_connection_has_its_text(
    world: Arc<World>,
) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let [_, url, _, ca] = &server;
    let other_ca = folder.path().join("other-ca.crt");
    std::fs::write(&other_ca, world.target_a().ca_pem())?;
    let other_ca = other_ca.display().to_string();
    let discovery = world.broker().discovery_url();
    let hub = world.hub().url();
    let hub_ca = folder.path().join("hub-ca.crt");
    std::fs::write(&hub_ca, world.hub().ca_pem())?;
    let hub_ca = hub_ca.display().to_string();
    let mut shown = Vec::new();
    for (server, ca) in [
        ("https://127.0.0.1:1", ca.as_str()),
        ("https://keyferry.invalid", ca),
        (url.as_str(), &other_ca),
        (&discovery, ca),
        (&hub, &hub_ca),
    ] {
        let arguments = [
            "token",
            "tenant-a/a",
            "--server",
            server,
            "--certificate-authority",
            ca,
            "--token-file",
            &file,
        ];
        shown.push(failed(&world, &arguments, &[]).await?.shown);
    }
    assert_snapshot!("a-failed-connection", joined(&shown));
    Ok(())
}

pub(crate) async fn a_caller_token_that_would_be_refused_is_not_sent(
    world: Arc<World>,
) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let [_, url, _, ca] = &server;
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let expired = r#"{"aud":["keyferry.dev"],"exp":1000000000,"sub":"system:serviceaccount:tenant-a:reconciler"}"#;
    let expired = format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256"}"#),
        part(expired),
        part("canary")
    );
    let path = folder.path().join("unfit").display().to_string();
    let before = world.broker().audit()?.len();
    let days = (jiff::Timestamp::now().as_second() - 1_000_000_000) / 86_400;
    let age = format!("{days} days");
    let mut shown = Vec::new();
    for token in [expired.as_str(), "hello"] {
        std::fs::write(&path, token)?;
        let arguments = [
            "token",
            "tenant-a/a",
            "--server",
            url,
            "--certificate-authority",
            ca,
            "--token-file",
            &path,
        ];
        let said = failed(&world, &arguments, &[]).await?;
        assert!(!said.stderr.contains(&part("canary")), "{}", said.stderr);
        shown.push(said.shown.with_name(&age, "9000 days"));
    }
    assert_snapshot!("a-token-that-would-be-refused", joined(&shown));
    // The server has no audit record of these tokens. Other tests may have added records meanwhile.
    let written = world.broker().audit()?;
    let malformed = |record: &serde_json::Value| {
        record["reason"] == "CallerMalformed" || record["reason"] == "CallerExpired"
    };
    assert!(!written.iter().skip(before).any(malformed), "one was sent");
    assert!(std::path::Path::new(&file).exists());
    Ok(())
}
