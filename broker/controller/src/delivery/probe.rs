//! Probes from time to time whether the target accepts a token of the access, and caches the
//! answer.

use std::collections::HashMap;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{Delivery, Generation, Probe, TargetCluster};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Pair};
use keyferry_core::target_address::RefusedAddress;
use keyferry_hub::ports::{ProbeAnswer, ProbedTarget};
use keyferry_hub::targets::Readiness;
use parking_lot::{Mutex, MutexGuard};

use super::{Deliveries, Reconciliation};

/// How long an accepting answer is cached.
const WELL: Duration = Duration::from_secs(600);
/// How long a refusal or a failure is cached.
const UNWELL: Duration = Duration::from_secs(60);

/// The route name in audit records.
const ROUTE: &str = "probe";

/// The last answers of the targets.
#[derive(Default)]
pub(super) struct Probes(Mutex<ProbeHistory>);

#[derive(Default)]
struct ProbeHistory {
    accesses: HashMap<AccessName, ProbeRecord>,
    /// Targets that did not answer, for any access: the generation, when, and why.
    silent: HashMap<ObjectName, (Generation, Duration, &'static str)>,
}

#[derive(Clone)]
struct ProbeRecord {
    access: Generation,
    target: Generation,
    at: Duration,
    answer: ProbeAnswer,
    /// How many keys were revoked at that time: a later revocation may concern the key of the
    /// probed token.
    revoked: usize,
}

/// The result of the last probe of an access.
#[derive(Clone, Default)]
pub(super) struct LastProbe {
    answer: Option<ProbeAnswer>,
    /// Why the target was not probed.
    hindered: Option<(Reason, String)>,
    next: Option<Duration>,
    /// What is wrong with the username by which the target knows the token.
    unexpected: Option<String>,
}

impl Probes {
    pub(super) fn forget(&self, name: &AccessName) {
        self.known().accesses.remove(name);
    }

    fn last(&self, name: &AccessName) -> Option<ProbeRecord> {
        self.known().accesses.get(name).cloned()
    }

    /// Returns why a target did not answer, and how long this is still cached. When the cached
    /// failure expires, one access probes again while the others keep using it; else each would
    /// wait for the target's timeout.
    fn silence(&self, target: &TargetCluster, now: Duration) -> Option<(&'static str, Duration)> {
        let mut known = self.known();
        let (_, at, why) = known
            .silent
            .get_mut(&target.name)
            .filter(|(generation, ..)| *generation == target.generation)?;
        let left = (*at + UNWELL).saturating_sub(now);
        if left.is_zero() {
            *at = now;
            return None;
        }
        Some((*why, left))
    }

    fn note(&self, name: &AccessName, target: &TargetCluster, tried: ProbeRecord) {
        let mut known = self.known();
        match tried.answer {
            // One answer of the target's name says nothing about the next one.
            ProbeAnswer::AddressRefused(_) => {}
            ProbeAnswer::Unanswered(why) => {
                let silent = (target.generation, tried.at, why);
                known.silent.insert(target.name.clone(), silent);
            }
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => {
                known.silent.remove(&target.name);
            }
        }
        known.accesses.insert(name.clone(), tried);
    }

    fn known(&self) -> MutexGuard<'_, ProbeHistory> {
        self.0.lock()
    }
}

impl LastProbe {
    pub(super) fn reachable(&self) -> Option<Finding> {
        Some(match self.answer.as_ref()? {
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => Finding::well("the target answered"),
            ProbeAnswer::Unanswered(why) => Finding::not(Reason::ProbeUnanswered, *why),
            ProbeAnswer::AddressRefused(destination) => {
                Finding::not(Reason::TargetAddressRefused, refused(destination.kind))
            }
        })
    }

    pub(super) fn authenticates(&self) -> Option<Finding> {
        Some(match self.answer.as_ref()? {
            ProbeAnswer::Accepted(_) => match &self.unexpected {
                Some(what) => Finding::not(Reason::IdentityUnexpected, what.clone()),
                None => Finding::well("the target accepted a token of this access"),
            },
            ProbeAnswer::Refused => Finding::not(
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access",
            ),
            ProbeAnswer::Unanswered(why) => Finding::unknown(Reason::ProbeUnanswered, *why),
            ProbeAnswer::AddressRefused(destination) => {
                Finding::unknown(Reason::TargetAddressRefused, refused(destination.kind))
            }
        })
    }

    pub(super) fn identity(&self) -> Option<TargetIdentity> {
        match self.answer.as_ref()? {
            ProbeAnswer::Accepted(identity) if !identity.username.is_empty() => {
                Some(identity.clone())
            }
            _ => None,
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Returns what blocks the delivery of an access with `probe: Require`.
    pub(super) fn hindrance(&self) -> Option<(Reason, String)> {
        match &self.answer {
            Some(ProbeAnswer::Accepted(_)) => self
                .unexpected
                .clone()
                .map(|what| (Reason::IdentityUnexpected, what)),
            Some(ProbeAnswer::Refused) => Some((
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access".to_owned(),
            )),
            Some(ProbeAnswer::Unanswered(why)) => Some((
                Reason::ProbeUnanswered,
                format!("the target could not be probed: {why}"),
            )),
            Some(ProbeAnswer::AddressRefused(destination)) => {
                Some((Reason::TargetAddressRefused, refused(destination.kind)))
            }
            None => Some(self.hindered.clone().unwrap_or((
                Reason::ProbeUnanswered,
                "the target has not been probed yet".to_owned(),
            ))),
        }
    }
}

impl Deliveries {
    /// Returns the last answer of the target, and probes again when that is due. Only for accesses
    /// with objects: other callers find out for themselves.
    pub(super) async fn probe(
        &self,
        round: &Reconciliation<'_>,
        pairs: &[(Delivery, Result<Pair, Reason>)],
    ) -> LastProbe {
        let seen = self.asked(round, pairs).await;
        let unexpected = match &seen.answer {
            Some(ProbeAnswer::Accepted(identity)) => {
                unexpected(&identity.username, self.parts.store.hub_name())
            }
            _ => None,
        };
        LastProbe { unexpected, ..seen }
    }

    async fn asked(
        &self,
        round: &Reconciliation<'_>,
        pairs: &[(Delivery, Result<Pair, Reason>)],
    ) -> LastProbe {
        let granted = pairs
            .iter()
            .filter(|(delivery, _)| delivery.object_name.is_some());
        let Some((delivery, pair)) = granted
            .into_iter()
            .find_map(|(delivery, pair)| Some((delivery, pair.as_ref().ok()?)))
        else {
            return LastProbe::default();
        };
        let Some(target) = round.policy.targets.get(pair.target()) else {
            return LastProbe::default();
        };
        // No token is for the hub itself, so none can be tried there.
        if target.client_certificates.is_some() {
            return LastProbe::default();
        }
        if round.access.probe == Probe::Off || target.suspend || round.access.suspend {
            return LastProbe::default();
        }
        if target.probe == Probe::Off {
            return LastProbe {
                hindered: Some((
                    Reason::ProbeUnanswered,
                    "spec.probe of the TargetCluster is Off, so no access of it can require a \
                     probe"
                        .to_owned(),
                )),
                ..LastProbe::default()
            };
        }
        let now = self.parts.clock.now().mono;
        let last = self.probes.last(round.name);
        let revoked = self.parts.published.revoked().len();
        let same = |tried: &ProbeRecord| {
            tried.access == round.access.generation
                && tried.target == target.generation
                && tried.revoked == revoked
        };
        let last = last.filter(same);
        if let Some(tried) = last {
            let stands = if matches!(tried.answer, ProbeAnswer::Accepted(_)) {
                WELL
            } else {
                UNWELL
            };
            let left = (tried.at + stands).saturating_sub(now);
            if !left.is_zero() {
                return LastProbe {
                    answer: Some(tried.answer),
                    next: Some(left),
                    hindered: None,
                    unexpected: None,
                };
            }
        }
        if let Some((why, left)) = self.probes.silence(target, now) {
            return LastProbe {
                answer: Some(ProbeAnswer::Unanswered(why)),
                next: Some(left),
                hindered: None,
                unexpected: None,
            };
        }
        match self.try_token(round, delivery, pair).await {
            Ok(answer) => {
                let next = Some(if matches!(answer, ProbeAnswer::Accepted(_)) {
                    WELL
                } else {
                    UNWELL
                });
                let tried = ProbeRecord {
                    access: round.access.generation,
                    target: target.generation,
                    at: now,
                    answer: answer.clone(),
                    revoked,
                };
                self.probes.note(round.name, target, tried);
                LastProbe {
                    answer: Some(answer),
                    next,
                    hindered: None,
                    unexpected: None,
                }
            }
            Err((reason, message)) => LastProbe {
                answer: None,
                next: Some(UNWELL),
                hindered: Some((reason, message)),
                unexpected: None,
            },
        }
    }

    /// Sends a token to the target and to no other host; policy names its address and CA.
    async fn try_token(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
    ) -> Result<ProbeAnswer, (Reason, String)> {
        let plain = |reason: Reason| {
            (
                reason,
                "no token could be minted to probe the target".to_owned(),
            )
        };
        self.parts
            .admission_policy
            .checked()
            .map_err(|gap| (Reason::AuthorUnchecked, gap.to_string()))?;
        let target = round
            .policy
            .targets
            .get(pair.target())
            .ok_or(plain(Reason::TargetNotGranted))?;
        let ca_pem = match self.parts.targets.readiness(target) {
            Readiness::Ready(ca_pem) => ca_pem,
            Readiness::NotReady { reason, message } => return Err((reason, message)),
        };
        let grant = round.grant(delivery, pair).map_err(plain)?;
        let minted = self
            .parts
            .mint
            .token(&grant, Duration::ZERO)
            .await
            .map_err(plain)?;
        let recorded = self
            .record(
                ROUTE,
                round,
                delivery,
                pair,
                Some((&grant, TokenNote::of(&minted.token))),
            )
            .await;
        recorded.map_err(|hindrance| plain(hindrance.reason))?;
        authorise::still_holds(&self.parts.policy.current(), &*self.parts.live, &grant)
            .map_err(plain)?;
        let probed = ProbedTarget::of(target, ca_pem);
        Ok(self
            .parts
            .probe
            .try_token(&probed, minted.token.secret())
            .await)
    }
}

fn refused(kind: RefusedAddress) -> String {
    format!("nothing was sent to the target, because it or its proxy has {kind}")
}

/// Returns what is wrong with a username at a target. Without the hub's prefix, the hub's users
/// become the target's own, with their rights. Some targets do not report the name.
fn unexpected(username: &str, hub_name: &str) -> Option<String> {
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
    use super::unexpected;

    #[test]
    fn a_user_name_begins_with_the_hubs_name_and_a_colon() {
        assert_eq!(unexpected("hub:system:serviceaccount:a:b", "hub"), None);
        assert_eq!(unexpected("", "hub"), None, "the target did not tell it");
        for name in [
            "system:serviceaccount:a:b",
            "other:system:serviceaccount:a:b",
            "hubs:x",
            "hub",
        ] {
            assert!(
                unexpected(name, "hub")
                    .is_some_and(|what| what.contains(name) && what.contains("\"hub:\"")),
                "{name}"
            );
        }
    }
}
