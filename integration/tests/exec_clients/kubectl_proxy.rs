//! `kubectl proxy` for clients that read a token once: they have none, and kubectl renews its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyferry_integration::http_client::plain_client;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, TENANT, World};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::stage::{AT_TARGET, Home, credential, succeeded};

/// How long the first credential counts. The plugin gives out none with less than ten seconds.
const FIRST_LIFE: Duration = Duration::from_secs(20);
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The only entry of the plugin's cache.
fn cached(home: &Path) -> Result<PathBuf, TestError> {
    let folder = std::fs::read_dir(home.join("cache/keyferry/credentials"))?;
    let mut entries = folder.flatten().map(|entry| entry.path());
    Ok(entries
        .find(|path| path.extension().is_none() && path.is_file())
        .ok_or("the plugin cached nothing")?)
}

pub(crate) async fn renews_the_token_of_a_client_that_has_none(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let (kubeconfig, _) = home.exec_kubeconfig(&world, "tenant-a/a").await?;
    succeeded(
        home.kubectl(&world, &kubeconfig, &["auth", "whoami"])
            .await?,
    )?;
    // A token that was fetched earlier, and of which the server said that it ends soon. The hub mints
    // none for less than ten minutes, so this one would be accepted longer than its client uses it.
    let earlier = world
        .hub()
        .token_request(TENANT, ACCOUNT, &[AUDIENCE_A], 600)
        .await?
        .token;
    let entry = cached(home.path())?;
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&entry)?)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let end = now + FIRST_LIFE;
    changed["token"] = json!(earlier);
    changed["expiration"] = json!(end.as_secs());
    std::fs::write(&entry, changed.to_string())?;

    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?;
    let mut proxy = home
        .command(&kubectl)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["proxy", "--port=0"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(proxy.stdout.take().ok_or("stdout")?).lines();
    let line = lines.next_line().await?.ok_or("kubectl proxy ended")?;
    let address = line
        .strip_prefix("Starting to serve on ")
        .ok_or_else(|| format!("kubectl said {line}"))?;
    let url = format!("http://{address}{REVIEWS}");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let client = plain_client()?;
    let mut token_ids = Vec::<String>::new();
    let started = Instant::now();
    while started.elapsed() < FIRST_LIFE + Duration::from_secs(5) {
        let answer = client
            .post(&url)
            .header("content-type", "application/json")
            .body(review.to_string())
            .send()
            .await?;
        let status = answer.status();
        let text = answer.text().await?;
        assert!(status.is_success(), "{:?}: {text}", started.elapsed());
        let user = &serde_json::from_str::<Value>(&text)?["status"]["userInfo"];
        assert_eq!(user["username"], AT_TARGET);
        let id = credential(user);
        if !token_ids.contains(&id) {
            token_ids.push(id);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let id_of = |token: &str| -> Result<String, TestError> {
        let claims = keyferry_integration::world::claims(token)?;
        Ok(format!("JTI={}", claims["jti"].as_str().ok_or("no jti")?))
    };
    let renewed: Value = serde_json::from_slice(&std::fs::read(&entry)?)?;
    let renewed = renewed["token"].as_str().ok_or("no token in the cache")?;
    assert_eq!(token_ids, [id_of(&earlier)?, id_of(renewed)?]);
    Ok(proxy.kill().await?)
}
