//! From what was read to facts, at one moment. Only conditions and reason codes that the controller
//! writes decide. What no status proves is unknown, and never broken.

mod access;
mod authority;
mod denials;
mod findings;
mod keys;
mod target;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::config::Policy;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;

use self::authority::Authorities;
pub(crate) use self::findings::short_cause;
use crate::facts::{AccessFacts, Ending, EndingKind, Fleet, Health, Reading, SCHEMA, TargetFacts};
use crate::gap::TARGETS;
use crate::snapshot::Snapshot;

/// Deliveries of this type hold a client certificate instead of a token.
const CERTIFICATE_DELIVERY: &str = "ClientCertificateSecret";
/// The code of a finding about a target whose live trust differs from the desired one. It alone makes
/// a fleet broken, although its target may work.
const TRUST_DIFFERS: &str = "TrustDiffers";

/// What all judgements need.
struct Judgement<'a> {
    snapshot: &'a Snapshot,
    policy: Policy,
    now: Timestamp,
    authorities: Authorities,
}

/// What a fleet amounts to, for an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is broken, and everything that can be known is.
    Working,
    /// Something does not work.
    Broken,
    /// Nothing is known to be broken, and something could not be determined.
    Undetermined,
}

/// Judges a snapshot. `now` is the moment about which the facts say what has ended.
pub fn judge(snapshot: &Snapshot, now: Timestamp) -> Fleet {
    let judgement = Judgement {
        policy: snapshot.policy(),
        authorities: Authorities::default(),
        snapshot,
        now,
    };
    let accesses: Vec<AccessFacts> = snapshot
        .accesses
        .iter()
        .map(|(name, read)| judgement.judge_access(name, read))
        .collect();
    let targets = judgement.judge_targets(&accesses);
    let endings = judgement.endings(&accesses, &targets);
    let is_delivered = |ending: &&Ending| {
        let kinds = [EndingKind::Token, EndingKind::ClientCertificate];
        kinds.contains(&ending.what) && ending.at > now
    };
    Fleet {
        schema: SCHEMA,
        reading: Reading {
            source: snapshot.source.clone(),
            user: snapshot.user.clone(),
            read_at: snapshot.read_at,
            judged_at: now,
            tenant: snapshot.tenant.clone(),
            redacted: false,
            failed: None,
        },
        gaps: snapshot.gaps.clone(),
        runway: endings.iter().find(is_delivered).cloned(),
        tenants: tenant::tenants(&accesses, now),
        keys: judgement.key_facts(&accesses),
        denials: judgement.denial_facts(),
        targets,
        accesses,
        endings,
    }
}

impl Fleet {
    /// What the facts amount to.
    pub fn verdict(&self) -> Verdict {
        let health = self.targets.iter().map(|target| target.health);
        let mut health = health.chain(self.accesses.iter().map(|access| access.health));
        if health.any(|health| health == Health::Broken) {
            return Verdict::Broken;
        }
        let targets = self.targets.iter();
        if targets
            .flat_map(|it| &it.findings)
            .any(|it| it.reason == *TRUST_DIFFERS)
        {
            return Verdict::Broken;
        }
        // A target that is not asked by its admin's choice has no finding.
        let findings = self.targets.iter().flat_map(|target| &target.findings);
        let findings = findings.chain(self.accesses.iter().flat_map(|access| &access.findings));
        let is_missing = self
            .gaps
            .iter()
            .any(|gap| gap.is_of_objects() || gap.is_of_asked_target());
        match is_missing || findings.into_iter().any(|it| it.health == Health::Unknown) {
            true => Verdict::Undetermined,
            false => Verdict::Working,
        }
    }
}

impl Judgement<'_> {
    /// Whether a TargetCluster that was not read does not exist.
    fn knows_all_targets(&self) -> bool {
        self.snapshot.tenant.is_none() && self.snapshot.is_whole(TARGETS)
    }

    fn judge_targets(&self, accesses: &[AccessFacts]) -> Vec<TargetFacts> {
        let mut by_target: BTreeMap<&ObjectName, Vec<&AccessFacts>> = BTreeMap::new();
        for access in accesses {
            by_target.entry(&access.target).or_default().push(access);
        }
        let names: BTreeSet<&ObjectName> = self
            .snapshot
            .targets
            .keys()
            .chain(by_target.keys().copied())
            .collect();
        let mut targets: Vec<TargetFacts> = names
            .into_iter()
            .map(|name| {
                let users = by_target.get(name).map(Vec::as_slice).unwrap_or_default();
                self.judge_target(name, users)
            })
            .collect();
        targets.sort_by(|one, other| {
            let key = |target: &TargetFacts| {
                let ending = target.next_ending.unwrap_or(Timestamp::MAX);
                (target.health, ending)
            };
            key(one).cmp(&key(other)).then(one.name.cmp(&other.name))
        });
        targets
    }

    /// Returns all that ends, the earliest first.
    fn endings(&self, accesses: &[AccessFacts], targets: &[TargetFacts]) -> Vec<Ending> {
        let mut endings: Vec<Ending> = accesses.iter().flat_map(delivered_endings).collect();
        endings.extend(targets.iter().filter_map(|target| {
            Some(Ending {
                what: EndingKind::TargetCertificateAuthority,
                place: ForeignText::new(target.name.as_str()),
                target: Some(target.name.clone()),
                at: target.certificate_authority.ends?,
                renew_at: None,
            })
        }));
        endings.extend(self.discovery_authority_ends().map(|at| Ending {
            what: EndingKind::DiscoveryCertificateAuthority,
            place: ForeignText::new("discovery documents"),
            target: None,
            at,
            renew_at: None,
        }));
        endings.sort_by(|one, other| {
            let key = |ending: &Ending| (ending.at, ending.what);
            key(one)
                .cmp(&key(other))
                .then_with(|| one.place.to_string().cmp(&other.place.to_string()))
        });
        endings
    }

    /// When the CA certificates of the discovery documents' server end. All targets state the same
    /// ones, unless the CA is being changed.
    fn discovery_authority_ends(&self) -> impl Iterator<Item = Timestamp> {
        let targets = self.snapshot.targets.values();
        let stated: BTreeSet<&str> = targets
            .filter_map(|target| target.view.status.as_ref())
            .filter_map(|status| status.discovery_certificate_authority.as_deref())
            .collect();
        let ends: BTreeSet<Timestamp> = stated
            .into_iter()
            .filter_map(|pem| self.authorities.end_of_pem(pem, self.snapshot.read_at))
            .collect();
        ends.into_iter()
    }
}

/// Returns what an access's deliveries wrote and that ends.
fn delivered_endings(access: &AccessFacts) -> impl Iterator<Item = Ending> {
    access.deliveries.iter().filter_map(|delivery| {
        let kind = match delivery.delivery_type == *CERTIFICATE_DELIVERY {
            true => EndingKind::ClientCertificate,
            false => EndingKind::Token,
        };
        Some(Ending {
            what: kind,
            place: ForeignText::new(&access.name.to_string()),
            target: Some(access.target.clone()),
            at: delivery.expires_at?,
            renew_at: delivery.renew_at,
        })
    })
}

/// The earliest end after `now` of what an access's deliveries wrote.
fn next_delivered_end(access: &AccessFacts, now: Timestamp) -> Option<Timestamp> {
    let ends = access.deliveries.iter().filter_map(|it| it.expires_at);
    ends.filter(|at| *at > now).min()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
