//! Client credentials with an assertion (RFC 7523), by the OAuth 2.0 library of Go's clients.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, World};
use serde_json::{Value, json};

use super::stage::{AT_TARGET, Home, run, succeeded};

pub(crate) async fn client_credentials_with_an_assertion_by_x_oauth2(
    world: Arc<World>,
) -> TestResult {
    let home = Home::new(&world).await?;
    let caller = home.path().join("caller");
    let user: Value = serde_json::from_str(&succeeded(
        whoami(&world, &home, "tenant-a/a", &caller).await?,
    )?)?;
    assert_eq!(user["username"], AT_TARGET);

    // It gets the decision that a subject_token gets: what policy denies, it denies.
    let denied = whoami(&world, &home, "tenant-a/b", &caller).await?;
    // A token for a target is no caller's token, though the hub signed both.
    let issued = home.path().join("issued");
    let exchanged = world
        .broker()
        .exchange_in_time(&std::fs::read_to_string(&caller)?, "tenant-a/a")
        .await?;
    std::fs::write(&issued, exchanged.token()?)?;
    let of_target = whoami(&world, &home, "tenant-a/a", &issued).await?;
    // Nor is a token of the account for the hub itself.
    let of_hub = home.path().join("of-hub");
    let token = world
        .hub()
        .token_request(TENANT, ACCOUNT, &[], 600)
        .await?
        .token;
    std::fs::write(&of_hub, token)?;
    let for_hub = whoami(&world, &home, "tenant-a/a", &of_hub).await?;
    for (what, output, code) in [
        ("another target", denied, "invalid_target"),
        ("a target's token", of_target, "invalid_request"),
        ("the hub's token", for_hub, "invalid_request"),
    ] {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(code),
            "{what}: {said}"
        );
        assert!(!said.contains("eyJ"), "{what}: a token is printed");
    }
    Ok(())
}

/// Asks target-a who the client is, with the token that this assertion gets for the access.
async fn whoami(
    world: &World,
    home: &Home,
    access: &str,
    assertion: &Path,
) -> Result<Output, TestError> {
    let cluster = json!({ "server": world.target_a().url(), "certificate-authority-data": STANDARD.encode(world.target_a().ca_pem()) });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "clusters": [{ "name": "target", "cluster": cluster }],
        "users": [],
        "contexts": [{ "name": "target", "context": { "cluster": "target", "user": "" } }],
    });
    let file = home.path().join("without-a-user.json");
    std::fs::write(&file, kubeconfig.to_string())?;
    let client_go = world.fleet().parts().locate(Part::ClientGo).await?;
    let mut command = home.command(&client_go);
    command
        .arg("client-credentials")
        .arg(format!("{}/v1/token", world.broker().api_url()))
        .arg(world.broker().ca_path())
        .arg(access)
        .arg(assertion)
        .arg(&file);
    run(&mut command).await
}
