//! Jobs that are admitted, and what they get.

use std::process::Output;
use std::sync::Arc;

use insta::assert_snapshot;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::transcript::{Transcript, joined};
use keyferry_integration::world::{claims, exchange_form};
use serde_json::{Value, json};

use super::stage::{AUDIENCE, Stage};

const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";

pub(crate) async fn a_job_deploys_with_its_id_token(stage: Arc<Stage>) -> TestResult {
    let rule = json!({
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"],
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "ci-deployer" }, "rules": [rule],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ci-deployer";
    stage.target.admin().apply(path, &role).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "ci-deployer" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ci-deployer",
        },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": AT_TARGET,
        }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/ci-deployer";
    stage.target.admin().apply(path, &binding).await?;
    let [github, _, gitlab] = stage.shapes()?;
    // The hub's watches and the target's authoriser may still be behind.
    let first = stage.job(&gitlab, "warm-up")?;
    stage
        .broker
        .exchange_in_time(&first, "tenant-a/prod")
        .await?;
    let user = keyferry_integration::control_plane::Whom::User(AT_TARGET);
    stage.target.until_it_counts(user, "default", &rule).await?;
    for (shape, name) in [(&github, "by-github"), (&gitlab, "by-gitlab")] {
        let token = stage.job(shape, name)?;
        let kubectl = kubectl(&stage).await?;
        let said = run(
            &stage,
            &["exec", "tenant-a/prod", "--token-env", "JOB_TOKEN"],
            &[
                "--",
                &kubectl,
                "create",
                "configmap",
                name,
                "-n",
                "default",
                "-o",
                "name",
            ],
            &[("JOB_TOKEN", &token)],
        )
        .await?;
        assert_eq!(said, format!("configmap/{name}\n"));
        let made = format!("/api/v1/namespaces/default/configmaps/{name}");
        assert!(stage.target.admin().exists(&made).await?);
    }
    let token = stage.job(&gitlab, "recorded")?;
    let answer = stage.broker.exchange(&token, "tenant-a/prod").await?;
    let issued = claims(&answer.token()?)?;
    assert_eq!(issued["sub"], "system:serviceaccount:tenant-a:reconciler");
    let record = stage.broker.audit_of(&answer.request_id)?;
    for (member, value) in [
        ("decision", json!("granted")),
        ("caller", json!("system:serviceaccount:tenant-a:reconciler")),
        ("callerIssuer", gitlab.claims["iss"].clone()),
        ("callerSubject", gitlab.claims["sub"].clone()),
        ("callerRun", json!("99")),
        ("callerTokenId", json!("recorded")),
        ("serviceAccount", json!("tenant-a/reconciler")),
        ("target", json!("target")),
    ] {
        assert_eq!(record[member], value, "{member}: {record}");
    }
    assert!(
        !record.to_string().contains(&token),
        "no record holds a token"
    );
    Ok(())
}

/// GitHub's endpoint is a server of the test: it answers any audience with one token.
pub(crate) async fn the_command_line_gets_githubs_token(stage: Arc<Stage>) -> TestResult {
    let [github, _, _] = stage.shapes()?;
    let documents = stage.issuer.documents();
    let endpoint = format!("{}/id-token?api-version=2.0", documents.url());
    let ca = stage.broker.ca_path().display().to_string();
    let env = [
        ("ACTIONS_ID_TOKEN_REQUEST_URL", endpoint.as_str()),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary-request-token"),
        ("SSL_CERT_FILE", ca.as_str()),
        ("XDG_CACHE_HOME", "/nonexistent"),
    ];
    let give = |id: &str| -> TestResult {
        let token = stage.job(&github, id)?;
        documents.put("/id-token", &json!({ "count": 1, "value": token }));
        Ok(())
    };
    give("command-1")?;
    stage
        .broker
        .exchange_in_time(&stage.job(&github, "command-0")?, "tenant-a/prod")
        .await?;
    let token = run(
        &stage,
        &["token", "tenant-a/prod", "--github-oidc"],
        &[],
        &env,
    )
    .await?;
    let issued = claims(token.trim_end())?;
    assert_eq!(issued["sub"], "system:serviceaccount:tenant-a:reconciler");
    give("command-2")?;
    let kubectl = kubectl(&stage).await?;
    let last = [
        "--",
        kubectl.as_str(),
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    let said = run(
        &stage,
        &["exec", "tenant-a/prod", "--github-oidc"],
        &last,
        &env,
    )
    .await?;
    assert_eq!(said, AT_TARGET);
    assert_eq!(documents.reads("/id-token"), 2);
    // Without the job's permission there are no variables.
    let words = ["token", "tenant-a/prod", "--github-oidc"];
    let without = seen_by_a_job(&stage, &words, &[]).await?;
    // Plain HTTP gets neither the request token nor an answer.
    let plain = endpoint.replace("https://", "http://");
    let url = [("ACTIONS_ID_TOKEN_REQUEST_URL", plain.as_str())];
    let by_http = seen_by_a_job(&stage, &words, &[url[0], env[1]]).await?;
    assert_snapshot!("githubs-token-is-not-given", joined([&without, &by_http]));
    assert_eq!(documents.reads("/id-token"), 2);
    Ok(())
}

pub(crate) async fn a_token_for_one_use_is_used_once(stage: Arc<Stage>) -> TestResult {
    let [github, _, gitlab] = stage.shapes()?;
    let warm = stage.job(&gitlab, "often")?;
    stage
        .broker
        .exchange_in_time(&warm, "tenant-a/prod")
        .await?;
    for _ in 0..3 {
        assert_eq!(
            stage.broker.exchange(&warm, "tenant-a/prod").await?.status,
            200
        );
    }
    let once = stage.job(&github, "once")?;
    // A refused request does not use it up.
    let denied = stage
        .broker
        .exchange(&once, "tenant-a/no-such-access")
        .await?;
    assert_eq!(denied.status, 400);
    // Of ten concurrent requests with one token, one is granted.
    let crowd = (0..10).map(|_| stage.broker.exchange(&once, "tenant-a/prod"));
    let answers = futures::future::try_join_all(crowd).await?;
    let granted = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(granted, 1);
    let again = stage.broker.exchange(&once, "tenant-a/prod").await?;
    assert_eq!(again.status, 400, "{}", again.body);
    let record = stage.broker.audit_of(&again.request_id)?;
    assert_eq!(record["reason"], "CallerTokenReused");
    let other_route = stage
        .broker
        .kubeconfig_of(&once, "tenant-a", "prod")
        .await?;
    assert_eq!(other_route.status, 401, "{}", other_route.body);
    Ok(())
}

/// `callers[]` of `tenant-a/prod` names the notifier, and the hub's RBAC lets it mint. Its Pods may
/// use the access; a job that stands for it may not.
pub(crate) async fn a_job_acts_for_no_other_account(stage: Arc<Stage>) -> TestResult {
    let [github, environments, _] = stage.shapes()?;
    keyferry_integration::world::let_mint(
        &stage.hub,
        "notifier-mints",
        keyferry_integration::world::Subject::ServiceAccount("tenant-a", "notifier"),
        "tenant-a",
        &["reconciler"],
    )
    .await?;
    let pod = keyferry_integration::world::caller_token(&stage.hub, "tenant-a", "notifier").await?;
    stage.broker.exchange_in_time(&pod, "tenant-a/prod").await?;
    let job = stage.job(&environments, "delegated")?;
    let refused = stage.broker.exchange(&job, "tenant-a/prod").await?;
    assert_eq!(
        refused.json()?["error"],
        "invalid_target",
        "{}",
        refused.body
    );
    let record = stage.broker.audit_of(&refused.request_id)?;
    assert_eq!(record["reason"], "DelegationForbidden");
    // The access of another account and an absent one get the same answer.
    let others = stage.job(&github, "others")?;
    let own = stage.broker.exchange(&others, "tenant-a/own").await?;
    let absent = stage.broker.exchange(&others, "tenant-b/none").await?;
    assert_eq!((own.status, &own.body), (absent.status, &absent.body));
    assert_eq!(own.status, 400);
    Ok(())
}

pub(crate) async fn the_metadata_lead_to_the_token_endpoint(stage: Arc<Stage>) -> TestResult {
    let url = format!(
        "{}/.well-known/oauth-authorization-server",
        stage.broker.api_url()
    );
    let request = stage
        .broker
        .http()
        .get(&url)
        .header("x-forwarded-host", "evil.example");
    let metadata: Value = request.send().await?.error_for_status()?.json().await?;
    assert_eq!(metadata["issuer"], "https://keyferry-api.keyferry.test");
    assert_eq!(
        metadata["token_endpoint"],
        "https://keyferry-api.keyferry.test/v1/token"
    );
    // The token types that clients of other exchanges send give the same token.
    let [_, _, gitlab] = stage.shapes()?;
    let token = stage.job(&gitlab, "typed")?;
    stage
        .broker
        .exchange_in_time(&token, "tenant-a/prod")
        .await?;
    for (given, status) in [
        ("jwt", 200),
        ("id_token", 200),
        ("access_token", 200),
        ("saml2", 400),
    ] {
        let mut form = exchange_form(&token, "tenant-a/prod");
        for (name, value) in &mut form {
            if *name == "subject_token_type" {
                *value = format!("urn:ietf:params:oauth:token-type:{given}");
            }
        }
        let answer = stage.broker.post_form(&form).await?;
        assert_eq!(answer.status, status, "{given}: {}", answer.body);
        let mut with_actor = form.clone();
        with_actor.push(("actor_token", token.clone()));
        let refused = stage.broker.post_form(&with_actor).await?;
        assert_eq!(refused.json()?["error"], "invalid_request", "{given}");
    }
    Ok(())
}

async fn kubectl(stage: &Stage) -> Result<String, TestError> {
    Ok(stage
        .ground
        .parts()
        .locate(Part::Kubectl)
        .await?
        .display()
        .to_string())
}

/// All that a job sees of a command that must fail, without the flags of the server.
async fn seen_by_a_job(
    stage: &Stage,
    words: &[&str],
    env: &[(&str, &str)],
) -> Result<Transcript, TestError> {
    let output = call(stage, words, &[], env).await?;
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("canary"), "{error}");
    Ok(Transcript::new("keyferry", words, &output).without_random_words())
}

async fn output(
    stage: &Stage,
    first: &[&str],
    last: &[&str],
    env: &[(&str, &str)],
) -> Result<(Option<i32>, String, String), TestError> {
    let output = call(stage, first, last, env).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

async fn call(
    stage: &Stage,
    first: &[&str],
    last: &[&str],
    env: &[(&str, &str)],
) -> Result<Output, TestError> {
    let (url, ca) = (
        stage.broker.api_url(),
        stage.broker.ca_path().display().to_string(),
    );
    let server = [
        "--server",
        &url,
        "--certificate-authority",
        &ca,
        "--caller-audience",
        AUDIENCE,
    ];
    let args: Vec<&str> = [first, &server, last].concat();
    Ok(stage.ground.binary().run(&args, env).await?)
}

async fn run(
    stage: &Stage,
    first: &[&str],
    last: &[&str],
    env: &[(&str, &str)],
) -> Result<String, TestError> {
    let (code, stdout, stderr) = output(stage, first, last, env).await?;
    if code == Some(0) {
        Ok(stdout)
    } else {
        let command: Value = json!(first);
        Err(format!("{command}: exit {code:?}: {stderr}").into())
    }
}
