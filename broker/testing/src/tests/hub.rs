use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use reqwest::header::ACCEPT;
use serde_json::json;

use super::*;

async fn mint(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    seconds: Option<i64>,
    audiences: &[&str],
) -> Result<TokenRequest, kube::Error> {
    let request: TokenRequest = serde_json::from_value(json!({
        "metadata": {"uid": uid},
        "spec": {"audiences": audiences, "expirationSeconds": seconds},
    }))
    .unwrap();
    Api::<ServiceAccount>::namespaced(client.clone(), "ci")
        .create_token_request(name, &PostParams::default(), &request)
        .await
}

async fn review(client: &kube::Client, token: &str, audiences: &[&str]) -> TokenReview {
    let review = TokenReview {
        spec: serde_json::from_value::<TokenReviewSpec>(
            json!({"token": token, "audiences": audiences}),
        )
        .unwrap(),
        ..TokenReview::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
        .unwrap()
}

fn token_of(request: TokenRequest) -> String {
    let status = serde_json::to_value(request.status).unwrap();
    status["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn version_and_objects_are_served() {
    let hub = hub().await;
    hub.add_namespace("ci", &[("team", "red")]);
    hub.add_secret("ci", "ca", &[("ca.crt", b"bytes")]);
    let client = broker(&hub).await;
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let namespace: Namespace = Api::all(client.clone()).get("ci").await.unwrap();
    let labels = namespace.metadata.labels.unwrap();
    assert_eq!(labels["team"], "red");
    assert_eq!(labels["kubernetes.io/metadata.name"], "ci");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "ci");
    let data = secrets.get("ca").await.unwrap().data.unwrap();
    assert_eq!(data["ca.crt"].0, b"bytes");
    assert_eq!(code_of(secrets.get("other").await), 404);
}

#[tokio::test]
async fn callers_without_a_token_of_this_hub_get_401() {
    let hub = hub().await;
    hub.add_service_account("ci", "dev");
    let stranger = client_of(&hub.kubeconfig_for(&SecretString::from("stranger"))).await;
    assert_eq!(
        code_of(
            Api::<Namespace>::all(stranger)
                .list(&Default::default())
                .await
        ),
        401
    );
    let elsewhere = hub.token("ci", "dev", "elsewhere", HOUR).unwrap();
    let elsewhere = client_of(&hub.kubeconfig_for(&elsewhere)).await;
    assert_eq!(
        code_of(
            Api::<Namespace>::all(elsewhere)
                .list(&Default::default())
                .await
        ),
        401
    );
}

#[tokio::test]
async fn a_token_request_makes_claims_as_kubernetes_does() {
    for algorithm in [KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
        let hub = EmbeddedHub::start(HubOptions {
            algorithm,
            ..HubOptions::default()
        })
        .await
        .unwrap();
        let uid = hub.add_service_account("ci", "deployer");
        let client = broker(&hub).await;
        let answer = mint(&client, "deployer", Some(&uid), Some(900), &["target-a"]).await;
        let token = token_of(answer.unwrap());
        let opened = opened(&token);
        let (header, claims) = (&opened["header"], &opened["claims"]);

        assert_eq!(header.as_object().unwrap().len(), 2);
        assert_eq!(header["kid"], hub.signing_kid());
        assert_eq!(claims["iss"], hub.issuer());
        assert_eq!(claims["sub"], "system:serviceaccount:ci:deployer");
        assert_eq!(claims["aud"], json!(["target-a"]));
        assert_eq!(
            claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
            900
        );
        assert_eq!(claims["nbf"], claims["iat"]);
        assert_eq!(claims["jti"].as_str().unwrap().len(), 36);
        assert_eq!(
            claims["kubernetes.io"],
            json!({"namespace": "ci", "serviceaccount": {"name": "deployer", "uid": uid}})
        );
        assert_eq!(hub.token_requests(), 1);
    }
}

#[tokio::test]
async fn the_published_keys_verify_the_token_and_no_other_audience() {
    for (algorithm, name) in [
        (KeyAlgorithm::Es256, Algorithm::ES256),
        (KeyAlgorithm::Rs256, Algorithm::RS256),
    ] {
        let hub = EmbeddedHub::start(HubOptions {
            algorithm,
            ..HubOptions::default()
        })
        .await
        .unwrap();
        hub.add_service_account("ci", "deployer");
        let old = hub.token("ci", "deployer", "target-a", HOUR).unwrap();
        hub.rotate_key().unwrap();
        let new = hub.token("ci", "deployer", "target-a", HOUR).unwrap();
        let jwks = https(hub.ca_pem())
            .get(format!("{}/openid/v1/jwks", hub.url()))
            .send()
            .await
            .unwrap();
        let jwks: JwkSet = serde_json::from_slice(&jwks.bytes().await.unwrap()).unwrap();
        assert_eq!(jwks.keys.len(), 2);
        for token in [old, new] {
            let token = token.expose_secret();
            let kid = jsonwebtoken::decode_header(token).unwrap().kid.unwrap();
            let key = DecodingKey::from_jwk(jwks.find(&kid).unwrap()).unwrap();
            let mut validation = Validation::new(name);
            validation.set_audience(&["target-a"]);
            validation.set_issuer(&[hub.issuer()]);
            jsonwebtoken::decode::<serde_json::Value>(token, &key, &validation).unwrap();
            validation.set_audience(&["target-b"]);
            jsonwebtoken::decode::<serde_json::Value>(token, &key, &validation).unwrap_err();
        }
    }
}

#[tokio::test]
async fn token_request_refusals_carry_the_codes_of_kubernetes() {
    let hub = hub().await;
    let old_uid = hub.add_service_account("ci", "deployer");
    let new_uid = hub.recreate_service_account("ci", "deployer");
    assert_ne!(old_uid, new_uid);
    let client = broker(&hub).await;
    let ask = async |name: &'static str, uid: Option<&str>, seconds: Option<i64>| {
        mint(&client, name, uid, seconds, &["a"]).await
    };
    assert_eq!(code_of(ask("absent", None, None).await), 404);
    assert_eq!(code_of(ask("deployer", Some(&old_uid), None).await), 409);
    assert_eq!(code_of(ask("deployer", None, Some(599)).await), 422);
    assert_eq!(
        code_of(ask("deployer", None, Some((1 << 32) + 1)).await),
        422
    );
    assert!(ask("deployer", Some(&new_uid), Some(600)).await.is_ok());
}

#[tokio::test]
async fn an_old_hub_ignores_the_uid_and_a_strict_one_shortens() {
    let hub = EmbeddedHub::start(HubOptions {
        checks_uid: false,
        max_token_lifetime: Some(HOUR),
        ..HubOptions::default()
    })
    .await
    .unwrap();
    hub.add_service_account("ci", "deployer");
    let client = broker(&hub).await;
    let answer = mint(&client, "deployer", Some("other"), Some(7200), &[])
        .await
        .unwrap();
    let spec = serde_json::to_value(&answer.spec).unwrap();
    assert_eq!(spec["expirationSeconds"], 3600);
    assert_eq!(spec["audiences"], json!([hub.issuer()]));
    let _: Option<TokenRequestSpec> = serde_json::from_value(spec).unwrap();
}

#[tokio::test]
async fn token_request_to_token_review() {
    let hub = hub().await;
    let uid = hub.add_service_account("ci", "deployer");
    let client = broker(&hub).await;
    let token = token_of(
        mint(&client, "deployer", None, None, &["keyferry.dev", "x"])
            .await
            .unwrap(),
    );

    let status = review(&client, &token, &["keyferry.dev"])
        .await
        .status
        .unwrap();
    assert_eq!(status.authenticated, Some(true));
    assert_eq!(status.audiences.unwrap(), ["keyferry.dev"]);
    let user = status.user.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:ci:deployer")
    );
    assert_eq!(user.uid.as_deref(), Some(uid.as_str()));
    assert_eq!(
        user.groups.unwrap(),
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ci",
            "system:authenticated"
        ]
    );
    let jti = opened(&token)["claims"]["jti"].as_str().unwrap().to_owned();
    let extra = user.extra.unwrap();
    assert_eq!(
        extra["authentication.kubernetes.io/credential-id"],
        [format!("JTI={jti}")]
    );

    // Not for the hub itself, not after the account is gone.
    let own = review(&client, &token, &[]).await.status.unwrap();
    assert_ne!(own.authenticated, Some(true));
    hub.recreate_service_account("ci", "deployer");
    let gone = review(&client, &token, &["keyferry.dev"])
        .await
        .status
        .unwrap();
    assert_ne!(gone.authenticated, Some(true));
    assert!(gone.error.unwrap().contains("does not match"));
    assert_eq!(hub.token_reviews(), 3);
}

#[tokio::test]
async fn a_review_refuses_tampered_expired_and_withdrawn() {
    let hands = Hands::at_now();
    let hub = EmbeddedHub::start(HubOptions {
        clock: hands.clock(),
        ..HubOptions::default()
    })
    .await
    .unwrap();
    hub.add_service_account("ci", "deployer");
    let client = broker(&hub).await;
    let token = hub.token("ci", "deployer", "a", HOUR).unwrap();
    let authenticated = async |token: &str| {
        let status = review(&client, token, &["a"]).await.status.unwrap();
        status.authenticated == Some(true)
    };
    assert!(authenticated(token.expose_secret()).await);

    let other = hub.token("ci", "deployer", "a", HOUR).unwrap();
    let (signed, _) = token.expose_secret().rsplit_once('.').unwrap();
    let (_, signature) = other.expose_secret().rsplit_once('.').unwrap();
    assert!(!authenticated(&format!("{signed}.{signature}")).await);

    let old_kid = hub.signing_kid();
    hub.rotate_key().unwrap();
    assert!(authenticated(token.expose_secret()).await);
    hub.withdraw_key(&old_kid).unwrap();
    assert!(!authenticated(token.expose_secret()).await);
    hub.publish_key(&old_kid).unwrap();

    hands.forward(SignedDuration::from_secs(3600 + 60));
    assert!(authenticated(token.expose_secret()).await);
    hands.forward(SignedDuration::from_secs(1));
    assert!(!authenticated(token.expose_secret()).await);
}

#[tokio::test]
async fn legacy_and_pod_tokens() {
    let hub = hub().await;
    hub.add_service_account("ci", "deployer");
    let client = broker(&hub).await;
    let legacy = hub.legacy_token("ci", "deployer").unwrap();
    let own = review(&client, legacy.expose_secret(), &[])
        .await
        .status
        .unwrap();
    assert_eq!(own.authenticated, Some(true));
    let other = review(&client, legacy.expose_secret(), &["keyferry.dev"])
        .await
        .status
        .unwrap();
    assert_ne!(other.authenticated, Some(true));

    let pod = PodBinding {
        name: "runner-1".to_owned(),
        uid: "u-1".to_owned(),
    };
    let token = hub
        .pod_token("ci", "deployer", "keyferry.dev", HOUR, &pod)
        .unwrap();
    let status = review(&client, token.expose_secret(), &["keyferry.dev"])
        .await
        .status
        .unwrap();
    let extra = status.user.unwrap().extra.unwrap();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["runner-1"]);
}

#[tokio::test]
async fn access_follows_the_grants() {
    let hub = hub().await;
    hub.add_service_account("ci", "dev");
    hub.add_service_account("ci", "deployer");
    let grant = Grant::new(
        Subject::User("system:serviceaccount:ci:dev".to_owned()),
        "create",
        "serviceaccounts/token",
    )
    .in_namespace("ci")
    .named("deployer");
    hub.grant(grant.clone());
    let client = broker(&hub).await;
    let asked = |name: &str| ResourceAttributes {
        namespace: Some("ci".to_owned()),
        verb: Some("create".to_owned()),
        resource: Some("serviceaccounts".to_owned()),
        subresource: Some("token".to_owned()),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    let allowed = async |name: &str| {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some("system:serviceaccount:ci:dev".to_owned()),
                resource_attributes: Some(asked(name)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer: SubjectAccessReview = Api::all(client.clone())
            .create(&PostParams::default(), &review)
            .await
            .unwrap();
        serde_json::to_value(answer.status).unwrap()["allowed"] == true
    };
    assert!(allowed("deployer").await);
    assert!(!allowed("other").await);

    // The developer's own token works for the developer's own rights.
    let own = hub.token("ci", "dev", hub.issuer(), HOUR).unwrap();
    let developer = client_of(&hub.kubeconfig_for(&own)).await;
    let me: SelfSubjectReview = Api::all(developer.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let me = me.status.unwrap().user_info.unwrap();
    assert_eq!(me.username.as_deref(), Some("system:serviceaccount:ci:dev"));
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked("deployer")),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer: SelfSubjectAccessReview = Api::all(developer.clone())
        .create(&PostParams::default(), &review)
        .await
        .unwrap();
    assert_eq!(
        serde_json::to_value(answer.status).unwrap()["allowed"],
        true
    );
    assert!(
        mint(&developer, "deployer", None, None, &["a"])
            .await
            .is_ok()
    );
    hub.revoke(&grant);
    assert_eq!(
        code_of(mint(&developer, "deployer", None, None, &["a"]).await),
        403
    );
    assert!(!allowed("deployer").await);
    assert_eq!(hub.access_reviews(), 4);
}

#[tokio::test]
async fn discovery_has_the_headers_of_kubernetes() {
    let hub = hub().await;
    let client = https(hub.ca_pem());
    let document = client.get(hub.discovery_url()).send().await.unwrap();
    assert_eq!(document.headers()["content-type"], "application/json");
    assert_eq!(document.headers()["cache-control"], "public, max-age=3600");
    let document: serde_json::Value = document.json().await.unwrap();
    assert_eq!(document["issuer"], hub.issuer());
    let jwks_uri = document["jwks_uri"].as_str().unwrap();
    let jwks = client.get(jwks_uri).send().await.unwrap();
    assert_eq!(jwks.headers()["content-type"], "application/jwk-set+json");
    assert_eq!(jwks.headers()["cache-control"], "public, max-age=3600");
    let refused = client
        .get(jwks_uri)
        .header(ACCEPT, "application/json")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), 406);
}

#[tokio::test]
async fn discovery_can_be_closed_to_strangers() {
    let hub = EmbeddedHub::start(HubOptions {
        discovery_access: DiscoveryAccess::Authenticated,
        ..HubOptions::default()
    })
    .await
    .unwrap();
    let client = https(hub.ca_pem());
    let anonymous = client.get(hub.discovery_url()).send().await.unwrap();
    assert_eq!(anonymous.status(), 403);
    let known = client
        .get(hub.discovery_url())
        .bearer_auth(hub.broker_token().expose_secret())
        .send()
        .await
        .unwrap();
    assert_eq!(known.status(), 200);
}

#[tokio::test]
async fn a_stopped_hub_refuses_connections_and_shows_no_secret() {
    let hub = hub().await;
    let shown = format!("{hub:?}{:?}", hub.kubeconfig());
    assert!(!shown.contains(hub.broker_token().expose_secret()));
    let client = https(hub.ca_pem());
    let ready = format!("{}/readyz", hub.url());
    assert_eq!(client.get(&ready).send().await.unwrap().status(), 200);
    soon(hub.stop()).await;
    assert!(client.get(&ready).send().await.is_err());
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused() {
    let hub = hub().await;
    let answer = https(hub.ca_pem())
        .post(format!(
            "{}/apis/authentication.k8s.io/v1/tokenreviews",
            hub.url()
        ))
        .bearer_auth(hub.broker_token().expose_secret())
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .body("k8s")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 415);
}
