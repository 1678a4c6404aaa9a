//! Compares what a tenant writes with a list of one target, on a hub that counts its TokenRequests.

#![allow(clippy::unwrap_used)]

use keyferry_api::name::{Namespace, ObjectName};
use keyferry_testing::{Authority, EmbeddedHub, HubOptions};

use super::*;

const AUDIENCE: &str = "https://prod.example.com";
const ADDRESS: &str = "https://prod.example.com:6443";

struct World {
    hub: EmbeddedHub,
    folder: tempfile::TempDir,
    ca_pem: String,
}

impl World {
    async fn start() -> Self {
        let hub = EmbeddedHub::start(HubOptions::default()).await.unwrap();
        hub.add_service_account("tenant-a", "reconciler");
        let world = Self {
            hub,
            folder: tempfile::tempdir().unwrap(),
            ca_pem: Authority::new("prod").unwrap().ca_pem().to_owned(),
        };
        std::fs::write(
            world.folder.path().join("kubeconfig"),
            world.hub.kubeconfig().expose_secret(),
        )
        .unwrap();
        let pem: String = world
            .ca_pem
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        let config = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.test\n\
             discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\nspec:\n  address: {ADDRESS}\n  \
             audience: {AUDIENCE}\n  caBundle: |\n{pem}"
        );
        std::fs::write(world.folder.path().join("config.yaml"), config).unwrap();
        world
    }

    /// The plan of a tenant's ConfigMap.
    fn written(&self, address: &str, audience: &str) -> Plan {
        let account = ServiceAccount {
            namespace: Namespace::new("tenant-a").unwrap(),
            name: ObjectName::new("reconciler").unwrap(),
        };
        let ca_pem = Some(self.ca_pem.clone().into_bytes());
        Plan {
            target: Some(TargetAddress {
                url: address.to_owned(),
                ca_pem,
                ..TargetAddress::default()
            }),
            target_is_tenants: true,
            to_issue: Some(TokenOrder {
                account,
                audience: Audience::new(audience).unwrap(),
            }),
            issuer: Some(self.hub.issuer().to_owned()),
            ..Plan::named("configmap/map")
        }
    }

    async fn admit(&self, plan: Plan, permission: Permission) -> Plan {
        let hub = HubAccess {
            kubeconfig: Some(self.folder.path().join("kubeconfig")),
            ..HubAccess::default()
        };
        plan.admit(
            &ConfigurationSource::File(self.folder.path().join("config.yaml")),
            &hub,
            permission,
        )
        .await
    }

    /// Proves that the plan contacts no target and that the hub issued nothing; returns the reason.
    async fn refused(&self, plan: Plan, permission: Permission) -> &'static str {
        let before = self.hub.token_requests();
        let refused = self.admit(plan, permission).await;
        assert!(
            refused.target.is_none() && !matches!(refused.token_evidence, TokenEvidence::Token(_)),
            "{refused:?}"
        );
        assert_eq!(self.hub.token_requests(), before, "a token was issued");
        refused.problem.unwrap().cause.name()
    }
}

const UNLISTED: Permission = Permission {
    unlisted_target: true,
    audience: false,
};

#[tokio::test]
async fn a_listed_target_gets_its_own_token_and_no_other() {
    let world = World::start().await;
    let plan = world
        .admit(world.written(ADDRESS, AUDIENCE), Permission::default())
        .await;
    assert_eq!(
        (plan.problem.as_ref(), plan.target_name.as_deref()),
        (None, Some("prod"))
    );
    assert!(matches!(plan.token_evidence, TokenEvidence::Token(_)) && plan.target.is_some());
    assert_eq!(world.hub.token_requests(), 1);
}

#[tokio::test]
async fn what_differs_from_the_list_is_asked_nothing() {
    let world = World::start().await;
    let default = Permission::default();
    assert_eq!(
        world
            .refused(
                world.written("https://attacker.example:6443", AUDIENCE),
                default
            )
            .await,
        "TargetNotListed"
    );
    assert_eq!(
        world
            .refused(world.written(ADDRESS, "https://other.example"), default)
            .await,
        "TargetNotListed"
    );
    let with = |edit: fn(&mut TargetAddress)| {
        let mut plan = world.written(ADDRESS, AUDIENCE);
        plan.target.iter_mut().for_each(edit);
        plan
    };
    assert_eq!(
        world
            .refused(
                with(|it| it.proxy_url = Some("http://attacker.example:1".to_owned())),
                default
            )
            .await,
        "TargetNotListed"
    );
    assert_eq!(
        world
            .refused(
                with(|it| it.tls_server_name = Some("attacker.example".to_owned())),
                default
            )
            .await,
        "TargetNotListed"
    );
    assert_eq!(
        world.refused(with(|it| it.ca_pem = None), default).await,
        "TargetNotListed"
    );
    let other = Authority::new("other").unwrap();
    let mut plan = world.written(ADDRESS, AUDIENCE);
    plan.target.as_mut().unwrap().ca_pem =
        Some([world.ca_pem.as_bytes(), other.ca_pem().as_bytes()].concat());
    assert_eq!(
        world.refused(plan, default).await,
        "TargetNotListed",
        "one CA more is one more that could be the target"
    );
    // A token in the Secret is not sent either.
    let mut plan = world.written("https://attacker.example:6443", AUDIENCE);
    (plan.to_issue, plan.token_evidence) = (None, TokenEvidence::Token(b"x".to_vec()));
    let plan = world.admit(plan, default).await;
    assert!(plan.target.is_none() && plan.problem.is_some());
}

#[tokio::test]
async fn no_flag_opens_the_hub_keyferry_or_another_target() {
    let world = World::start().await;
    for (audience, reason) in [
        (world.hub.issuer(), "AudienceIsHubs"),
        ("keyferry.dev", "AudienceIsHubs"),
        (AUDIENCE, "TargetNotListed"),
    ] {
        let plan = world.written("https://attacker.example:6443", audience);
        assert_eq!(world.refused(plan, UNLISTED).await, reason, "{audience}");
    }
    let plan = world
        .admit(
            world.written("https://new.example:6443", "https://new.example"),
            UNLISTED,
        )
        .await;
    assert!(
        plan.problem.is_none() && matches!(plan.token_evidence, TokenEvidence::Token(_)),
        "{plan:?}"
    );
}

#[tokio::test]
async fn a_tenants_audience_is_compared_where_the_user_names_the_target() {
    let world = World::start().await;
    let stated = |audience| Plan {
        target_is_tenants: false,
        ..world.written("https://mine.example", audience)
    };
    let before = world.hub.token_requests();
    let refused = world
        .admit(stated("https://other.example"), Permission::default())
        .await;
    assert_eq!(
        (
            refused.problem.map(|problem| problem.cause.name()),
            world.hub.token_requests()
        ),
        (Some("TargetNotListed"), before)
    );
    for (audience, permission) in [
        (AUDIENCE, Permission::default()),
        (
            "https://other.example",
            Permission {
                unlisted_target: false,
                audience: true,
            },
        ),
    ] {
        let plan = world.admit(stated(audience), permission).await;
        assert!(
            plan.problem.is_none() && matches!(plan.token_evidence, TokenEvidence::Token(_)),
            "{plan:?}"
        );
    }
}

#[tokio::test]
async fn the_issuer_of_a_target_with_a_managed_issuer_is_its_own() {
    let world = World::start().await;
    let path = world.folder.path().join("config.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let managed = text
        .replace(
            "hubName: hub\n",
            "hubName: hub\nmanagedIssuers: {enabled: true}\n",
        )
        .replace("  caBundle: |\n", "  issuer: Keyferry\n  caBundle: |\n");
    std::fs::write(&path, managed).unwrap();
    let own = "https://keyferry.example.test/issuers/prod";
    // As from a delivered Secret: the token is there, and the hub's issuer is expected at first.
    let secret = || Plan {
        to_issue: None,
        ..world.written(ADDRESS, AUDIENCE)
    };
    let plan = world.admit(secret(), Permission::default()).await;
    assert_eq!(plan.target_name.as_deref(), Some("prod"), "{plan:?}");
    assert_eq!(plan.issuer.as_deref(), Some(own));
    assert_eq!(
        plan.published_at,
        Some(format!("{own}/.well-known/openid-configuration"))
    );
    let stated = Plan {
        issuer_stated: true,
        ..secret()
    };
    let plan = world.admit(stated, Permission::default()).await;
    assert_eq!(
        plan.issuer.as_deref(),
        Some(world.hub.issuer()),
        "the user's flag wins"
    );
}
