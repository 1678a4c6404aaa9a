//! External callers beside those of the hub: one token for one exchange, and no way to another
//! issuer's identity.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::config::{self, ExternalIssuer};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::caller::PresentedToken;
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_keys::jwks::PublicKeySet;
use keyferry_keys::jwt::SigningAlgorithm;
use keyferry_keys::testing::{TestKey, key, set};
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_platform::external_issuer_documents::{
    ExternalIssuerAddress, ExternalIssuerKeys, ExternalKeysError,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{ExternalCallers, ExternalCallersParts};
use crate::authenticate::Authenticator;

/// An issuer's server with the keys or the error that a test sets.
pub(super) struct FakeServer {
    pub(super) answer: Mutex<Result<PublicKeySet, ExternalKeysError>>,
    pub(super) fetches: AtomicUsize,
    /// Whether it accepts connections and says nothing.
    pub(super) is_silent: AtomicBool,
}

impl FakeServer {
    pub(super) fn start() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Ok(signer().set())),
            fetches: AtomicUsize::new(0),
            is_silent: AtomicBool::new(false),
        })
    }

    pub(super) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl ExternalIssuerKeys for FakeServer {
    fn fetch<'a>(
        &'a self,
        _: &'a ExternalIssuerAddress,
    ) -> BoxFuture<'a, Result<PublicKeySet, ExternalKeysError>> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().clone();
        let is_silent = self.is_silent.load(Ordering::SeqCst);
        Box::pin(async move {
            if is_silent {
                tokio::time::sleep(Duration::from_secs(8)).await;
                return Err(ExternalKeysError::NoAnswer("it did not answer in time"));
            }
            answer
        })
    }
}

pub(super) fn signer() -> TestKey {
    key(SigningAlgorithm::Es256)
}

/// One entry, as read from a configuration.
pub(super) fn issuers(token_use: &str) -> Vec<ExternalIssuer> {
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.com
discovery: {{tls: {{certFile: a, keyFile: b}}}}
api: {{tls: {{certFile: a, keyFile: b}}}}
externalIssuers:
  - url: https://ci.example.com
    audience: https://keys.example.com
    tokenUse: {token_use}
    rules: [{{claims: {{repository_id: '42', ref: refs/heads/main}}}}]
    serviceAccount: {{namespace: tenant-a, name: reconciler}}
"
    );
    config::read(&text).unwrap().server.external_issuers
}

struct Stage {
    world: SmallWorld,
    server: Arc<FakeServer>,
    external: Arc<ExternalCallers>,
    authenticator: Authenticator,
}

impl Stage {
    async fn start(token_use: &str) -> Self {
        let world = SmallWorld::start().await;
        let server = FakeServer::start();
        let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
        let external = Arc::new(ExternalCallers::new(ExternalCallersParts {
            issuers: issuers(token_use),
            source: Arc::clone(&server) as Arc<dyn ExternalIssuerKeys>,
            live: Arc::clone(&world.live),
            clock: Arc::clone(&clock),
            hash_key: [7; 32],
        }));
        let authenticator = Authenticator::new(
            Arc::clone(&world.port),
            world.publisher.clone(),
            clock,
            world.metrics.clone(),
            [7; 32],
            world.callers(Duration::from_secs(300)),
        )
        .with_external(Some(Arc::clone(&external)));
        Self {
            world,
            server,
            external,
            authenticator,
        }
    }

    fn claims(&self) -> Value {
        let now = self.world.clock.now().wall.as_second();
        json!({
            "iss": "https://ci.example.com", "aud": "https://keys.example.com", "jti": "one",
            "sub": "repo:example/app:ref:refs/heads/main", "iat": now, "exp": now + 300,
            "repository_id": "42", "ref": "refs/heads/main", "event_name": "push", "run_id": "99",
        })
    }

    async fn ask(&self, token: &str) -> Result<keyferry_core::caller::VerifiedCaller, Reason> {
        let known = self
            .authenticator
            .authenticate(&PresentedToken::new(token), Source::default())
            .await
            .map_err(|refusal| refusal.reason)?;
        assert!(!known.stale);
        Ok(known.caller)
    }
}

#[tokio::test]
async fn a_job_is_its_service_account_without_a_review_by_the_hub() {
    let stage = Stage::start("Once").await;
    let token = signer().token(&stage.claims());
    for _ in 0..3 {
        let caller = stage.ask(&token).await.unwrap();
        assert_eq!(caller.identity().account.to_string(), "tenant-a/reconciler");
        assert_eq!(caller.external().unwrap().run(), Some("99"));
    }
    assert_eq!(stage.world.hub.token_reviews(), 0);
    assert_eq!(stage.server.fetches(), 1);
}

#[tokio::test]
async fn a_token_for_one_use_is_used_up_by_a_grant() {
    let stage = Stage::start("Once").await;
    let token = signer().token(&stage.claims());
    let caller = stage.ask(&token).await.unwrap();
    let again = stage.ask(&token).await.unwrap();
    stage.external.use_up(&caller).unwrap();
    assert_eq!(
        stage.external.use_up(&again),
        Err(Reason::CallerTokenReused),
        "a concurrent request with the same token"
    );
    assert_eq!(
        stage.ask(&token).await.err(),
        Some(Reason::CallerTokenReused)
    );
    // The claims in another order are other bytes under another signature.
    let mut claims = stage.claims();
    claims["run_attempt"] = json!("2");
    let copy = signer().token(&claims);
    assert_eq!(
        stage.ask(&copy).await.err(),
        Some(Reason::CallerTokenReused)
    );
    claims["jti"] = json!("two");
    assert!(stage.ask(&signer().token(&claims)).await.is_ok());
}

#[tokio::test]
async fn a_token_until_its_expiry_is_used_often_and_not_longer() {
    let stage = Stage::start("UntilExpiry").await;
    let token = signer().token(&stage.claims());
    for _ in 0..3 {
        let caller = stage.ask(&token).await.unwrap();
        stage.external.use_up(&caller).unwrap();
    }
    stage.world.clock.advance(Duration::from_secs(299));
    assert!(stage.ask(&token).await.is_ok());
    stage.world.clock.advance(Duration::from_secs(1));
    assert_eq!(stage.ask(&token).await.err(), Some(Reason::CallerExpired));
}

#[tokio::test]
async fn a_recreated_service_account_is_another_one_at_once() {
    let stage = Stage::start("UntilExpiry").await;
    let token = signer().token(&stage.claims());
    let account = ServiceAccount::from_username("system:serviceaccount:tenant-a:reconciler");
    let account = account.unwrap();
    let before = stage.ask(&token).await.unwrap();
    let uid = Uid::new("another").unwrap();
    stage
        .world
        .live
        .set_service_account(account.clone(), Some(uid.clone()));
    let after = stage.ask(&token).await.unwrap();
    assert_ne!(before.identity().uid, after.identity().uid);
    assert_eq!(after.identity().uid, uid);
    stage.world.live.set_service_account(account, None);
    assert_eq!(
        stage.ask(&token).await.err(),
        Some(Reason::CallerIdentityChanged)
    );
}

#[tokio::test]
async fn a_key_of_one_issuer_does_not_sign_for_another() {
    let stage = Stage::start("Once").await;
    let claims = stage.claims();
    // The hub's issuer in the claims leads to the hub's keys, whatever else the claims say.
    let mut as_hub = claims.clone();
    as_hub["iss"] = json!(stage.world.hub.issuer());
    assert_eq!(
        stage.ask(&signer().token(&as_hub)).await.err(),
        Some(Reason::CallerMalformed)
    );
    let mut unknown = claims.clone();
    unknown["iss"] = json!("https://ci.example.com.evil.example");
    assert!(stage.ask(&signer().token(&unknown)).await.is_err());
    // Another key under the same kid.
    let header = json!({"alg": "ES384", "kid": "ES256"}).to_string();
    let forged =
        key(SigningAlgorithm::Es384).sign(header.as_bytes(), claims.to_string().as_bytes());
    assert_eq!(stage.ask(&forged).await.err(), Some(Reason::CallerRejected));
    // A stranger does not learn which claims the rules want.
    let mut elsewhere = claims.clone();
    elsewhere["repository_id"] = json!("43");
    let header = json!({"alg": "ES256", "kid": "ES256"}).to_string();
    for claims in [&claims, &elsewhere] {
        let other = signer().sign(header.as_bytes(), b"{}");
        let (_, signature) = other.rsplit_once('.').unwrap();
        let signed = signer().sign(header.as_bytes(), claims.to_string().as_bytes());
        let (unsigned, _) = signed.rsplit_once('.').unwrap();
        let forged = stage.ask(&format!("{unsigned}.{signature}")).await;
        assert_eq!(forged.err(), Some(Reason::CallerRejected));
    }
    let (unsigned, _) = signer()
        .token(&claims)
        .rsplit_once('.')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert!(stage.ask(&format!("{unsigned}.")).await.is_err());
    assert_eq!(stage.world.hub.token_reviews(), 0);
    *stage.server.answer.lock() = Ok(set([key(SigningAlgorithm::Es384).entry()]));
    assert!(
        stage.ask(&signer().token(&claims)).await.is_ok(),
        "the cached key"
    );
}
