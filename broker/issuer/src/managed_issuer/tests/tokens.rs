//! Tests of tokens of a managed issuer: how they are minted and cached.

use keyferry_api::config::DeliveryType;
use keyferry_api::name::AccessName;
use keyferry_core::authorise::{self, Requester, Review};
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::random::SystemRandomness;
use secrecy::ExposeSecret;

use super::*;
use crate::audience_guard::AudienceGuard;
use crate::managed_issuer::Signer;
use crate::mint::{FromCache, Mint, MintParts};
use crate::testing::{FakeClock, MAX_STALE, account_of};

const NOTHING: Duration = Duration::ZERO;

fn mint(world: &SmallWorld, replica: &Replica) -> (Mint, Arc<LocalSigner>) {
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    let random = Arc::new(SystemRandomness::default());
    let signer = Arc::new(LocalSigner::new(
        replica.issuers.clone(),
        Arc::clone(&clock),
        random.clone(),
    ));
    let canary = account_of("keyferry-system", "keyferry-canary");
    let guard = AudienceGuard::new(
        Arc::clone(&world.port),
        Arc::clone(&clock),
        Arc::clone(&world.live),
        world.publisher.clone(),
        canary,
    );
    let mint = Mint::new(MintParts {
        hub: Arc::clone(&world.port),
        publisher: world.publisher.clone(),
        own: OwnMint::new(replica.issuers.clone(), Arc::<LocalSigner>::clone(&signer)),
        guard,
        clock,
        random,
        metrics: world.metrics.clone(),
        activation_delay: keyferry_api::lifetime::activation_delay(Duration::from_secs(60)),
        max_stale: MAX_STALE,
    });
    (mint, signer)
}

fn claims(token: &keyferry_keys::bound_token::BoundToken) -> ServiceAccountClaims {
    ServiceAccountClaims::read(&UnverifiedJwt::parse(token.secret().expose_secret()).unwrap())
        .unwrap()
}

#[tokio::test]
async fn a_token_is_signed_once_the_hub_has_consented() {
    let (world, _store, mut replica) = start_managed_world().await;
    let (mint, _) = mint(&world, &replica);
    let grant = world.grant("tenant-a/prod");
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::IssuerKeysSettling,
        "nothing was read yet"
    );
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::IssuerKeysSettling
    );
    assert_eq!(
        world.hub.token_requests(),
        0,
        "keys that cannot sign cost the hub nothing"
    );
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let minted = mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        world.hub.token_requests(),
        2,
        "the canary's and one for the ServiceAccount"
    );
    let claims = claims(&minted.token);
    assert_eq!(
        claims.registered.issuer,
        "https://keyferry.example.test/issuers/prod"
    );
    assert_eq!(claims.registered.audiences, ["https://prod.example.test"]);
    assert_eq!(claims.identity, *grant.pair().service_account());
    assert_eq!(minted.token.lifetime(), Duration::from_secs(3600));
    let held = mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        (held.from_cache, held.token.token_id()),
        (FromCache::Hit, minted.token.token_id())
    );
    assert_eq!(world.hub.token_requests(), 2);
    let hub_would = world
        .mint
        .token(&grant, NOTHING)
        .await
        .unwrap_err()
        .reason();
    assert_eq!(
        hub_would,
        Reason::IssuerKeysSettling,
        "where managed issuers are not enabled the hub is not asked instead"
    );
}

#[tokio::test]
async fn a_recreated_account_gets_nothing() {
    let (world, _store, mut replica) = start_managed_world().await;
    let (mint, _) = mint(&world, &replica);
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let grant = world.grant("tenant-a/prod");
    world.hub.delete_service_account("tenant-a", "reconciler");
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::ServiceAccountChanged
    );
    world.hub.add_service_account("tenant-a", "reconciler");
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::ServiceAccountChanged,
        "the name is another's now"
    );
}

#[tokio::test]
async fn the_hubs_consent_is_for_one_account_and_a_moment() {
    let (world, _store, mut replica) = start_managed_world().await;
    let (_, signer) = mint(&world, &replica);
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let (grant, other) = (world.grant("tenant-a/prod"), world.grant("tenant-a/deploy"));
    let consent = async || {
        HubsConsent::request_consent(&*world.port, &world.publisher, &*world.clock, &grant)
            .await
            .unwrap()
    };
    assert!(signer.sign(&grant, consent().await).await.is_ok());
    assert_eq!(
        signer.sign(&other, consent().await).await.err(),
        Some(Reason::ServiceAccountChanged)
    );
    let late = consent().await;
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(
        signer.sign(&grant, late).await.err(),
        Some(Reason::ServiceAccountChanged)
    );
}

#[tokio::test]
async fn a_grant_for_another_audience_is_not_signed() {
    let (mut world, _store, mut replica) = start_managed_world().await;
    let (_, signer) = mint(&world, &replica);
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    // The policy changed, but the maintainer has not seen that yet.
    let target = world
        .policy
        .targets
        .get_mut(&ObjectName::new("prod").unwrap())
        .unwrap();
    target.audience = keyferry_api::audience::Audience::new("https://other.example.test").unwrap();
    let grant = world.grant("tenant-a/prod");
    let consent =
        HubsConsent::request_consent(&*world.port, &world.publisher, &*world.clock, &grant)
            .await
            .unwrap();
    assert_eq!(
        signer.sign(&grant, consent).await.err(),
        Some(Reason::IssuerKeysInvalid)
    );
}

#[tokio::test]
async fn held_tokens_outlive_a_silent_hub_and_a_rotation_but_no_revocation() {
    let (world, store, mut replica) = start_managed_world().await;
    let (mint, _) = mint(&world, &replica);
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let grant = world.grant("tenant-a/prod");
    let first = mint.token(&grant, NOTHING).await.unwrap();
    store.fail(Some(HubError::Unreachable("x".to_owned())));
    world.clock.advance(Duration::from_secs(60));
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap().from_cache,
        FromCache::Hit
    );
    let fresh = world.grant("tenant-a/deploy");
    assert_eq!(
        mint.token(&fresh, NOTHING).await.unwrap_err().reason(),
        Reason::HubUnreachable,
        "nothing new is signed with what may be old"
    );
    world.clock.advance(MAX_STALE);
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::HubUnreachable,
        "the key may be revoked by now"
    );
    store.fail(None);
    store.edit(|object| object.request = Some("please".to_owned()));
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(Duration::from_secs(3));
    let rotated = mint.token(&fresh, NOTHING).await.unwrap();
    let kid = |token: &keyferry_keys::bound_token::BoundToken| {
        UnverifiedJwt::parse(token.secret().expose_secret())
            .unwrap()
            .kid()
            .unwrap()
            .to_owned()
    };
    assert_ne!(kid(&rotated.token), kid(&first.token));
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap().token.token_id(),
        first.token.token_id()
    );
    store.delete();
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        mint.token(&grant, NOTHING).await.unwrap_err().reason(),
        Reason::IssuerKeysSettling,
        "its key is revoked"
    );
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let next = mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(next.from_cache, FromCache::Miss);
    assert!(replica.publishes(&kid(&next.token)) && !replica.publishes(&kid(&first.token)));
}

#[tokio::test]
async fn a_change_of_the_signer_supersedes_a_grant() {
    let (mut world, ..) = start_managed_world().await;
    let name = AccessName::parse("tenant-a/prod").unwrap();
    let pair = authorise::authorise_request(
        &world.policy,
        &*world.live,
        &Requester::Operator,
        &name,
        DeliveryType::HTTP,
    )
    .unwrap();
    let grant =
        authorise::grant_token(&world.policy, Requester::Operator, pair, Review::NotAsked).unwrap();
    world
        .policy
        .targets
        .values_mut()
        .for_each(|target| target.issuer = TokenIssuer::Hub);
    assert_eq!(
        authorise::still_holds(&world.policy, &*world.live, &grant),
        Err(Reason::GrantSuperseded)
    );
}
