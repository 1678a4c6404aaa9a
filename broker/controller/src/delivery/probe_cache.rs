//! The last answers of the targets to probes, and the requests of people for new ones.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Generation, TargetCluster};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_platform::target_probe::{ProbeAnswer, Silence};
use parking_lot::{Mutex, MutexGuard};

use super::last_probe::LastProbe;

/// How long an accepting answer is cached.
const ACCEPTED_ANSWER_TTL: Duration = Duration::from_secs(600);
/// How long a refusal or a failure is cached.
pub(super) const FAILED_ANSWER_TTL: Duration = Duration::from_secs(60);
/// How long a person's request stays open, while its probes are refused or fail.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(900);

/// For how long the status of an access says what its target answers now. It is asked again after
/// [`ACCEPTED_ANSWER_TTL`], `lastProbeTime` may be five minutes older than the probe, and the rest is
/// for a slow hub.
pub(crate) const MAX_ANSWER_AGE: Duration = Duration::from_secs(1200);

/// The last answers of the targets.
#[derive(Default)]
pub(super) struct ProbeCache(Mutex<ProbeHistory>);

#[derive(Default)]
struct ProbeHistory {
    accesses: HashMap<AccessName, ProbeRecord>,
    /// Targets that did not answer, for any access: the generation, when, and why.
    silent: HashMap<ObjectName, TargetSilence>,
    /// The last requests of people, for accesses that are asked only then.
    requests: HashMap<AccessName, ProbeRequest>,
}

/// The values of `keyferry.dev/requestedAt` that an access was last reconciled with.
struct ProbeRequest {
    target: ObjectName,
    requested: Requested,
    /// Since when the target is to be asked; `None` once it accepted a token.
    open_since: Option<Duration>,
}

/// Why the target is to be asked, if it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeOccasion {
    /// An object holds such a token, so the target is asked from time to time.
    Regular,
    /// A person has just requested it.
    Requested,
    /// A person requested it, and the target has accepted no token since.
    RequestOpen,
    /// Nobody waits for the answer.
    None,
}

#[derive(Clone)]
pub(super) struct TargetSilence {
    target: Generation,
    /// The handled `keyferry.dev/requestedAt` of the target.
    requested: Option<String>,
    at: Duration,
    pub(super) asked_at: Timestamp,
    pub(super) silence: Silence,
}

#[derive(Clone)]
pub(super) struct ProbeRecord {
    pub(super) basis: ProbeBasis,
    pub(super) at: Duration,
    /// The same time for people.
    pub(super) asked_at: Timestamp,
    pub(super) answer: ProbeAnswer,
}

/// What an answer depends on besides the target.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProbeBasis {
    pub(super) access: Generation,
    pub(super) target: Generation,
    /// The published keys and their issuer at that time: a later change may change the answer.
    pub(super) published: Option<u64>,
    /// The handled `keyferry.dev/requestedAt` of the access and of the target.
    pub(super) requested: Requested,
    /// How many keys were revoked at that time: a later revocation may concern the key of the
    /// probed token.
    pub(super) revoked: usize,
}

/// The values of `keyferry.dev/requestedAt`: of the access, and of its target.
pub(super) type Requested = (Option<String>, Option<String>);

impl ProbeCache {
    pub(super) fn forget_access(&self, name: &AccessName) {
        let mut history = self.lock_history();
        history.accesses.remove(name);
        history.requests.remove(name);
    }

    /// Forgets every answer, because another replica asks now.
    pub(super) fn forget_all(&self) {
        *self.lock_history() = ProbeHistory::default();
    }

    /// Returns on which occasion the target of an access is asked that is asked only on request.
    /// `reported` are the values that the statuses call handled. They count until this process has
    /// seen the access, so that a new leader does not repeat every request.
    pub(super) fn request_occasion(
        &self,
        name: &AccessName,
        target: &TargetCluster,
        requested: &Requested,
        reported: Requested,
        now: Duration,
    ) -> ProbeOccasion {
        let mut history = self.lock_history();
        let earlier = history.requests.get(name);
        let earlier = earlier.filter(|request| request.target == target.name);
        let handled = earlier.map(|request| request.requested.clone());
        let handled = handled.unwrap_or(reported);
        let is_new = |value: &Option<String>, handled| value.is_some() && *value != handled;
        let is_new = is_new(&requested.0, handled.0) || is_new(&requested.1, handled.1);
        let open_since = if is_new {
            Some(now)
        } else {
            earlier.and_then(|request| request.open_since)
        };
        let open_since = open_since.filter(|since| now.saturating_sub(*since) < REQUEST_TIMEOUT);
        let request = ProbeRequest {
            target: target.name.clone(),
            requested: requested.clone(),
            open_since,
        };
        history.requests.insert(name.clone(), request);
        match open_since {
            None => ProbeOccasion::None,
            Some(_) if is_new => ProbeOccasion::Requested,
            Some(_) => ProbeOccasion::RequestOpen,
        }
    }

    /// Returns the last answer of the target, if it is not too old and nothing that it depends on
    /// has changed.
    pub(super) fn cached_answer(
        &self,
        name: &AccessName,
        basis: &ProbeBasis,
        now: Duration,
    ) -> Option<LastProbe> {
        let history = self.lock_history();
        let record = history.accesses.get(name)?;
        if record.basis != *basis {
            return None;
        }
        let left = (record.at + answer_ttl(&record.answer)).saturating_sub(now);
        (!left.is_zero()).then(|| LastProbe::cached(record.answer.clone(), record.asked_at, left))
    }

    /// Returns why a target did not answer, and how long this is still cached. When the cached
    /// failure expires, one access probes again while the others keep using it; else each would
    /// wait for the target's timeout.
    pub(super) fn recent_silence(
        &self,
        target: &TargetCluster,
        requested: Option<&String>,
        now: Duration,
    ) -> Option<(TargetSilence, Duration)> {
        let mut history = self.lock_history();
        let silent = history
            .silent
            .get_mut(&target.name)
            .filter(|silent| silent.target == target.generation)
            .filter(|silent| silent.requested.as_ref() == requested)?;
        let left = (silent.at + FAILED_ANSWER_TTL).saturating_sub(now);
        if left.is_zero() {
            silent.at = now;
            return None;
        }
        Some((silent.clone(), left))
    }

    pub(super) fn record_answer(
        &self,
        name: &AccessName,
        target: &TargetCluster,
        record: ProbeRecord,
    ) {
        let mut history = self.lock_history();
        match &record.answer {
            // One answer of the target's name says nothing about the next one.
            ProbeAnswer::AddressRefused(_) => {}
            ProbeAnswer::Unanswered(silence) => {
                let silent = TargetSilence {
                    target: target.generation,
                    requested: record.basis.requested.1.clone(),
                    at: record.at,
                    asked_at: record.asked_at,
                    silence: silence.clone(),
                };
                history.silent.insert(target.name.clone(), silent);
            }
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => {
                history.silent.remove(&target.name);
            }
        }
        if matches!(record.answer, ProbeAnswer::Accepted(_))
            && let Some(request) = history.requests.get_mut(name)
        {
            request.open_since = None;
        }
        history.accesses.insert(name.clone(), record);
    }

    fn lock_history(&self) -> MutexGuard<'_, ProbeHistory> {
        self.0.lock()
    }
}

/// How long an answer is cached.
pub(super) fn answer_ttl(answer: &ProbeAnswer) -> Duration {
    match answer {
        ProbeAnswer::Accepted(_) => ACCEPTED_ANSWER_TTL,
        _ => FAILED_ANSWER_TTL,
    }
}
