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
const TRIAL_INTERVAL: Duration = Duration::from_secs(120);
/// How many failed tests in a row make a gap: just after a start, the AudiencePairing needs a
/// moment to be written and seen.
const MAX_FAILED_TRIALS: u32 = 3;

const UNREFUSED_GAP: &str = "the policy and its binding are as shipped, but the hub minted a token \
                           for an audience that no caller may request: does every apiserver run the ValidatingAdmissionPolicy plugin?";
const UNLISTED_GAP: &str = "there is no AudiencePairing keyferry as Keyferry writes it, so the policy \
                        restricts no caller; the log says why it could not be written";

/// Tests the admission policy and caches the result.
pub struct PairingTrial {
    hub: Arc<dyn Hub>,
    live: Arc<LiveObjects>,
    canary: ServiceAccount,
    active_at: Option<Duration>,
    failures: u32,
}

enum TrialResult {
    Refused,
    Failed(&'static str),
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
            active_at: None,
            failures: 0,
        }
    }

    /// Discards the cached result.
    pub fn forget_result(&mut self) {
        (self.active_at, self.failures) = (None, 0);
    }

    /// Tests whether the policy is active, given that its objects are as shipped; `None` while that
    /// is unclear. `now` is monotonic.
    pub async fn policy_standing(
        &mut self,
        objects: &dyn HubObjects,
        now: Duration,
    ) -> Option<Standing> {
        if self
            .active_at
            .is_some_and(|at| now.saturating_sub(at) < TRIAL_INTERVAL)
        {
            return Some(Standing::Active);
        }
        match self.run_trial(objects).await {
            TrialResult::Failed(gap) => {
                self.active_at = None;
                self.failures = self.failures.saturating_add(1);
                (self.failures >= MAX_FAILED_TRIALS).then(|| Standing::Gap(gap.to_owned()))
            }
            // If no test is possible, trust the objects, unless an earlier test failed.
            TrialResult::Undecided if self.failures > 0 => None,
            TrialResult::Refused | TrialResult::Undecided => {
                self.active_at = Some(now);
                self.failures = 0;
                Some(Standing::Active)
            }
        }
    }

    async fn run_trial(&self, objects: &dyn HubObjects) -> TrialResult {
        let (Ok(reserved_audience), Some(uid)) = (
            Audience::new(pairing::UNUSABLE_AUDIENCE),
            self.live.service_account(&self.canary),
        ) else {
            return TrialResult::Undecided;
        };
        match objects
            .get(&format!(
                "{}/{}",
                pairing::COLLECTION_PATH,
                pairing::PAIRING_NAME
            ))
            .await
        {
            Ok(Some(read))
                if read.value()["pairs"]
                    .get(pairing::UNUSABLE_AUDIENCE)
                    .is_some() => {}
            Ok(_) => return TrialResult::Failed(UNLISTED_GAP),
            Err(_) => return TrialResult::Undecided,
        }
        let canary = ServiceAccountIdentity {
            account: self.canary.clone(),
            uid,
        };
        match self
            .hub
            .token_request(&canary, &reserved_audience, lifetime::MIN)
            .await
        {
            // The token is dropped, and no cluster trusts its audience.
            Ok(_) => TrialResult::Failed(UNREFUSED_GAP),
            Err(error) if is_refusal_by_pairing(&error) => TrialResult::Refused,
            Err(_) => TrialResult::Undecided,
        }
    }
}

fn is_refusal_by_pairing(error: &HubError) -> bool {
    matches!(error, HubError::Forbidden(forbidden) if forbidden.is_by_policy("keyferry-pairing"))
}
