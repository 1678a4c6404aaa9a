//! The world with one more hub, and helpers that the identity tests share.

use std::ops::Deref;
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::{
    Access, Answer, Broker, BrokerSpec, Subject, Target, World, claims, let_mint, make_tenant,
    prepare_hub,
};

/// The issuer of every cluster that kubeadm or kind creates.
pub(crate) const CLUSTER_DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";
/// An audience that the plain hub's own apiserver accepts.
pub(crate) const AUDIENCE_OF_HUB: &str = "https://api.plain-hub.test";
pub(crate) const NOT_GRANTED: &str = "{\"error\":\"invalid_target\",\"error_description\":\"the \
    audience names no access that this caller may use\"}";

/// The world, and a hub as most distributions create it, with one more audience.
pub(crate) struct Stage {
    pub(crate) plain_hub: Arc<ControlPlane>,
    world: World,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let world = World::start().await?;
        let spec = ControlPlaneSpec {
            issuers: vec![CLUSTER_DEFAULT.to_owned()],
            api_audiences: vec![CLUSTER_DEFAULT.to_owned(), AUDIENCE_OF_HUB.to_owned()],
            audit_log: true,
            ..ControlPlaneSpec::named("plain-hub")
        };
        let plain_hub = Arc::new(world.fleet().start_control_plane(spec).await?);
        prepare_hub(&plain_hub).await.map_err(NotStarted::failed)?;
        Ok(Self { plain_hub, world })
    }
}

/// Two targets, so that a test can request one while a token for the other is cached.
pub(crate) fn two_targets(
    world: &World,
    name: &str,
    hub: &ControlPlane,
    namespace: &str,
) -> BrokerSpec {
    let one = |of: &str| {
        Target::of(world.target_a(), &format!("https://{of}.{name}.test"))
            .named(of)
            .allowing(namespace, &["owner"])
    };
    BrokerSpec::of_hub(name, hub)
        .with_target(one("held"))
        .with_target(one("fresh"))
        .with_access(Access::of(namespace, "held", "held", "owner").for_callers(&["deployer"]))
        .with_access(Access::of(namespace, "fresh", "fresh", "owner").for_callers(&["deployer"]))
}

pub(crate) async fn owner_and_deployer(hub: &ControlPlane, namespace: &str) -> TestResult {
    make_tenant(hub, namespace, &["owner", "deployer"]).await?;
    let_mint(
        hub,
        "deployer",
        Subject::ServiceAccount(namespace, "deployer"),
        namespace,
        &["owner"],
    )
    .await
}

/// The UID of the ServiceAccount in an issued token, or `None` if no token was issued.
pub(crate) fn handed_out(answer: &Answer) -> Result<Option<String>, TestError> {
    if answer.status != 200 {
        assert!(!answer.body.contains("access_token"), "{}", answer.body);
        return Ok(None);
    }
    let uid = claims(&answer.token()?)?["kubernetes.io"]["serviceaccount"]["uid"]
        .as_str()
        .map(str::to_owned);
    Ok(Some(uid.ok_or("a bound token names a UID")?))
}

pub(crate) fn reason(broker: &Broker, answer: &Answer) -> Result<String, TestError> {
    let record = broker.audit_of(&answer.request_id)?;
    assert_eq!(
        record["decision"] == "granted",
        answer.status == 200,
        "{record}"
    );
    Ok(record["reason"].as_str().unwrap_or_default().to_owned())
}
