//! Events that are rehearsed, and then really happen.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keyferry_integration::pki::TestCa;
use keyferry_integration::random::Random;
use keyferry_integration::runner::{TestError, TestResult};

use super::comparison::{Outcome, check_widths};
use super::consumers::{Consumers, Way};
use super::prediction::predict;
use super::stage::{Stage, sleep_until};
use crate::rotation::on_hub::{TARGET_TENANTS, revoke, until_active};
use crate::rotation::stage::{kid, sign_with_new_key};

const ALL_WAYS: [Way; 4] = [
    Way::ReadsSecret,
    Way::MintsItself,
    Way::AsksKeyferry,
    Way::AsksAsNewCaller,
];
/// How long calls are observed after the end of an outage: past all that recovers then.
const AFTER_OUTAGE: Duration = Duration::from_secs(160);
/// Past a rotation's possible refusals by targets, and the certain ones by Keyferry.
const AFTER_ROTATION: Duration = Duration::from_secs(110);
const AFTER_REVOCATION: Duration = Duration::from_secs(100);
const AFTER_REMOVAL: Duration = Duration::from_secs(60);
/// How long an apiserver that has just started may refuse to mint.
const HUB_SETTLES: Duration = Duration::from_secs(60);
const AFTER_AUTHORITY: Duration = Duration::from_secs(30);

/// An event, with what is random about it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scenario {
    /// The hub's apiserver is killed, and returns.
    HubOutage {
        /// How long it is away.
        lasts: Duration,
    },
    /// Keyferry is killed, and returns.
    KeyferryOutage {
        /// How long it is away.
        lasts: Duration,
    },
    /// The hub signs with a key that was never published.
    SignAtOnce,
    /// After a rotation, the hub drops the old key.
    RemoveOldKey,
    /// After a rotation, the old key is revoked while tokens of it live.
    RevokeOldKey,
    /// The key is revoked with which the hub signs.
    RevokeSigningKey,
    /// A target gets a certificate of another CA.
    TargetAuthority {
        /// Its position.
        index: usize,
    },
}

impl Scenario {
    /// A random one.
    pub(super) fn draw(random: &mut Random) -> Self {
        // From an outage that no cached answer outlives to one in which delivered tokens end.
        let lasts = Duration::from_secs([15, 40, 90, 330, 420][random.below(5)]);
        match random.below(7) {
            0 => Self::HubOutage { lasts },
            1 => Self::KeyferryOutage { lasts },
            2 => Self::SignAtOnce,
            3 => Self::RemoveOldKey,
            4 => Self::RevokeOldKey,
            5 => Self::RevokeSigningKey,
            _ => Self::TargetAuthority {
                index: random.below(2),
            },
        }
    }

    /// Rehearses it, lets it happen and compares. Returns how many calls were refused for certain.
    /// `name` is that of no other scenario of the stage.
    pub(super) async fn play(self, stage: &Stage, name: &str) -> Result<usize, TestError> {
        stage.renew_own_token().await?;
        stage.until_ready().await?;
        let refused = match self {
            Self::HubOutage { .. } | Self::KeyferryOutage { .. } => {
                self.play_outage(stage, name).await
            }
            Self::SignAtOnce => sign_at_once(stage, name).await,
            Self::RemoveOldKey => remove_old_key(stage, name).await,
            Self::RevokeOldKey | Self::RevokeSigningKey => self.play_revocation(stage, name).await,
            Self::TargetAuthority { index } => change_target_authority(stage, index, name).await,
        }
        .map_err(|error| format!("{name}, {self:?}: {error}"))?;
        Ok(refused)
    }

    async fn play_outage(self, stage: &Stage, name: &str) -> Result<usize, TestError> {
        let (event, lasts) = match self {
            Self::KeyferryOutage { lasts } => ("keyferry-outage", lasts),
            Self::HubOutage { lasts } => ("hub-outage", lasts),
            _ => return Err("no outage".into()),
        };
        stage.declare_new_accesses(name).await?;
        let at = Stage::planned_begin();
        let seconds = format!("{}s", lasts.as_secs());
        let arguments = [event, "--for", &seconds];
        let prediction = predict(&stage.world, &arguments, Some(at)).await?;
        let clients = stage.clients(&ALL_WAYS, Some(name));
        let calls = usize::try_from((lasts + AFTER_OUTAGE).as_secs() / 3)? + 10;
        let consumers = Consumers::start(&stage.world, &clients, calls).await?;
        sleep_until(at).await;
        let of_hub = event == "hub-outage";
        if of_hub {
            stage.world.hub.kill().await?;
        } else {
            stage.kill_keyferry().await?;
        }
        let begin = Timestamp::now();
        consumers.begin();
        sleep_until(begin + lasts).await;
        if of_hub {
            stage.world.hub.restart().await?;
        } else {
            stage.start_keyferry().await?;
        }
        let overran = Timestamp::now().duration_since(begin + lasts);
        sleep_until(begin + lasts + AFTER_OUTAGE).await;
        let outcome = Outcome {
            event: format!("{name}: {event} of {lasts:?}"),
            acted: at,
            begin,
            overran,
            calls: consumers.end().await?,
        };
        outcome.compare_with(&prediction)
    }

    async fn play_revocation(self, stage: &Stage, name: &str) -> Result<usize, TestError> {
        let old = signing_kid_of_settled_hub(stage).await?;
        let rotate_first = matches!(self, Self::RevokeOldKey);
        if rotate_first {
            rotate(stage, name).await?;
        }
        let prediction = predict(&stage.world, &["revoke", &old], None).await?;
        let ways = [Way::ReadsSecret, Way::AsksKeyferry];
        let consumers = Consumers::start(&stage.world, &stage.clients(&ways, None), 0).await?;
        let begin = Timestamp::now();
        revoke(&stage.world, &old, &[]).await?;
        sleep_until(begin + AFTER_REVOCATION).await;
        let outcome = Outcome {
            event: format!("{name}: {self:?}"),
            acted: begin,
            begin,
            overran: SignedDuration::ZERO,
            calls: consumers.end().await?,
        };
        let refused = outcome.compare_with(&prediction);
        // The next scenario needs a hub that issues tokens, whatever this one came to.
        if !rotate_first {
            rotate(stage, name).await?;
        }
        refused
    }
}

/// The hub signs with a key that was never published. The event begins when it first does, as it
/// mints before it reports ready.
async fn sign_at_once(stage: &Stage, name: &str) -> Result<usize, TestError> {
    stage.declare_new_accesses(name).await?;
    let event = ["key-rotation", "--sign-at-once"];
    let prediction = predict(&stage.world, &event, None).await?;
    check_widths(&prediction);
    assert!(
        prediction.undetermined.is_empty(),
        "{:?}",
        prediction.undetermined
    );
    let old = signing_kid(stage).await?;
    let ways = [Way::ReadsSecret, Way::MintsItself, Way::AsksKeyferry];
    let clients = stage.clients(&ways, Some(name));
    let consumers = Consumers::start(&stage.world, &clients, 0).await?;
    let first_token = async {
        while !matches!(signing_kid(stage).await, Ok(kid) if kid != old) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let begin = Timestamp::now();
        consumers.begin();
        begin
    };
    let acted = Timestamp::now();
    let (begin, restarted) = tokio::join!(first_token, sign_with_new_key(&stage.world.hub, name));
    restarted?;
    sleep_until(begin + AFTER_ROTATION).await;
    let outcome = Outcome {
        event: format!("{name}: a key that signs at once"),
        acted,
        begin,
        overran: SignedDuration::ZERO,
        calls: consumers.end().await?,
    };
    outcome.compare_with(&prediction)
}

async fn remove_old_key(stage: &Stage, name: &str) -> Result<usize, TestError> {
    let old = signing_kid_of_settled_hub(stage).await?;
    rotate(stage, name).await?;
    let prediction = predict(&stage.world, &["remove-key", &old], None).await?;
    let hub = &stage.world.hub;
    let mut signing = hub.signing().await;
    signing.further_keys.clear();
    hub.set_signing(signing).await;
    // The hub has one apiserver. What its restart costs is another rehearsal's.
    hub.restart().await?;
    let ways = [Way::ReadsSecret, Way::MintsItself, Way::AsksKeyferry];
    let begin = Timestamp::now();
    let consumers = Consumers::start(&stage.world, &stage.clients(&ways, None), 0).await?;
    sleep_until(begin + AFTER_REMOVAL).await;
    let outcome = Outcome {
        event: format!("{name}: removal of the old key"),
        acted: begin,
        begin,
        overran: SignedDuration::ZERO,
        calls: consumers.end().await?,
    };
    outcome.compare_with(&prediction)
}

/// The certificate and the CA on the hub change at the same moment; what passes between the two is
/// how much longer it lasts.
async fn change_target_authority(
    stage: &Stage,
    index: usize,
    name: &str,
) -> Result<usize, TestError> {
    let (target, _) = TARGET_TENANTS[index];
    let authority = new_authority(stage, name)?;
    let prediction = predict(&stage.world, &["ca-change", "target", target], None).await?;
    let consumers =
        Consumers::start(&stage.world, &stage.clients(&[Way::ReadsSecret], None), 0).await?;
    let begin = stage.world.targets[index]
        .exchange_serving_certificate(&authority)
        .await?;
    stage.set_authority(index, authority.cert_pem());
    stage.put_target(index).await?;
    let overran = Timestamp::now().duration_since(begin);
    sleep_until(begin + AFTER_AUTHORITY).await;
    let outcome = Outcome {
        event: format!("{name}: another CA of {target}"),
        acted: begin,
        begin,
        overran,
        calls: consumers.end().await?,
    };
    outcome.compare_with(&prediction)
}

/// A CA that nobody trusts yet.
pub(super) fn new_authority(stage: &Stage, name: &str) -> Result<TestCa, TestError> {
    let folder = stage.world.ground.folder().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(TestCa::create(name, &folder)?)
}

/// Lets the hub sign with a new key, and waits until Keyferry issues tokens of it.
async fn rotate(stage: &Stage, name: &str) -> TestResult {
    sign_with_new_key(&stage.world.hub, name).await?;
    let kid = signing_kid_of_settled_hub(stage).await?;
    until_active(&stage.world, &kid).await
}

/// The kid with which the hub signs, once it mints: an apiserver that has just started refuses until
/// it knows what its admission policies refer to.
async fn signing_kid_of_settled_hub(stage: &Stage) -> Result<String, TestError> {
    let limit = Timestamp::now() + HUB_SETTLES;
    loop {
        match signing_kid(stage).await {
            Err(_) if Timestamp::now() < limit => {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            found => return found,
        }
    }
}

/// The kid with which the hub signs now.
async fn signing_kid(stage: &Stage) -> Result<String, TestError> {
    let (target, tenant) = TARGET_TENANTS[0];
    kid(&stage.mint(tenant, target).await?)
}
