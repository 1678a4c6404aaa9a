//! Tests `keyferry-pairing`: the canary requests the audience that no ServiceAccount may have. The
//! policy's objects only say what should happen. An apiserver that runs without the plugin, or has
//! not seen them, acts differently.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::lifetime;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::authorise::HubView;
use keyferry_core::pairing;
use keyferry_hub::admission_policy::Standing;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::{Hub, HubError, HubObjects};

/// How often the test runs while it succeeds.
const TRY_EVERY: Duration = Duration::from_secs(120);
/// How many failed tests in a row make a gap: just after a start, the AudiencePairing needs a
/// moment to be written and seen.
const ENOUGH: u32 = 3;

const LET_THROUGH: &str = "the policy and its binding are as shipped, but the hub minted a token \
                           for an audience that no caller may request: does every apiserver run the ValidatingAdmissionPolicy plugin?";
const UNLISTED: &str = "there is no AudiencePairing keyferry as Keyferry writes it, so the policy \
                        restricts no caller; the log says why it could not be written";

/// Tests the admission policy and caches the result.
pub struct PairingTrial {
    hub: Arc<dyn Hub>,
    live: Arc<LiveObjects>,
    canary: ServiceAccount,
    held_at: Option<Duration>,
    misses: u32,
}

enum Tried {
    Refused,
    Missed(&'static str),
    /// The hub refused for another reason, or did not answer.
    Undecided,
}

impl PairingTrial {
    /// Creates a trial without a result.
    pub fn new(hub: Arc<dyn Hub>, live: Arc<LiveObjects>, canary: ServiceAccount) -> Self {
        Self {
            hub,
            live,
            canary,
            held_at: None,
            misses: 0,
        }
    }

    /// Discards the cached result.
    pub fn forget(&mut self) {
        (self.held_at, self.misses) = (None, 0);
    }

    /// Tests whether the policy is active, given that its objects are as shipped; `None` while that
    /// is unclear. `now` is monotonic.
    pub async fn standing(&mut self, objects: &dyn HubObjects, now: Duration) -> Option<Standing> {
        if self
            .held_at
            .is_some_and(|at| now.saturating_sub(at) < TRY_EVERY)
        {
            return Some(Standing::Active);
        }
        match self.try_it(objects).await {
            Tried::Missed(gap) => {
                self.held_at = None;
                self.misses = self.misses.saturating_add(1);
                (self.misses >= ENOUGH).then(|| Standing::Gap(gap.to_owned()))
            }
            // If no test is possible, trust the objects, unless an earlier test failed.
            Tried::Undecided if self.misses > 0 => None,
            Tried::Refused | Tried::Undecided => {
                self.held_at = Some(now);
                self.misses = 0;
                Some(Standing::Active)
            }
        }
    }

    async fn try_it(&self, objects: &dyn HubObjects) -> Tried {
        let (Ok(nobodys), Some(uid)) = (
            Audience::new(pairing::NOBODYS),
            self.live.service_account(&self.canary),
        ) else {
            return Tried::Undecided;
        };
        match objects
            .get(&format!("{}/{}", pairing::COLLECTION, pairing::NAME))
            .await
        {
            Ok(Some(read)) if read.value()["pairs"].get(pairing::NOBODYS).is_some() => {}
            Ok(_) => return Tried::Missed(UNLISTED),
            Err(_) => return Tried::Undecided,
        }
        let canary = ServiceAccountIdentity {
            account: self.canary.clone(),
            uid,
        };
        match self
            .hub
            .token_request(&canary, &nobodys, lifetime::MIN)
            .await
        {
            // The token is dropped, and no cluster trusts its audience.
            Ok(_) => Tried::Missed(LET_THROUGH),
            Err(error) if is_refusal_by_pairing(&error) => Tried::Refused,
            Err(_) => Tried::Undecided,
        }
    }
}

fn is_refusal_by_pairing(error: &HubError) -> bool {
    matches!(error, HubError::Forbidden(forbidden) if forbidden.is_by_policy("keyferry-pairing"))
}
