//! Tests the messages of the command line about a server that it cannot reach, and about a caller
//! token that it refuses to send.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_integration::runner::TestResult;
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
    for (server, ca, says) in [
        (
            "https://127.0.0.1:1",
            ca.as_str(),
            "connection refused at 127.0.0.1:1",
        ),
        (
            "https://keyferry.invalid",
            ca,
            "host not found: keyferry.invalid",
        ),
        (url.as_str(), &other_ca, "signed by an unknown CA (issuer "),
        (
            &discovery,
            ca,
            "this is the discovery listener, not the token API",
        ),
        (&hub, &hub_ca, "and not as Keyferry's token API does"),
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
        let said = failed(&world, &arguments, &[]).await?;
        assert!(
            said.contains(says),
            "{server} by {ca} does not say {says:?} but: {said}"
        );
    }
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
    for (token, says) in [
        (
            expired.as_str(),
            "days ago by this machine's clock\nfix: kubectl create token reconciler -n tenant-a \
             --audience keyferry.dev",
        ),
        (
            "hello",
            "is not a JWT\nfix: kubectl create token NAME --audience keyferry.dev",
        ),
    ] {
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
        assert!(
            said.contains(says) && said.contains(&path) && !said.contains(&part("canary")),
            "{says}: {said}"
        );
    }
    // The server has no audit record of these tokens. Other tests may have added records meanwhile.
    let written = world.broker().audit()?;
    let malformed = |record: &serde_json::Value| {
        record["reason"] == "CallerMalformed" || record["reason"] == "CallerExpired"
    };
    assert!(!written.iter().skip(before).any(malformed), "one was sent");
    assert!(std::path::Path::new(&file).exists());
    Ok(())
}
