//! A relying party that is not a cluster: it has an audience, and no address.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{caller_token, claims, exchange_form};
use serde_json::{Value, json};

use super::stage::{GROUP, Stage, VAULT};

pub(crate) async fn an_audience_gets_tokens_and_no_kubeconfig(stage: Arc<Stage>) -> TestResult {
    let caller = caller_token(&stage.hub, "tenant-a", "reconciler").await?;
    let answer = stage
        .broker
        .exchange_in_time(&caller, "tenant-a/vault")
        .await?;
    let issued = claims(&answer.token()?)?;
    assert_eq!(issued["aud"], json!([VAULT]));
    assert_eq!(issued["sub"], "system:serviceaccount:tenant-a:reconciler");
    // The target, which has another audience, does not accept it.
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": { "token": answer.token()? },
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let judged = stage.target.admin().create(path, &review).await?;
    assert_ne!(judged["status"]["authenticated"], true, "{judged}");
    let route = stage
        .broker
        .kubeconfig_of(&caller, "tenant-a", "vault")
        .await?;
    assert_eq!(route.status, 400, "{}", route.body);
    assert!(route.body.contains("kind: Audience"), "{}", route.body);
    let mut form = exchange_form(&caller, "tenant-a/vault");
    form.push(("keyferry_cluster", "true".to_owned()));
    let told = stage.broker.post_form(&form).await?.json()?;
    assert_eq!(told.get("keyferry_cluster"), None, "there is no cluster");
    // A job gets such a token too, and the agent keeps it.
    let [_, _, gitlab] = stage.shapes()?;
    let job = stage.job(&gitlab, "vault")?;
    let by_job = stage.broker.exchange(&job, "tenant-a/vault").await?;
    assert_eq!(claims(&by_job.token()?)?["aud"], json!([VAULT]));
    let folder = tempfile::tempdir()?;
    let (place, url, ca) = (
        folder.path().join("vault").display().to_string(),
        stage.broker.api_url(),
        stage.broker.ca_path().display().to_string(),
    );
    let agent = |further: &'static [&'static str]| {
        let mut args = vec!["agent", "tenant-a/vault", "--once", "--dir", &place];
        args.extend(["--server", &url, "--certificate-authority", &ca]);
        args.extend([
            "--token-env",
            "JOB_TOKEN",
            "--caller-audience",
            super::stage::AUDIENCE,
        ]);
        args.extend(further);
        args
    };
    let env = [("JOB_TOKEN", job.as_str())];
    let run = async |args: Vec<&str>| stage.ground.binary().run(&args, &env).await;
    let refused = run(agent(&[])).await?;
    assert!(!refused.status.success());
    let kept = run(agent(&["--token-only"])).await?;
    assert!(
        kept.status.success(),
        "{}",
        String::from_utf8_lossy(&kept.stderr)
    );
    let token = std::fs::read_to_string(folder.path().join("vault/token"))?;
    assert_eq!(claims(&token)?["aud"], json!([VAULT]));
    assert!(!folder.path().join("vault/kubeconfig").exists());
    Ok(())
}

/// With objects on the hub, its apiserver refuses fields that no relying party can use.
pub(crate) async fn the_hub_refuses_an_audience_with_an_address(stage: Arc<Stage>) -> TestResult {
    if !stage.objects {
        return Ok(());
    }
    let path = format!("{GROUP}/targetclusters");
    let admin = stage.hub.admin();
    for (name, spec, said) in [
        (
            "with-address",
            json!({ "kind": "Audience", "audience": "x", "address": "https://x.example.com" }),
            "has no address",
        ),
        (
            "without-address",
            json!({ "audience": "y" }),
            "a cluster has an address",
        ),
        (
            "with-issuer",
            json!({ "kind": "Audience", "audience": "z", "targetIssuer": "https://z.example.com" }),
            "has no address",
        ),
    ] {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": name }, "spec": spec,
        });
        let refused = admin.create(&path, &object).await;
        let told = refused.err().map(|error| error.to_string());
        assert!(
            told.as_deref().is_some_and(|told| told.contains(said)),
            "{name}: {told:?}"
        );
    }
    let vault = format!("{path}/vault");
    let changed = json!({ "spec": { "kind": "Cluster", "address": "https://x.example.com" } });
    let refused = admin.patch(&vault, &changed).await;
    let told = refused.err().map(|error| error.to_string());
    assert!(
        told.as_deref()
            .is_some_and(|told| told.contains("kind is immutable")),
        "{told:?}"
    );
    // A platform admin can still change `allow`.
    let allowed = json!({ "spec": { "suspend": true } });
    admin.patch(&vault, &allowed).await?;
    let resumed: Value = json!({ "spec": { "suspend": false } });
    admin.patch(&vault, &resumed).await?;
    Ok(())
}
