//! Tests from time to time whether the target accepts a token of the access.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::config::{Delivery, Probe, Record, TargetCluster};
use keyferry_api::name::RoleName;
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Pair, Requester};
use keyferry_hub::targets::Readiness;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::ProbeAnswer;

use super::last_probe::LastProbe;
use super::probe_cache::{
    FAILED_ANSWER_TTL, ProbeBasis, ProbeOccasion, ProbeRecord, Requested, answer_ttl,
};
use super::{Deliveries, DeliveryDecision, Reconciliation};

/// The route name in audit records.
const PROBE_ROUTE: &str = "probe";

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

impl Deliveries {
    /// Returns the last answer of the target, and probes again when that is due. An access without
    /// objects is probed only if a person asks for it: its callers find out for themselves.
    pub(super) async fn probe_target(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[DeliveryDecision],
    ) -> LastProbe {
        let seen = self.probe_if_due(run, decisions).await;
        let role = run
            .policy
            .targets
            .get(&run.access.target)
            .and_then(|target| Some(target.role.as_ref()?.role.clone()));
        let unexpected = match &seen.answer {
            Some(ProbeAnswer::Accepted(identity)) => {
                unexpected_user(identity, role.as_ref(), self.context.store.hub_name())
            }
            _ => None,
        };
        LastProbe { unexpected, ..seen }
    }

    async fn probe_if_due(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[DeliveryDecision],
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
        decisions: &[DeliveryDecision],
    ) -> Option<ProbeToken> {
        let granted = |of_object: bool| {
            decisions
                .iter()
                .filter(move |decision| decision.delivery.object_name.is_some() == of_object)
                .find_map(|decision| Some((&decision.delivery, decision.pair.as_ref().ok()?)))
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

/// Returns what is wrong with the user that a target takes a token for. Without the hub's prefix, the
/// hub's users become the target's own, with their rights. Without the prefix of its role, the token
/// has the rights of the account. Some targets do not report the name.
fn unexpected_user(
    identity: &TargetIdentity,
    role: Option<&RoleName>,
    hub_name: &str,
) -> Option<Finding> {
    let username = identity.username.as_str();
    let of_hub = |name: &str| {
        let rest = name.strip_prefix(hub_name)?.strip_prefix(':')?;
        Some(rest.to_owned())
    };
    let rest = of_hub(username);
    if !username.is_empty() && rest.is_none() {
        let message = format!(
            "the target authenticates the token as {:?}; the user name must begin \
            with \"{hub_name}:\": set claimMappings.username.prefix there",
            shown_name(username)
        );
        return Some(Finding::failed(Reason::IdentityUnexpected, message));
    }
    let role = role?;
    let Some(rest) = rest else {
        let message = "the target accepts the token and does not say as which user, so whether it \
                       limits the role is not known";
        return Some(Finding::unknown(Reason::RoleNotMapped, message));
    };
    let begins = |rest: &str, prefix: &str| {
        let rest = rest.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let is_mapped = rest != role.as_str() && begins(&rest, role.as_str());
    let own_group = format!("role:{role}");
    let of_account = |group: &&String| of_hub(group).is_some_and(|rest| !begins(&rest, &own_group));
    let wrong = match identity.groups.iter().find(of_account) {
        _ if !is_mapped => format!("as the user {:?}", shown_name(username)),
        Some(group) => format!("in the group {:?}", shown_name(group)),
        None => return None,
    };
    let message = format!(
        "the target authenticates the token {wrong}, which the role {role} does not have, so the \
         token has rights of its ServiceAccount there; give the target the file of keyferry trust, \
         which maps users of \"{hub_name}:{role}:\" and the group \"{hub_name}:role:{role}\" by audience"
    );
    Some(Finding::failed(Reason::RoleNotMapped, message))
}

fn shown_name(name: &str) -> String {
    name.chars()
        .filter(|character| !character.is_control())
        .take(120)
        .collect()
}

#[cfg(test)]
mod tests {
    use keyferry_api::condition::Truth;
    use keyferry_api::name::RoleName;
    use keyferry_api::reason::Reason;
    use keyferry_core::access_status::TargetIdentity;

    use super::unexpected_user;

    fn identity(username: &str, groups: &[&str]) -> TargetIdentity {
        TargetIdentity {
            username: username.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    #[test]
    fn a_user_name_begins_with_the_hubs_name_and_a_colon() {
        let unexpected = |name: &str| unexpected_user(&identity(name, &[]), None, "hub");
        assert!(unexpected("hub:system:serviceaccount:a:b").is_none());
        assert!(unexpected("").is_none(), "the target did not tell it");
        for name in [
            "system:serviceaccount:a:b",
            "other:system:serviceaccount:a:b",
            "hubs:x",
            "hub",
        ] {
            assert!(
                unexpected(name).is_some_and(|what| what.reason == Reason::IdentityUnexpected
                    && what.message.contains(name)
                    && what.message.contains("\"hub:\"")),
                "{name}"
            );
        }
    }

    #[test]
    fn a_role_is_mapped_by_its_own_user_and_groups() {
        const USER: &str = "hub:view:system:serviceaccount:a:b";
        let (refused, unknown) = (Truth::False, Truth::Unknown);
        let not_mapped = |truth| Some((truth, Reason::RoleNotMapped));
        for (username, groups, expected) in [
            (USER, &["hub:role:view", "hub:role:view:a"][..], None),
            (USER, &["system:authenticated"], None),
            ("hub:system:serviceaccount:a:b", &[], not_mapped(refused)),
            (
                "hub:edit:system:serviceaccount:a:b",
                &[],
                not_mapped(refused),
            ),
            (
                "hub:viewer:system:serviceaccount:a:b",
                &[],
                not_mapped(refused),
            ),
            ("hub:view", &[], not_mapped(refused)),
            (USER, &["hub:system:serviceaccounts"], not_mapped(refused)),
            (USER, &["hub:role:view", "hub:admins"], not_mapped(refused)),
            (USER, &["hub:role:edit"], not_mapped(refused)),
            (USER, &["hub:role:viewer"], not_mapped(refused)),
            ("", &["hub:role:view"], not_mapped(unknown)),
            (
                "view:system:serviceaccount:a:b",
                &[],
                Some((refused, Reason::IdentityUnexpected)),
            ),
        ] {
            let role = RoleName::new("view").ok();
            let found = unexpected_user(&identity(username, groups), role.as_ref(), "hub");
            let found = found.map(|finding| (finding.status, finding.reason));
            assert_eq!(found, expected, "{username} {groups:?}");
        }
    }
}
