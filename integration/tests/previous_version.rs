//! Replicas of the version before this one beside replicas of this one, on one hub with this
//! version's definitions and admission policies, as [compatibility.md](../../docs/reference/compatibility.md)
//! says. The version before knows no roles.

pub(crate) mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::built_image::BuiltImage;
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::previous_version::PreviousVersion;
use keyferry_integration::process::Signal;
use keyferry_integration::runner::{BoxedSuite, Fixture, NotStarted, Suite, TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use keyferry_integration::world::on_hub::{ISSUER, OnHub, RECONCILER, audience};
use keyferry_integration::world::{Broker, BrokerSpec, Ground, caller_token};
use load::{Load, PairingWatch};
use serde_json::{Value, json};

use crate::deliveries::leader::holder;
use crate::identity::roles::{RoleTrust, assert_role};

const CANARY: &str = "keyferry-system/keyferry-canary";
const LEADS_WITHIN: Duration = Duration::from_secs(100);
/// For how long both versions serve beside each other.
const BESIDE: Duration = Duration::from_secs(10);

struct Stage {
    /// Its server is the version before.
    world: OnHub,
    this: KeyferryBinary,
    previous: KeyferryBinary,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Stage {
    async fn start() -> Result<Self, NotStarted> {
        let folder = BuiltImage::kept_build().with_file_name("previous");
        let previous = PreviousVersion::build_binary(&folder).await;
        let previous = previous.map_err(NotStarted::failed)?;
        let this = KeyferryBinary::build().await.map_err(NotStarted::failed)?;
        let ground = Ground::start_with(previous.clone()).await?;
        let world = OnHub::build(ground).await.map_err(NotStarted::failed)?;
        Ok(Self {
            world,
            this,
            previous,
        })
    }

    async fn start_replica(
        &self,
        binary: &KeyferryBinary,
        name: &str,
    ) -> Result<Broker, TestError> {
        let (hub, ground) = (&self.world.hub, &self.world.ground);
        let spec = BrokerSpec::of_hub(name, hub)
            .with_server_lines("objects: CustomResources\nmanagedIssuers:\n  enabled: true\n");
        let folder = ground.folder().join(format!("keyferry-{name}"));
        std::fs::create_dir_all(&folder)?;
        Broker::start(binary, hub, &folder, ground.ca(), spec).await
    }
}

/// Builds the version before, which takes minutes the first time.
pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .only_on_request()
        .limit(Duration::from_secs(900))
        .test(
            "an_older_leader_keeps_the_audience_of_a_role",
            an_older_leader_keeps_the_audience_of_a_role,
        )
        .boxed()
}

/// A target of the fleet, with its base and its role on the hub.
struct RoleCase<'w> {
    world: &'w OnHub,
    index: usize,
    tenant: &'static str,
    base: String,
    role: String,
}

/// A role is created too early, under a leader that does not know roles. Then come the upgrade, a
/// rolling restart, a rollback that leaves the role, and the upgrade again. No exchange for the
/// base fails, none for the role fails while this version leads, and its audience never leaves the
/// AudiencePairing. While the older version leads, nobody gets a token for it.
async fn an_older_leader_keeps_the_audience_of_a_role(stage: Arc<Stage>) -> TestResult {
    let world = &stage.world;
    let cases = [("tenant-a", 0), ("tenant-b", 1)].map(|(tenant, index)| {
        let base = audience(world.targets[index].name());
        let role = format!("{base}/roles/view");
        RoleCase {
            world,
            index,
            tenant,
            base,
            role,
        }
    });
    // Held until the end: the targets read the hub's keys there, whichever version runs.
    let mut documents = Vec::new();
    for case in &cases {
        documents.push(case.trust().await?);
        case.declare().await?;
    }
    for case in &cases {
        case.until_refused_by_an_older_leader().await?;
    }
    let audiences = cases.iter().map(|case| case.role.clone()).collect();
    let watch = PairingWatch::start(&world.hub, audiences);

    // The upgrade.
    let old_base = cases_load(&cases, &world.broker, "all").await?;
    let first = stage.start_replica(&stage.this, "first").await?;
    let new_base = cases_load(&cases, &first, "all").await?;
    tokio::time::sleep(BESIDE).await;
    let mut exchanges = old_base.stop().await?;
    leave_the_lease(world, world.broker.process().signal(Signal::Terminate)).await?;
    for case in &cases {
        case.until_granted(&first).await?;
    }
    let role = cases_load(&cases, &first, "view").await?;

    // A rolling restart of this version.
    let second = stage.start_replica(&stage.this, "second").await?;
    let (base_of_second, role_of_second) = (
        cases_load(&cases, &second, "all").await?,
        cases_load(&cases, &second, "view").await?,
    );
    exchanges += new_base.stop().await?;
    let mut role_exchanges = role.stop().await?;
    leave_the_lease(world, first.process().signal(Signal::Terminate)).await?;

    // The rollback, without the deletion of the role.
    let older = stage.start_replica(&stage.previous, "older").await?;
    let base_of_older = cases_load(&cases, &older, "all").await?;
    tokio::time::sleep(BESIDE).await;
    exchanges += base_of_second.stop().await?;
    role_exchanges += role_of_second.stop().await?;
    leave_the_lease(world, second.process().signal(Signal::Terminate)).await?;
    for case in &cases {
        case.until_refused_by_an_older_leader().await?;
        let caller = caller_token(&world.hub, case.tenant, RECONCILER).await?;
        let answer = older
            .exchange(&caller, &format!("{}/view", case.tenant))
            .await?;
        assert_ne!(answer.status, 200, "the older version issues for no role");
    }

    // The upgrade again.
    let last = stage.start_replica(&stage.this, "last").await?;
    tokio::time::sleep(BESIDE).await;
    exchanges += base_of_older.stop().await?;
    leave_the_lease(world, older.process().signal(Signal::Terminate)).await?;
    for case in &cases {
        case.until_granted(&last).await?;
    }
    let polls = watch.stop().await?;
    eprintln!(
        "{exchanges} exchanges for bases and {role_exchanges} for roles, none failed; {polls} \
         readings of the AudiencePairing, each with the audiences of the roles"
    );
    assert!(exchanges > 500 && role_exchanges > 200 && polls > 500);
    Ok(())
}

/// A load for each tenant.
async fn cases_load(
    cases: &[RoleCase<'_>; 2],
    broker: &Broker,
    access: &str,
) -> Result<Load, TestError> {
    let mut callers = Vec::new();
    for case in cases {
        let token = caller_token(&case.world.hub, case.tenant, RECONCILER).await?;
        callers.push((token, format!("{}/{access}", case.tenant)));
    }
    // A replica that has just started sees the accesses after a moment.
    for (token, access) in &callers {
        broker.exchange_in_time(token, access).await?;
    }
    Ok(Load::start(broker, callers))
}

/// Ends the leader, and waits until another replica has the Lease.
async fn leave_the_lease<E: Into<TestError>>(
    world: &OnHub,
    ended: impl Future<Output = Result<(), E>>,
) -> TestResult {
    let before = holder(world).await?;
    ended.await.map_err(Into::into)?;
    until("another replica leads", LEADS_WITHIN, || async {
        Ok(holder(world)
            .await
            .is_ok_and(|now| !now.is_empty() && now != before))
    })
    .await
}

impl RoleCase<'_> {
    /// Gives the target a file with both audiences.
    async fn trust(&self) -> Result<DocumentServer, TestError> {
        let target = &self.world.targets[self.index];
        let documents = DocumentServer::start(target.ca()).await?;
        let account = format!("{}:{RECONCILER}", self.tenant);
        let trust = RoleTrust {
            issuer: ISSUER,
            discovery_url: &documents.publish(&self.world.hub).await?,
            discovery_ca: target.ca_pem(),
            base: &self.base,
            role: &self.role,
            base_accounts: &[&account],
            role_accounts: &[&account],
        };
        target
            .set_authentication_config(&trust.configuration())
            .await?;
        Ok(documents)
    }

    fn role_name(&self) -> String {
        format!("{}-view", self.world.targets[self.index].name())
    }

    async fn declare(&self) -> TestResult {
        let name = self.world.targets[self.index].name();
        let allow = json!([{
            "namespaces": [self.tenant], "serviceAccounts": [RECONCILER], "deliveries": ["HTTP"],
        }]);
        let mut base = self.world.target_spec(self.index);
        base["allow"] = allow.clone();
        let role = json!({
            "sameAs": name, "role": "view", "audience": self.role, "allow": allow,
            "tokenLifetime": { "default": "10m", "max": "1h" },
        });
        self.world.put_target(name, &base).await?;
        self.world.put_target(&self.role_name(), &role).await?;
        let http = json!({ "deliveries": [{ "name": "http", "type": "HTTP" }] });
        for (access, target) in [("all", name), ("view", &self.role_name())] {
            self.world
                .put_access(self.tenant, access, target, &http)
                .await?;
        }
        self.world
            .until_target(name, "Ready", "True", "Ready")
            .await?;
        Ok(())
    }

    /// Waits until the leader of the version before refuses the role. Its audience is then the
    /// canary's alone, and the hub mints for no account.
    async fn until_refused_by_an_older_leader(&self) -> TestResult {
        let name = self.role_name();
        self.world
            .until_target(&name, "Ready", "False", "SpecInvalid")
            .await?;
        let for_the_canary = json!([CANARY]);
        let limit = Instant::now() + LEADS_WITHIN;
        until_object(
            self.world.hub.admin(),
            load::PAIRING,
            "with the role for the canary alone",
            LEADS_WITHIN,
            |object: &Value| object["pairs"][&self.role] == for_the_canary,
        )
        .await?;
        while self.mints().await {
            assert!(Instant::now() < limit, "the hub mints for {}", self.role);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    async fn mints(&self) -> bool {
        let hub = &self.world.hub;
        hub.token_request(self.tenant, RECONCILER, &[&self.role], 600)
            .await
            .is_ok()
    }

    /// Waits until this version leads and issues for the role, and tries the token.
    async fn until_granted(&self, broker: &Broker) -> TestResult {
        self.world
            .until_target(&self.role_name(), "Ready", "True", "Ready")
            .await?;
        let caller = caller_token(&self.world.hub, self.tenant, RECONCILER).await?;
        let access = format!("{}/view", self.tenant);
        let token = broker.exchange_in_time(&caller, &access).await?.token()?;
        let account = format!("{}:{RECONCILER}", self.tenant);
        assert_role(&self.world.targets[self.index], &token, &account).await
    }
}
