//! A hub with three keys, each of which signed a token, and its Keyferry.

use std::collections::BTreeSet;

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, TokenSigning};
use keyferry_integration::fleet::{Fleet, FleetError, FleetSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::pki::{SigningKeyKind, TestCa};
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{ACCOUNT, Broker, BrokerSpec, TENANT, prepare_hub};
use serde_json::Value;

use super::odd_keys;

/// The audience of the good tokens.
pub(super) const AUDIENCE: &str = "https://target.keyferry.test";
const KEYS: &str = "/openid/v1/jwks";

/// A Keyferry whose hub has several keys, with good and bad tokens.
pub(super) struct PublishedHub {
    pub(super) broker: Broker,
    pub(super) ca: TestCa,
    /// The key set that the hub itself serves. Odd keys and members are added on the way to
    /// Keyferry.
    pub(super) sound: Value,
    /// RS256, ES256 and ES384 tokens, each signed by the hub.
    pub(super) good: Vec<String>,
    /// Tokens for another audience, by another key under the hub's kid, and from yesterday.
    pub(super) bad: Vec<String>,
    pub(super) issuer: String,
    _proxy: ChaosProxy,
    fleet: Fleet,
}

impl Fixture for PublishedHub {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl PublishedHub {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![ControlPlaneSpec::named("hub")],
        })
        .await?;
        // Build and install them now, because that takes longer than a test may. The test that
        // needs a missing part reports it.
        for part in [Part::GoVerifiers, Part::OlderGoVerifiers] {
            fleet.parts().locate(part).await.map_err(FleetError::from)?;
        }
        for client in [
            Client::PythonVerifiers,
            Client::JavaScriptVerifiers,
            Client::JavaVerifiers,
        ] {
            let _ = fleet.parts().install(client).await;
        }
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let hub = fleet.control_plane("hub")?;
        prepare_hub(&hub).await?;
        let (good, bad) = tokens(&hub).await?;
        let sound: Value = hub.admin().get(KEYS).await?;
        let mut upstream = sound.clone();
        odd_keys::add_to(&mut upstream);
        let proxy = ChaosProxy::in_front_of(&hub).await?;
        let content_type = HeaderValue::from_static("application/jwk-set+json");
        proxy.add(Rule::on(
            Method::GET,
            KEYS,
            Fault::ReplaceBody {
                body: upstream.to_string().into_bytes(),
                content_type,
            },
        ));

        let folder = fleet.folder().join("keyferry");
        std::fs::create_dir_all(&folder)?;
        let ca = TestCa::create("keyferry", &folder)?;
        let binary = KeyferryBinary::build().await?;
        let broker = Broker::start(
            &binary,
            &hub,
            &folder,
            &ca,
            BrokerSpec::of_hub("main", &hub).through(&proxy.url()),
        )
        .await?;
        let published: Value = broker
            .http()
            .get(format!("{}{KEYS}", broker.discovery_url()))
            .send()
            .await?
            .json()
            .await?;
        let kinds: BTreeSet<(Option<&str>, Option<&str>)> = published["keys"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|key| (key["kty"].as_str(), key["crv"].as_str()))
            .collect();
        let (rsa, ec) = (Some("RSA"), Some("EC"));
        if kinds != BTreeSet::from([(rsa, None), (ec, Some("P-256")), (ec, Some("P-384"))]) {
            return Err(
                format!("other keys are published than the hub's three: {published}").into(),
            );
        }
        let issuer = hub
            .signing()
            .await
            .issuers
            .first()
            .cloned()
            .unwrap_or_default();
        Ok(Self {
            broker,
            ca,
            sound,
            good,
            bad,
            issuer,
            _proxy: proxy,
            fleet,
        })
    }
}

/// Good tokens of each key, and bad tokens. Afterwards the hub has all three keys.
async fn tokens(hub: &ControlPlane) -> Result<(Vec<String>, Vec<String>), TestError> {
    let first = hub.signing().await;
    let mut good = vec![mint(hub, AUDIENCE).await?];
    let rsa = good.first().cloned().unwrap_or_default();
    let elsewhere = mint(hub, "https://elsewhere.keyferry.test").await?;
    let yesterday = |claims: &mut Value| {
        ["iat", "nbf", "exp"]
            .iter()
            .for_each(|name| claims[*name] = sooner(&claims[*name]))
    };
    let expired = hub.sign_again(&rsa, yesterday).await?;
    let stranger = hub.create_signing_key(SigningKeyKind::Rsa2048, "stranger")?;
    // This key signs here and not at the hub, which is not restarted with it.
    hub.set_signing(TokenSigning {
        signing_key: stranger,
        ..first.clone()
    })
    .await;
    let forged = hub.sign_again(&rsa, |_| ()).await?;

    let mut all = vec![first.signing_key.clone()];
    for (kind, name) in [
        (SigningKeyKind::EcdsaP256, "p256"),
        (SigningKeyKind::EcdsaP384, "p384"),
    ] {
        all.push(hub.create_signing_key(kind, name)?);
    }
    for key in all.iter().skip(1) {
        let further_keys = all.iter().filter(|one| *one != key).cloned().collect();
        hub.set_signing(TokenSigning {
            signing_key: key.clone(),
            further_keys,
            ..first.clone()
        })
        .await;
        hub.restart().await?;
        good.push(mint(hub, AUDIENCE).await?);
    }
    Ok((good, vec![elsewhere, forged, expired]))
}

async fn mint(hub: &ControlPlane, audience: &str) -> Result<String, TestError> {
    Ok(hub
        .token_request(TENANT, ACCOUNT, &[audience], 3600)
        .await?
        .token)
}

/// A time one day earlier.
fn sooner(time: &Value) -> Value {
    (time.as_i64().unwrap_or_default() - 86_400).into()
}
