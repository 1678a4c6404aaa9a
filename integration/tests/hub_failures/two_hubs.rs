//! Two hubs for one target: the first hub is killed under load, and the clients of the second do not
//! notice. Nothing changes at the target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::process::Signal;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    Access, Broker, BrokerSpec, Subject, TENANT, Target, World, authentication_configuration,
    caller_token, let_mint, prepare_hub,
};
use serde_json::json;

const AUDIENCE: &str = "https://shared.keyferry.test";
const ACCOUNT: &str = "reconciler";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// Long enough that the first hub's callers are refused, and tokens of the second are minted again.
const AFTER_THE_KILL: Duration = Duration::from_secs(25);

/// What the load of one hub has seen.
#[derive(Default)]
struct Tally {
    answered: usize,
    failures: Vec<String>,
}

/// The file of a target that trusts both hubs: an entry and a prefix for each.
fn trusting_both(world: &World, first: &str, second: &str) -> Result<String, TestError> {
    let entry = |issuer: &str, discovery: &str, prefix: &str| {
        let text = authentication_configuration(AUDIENCE, discovery, world.ca().cert_pem())?;
        let text = text
            .replace("https://hub.keyferry.test", issuer)
            .replace("\"hub:", &format!("\"{prefix}:"));
        let (head, entry) = text.split_once("jwt:\n").ok_or("the file has no jwt")?;
        Ok::<_, TestError>((head.to_owned(), entry.to_owned()))
    };
    let (head, first) = entry("https://hub-a.keyferry.test", first, "hub-a")?;
    let (_, second) = entry("https://hub.keyferry.test", second, "hub-b")?;
    Ok(format!("{head}jwt:\n{first}{second}"))
}

/// Exchanges as a new caller each time, and asks the target who that is.
async fn load(
    hub: &ControlPlane,
    broker: &Broker,
    target: &ControlPlane,
    username: &str,
    end: &tokio::sync::watch::Receiver<bool>,
) -> Result<Tally, TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let mut tally = Tally::default();
    while !*end.borrow() {
        let once = async {
            let caller = caller_token(hub, TENANT, ACCOUNT).await?;
            let token = broker.exchange(&caller, "tenant-a/shared").await?.token()?;
            let user = target.as_bearer(&token)?.create(REVIEWS, &review).await?;
            let user = user["status"]["userInfo"]["username"].clone();
            if user == username {
                Ok(())
            } else {
                Err(TestError::from(format!("the target answers {user}")))
            }
        };
        match once.await {
            Ok(()) => tally.answered += 1,
            Err(error) => tally.failures.push(error.to_string()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(tally)
}

/// Every object at the target that an admin or a client may write, with its version.
async fn state_of(target: &ControlPlane) -> Result<Vec<String>, TestError> {
    let mut state = Vec::new();
    for path in [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/api/v1/namespaces",
        "/api/v1/serviceaccounts",
        "/api/v1/configmaps",
        "/api/v1/secrets",
    ] {
        let list = target.admin().get(path).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        state.extend(items.iter().map(|item| {
            let metadata = &item["metadata"];
            format!(
                "{path} {} {} {}",
                metadata["namespace"], metadata["name"], metadata["resourceVersion"]
            )
        }));
    }
    Ok(state)
}

async fn until_trusted(
    hub: &ControlPlane,
    broker: &Broker,
    target: &ControlPlane,
) -> Result<(), TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let limit = Instant::now() + Duration::from_secs(120);
    let caller = caller_token(hub, TENANT, ACCOUNT).await?;
    let token = broker
        .exchange_in_time(&caller, "tenant-a/shared")
        .await?
        .token()?;
    while let Err(error) = target.as_bearer(&token)?.create(REVIEWS, &review).await {
        if Instant::now() > limit {
            return Err(format!("the target does not accept the hub's tokens: {error}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The first hub with its Keyferry, the Keyferry of the second hub, and the target of both.
struct TwoHubs {
    first: Arc<ControlPlane>,
    on_first: Broker,
    on_second: Broker,
    target: ControlPlane,
}

async fn start_two_hubs(world: &World) -> Result<TwoHubs, TestError> {
    let first = Arc::new(
        world
            .fleet()
            .start_control_plane(ControlPlaneSpec {
                minor: Minor::V1_33,
                ..ControlPlaneSpec::named("hub-a")
            })
            .await?,
    );
    prepare_hub(&first).await?;
    let second = world.hub();
    let of_first = BrokerSpec::of_hub("of-hub-a", &first);
    let of_second = BrokerSpec::of_hub("of-hub-b", second).alone();
    let file = trusting_both(
        world,
        &of_first.discovery_url()?,
        &of_second.discovery_url()?,
    )?;
    let (on_first, on_second) = (
        world.start_broker(&first, of_first).await?,
        world.start_broker(second, of_second).await?,
    );
    let minter = Subject::ServiceAccount("keyferry-of-hub-b", "keyferry");
    let_mint(second, "keyferry-minter-b", minter, TENANT, &[ACCOUNT]).await?;
    let target = world
        .fleet()
        .start_control_plane(ControlPlaneSpec {
            authentication_config: Some(file),
            ..ControlPlaneSpec::named("shared")
        })
        .await?;
    for broker in [&on_first, &on_second] {
        broker
            .reconfigure(|targets, accesses| {
                targets.push(Target::of(&target, AUDIENCE).allowing(TENANT, &[ACCOUNT]));
                accesses.push(Access::of(TENANT, "shared", "shared", ACCOUNT));
            })
            .await?;
    }
    until_trusted(&first, &on_first, &target).await?;
    until_trusted(second, &on_second, &target).await?;
    Ok(TwoHubs {
        first,
        on_first,
        on_second,
        target,
    })
}

pub(super) async fn the_second_serves_while_the_first_is_killed(world: Arc<World>) -> TestResult {
    let TwoHubs {
        first,
        on_first,
        on_second,
        target,
    } = start_two_hubs(&world).await?;
    let second = world.hub();
    let before = state_of(&target).await?;
    let (stop, end) = tokio::sync::watch::channel(false);
    let of = |name: &str| format!("{name}:system:serviceaccount:{TENANT}:{ACCOUNT}");
    let (user_of_first, user_of_second) = (of("hub-a"), of("hub-b"));
    let story = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        first.kill().await?;
        on_first.process().signal(Signal::Kill).await?;
        tokio::time::sleep(AFTER_THE_KILL).await;
        stop.send_replace(true);
        Ok::<_, TestError>(())
    };
    let (told, lost, kept) = tokio::join!(
        story,
        load(&first, &on_first, &target, &user_of_first, &end),
        load(second, &on_second, &target, &user_of_second, &end),
    );
    told?;
    let (lost, kept) = (lost?, kept?);
    eprintln!(
        "hub A: {} answered, {} failed; hub B: {} answered, {} failed",
        lost.answered,
        lost.failures.len(),
        kept.answered,
        kept.failures.len()
    );
    assert_eq!(kept.failures, Vec::<String>::new());
    assert!(
        kept.answered >= 50,
        "{} are too few to judge by",
        kept.answered
    );
    assert!(
        lost.answered > 0 && !lost.failures.is_empty(),
        "the first hub was killed under load"
    );
    assert_eq!(state_of(&target).await?, before);
    Ok(())
}
