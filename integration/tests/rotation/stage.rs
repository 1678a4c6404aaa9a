//! The hub, the Keyferry and the targets of both minor versions for one test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, TokenSigning};
use keyferry_integration::http_client::trusting;
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::{
    Access, Broker, BrokerSpec, BrokerTimes, Ground, Subject, Target, TrustingTarget, let_mint,
    until_trusted,
};
use serde_json::{Value, json};

/// The tenant's namespace.
pub(crate) const TENANT: &str = "tenant-a";

/// A hub, its Keyferry and its targets.
pub(crate) struct Stage {
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) broker: Broker,
    /// The targets, newest minor first.
    pub(crate) targets: Vec<Arc<ControlPlane>>,
}

impl Stage {
    /// Starts everything. `accounts` may use both targets, through accesses named `<account>-<index
    /// of the target>`. The spec may be changed before the start.
    pub(super) async fn start(
        ground: &Ground,
        name: &str,
        max_age: u64,
        accounts: &[String],
        change: impl FnOnce(BrokerSpec) -> BrokerSpec,
    ) -> Result<Self, TestError> {
        let hub = ground
            .hub(ControlPlaneSpec::named(&format!("{name}-hub")))
            .await?;
        Self::on(ground, hub, name, max_age, accounts, change).await
    }

    /// As [`Self::start`], on an existing hub.
    pub(crate) async fn on(
        ground: &Ground,
        hub: Arc<ControlPlane>,
        name: &str,
        max_age: u64,
        accounts: &[String],
        change: impl FnOnce(BrokerSpec) -> BrokerSpec,
    ) -> Result<Self, TestError> {
        for account in accounts.iter().filter(|account| *account != "reconciler") {
            hub.create_service_account(TENANT, account).await?;
        }
        let times = BrokerTimes {
            max_stale: 300,
            max_age,
        };
        let spec = change(BrokerSpec::of_hub(name, &hub).alone().with_times(times));
        let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
        let discovery = spec.discovery_url()?;
        let broker_namespace = spec.namespace().to_owned();
        let subjects: Vec<String> = accounts
            .iter()
            .map(|account| format!("{TENANT}:{account}"))
            .collect();
        let issuer = format!("https://{}.keyferry.test", hub.name());
        let target = async |index: usize, minor| {
            let trusting = TrustingTarget {
                name: &format!("{name}-target-{index}"),
                minor,
                issuer: &issuer,
                audience: &audience(name, index),
                discovery_url: &discovery,
                subjects: &subjects,
            };
            ground.target(trusting).await.map(Arc::new)
        };
        let (broker, newer, older) = tokio::try_join!(
            ground.start_broker(&hub, spec),
            target(0, Minor::newest()),
            target(1, Minor::V1_33)
        )?;
        // A target that started before the first keys were published retries only after ten
        // seconds.
        tokio::try_join!(until_trusted(&hub, &newer), until_trusted(&hub, &older))?;
        let targets = vec![newer, older];
        let_mint(
            &hub,
            &format!("{broker_namespace}-minter"),
            Subject::ServiceAccount(&broker_namespace, "keyferry"),
            TENANT,
            &names,
        )
        .await?;
        broker
            .reconfigure(|all, accesses| {
                for (index, target) in targets.iter().enumerate() {
                    // A long max-age requires long token lifetimes.
                    let further = if max_age > 240 {
                        "  tokenLifetime:\n    default: 4h\n"
                    } else {
                        ""
                    };
                    let target_object = Target {
                        further: further.to_owned(),
                        ..Target::of(target, &audience(name, index))
                    };
                    all.push(target_object.allowing(TENANT, &names));
                    let access = |account: &&str| {
                        Access::of(
                            TENANT,
                            &format!("{account}-{index}"),
                            target.name(),
                            account,
                        )
                    };
                    accesses.extend(names.iter().map(access));
                }
            })
            .await?;
        Ok(Self {
            hub,
            broker,
            targets,
        })
    }

    /// The kids that Keyferry publishes, sorted.
    pub(super) async fn published_kids(&self) -> Result<Vec<String>, TestError> {
        kids(&serde_json::from_slice(&published(&self.broker).await?)?)
    }

    /// Waits until the published kids are these.
    pub(super) async fn until_published(
        &self,
        expected: &[&str],
        within: Duration,
    ) -> Result<Duration, TestError> {
        let (from, mut expected) = (Instant::now(), expected.to_vec());
        expected.sort_unstable();
        loop {
            let kids = self.published_kids().await?;
            if kids == expected {
                return Ok(from.elapsed());
            }
            if from.elapsed() > within {
                return Err(format!(
                    "{expected:?} were not published within {within:?}, but {kids:?}"
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// The audience of a target.
pub(crate) fn audience(name: &str, index: usize) -> String {
    format!("https://{name}-{index}.keyferry.test")
}

/// The published key set, as bytes.
pub(super) async fn published(broker: &Broker) -> Result<Vec<u8>, TestError> {
    let answer = broker
        .http()
        .get(format!("{}/openid/v1/jwks", broker.discovery_url()))
        .send()
        .await?;
    if answer.status() != 200 {
        return Err(format!("the key set was answered with {}", answer.status()).into());
    }
    Ok(answer.bytes().await?.to_vec())
}

/// The kids of a key set, sorted.
pub(crate) fn kids(set: &Value) -> Result<Vec<String>, TestError> {
    let keys = set["keys"].as_array().ok_or("no key set")?;
    let mut kids: Vec<String> = keys
        .iter()
        .filter_map(|key| key["kid"].as_str().map(str::to_owned))
        .collect();
    kids.sort_unstable();
    Ok(kids)
}

/// The kids that a hub itself lists.
pub(crate) async fn hub_kids(hub: &ControlPlane) -> Result<Vec<String>, TestError> {
    kids(&hub.admin().get("/openid/v1/jwks").await?)
}

/// Makes the hub sign with a new key, while `further` of the old keys stay published. Returns the
/// previous signing state.
pub(crate) async fn sign_with_new_key(
    hub: &ControlPlane,
    name: &str,
) -> Result<TokenSigning, TestError> {
    let before = hub.signing().await;
    let fresh = hub.create_signing_key(SigningKeyKind::Rsa2048, name)?;
    let mut further = before.further_keys.clone();
    further.push(before.signing_key.clone());
    hub.set_signing(TokenSigning {
        signing_key: fresh,
        further_keys: further,
        ..before.clone()
    })
    .await;
    hub.restart().await?;
    Ok(before)
}

/// A client of one target, without its own identity.
#[derive(Clone)]
pub(crate) struct Judge {
    client: reqwest::Client,
    url: String,
}

impl Judge {
    pub(crate) fn of(target: &ControlPlane) -> Result<Self, TestError> {
        let url = format!(
            "{}/apis/authentication.k8s.io/v1/selfsubjectreviews",
            target.url()
        );
        Ok(Self {
            client: trusting(target.ca_pem())?,
            url,
        })
    }

    /// The HTTP status of the target's response to a token.
    pub(crate) async fn status(&self, token: &str) -> Result<u16, TestError> {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        Ok(self
            .client
            .post(&self.url)
            .bearer_auth(token)
            .json(&review)
            .send()
            .await?
            .status()
            .as_u16())
    }
}

/// The `kid` in a token's header.
pub(crate) fn kid(token: &str) -> Result<String, TestError> {
    use base64::Engine;
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token.split('.').next().unwrap_or_default())?;
    let header: Value = serde_json::from_slice(&header)?;
    Ok(header["kid"].as_str().ok_or("no kid")?.to_owned())
}
