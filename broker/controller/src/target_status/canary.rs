//! Tests whether a target admits identities that none of its rules names, with tokens of Keyferry's
//! canary, a ServiceAccount without rights.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{Generation, Probe, TargetCluster, TokenIssuer};
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_hub::targets::Readiness;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::ProbeAnswer;
use tokio::task::JoinSet;

use super::answers::CanaryAnswer;
use super::{TargetStatusWriter, ready_finding};

/// How often a target is probed with the canary's token.
const CANARY_INTERVAL: Duration = Duration::from_secs(3600);
/// How many targets are probed at once.
const MAX_CONCURRENT_CANARIES: usize = 8;
/// The pause after a probe without a result.
const CANARY_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The last probe of a target with the canary's token.
pub(super) struct CanaryTrial {
    generation: Generation,
    /// The value of `keyferry.dev/requestedAt` that it was for.
    requested: Option<String>,
    next_at: Duration,
    /// Whether the target admitted the canary, if known.
    admitted: Option<bool>,
    /// How the target answered; `None` before the first answer and without a token.
    pub(super) answer: Option<CanaryAnswer>,
}

/// Returns the last probe of this version of a target.
pub(super) fn current_trial<'a>(
    trials: &'a HashMap<ObjectName, CanaryTrial>,
    target: &TargetCluster,
) -> Option<&'a CanaryTrial> {
    trials
        .get(&target.name)
        .filter(|trial| trial.generation == target.generation)
}

/// Probes all due targets concurrently, so that a target that never answers does not delay the
/// others' status.
pub(super) fn start_canary_trials(
    writer: &Arc<TargetStatusWriter>,
    trials: &mut HashMap<ObjectName, CanaryTrial>,
    running_trials: &mut JoinSet<(ObjectName, CanaryTrial)>,
) {
    let now = writer.context.clock.now().mono;
    let policy = writer.context.policy.current();
    // A managed issuer signs only for granted accesses, so there is no canary token for its
    // targets.
    let candidates = policy
        .targets
        .values()
        .filter(|target| target.issuer == TokenIssuer::Hub && target.probe != Probe::Off);
    for target in candidates.filter(|target| ready_finding(writer, target).is_true()) {
        let stored = writer.context.store.target(&target.name);
        let requested = stored.and_then(|record| record.requested_at);
        let earlier = current_trial(trials, target);
        let is_known =
            earlier.is_some_and(|trial| trial.requested == requested && now < trial.next_at);
        if is_known || running_trials.len() >= MAX_CONCURRENT_CANARIES {
            continue;
        }
        let (admitted, answer) =
            earlier.map_or((None, None), |trial| (trial.admitted, trial.answer.clone()));
        // No further probe of this target starts until this one has ended.
        trials.insert(
            target.name.clone(),
            CanaryTrial {
                generation: target.generation,
                requested: requested.clone(),
                next_at: now + CANARY_RETRY_INTERVAL,
                admitted,
                answer,
            },
        );
        let (writer, target) = (Arc::clone(writer), target.clone());
        running_trials.spawn(async move {
            let answer = send_canary_token(&writer, &target).await;
            let now = writer.context.clock.now();
            let admitted = match answer {
                Some(ProbeAnswer::Accepted(_)) => Some(true),
                Some(ProbeAnswer::Refused) => Some(false),
                _ => None,
            };
            let pause = if admitted.is_some() {
                CANARY_INTERVAL
            } else {
                CANARY_RETRY_INTERVAL
            };
            let trial = CanaryTrial {
                generation: target.generation,
                requested,
                next_at: now.mono + pause,
                admitted,
                answer: answer.map(|answer| CanaryAnswer {
                    answer,
                    at: now.wall,
                }),
            };
            (target.name.clone(), trial)
        });
    }
}

/// Returns a finding if the target accepted the canary's token, which every rule of a protected
/// target refuses.
pub(super) fn admits_unlisted_user(
    target: &TargetCluster,
    trials: &HashMap<ObjectName, CanaryTrial>,
) -> Option<Finding> {
    let trial = current_trial(trials, target)?;
    let message = "the target accepted a token of Keyferry's canary, which has no rights: no \
                   rule of its AuthenticationConfiguration restricts which users it accepts; \
                   keyferry trust prints one";
    (trial.admitted == Some(true)).then(|| Finding::problem(Reason::TargetUnrestricted, message))
}

async fn send_canary_token(
    writer: &TargetStatusWriter,
    target: &TargetCluster,
) -> Option<ProbeAnswer> {
    // The hub accepts no token for a target's audience; the guard of audiences checks that.
    if target.client_certificates.is_some() {
        return None;
    }
    let Readiness::Ready(ca_pem) = writer.context.targets.readiness(target) else {
        return None;
    };
    let token = writer.guard.canary_token(&target.audience).await.ok()?;
    let probed = TargetAddress::of_target(target, ca_pem);
    Some(
        writer
            .context
            .probe
            .try_token(&probed, token.secret())
            .await,
    )
}
