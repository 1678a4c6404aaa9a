//! Changes of the policy, of live objects and of delegations count at once, even during a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::audience::Audience;
use keyferry_api::config::TargetCluster;
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_core::authorise::HubView;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_hub::ports::{Hub, HubError};
use keyferry_issuer::testing::{SmallWorld, account_of};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_testing::{Grant, Subject};
use secrecy::SecretString;

use super::{Records, before, outcome, request, token_of};
use crate::broker::Request;

fn delegation() -> Grant {
    let user = Subject::User("system:serviceaccount:tenant-a:deployer".to_owned());
    Grant::new(user, "create", "serviceaccounts/token")
        .in_namespace("tenant-a")
        .named("reconciler")
}

#[tokio::test]
async fn what_changes_between_two_requests_counts_at_once() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let policy = PolicyWriter::new(world.policy.clone());
    let broker = before(
        &world,
        Arc::clone(&world.port),
        &policy,
        Arc::new(Records::default()),
    );
    let (own, delegated) = (token_of(&world, "reconciler"), token_of(&world, "deployer"));
    let (account, caller) = (
        account_of("tenant-a", "reconciler"),
        account_of("tenant-a", "deployer"),
    );
    let uid = |account: &ServiceAccount| world.live.service_account(account);
    let (account_uid, caller_uid, other) =
        (uid(&account), uid(&caller), Uid::new("other").unwrap());
    let (live, namespace) = (&world.live, || account.namespace.clone());
    let changed = |change: fn(&mut TargetCluster)| {
        let mut changed = world.policy.clone();
        changed.targets.values_mut().for_each(change);
        policy.replace(changed);
    };
    use Reason::{
        CallerIdentityChanged as Recreated, TargetNotGranted as Denied,
        TargetSuspended as Suspended,
    };
    type Changes<'a> = [(
        &'a str,
        &'a dyn Fn(),
        Result<(), Reason>,
        Result<(), Reason>,
    ); 6];
    let changes: Changes<'_> = [
        (
            "no rule",
            &|| changed(|target| target.allow = Arc::default()),
            Err(Denied),
            Err(Denied),
        ),
        (
            "suspended",
            &|| changed(|target| target.suspend = true),
            Err(Suspended),
            Err(Suspended),
        ),
        (
            "no namespace",
            &|| live.set_namespace(namespace(), None),
            Err(Denied),
            Err(Denied),
        ),
        (
            "no ServiceAccount",
            &|| live.set_service_account(account.clone(), None),
            Err(Recreated),
            Err(Denied),
        ),
        (
            "the recreated caller",
            &|| live.set_service_account(caller.clone(), Some(other.clone())),
            Ok(()),
            Err(Recreated),
        ),
        (
            "nothing that matters",
            &|| live.set_service_account(account_of("tenant-b", "x"), Some(other.clone())),
            Ok(()),
            Ok(()),
        ),
    ];
    for (what, change, for_own, for_delegated) in changes {
        for _ in 0..3 {
            assert_eq!(
                (
                    outcome(&broker, &own).await,
                    outcome(&broker, &delegated).await
                ),
                (Ok(()), Ok(())),
                "before {what}"
            );
        }
        change();
        assert_eq!(
            (
                outcome(&broker, &own).await,
                outcome(&broker, &delegated).await
            ),
            (for_own, for_delegated),
            "{what}"
        );
        policy.replace(world.policy.clone());
        live.set_namespace(namespace(), Some(BTreeMap::new()));
        live.set_service_account(account.clone(), account_uid.clone());
        live.set_service_account(caller.clone(), caller_uid.clone());
    }
}

#[tokio::test]
async fn the_hubs_word_on_a_delegation_has_its_ten_seconds_and_no_more() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let broker = before(
        &world,
        Arc::clone(&world.port),
        &PolicyWriter::new(world.policy.clone()),
        Arc::new(Records::default()),
    );
    let token = token_of(&world, "deployer");
    let second = |second: u64| world.clock.advance(Duration::from_secs(second));
    // The two reviews run in different seconds, so that the token's review is still valid when the
    // other has expired.
    broker
        .issue_credential(&Request {
            access: AccessName::parse("tenant-a/deploy").unwrap(),
            ..request(&token)
        })
        .await
        .unwrap();
    second(5);
    assert_eq!(
        outcome(&broker, &token).await,
        Ok(()),
        "asked at 5 s, so it stands until 15 s"
    );
    second(5);
    for _ in 0..3 {
        assert_eq!(
            outcome(&broker, &token).await,
            Ok(()),
            "the token is reviewed again at 10 s"
        );
    }
    world.hub.revoke(&delegation());
    second(4);
    assert_eq!(outcome(&broker, &token).await, Ok(()), "14 s");
    second(1);
    assert_eq!(
        outcome(&broker, &token).await,
        Err(Reason::DelegationForbidden),
        "15 s"
    );
    assert_eq!(world.hub.access_reviews(), 2);
}

/// A hub that makes a change during each mint for a tenant and each access review.
struct Meddling {
    hub: Arc<dyn Hub>,
    change: Box<dyn Fn() + Send + Sync>,
}

impl Hub for Meddling {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        Box::pin(async move {
            let answer = self.hub.token_request(identity, audience, lifetime).await;
            if identity.account.namespace.as_str() == "tenant-a" {
                (self.change)();
            }
            answer
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        self.hub.token_review(token, audience)
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async move {
            let answer = self.hub.access_review(user, account).await;
            (self.change)();
            answer
        })
    }

    fn path_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        path: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.hub.path_review(user, path)
    }
}

#[tokio::test]
async fn what_changes_during_a_review_counts_then_and_later() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let (live, account) = (
        Arc::clone(&world.live),
        account_of("tenant-a", "reconciler"),
    );
    let policy = PolicyWriter::new(world.policy.clone());
    let token = token_of(&world, "deployer");
    let hub = Meddling {
        hub: Arc::clone(&world.port),
        change: Box::new(move || live.set_service_account(account.clone(), None)),
    };
    // The mint itself uses a hub that changes nothing.
    let broker = before(&world, Arc::new(hub), &policy, Arc::new(Records::default()));
    for _ in 0..2 {
        let deploy = Request {
            access: AccessName::parse("tenant-a/deploy").unwrap(),
            ..request(&token)
        };
        broker.issue_credential(&deploy).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(
            outcome(&broker, &token).await,
            Err(Reason::TargetNotGranted)
        );
    }
}

#[tokio::test]
async fn what_changes_during_a_mint_counts_at_issue() {
    for by_policy in [true, false] {
        let mut world = SmallWorld::start().await;
        let policy = Arc::new(PolicyWriter::new(world.policy.clone()));
        let (live, writer, account) = (
            Arc::clone(&world.live),
            Arc::clone(&policy),
            account_of("tenant-a", "reconciler"),
        );
        let mut closed = world.policy.clone();
        closed
            .targets
            .values_mut()
            .for_each(|target| target.allow = Arc::default());
        let change = Box::new(move || match by_policy {
            true => writer.replace(closed.clone()),
            false => live.set_service_account(account.clone(), None),
        });
        world.port = Arc::new(Meddling {
            hub: Arc::clone(&world.port),
            change,
        });
        let broker = before(
            &world,
            Arc::clone(&world.port),
            &policy,
            Arc::new(Records::default()),
        );
        let reason = if by_policy {
            Reason::TargetNotGranted
        } else {
            Reason::CallerIdentityChanged
        };
        assert_eq!(
            outcome(&broker, &token_of(&world, "reconciler")).await,
            Err(reason)
        );
    }
}
