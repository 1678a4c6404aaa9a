//! The hub with its keys, the replicas and the targets.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule, RuleId};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, TokenSigning};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::{SigningKey, SigningKeyKind};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, BrokerTimes, Ground, Subject, TENANT, Target,
    TrustingTarget, let_mint, until_trusted,
};
use serde_json::{Value, json};

use crate::harness::Outcome;

/// The number of replicas.
pub const REPLICAS: usize = 3;
/// `discovery.maxAge` of the replicas: how long a target may keep a key set.
pub const MAX_AGE: Duration = Duration::from_secs(30);
const KEYS: &str = "/openid/v1/jwks";

/// A hub behind a proxy, its replicas of Keyferry, and two targets.
pub struct Stage {
    /// The hub.
    pub hub: Arc<ControlPlane>,
    /// The replicas. The targets read the documents of the first.
    pub replicas: Vec<Broker>,
    /// The targets, of two minor versions.
    pub targets: Vec<ControlPlane>,
    /// The keys that appear one after the other, and are revoked.
    pub keys: Vec<HubKey>,
    /// The namespace of the installation.
    pub namespace: String,
    /// The etcd, and the folder of all files.
    pub ground: Ground,
    proxy: ChaosProxy,
    own_keys: Vec<Value>,
    shown: Option<RuleId>,
}

/// A key of the hub that does not sign for the hub itself.
pub struct HubKey {
    /// Its ID.
    pub kid: String,
    /// Its files.
    pub files: SigningKey,
    published: Value,
}

impl Stage {
    /// Starts everything, with as many keys.
    pub async fn start(keys: usize) -> Outcome<Self> {
        let built = std::env::var_os("KEYFERRY_BIN")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_keyferry").into());
        let ground = Ground::start_with(KeyferryBinary::at(built))
            .await
            .map_err(|missing| format!("{missing:?}"))?;
        let hub = ground
            .hub(ControlPlaneSpec::named("revocation-hub"))
            .await?;
        let (own_keys, keys) = add_keys(&hub, keys).await?;
        let proxy = ChaosProxy::in_front_of(&hub).await?;
        let shown = Some(proxy.add(key_set(&own_keys, &[])));
        let first = BrokerSpec::of_hub("revocation", &hub).alone();
        let namespace = first.namespace().to_owned();
        let targets = start_targets(&ground, &hub, &first.discovery_url()?).await?;
        let subject = Subject::ServiceAccount(&namespace, "keyferry");
        let_mint(&hub, "revocation-minter", subject, TENANT, &[ACCOUNT]).await?;
        let replicas = start_replicas(&ground, &hub, &proxy, first, &targets).await?;
        for target in &targets {
            until_trusted(&hub, target).await?;
        }
        Ok(Self {
            hub,
            replicas,
            targets,
            keys,
            namespace,
            ground,
            proxy,
            own_keys,
            shown,
        })
    }

    /// Lets the hub show its first `count` further keys.
    pub fn show_keys(&mut self, count: usize) {
        let keys = self.keys.get(..count).unwrap_or(&self.keys);
        let rule = self.proxy.add(key_set(&self.own_keys, keys));
        // Of two rules the earlier one applies, so the keys appear with its removal.
        if let Some(before) = self.shown.replace(rule) {
            self.proxy.remove(before);
        }
    }
}

/// The audience of a target.
pub fn audience(target: usize) -> String {
    format!("https://revocation-{target}.keyferry.test")
}

/// The name of the access to a target.
pub fn access(target: usize) -> String {
    format!("target-{target}")
}

/// Restarts the hub with further keys. Returns what it lists of its own keys, and these.
async fn add_keys(hub: &ControlPlane, count: usize) -> Outcome<(Vec<Value>, Vec<HubKey>)> {
    let create = |index| hub.create_signing_key(SigningKeyKind::EcdsaP256, &format!("key-{index}"));
    let files = (0..count).map(create).collect::<Result<Vec<_>, _>>()?;
    let signing = hub.signing().await;
    hub.set_signing(TokenSigning {
        further_keys: files.clone(),
        ..signing
    })
    .await;
    hub.restart().await?;
    let listed = hub.admin().get(KEYS).await?["keys"].take();
    let mut own: Vec<Value> = serde_json::from_value(listed)?;
    let mut keys = Vec::new();
    for files in files {
        let x = x_coordinate(&files)?;
        let position = own.iter().position(|key| key["x"] == x);
        let published =
            own.swap_remove(position.ok_or("the hub does not list a key of its files")?);
        let kid = published["kid"].as_str().ok_or("a key has no kid")?;
        keys.push(HubKey {
            kid: kid.to_owned(),
            files,
            published,
        });
    }
    Ok((own, keys))
}

/// The x-coordinate of a key on P-256 as in a JWK: the public key ends with both coordinates of 32
/// bytes (RFC 5480).
fn x_coordinate(files: &SigningKey) -> Outcome<String> {
    let pem = std::fs::read_to_string(&files.public_path)?;
    let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(der)?;
    let point = der.get(der.len().saturating_sub(64)..).unwrap_or(&der);
    Ok(URL_SAFE_NO_PAD.encode(point.get(..32).unwrap_or(point)))
}

fn key_set(own: &[Value], further: &[HubKey]) -> Rule {
    let further = further.iter().map(|key| &key.published);
    let keys: Vec<&Value> = own.iter().chain(further).collect();
    let fault = Fault::ReplaceBody {
        body: json!({ "keys": keys }).to_string().into_bytes(),
        content_type: HeaderValue::from_static("application/jwk-set+json"),
    };
    Rule::on(Method::GET, KEYS, fault)
}

async fn start_targets(
    ground: &Ground,
    hub: &ControlPlane,
    discovery_url: &str,
) -> Outcome<Vec<ControlPlane>> {
    let (issuer, subjects) = (
        format!("https://{}.keyferry.test", hub.name()),
        [format!("{TENANT}:{ACCOUNT}")],
    );
    let mut targets = Vec::new();
    for (index, minor) in [Minor::newest(), Minor::V1_33].into_iter().enumerate() {
        let trusting = TrustingTarget {
            name: &format!("revocation-target-{index}"),
            minor,
            issuer: &issuer,
            audience: &audience(index),
            discovery_url,
            subjects: &subjects,
        };
        targets.push(ground.target(trusting).await?);
    }
    Ok(targets)
}

async fn start_replicas(
    ground: &Ground,
    hub: &Arc<ControlPlane>,
    proxy: &ChaosProxy,
    first: BrokerSpec,
    targets: &[ControlPlane],
) -> Outcome<Vec<Broker>> {
    let endpoints = format!("hub:\n  endpoints: [\"{}\"]\n", proxy.url());
    let configured = |spec: BrokerSpec| {
        let times = BrokerTimes {
            max_stale: 300,
            max_age: MAX_AGE.as_secs(),
        };
        let spec = spec.with_times(times).with_server_lines(&endpoints);
        targets
            .iter()
            .enumerate()
            .fold(spec, |spec, (index, plane)| {
                let target = Target::of(plane, &audience(index)).allowing(TENANT, &[ACCOUNT]);
                let access = Access::of(TENANT, &access(index), plane.name(), ACCOUNT);
                spec.with_target(target).with_access(access)
            })
    };
    let (namespace, public_url) = (first.namespace().to_owned(), first.own_url()?);
    let mut replicas = vec![ground.start_broker(hub, configured(first)).await?];
    for index in 1..REPLICAS {
        let spec = BrokerSpec::of_hub(&format!("revocation-{index}"), hub)
            .replica_in(&namespace)
            .published_at(&public_url);
        replicas.push(ground.start_installed(hub, configured(spec)).await?);
    }
    Ok(replicas)
}
