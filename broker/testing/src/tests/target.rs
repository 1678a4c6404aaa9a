use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::*;

struct World {
    hub: EmbeddedHub,
    target: EmbeddedTarget,
    hands: Hands,
}

/// Creates a hub whose discovery documents are public, and a target that reads them there.
async fn start_world() -> World {
    let hands = Hands::at_now();
    let discovery_ca = Authority::new("shared test CA").unwrap();
    let hub = EmbeddedHub::start(HubOptions {
        issuer: Some("https://hub.example".to_owned()),
        discovery_ca: Some(discovery_ca.clone()),
        clock: hands.clock(),
        ..HubOptions::default()
    })
    .await
    .unwrap();
    hub.add_service_account("ci", "deployer");
    hub.add_service_account("ci", "other");
    let target = EmbeddedTarget::start(TargetOptions {
        discovery_url: Some(hub.discovery_url()),
        allowed_subjects: vec!["system:serviceaccount:ci:deployer".to_owned()],
        clock: hands.clock(),
        ..TargetOptions::new(hub.issuer(), "target-a", "hub:", discovery_ca.ca_pem())
    })
    .await
    .unwrap();
    World { hub, target, hands }
}

impl World {
    fn token(&self, name: &str, audience: &str) -> SecretString {
        self.hub.token("ci", name, audience, HOUR).unwrap()
    }

    /// `status` of a TokenReview that the target's admin sends.
    async fn review(&self, token: &str) -> Value {
        let url = format!(
            "{}/apis/authentication.k8s.io/v1/tokenreviews",
            self.target.url()
        );
        let answer = https(self.target.ca_pem())
            .post(url)
            .bearer_auth(self.target.admin_token().expose_secret())
            .json(&json!({"spec": {"token": token}}))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 201);
        answer.json::<Value>().await.unwrap()["status"].clone()
    }

    async fn error(&self, token: &SecretString) -> String {
        let status = self.review(token.expose_secret()).await;
        status["error"].as_str().unwrap_or("accepted").to_owned()
    }
}

#[tokio::test]
async fn an_allowed_subject_is_let_in_under_the_prefix() {
    let world = start_world().await;
    assert!(world.target.fetches().is_empty());
    let token = world.token("deployer", "target-a");
    let client = client_of(&world.target.kubeconfig_for(&token)).await;
    let me: SelfSubjectReview = Api::all(client.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let me = me.status.unwrap().user_info.unwrap();
    let user = "hub:system:serviceaccount:ci:deployer";
    assert_eq!(me.username.as_deref(), Some(user));
    assert_eq!(me.groups.unwrap(), ["system:authenticated"]);
    assert!(me.extra.unwrap()["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
    let namespaces = Api::<Namespace>::all(client)
        .list(&Default::default())
        .await
        .unwrap();
    assert!(!namespaces.items.is_empty());

    let fetched: Vec<_> = world
        .target
        .fetches()
        .iter()
        .map(|it| it.document)
        .collect();
    assert_eq!(fetched, [FetchedDocument::Discovery, FetchedDocument::Jwks]);
    let outcomes: Vec<_> = world
        .target
        .requests()
        .into_iter()
        .map(|it| it.outcome)
        .collect();
    let accepted = Outcome::Accepted {
        user: user.to_owned(),
    };
    assert_eq!(outcomes, [accepted.clone(), accepted]);
}

#[tokio::test]
async fn refusals_name_their_cause() {
    let world = start_world().await;
    let wrong = world.token("deployer", "target-b");
    assert_eq!(
        world.error(&wrong).await,
        r#"[invalid bearer token, oidc: verify token: oidc: expected audience "target-a" got ["target-b"]]"#
    );
    let other = world.error(&world.token("other", "target-a")).await;
    assert!(
        other.contains("claims.sub in [\"system:serviceaccount:ci:deployer\"]"),
        "{other}"
    );
    assert_eq!(
        world.error(&SecretString::from("no-jwt")).await,
        "invalid bearer token"
    );

    let client = client_of(&world.target.kubeconfig_for(&wrong)).await;
    let answer = Api::<Namespace>::all(client)
        .list(&Default::default())
        .await;
    assert_eq!(code_of(answer), 401);
    let anonymous = https(world.target.ca_pem())
        .get(format!("{}/api", world.target.url()))
        .send()
        .await
        .unwrap();
    assert_eq!(anonymous.status(), 401);
    let rejected = world
        .target
        .requests()
        .into_iter()
        .filter(|it| matches!(&it.outcome, Outcome::Rejected { cause } if cause.contains("expected audience")));
    assert_eq!(rejected.count(), 2);
}

#[tokio::test]
async fn a_token_with_a_second_audience_is_refused() {
    let world = start_world().await;
    let url = format!(
        "{}/api/v1/namespaces/ci/serviceaccounts/deployer/token",
        world.hub.url()
    );
    let answer = https(world.hub.ca_pem())
        .post(url)
        .bearer_auth(world.hub.broker_token().expose_secret())
        .json(&json!({"spec": {"audiences": ["target-a", "target-b"]}}))
        .send()
        .await
        .unwrap();
    let answer: Value = answer.json().await.unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    let error = world.error(&SecretString::from(token)).await;
    assert!(error.contains("exactly one audience"), "{error}");
}

#[tokio::test]
async fn expiry_has_no_leeway() {
    let world = start_world().await;
    let token = world.token("deployer", "target-a");
    world.hands.forward(SignedDuration::from_secs(3600));
    assert_eq!(world.error(&token).await, "accepted");
    world.hands.forward(SignedDuration::from_secs(1));
    assert!(world.error(&token).await.contains("oidc: token is expired"));
}

#[tokio::test]
async fn a_new_key_is_unknown_until_the_old_set_is_stale() {
    let world = start_world().await;
    let old = world.token("deployer", "target-a");
    assert_eq!(world.error(&old).await, "accepted");
    let old_kid = world.hub.signing_kid();
    world.hub.rotate_key().unwrap();
    world.hub.withdraw_key(&old_kid).unwrap();
    let new = world
        .hub
        .token("ci", "deployer", "target-a", HOUR * 2)
        .unwrap();

    assert!(
        world
            .error(&new)
            .await
            .contains("failed to verify id token signature")
    );
    assert_eq!(world.error(&old).await, "accepted");
    assert_eq!(world.target.fetches().len(), 2);

    // The hub says max-age=3600, and a target may reload from 30 s before that on.
    world.hands.forward(SignedDuration::from_secs(3600 - 29));
    assert_eq!(world.error(&new).await, "accepted");
    assert!(
        world
            .error(&old)
            .await
            .contains("failed to verify id token signature")
    );
    assert_eq!(world.target.fetches().len(), 3);
}

#[tokio::test]
async fn a_reload_reads_everything_again() {
    let world = start_world().await;
    assert_eq!(
        world.error(&world.token("deployer", "target-a")).await,
        "accepted"
    );
    world.hub.rotate_key().unwrap();
    world.target.reload().await;
    assert_eq!(
        world.error(&world.token("deployer", "target-a")).await,
        "accepted"
    );
    assert_eq!(world.target.fetches().len(), 4);
}

#[tokio::test]
async fn discovery_under_another_ca_or_issuer_fails_and_says_so() {
    let world = start_world().await;
    let token = world.token("deployer", "target-a");
    let stranger = Authority::new("another CA").unwrap();
    let strange_ca = TargetOptions {
        discovery_url: Some(world.hub.discovery_url()),
        ..TargetOptions::new(world.hub.issuer(), "target-a", "hub:", stranger.ca_pem())
    };
    let target = EmbeddedTarget::start(strange_ca).await.unwrap();
    let client = client_of(&target.kubeconfig_for(&token)).await;
    let answer = Api::<Namespace>::all(client)
        .list(&Default::default())
        .await;
    assert_eq!(code_of(answer), 401);
    let outcome = target.requests().remove(0).outcome;
    let cause = "[invalid bearer token, oidc: authenticator not initialized]".to_owned();
    assert_eq!(outcome, Outcome::Rejected { cause });
    let failure = target.fetches().remove(0).failure.unwrap();
    assert!(failure.contains("UnknownIssuer"), "{failure}");
}
