//! ProbeCache from time to time whether the target accepts a token of the access, and caches the
//! answer.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::config::{Delivery, Generation, Probe, Record, TargetCluster};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::summary::SilenceCause;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Pair, Requester};
use keyferry_core::target_address::RefusedAddress;
use keyferry_hub::targets::Readiness;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::{ProbeAnswer, Silence};
use parking_lot::{Mutex, MutexGuard};

use super::{Deliveries, Reconciliation};

/// How long an accepting answer is cached.
const ACCEPTED_ANSWER_TTL: Duration = Duration::from_secs(600);
/// How long a refusal or a failure is cached.
const FAILED_ANSWER_TTL: Duration = Duration::from_secs(60);
/// How long a person's request stays open, while its probes are refused or fail.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(900);
/// For how long the status of an access says what its target answers now. It is asked again after
/// [`ACCEPTED_ANSWER_TTL`], `lastProbeTime` may be five minutes older than the probe, and the rest is for a slow
/// hub.
pub(crate) const MAX_ANSWER_AGE: Duration = Duration::from_secs(1200);

/// The route name in audit records.
const PROBE_ROUTE: &str = "probe";

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
enum ProbeOccasion {
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
struct TargetSilence {
    target: Generation,
    /// The handled `keyferry.dev/requestedAt` of the target.
    requested: Option<String>,
    at: Duration,
    asked_at: Timestamp,
    silence: Silence,
}

#[derive(Clone)]
struct ProbeRecord {
    basis: ProbeBasis,
    at: Duration,
    /// The same time for people.
    asked_at: Timestamp,
    answer: ProbeAnswer,
}

/// What an answer depends on besides the target.
#[derive(Clone, PartialEq, Eq)]
struct ProbeBasis {
    access: Generation,
    target: Generation,
    /// The published keys and their issuer at that time: a later change may change the answer.
    published: Option<u64>,
    /// The handled `keyferry.dev/requestedAt` of the access and of the target.
    requested: Requested,
    /// How many keys were revoked at that time: a later revocation may concern the key of the
    /// probed token.
    revoked: usize,
}

/// The values of `keyferry.dev/requestedAt`: of the access, and of its target.
type Requested = (Option<String>, Option<String>);

/// The token that a probe tries.
struct ProbeToken {
    /// The delivery that would give such a token.
    delivery: Delivery,
    pair: Pair,
    requester: Requester,
}

impl ProbeToken {
    /// Whether no object holds such a token. Then the target is asked only on request, until it
    /// accepts a token.
    fn is_on_request(&self) -> bool {
        matches!(self.requester, Requester::Probe)
    }
}

/// The result of the last probe of an access.
#[derive(Clone, Default)]
pub(super) struct LastProbe {
    answer: Option<ProbeAnswer>,
    /// When the target was asked.
    asked_at: Option<Timestamp>,
    /// Why the target was not probed.
    not_probed: Option<(Reason, String)>,
    /// Whether a person waits for the answer, so that the status says why there is none.
    is_requested: bool,
    next: Option<Duration>,
    /// What is wrong with the username by which the target knows the token.
    unexpected: Option<String>,
}

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
    fn request_occasion(
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
    fn cached_answer(
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
    fn recent_silence(
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

    fn record_answer(&self, name: &AccessName, target: &TargetCluster, record: ProbeRecord) {
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

impl LastProbe {
    /// An answer that is cached for the time `left`.
    fn cached(answer: ProbeAnswer, asked_at: Timestamp, left: Duration) -> Self {
        Self {
            answer: Some(answer),
            asked_at: Some(asked_at),
            next: Some(left),
            ..Self::default()
        }
    }

    /// No probe is ever sent, and an access that requires one cannot have it.
    fn never(message: &str) -> Self {
        Self {
            not_probed: Some((Reason::ProbeUnanswered, message.to_owned())),
            ..Self::default()
        }
    }

    pub(super) fn reachable_finding(&self) -> Option<Finding> {
        Some(match self.answer.as_ref()? {
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => Finding::ok("the target answered"),
            ProbeAnswer::Unanswered(silence) => {
                Finding::failed(Reason::ProbeUnanswered, silence.text.clone())
            }
            ProbeAnswer::AddressRefused(destination) => Finding::failed(
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            ),
        })
    }

    pub(super) fn authenticates_finding(&self) -> Option<Finding> {
        let Some(answer) = &self.answer else {
            let (reason, message) = self.not_probed.clone().filter(|_| self.is_requested)?;
            return Some(Finding::unknown(reason, message));
        };
        Some(match answer {
            ProbeAnswer::Accepted(_) => match &self.unexpected {
                Some(what) => Finding::failed(Reason::IdentityUnexpected, what.clone()),
                None => Finding::ok("the target accepted a token of this access"),
            },
            ProbeAnswer::Refused => Finding::failed(
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access",
            ),
            ProbeAnswer::Unanswered(silence) => {
                Finding::unknown(Reason::ProbeUnanswered, silence.text.clone())
            }
            ProbeAnswer::AddressRefused(destination) => Finding::unknown(
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            ),
        })
    }

    pub(super) fn target_identity(&self) -> Option<TargetIdentity> {
        match self.answer.as_ref()? {
            ProbeAnswer::Accepted(identity) if !identity.username.is_empty() => {
                Some(identity.clone())
            }
            _ => None,
        }
    }

    pub(super) fn silence_cause(&self) -> Option<SilenceCause> {
        match &self.answer {
            Some(ProbeAnswer::Unanswered(silence)) => Some(silence.cause),
            _ => None,
        }
    }

    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    pub(super) fn next_probe(&self) -> Option<Duration> {
        self.next
    }

    /// Returns what blocks the delivery of an access with `probe: Require`.
    pub(super) fn blocking_reason(&self) -> Option<(Reason, String)> {
        match &self.answer {
            Some(ProbeAnswer::Accepted(_)) => self
                .unexpected
                .clone()
                .map(|what| (Reason::IdentityUnexpected, what)),
            Some(ProbeAnswer::Refused) => Some((
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access".to_owned(),
            )),
            Some(ProbeAnswer::Unanswered(silence)) => Some((
                Reason::ProbeUnanswered,
                format!("the target could not be probed: {}", silence.text),
            )),
            Some(ProbeAnswer::AddressRefused(destination)) => Some((
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            )),
            None => Some(self.not_probed.clone().unwrap_or((
                Reason::ProbeUnanswered,
                "the target has not been probed yet".to_owned(),
            ))),
        }
    }
}

impl Deliveries {
    /// Returns the last answer of the target, and probes again when that is due. An access without
    /// objects is probed only if a person asks for it: its callers find out for themselves.
    pub(super) async fn probe_target(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[(Delivery, Result<Pair, Reason>)],
    ) -> LastProbe {
        let seen = self.probe_if_due(run, decisions).await;
        let unexpected = match &seen.answer {
            Some(ProbeAnswer::Accepted(identity)) => {
                unexpected_username(&identity.username, self.context.store.hub_name())
            }
            _ => None,
        };
        LastProbe { unexpected, ..seen }
    }

    async fn probe_if_due(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[(Delivery, Result<Pair, Reason>)],
    ) -> LastProbe {
        let Some(token) = self.probe_token(run, decisions) else {
            return LastProbe::default();
        };
        let Some(target) = run.policy.targets.get(token.pair.target()) else {
            return LastProbe::default();
        };
        if let Some(excluded) = exclude_from_probing(run, target) {
            return excluded;
        }
        let now = self.context.clock.now().mono;
        let basis = self.probe_basis(run, target);
        let occasion = self.probe_occasion(run, target, &token, &basis.requested);
        if token.is_on_request() && basis.requested == (None, None) {
            return LastProbe::default();
        }
        if let Some(cached) = self.probes.cached_answer(run.name, &basis, now) {
            return cached;
        }
        // An answer on request gets old: of it, only its time stays.
        let earlier = token
            .is_on_request()
            .then(|| last_probe_time(run))
            .flatten();
        if occasion == ProbeOccasion::None {
            return LastProbe {
                asked_at: earlier,
                ..LastProbe::default()
            };
        }
        let silence = self
            .probes
            .recent_silence(target, basis.requested.1.as_ref(), now)
            .filter(|_| occasion != ProbeOccasion::Requested);
        if let Some((silent, left)) = silence {
            return LastProbe::cached(
                ProbeAnswer::Unanswered(silent.silence),
                silent.asked_at,
                left,
            );
        }
        match self.try_token(run, &token).await {
            Ok(answer) => self.record_probe(run, target, basis, now, answer),
            Err(not_probed) => LastProbe {
                asked_at: earlier,
                next: Some(FAILED_ANSWER_TTL),
                not_probed: Some(not_probed),
                is_requested: token.is_on_request(),
                ..LastProbe::default()
            },
        }
    }

    /// Returns what an answer of the target depends on: a change there calls for another probe.
    fn probe_basis(&self, run: &Reconciliation<'_>, target: &TargetCluster) -> ProbeBasis {
        ProbeBasis {
            access: run.access.generation,
            target: target.generation,
            published: self.published_hash(),
            requested: self.requested_values(run, target),
            revoked: self.context.published.revoked_kids().len(),
        }
    }

    fn record_probe(
        &self,
        run: &Reconciliation<'_>,
        target: &TargetCluster,
        basis: ProbeBasis,
        at: Duration,
        answer: ProbeAnswer,
    ) -> LastProbe {
        let asked_at = self.context.clock.now().wall;
        let record = ProbeRecord {
            basis,
            at,
            asked_at,
            answer: answer.clone(),
        };
        self.probes.record_answer(run.name, target, record);
        let next = answer_ttl(&answer);
        LastProbe::cached(answer, asked_at, next)
    }

    /// Returns why the target is asked now. A person who requests it wants the present, not a cached
    /// answer.
    fn probe_occasion(
        &self,
        run: &Reconciliation<'_>,
        target: &TargetCluster,
        token: &ProbeToken,
        requested: &Requested,
    ) -> ProbeOccasion {
        let handled_of_access = handled_request(&run.stored.record);
        if token.is_on_request() {
            let now = self.context.clock.now().mono;
            let of_target = self.context.store.target(&target.name);
            let reported = (
                handled_of_access,
                of_target.as_ref().and_then(handled_request),
            );
            return self
                .probes
                .request_occasion(run.name, target, requested, reported, now);
        }
        if requested.0.is_some() && handled_of_access != requested.0 {
            ProbeOccasion::Requested
        } else {
            ProbeOccasion::Regular
        }
    }

    /// Chooses what to try: the first object's token that policy grants, else one that a caller
    /// would get.
    fn probe_token(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[(Delivery, Result<Pair, Reason>)],
    ) -> Option<ProbeToken> {
        let granted = |of_object: bool| {
            decisions
                .iter()
                .filter(move |(delivery, _)| delivery.object_name.is_some() == of_object)
                .find_map(|(delivery, pair)| Some((delivery, pair.as_ref().ok()?)))
        };
        if let Some((delivery, pair)) = granted(true) {
            return Some(ProbeToken {
                delivery: delivery.clone(),
                pair: pair.clone(),
                requester: Requester::Delivery(delivery.name.clone()),
            });
        }
        let (delivery, _) = granted(false)?;
        let (policy, live) = (&*run.policy, &*self.context.live);
        let requester = Requester::Probe;
        let shape = delivery.delivery_type;
        let pair = authorise::authorise_request(policy, live, &requester, run.name, shape).ok()?;
        Some(ProbeToken {
            delivery: delivery.clone(),
            pair,
            requester,
        })
    }

    /// Identifies what the hub publishes: a change there may change what a target answers.
    fn published_hash(&self) -> Option<u64> {
        let published = self.context.published.current()?;
        let mut hasher = DefaultHasher::new();
        published.issuer.as_str().hash(&mut hasher);
        published.jwks.bytes.hash(&mut hasher);
        Some(hasher.finish())
    }

    fn requested_values(&self, run: &Reconciliation<'_>, target: &TargetCluster) -> Requested {
        let of_target = self.context.store.target(&target.name);
        (
            run.stored.record.requested_at.clone(),
            of_target.and_then(|record| record.requested_at),
        )
    }

    /// Sends a token to the target and to no other host; policy names its address and CA.
    async fn try_token(
        &self,
        run: &Reconciliation<'_>,
        token: &ProbeToken,
    ) -> Result<ProbeAnswer, (Reason, String)> {
        let ProbeToken {
            delivery,
            pair,
            requester,
        } = token;
        let plain = |reason: Reason| {
            (
                reason,
                "no token could be minted to probe the target".to_owned(),
            )
        };
        self.context
            .author_policy
            .require_active()
            .map_err(|gap| (Reason::AuthorUnchecked, gap.to_string()))?;
        let target = run
            .policy
            .targets
            .get(pair.target())
            .ok_or(plain(Reason::TargetNotGranted))?;
        let ca_pem = match self.context.targets.readiness(target) {
            Readiness::Ready(ca_pem) => ca_pem,
            Readiness::NotReady { reason, message } => return Err((reason, message)),
        };
        let grant = run.grant_to(requester.clone(), pair).map_err(plain)?;
        let minted = self
            .credentials
            .mint
            .token(&grant, Duration::ZERO)
            .await
            .map_err(|error| plain(error.reason()))?;
        let recorded = self
            .record_issuance(
                PROBE_ROUTE,
                run,
                delivery,
                pair,
                Some((&grant, TokenNote::of_token(&minted.token))),
            )
            .await;
        recorded.map_err(|error| plain(error.reason))?;
        authorise::still_holds(&self.context.policy.current(), &*self.context.live, &grant)
            .map_err(plain)?;
        let probed = TargetAddress::of_target(target, ca_pem);
        Ok(self
            .context
            .probe
            .try_token(&probed, minted.token.secret())
            .await)
    }
}

/// Returns the result for an access whose target is never probed.
fn exclude_from_probing(run: &Reconciliation<'_>, target: &TargetCluster) -> Option<LastProbe> {
    // No token is for the hub itself, so none can be tried there, and a relying party that is no
    // cluster has no address.
    if target.client_certificates.is_some() || !target.is_cluster() {
        return Some(LastProbe::never(
            "Keyferry probes neither the hub itself nor a relying party that is no cluster, so no \
             access of it can require a probe",
        ));
    }
    if run.access.probe == Probe::Off || target.suspend || run.access.suspend {
        return Some(LastProbe::default());
    }
    (target.probe == Probe::Off).then(|| {
        LastProbe::never(
            "spec.probe of the TargetCluster is Off, so no access of it can require a probe",
        )
    })
}

/// The value of `keyferry.dev/requestedAt` that a status says was handled.
fn handled_request(record: &Record) -> Option<String> {
    let handled = record.status.get("lastHandledReconcileAt")?;
    Some(handled.as_str()?.to_owned())
}

/// When the status of the access says that the target was asked.
fn last_probe_time(run: &Reconciliation<'_>) -> Option<Timestamp> {
    let time = run.stored.record.status.get("lastProbeTime")?;
    time.as_str()?.parse().ok()
}

/// How long an answer is cached.
fn answer_ttl(answer: &ProbeAnswer) -> Duration {
    match answer {
        ProbeAnswer::Accepted(_) => ACCEPTED_ANSWER_TTL,
        _ => FAILED_ANSWER_TTL,
    }
}

fn describe_refused_address(kind: RefusedAddress) -> String {
    format!("nothing was sent to the target, because it or its proxy has {kind}")
}

/// Returns what is wrong with a username at a target. Without the hub's prefix, the hub's users
/// become the target's own, with their rights. Some targets do not report the name.
fn unexpected_username(username: &str, hub_name: &str) -> Option<String> {
    let begins = username
        .strip_prefix(hub_name)
        .is_some_and(|rest| rest.starts_with(':'));
    (!username.is_empty() && !begins).then(|| {
        let shown: String = username
            .chars()
            .filter(|character| !character.is_control())
            .take(120)
            .collect();
        format!(
            "the target authenticates the token as {shown:?}; the user name must begin \
            with \"{hub_name}:\": set claimMappings.username.prefix there"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::unexpected_username;

    #[test]
    fn a_user_name_begins_with_the_hubs_name_and_a_colon() {
        assert_eq!(
            unexpected_username("hub:system:serviceaccount:a:b", "hub"),
            None
        );
        assert_eq!(
            unexpected_username("", "hub"),
            None,
            "the target did not tell it"
        );
        for name in [
            "system:serviceaccount:a:b",
            "other:system:serviceaccount:a:b",
            "hubs:x",
            "hub",
        ] {
            assert!(
                unexpected_username(name, "hub")
                    .is_some_and(|what| what.contains(name) && what.contains("\"hub:\"")),
                "{name}"
            );
        }
    }
}
