//! What is known about one TargetCluster.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::config::{AllowRule, DeliveryType, NamespaceRule};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_api::status::TargetClusterStatus;

use super::access::{doctor, is_old};
use super::findings::{Judged, Stated, minute, sorted, time, unknown};
use super::{Judgement, TRUST_DIFFERS, next_delivered_end};
use crate::facts::{
    AcceptedFacts, AccessFacts, AllowFacts, Answer, AuthorityFacts, Health, TargetFacts, TrustFacts,
};
use crate::object_view::TargetView;
use crate::snapshot::ReadTarget;

/// How old the last answer of a target may be. Keyferry asks it at least once an hour, and writes the
/// time to within five minutes.
const MAX_TARGET_ANSWER_AGE: SignedDuration = SignedDuration::from_mins(90);
/// How long before its end a CA certificate needs attention.
const AUTHORITY_NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Conditions that report what is unsafe or wrong while they are true.
const PROBLEMS: [&str; 6] = [
    "TargetUnrestricted",
    "PairingUnprotected",
    "LabelsUnprotected",
    "IdentityConflict",
    "AdmissionPolicyIncomplete",
    "ClientCertificateIgnored",
];
/// Those of them that change nothing about who gets in.
const MINOR_PROBLEMS: [&str; 2] = ["AdmissionPolicyIncomplete", "ClientCertificateIgnored"];

impl Judgement<'_> {
    /// Judges one target from its object, and from the accesses that name it.
    pub(super) fn judge_target(&self, name: &ObjectName, users: &[&AccessFacts]) -> TargetFacts {
        let read = self.snapshot.targets.get(name);
        let view = read.map(|read| &read.view);
        let status = read.and_then(current_status);
        let accepted = accepted_facts(status, users);
        let authority = self.authority(view, users);
        let reachable = self.reachable(view, status, users, accepted);
        let mut findings = self.own_findings(name, read, users, &authority);
        findings.extend(findings_of_accesses(users));
        let trust = self.snapshot.trust.get(name);
        findings.extend(trust.and_then(|trust| trust_finding(name, trust)));
        let findings = sorted(findings);
        let worst = findings
            .iter()
            .find(|it| it.finding.health != Health::Ready);
        let (health, cause) = match worst {
            Some(judged) => (judged.finding.health, judged.cause.clone()),
            None if accepted.accepted > 0 && reachable == Answer::Yes => {
                (Health::Ready, String::new())
            }
            None => (Health::Unknown, why_unproven(view, accepted, users)),
        };
        TargetFacts {
            name: name.clone(),
            health,
            relying_party: view.is_some_and(|it| it.spec.is_relying_party()),
            hub: view.is_some_and(|it| it.spec.hub),
            suspended: view.is_some_and(|it| it.spec.suspend),
            role: view.and_then(role_of),
            address: self.address(view, users),
            audience: self.audience(view, users),
            issuer: status
                .and_then(|it| it.issuer.as_deref())
                .map(ForeignText::new),
            reachable,
            certificate_authority: authority,
            file_active: self.proven_by_tokens(accepted),
            keys_read: self.proven_by_tokens(accepted),
            accepted,
            accesses: users.len(),
            tenants: tenant_count(users),
            next_ending: users
                .iter()
                .filter_map(|it| next_delivered_end(it, self.now))
                .min(),
            cause: ForeignText::new(&cause),
            reason: worst.map(|it| it.finding.reason.clone()),
            next_command: worst.and_then(|it| it.next.clone()),
            findings: findings.into_iter().map(|it| it.finding).collect(),
            allow: allow_facts(read),
            trust: trust.cloned(),
        }
    }

    /// What the object of the target says, in the order in which one row names it.
    fn own_findings(
        &self,
        name: &ObjectName,
        read: Option<&ReadTarget>,
        users: &[&AccessFacts],
        authority: &AuthorityFacts,
    ) -> Vec<Judged> {
        let Some(read) = read else {
            return self.missing_target(name, users).into_iter().collect();
        };
        let describe = format!("kubectl describe targetcluster {name}");
        if let Some(finding) = unjudged(read) {
            let is_on_hub = !read.view.metadata.uid.is_empty();
            return vec![match is_on_hub {
                true => finding.with_next(describe),
                false => finding,
            }];
        }
        let Some(status) = current_status(read) else {
            return Vec::new();
        };
        let mut findings: Vec<Judged> = deletion(read).into_iter().collect();
        findings.extend(not_ready(status, &describe));
        findings.extend(self.answer_findings(name, status, users));
        findings.extend(self.authority_finding(authority, &describe));
        for condition in PROBLEMS {
            findings.extend(condition_problem(status, condition));
        }
        let leader = Stated::of_target(status, "LeaderMissing").filter(Stated::is_true);
        findings.extend(leader.map(|stated| {
            Judged::of_condition(
                Health::Attention,
                &stated,
                "no replica of Keyferry leads: statuses are old",
            )
            .with_next(format!(
                "kubectl get lease keyferry -n {}",
                self.own_namespace()
            ))
        }));
        findings
    }

    /// A target that accesses name and the hub does not have, if all were read.
    fn missing_target(&self, name: &ObjectName, users: &[&AccessFacts]) -> Option<Judged> {
        let reason = Reason::TargetNotGranted.as_str();
        let count = users.len();
        let cause = match count {
            1 => "there is no such TargetCluster; 1 access names it".to_owned(),
            _ => format!("there is no such TargetCluster; {count} accesses name it"),
        };
        let next = format!("keyferry onboard target {name} --target-kubeconfig FILE");
        self.knows_all_targets()
            .then(|| Judged::new(Health::Broken, "Ready", reason, cause).with_next(next))
    }

    /// What the target answered, or did not answer, when it was asked.
    fn answer_findings(
        &self,
        name: &ObjectName,
        status: &TargetClusterStatus,
        users: &[&AccessFacts],
    ) -> Vec<Judged> {
        let asked_at = time(status.last_probe_time.as_ref());
        let check = users.first().map_or_else(
            || format!("kubectl describe targetcluster {name}"),
            |access| doctor(&access.name),
        );
        if let Some(at) = asked_at.filter(|at| self.is_old_answer(*at)) {
            let cause = format!("last asked at {}", minute(at));
            let finding = Judged::new(Health::Unknown, "TargetReachable", "StatusStale", cause);
            return vec![finding.with_next(check)];
        }
        let reachable = Stated::of_target(status, "TargetReachable").filter(Stated::is_false);
        let mut findings = Vec::new();
        findings.extend(reachable.map(|stated| {
            let cause = silence_of_target(status, &stated, users);
            Judged::of_condition(Health::Broken, &stated, cause).with_next(check.clone())
        }));
        let accepted = status.accesses.unwrap_or_default();
        let authenticates = Stated::of_target(status, "TargetAuthenticates");
        if let Some(stated) = authenticates.filter(Stated::is_false) {
            let (health, cause) = match accepted.accepted {
                0 => (
                    Health::Broken,
                    "the target refuses its tokens (401)".to_owned(),
                ),
                _ => {
                    let cause = format!(
                        "the target refuses {} of {} tokens",
                        accepted.refused, accepted.total
                    );
                    (Health::Attention, cause)
                }
            };
            let next = format!("keyferry trust {name} --diff FILE");
            findings.push(Judged::of_condition(health, &stated, cause).with_next(next));
        }
        let unanswered = authenticates.filter(|stated| !stated.is_true() && !stated.is_false());
        findings.extend(unanswered.map(|stated| {
            let cause = format!(
                "no answer to {} of {} tokens",
                accepted.unanswered, accepted.total
            );
            Judged::of_condition(Health::Unknown, &stated, cause).with_next(check.clone())
        }));
        findings
    }

    /// A CA certificate that has ended or is about to.
    fn authority_finding(&self, authority: &AuthorityFacts, describe: &str) -> Option<Judged> {
        let ends = authority.ends?;
        let reason = Reason::CertificateAuthorityInvalid.as_str();
        let day = ends.strftime("%Y-%m-%d");
        let cause = if ends <= self.now {
            format!("a CA certificate of it ended {day}")
        } else if ends.duration_since(self.now) <= AUTHORITY_NOTICE {
            format!("a CA certificate of it ends {day}")
        } else {
            return None;
        };
        let finding = Judged::new(Health::Attention, "Ready", reason, cause);
        Some(finding.with_next(describe.to_owned()))
    }

    /// Whether the file is active and the keys are read. A token that was accepted lately proves
    /// both; a 401 has several causes, of which each is one.
    fn proven_by_tokens(&self, accepted: AcceptedFacts) -> Answer {
        match (accepted.accepted, accepted.refused, accepted.asked_at) {
            (0, 0, _) => unknown("no token was tried"),
            (0, _, _) => unknown("the target refuses its tokens (401), which has several causes"),
            (_, _, Some(at)) if self.is_old_answer(at) => {
                unknown(format!("last asked at {}", minute(at)))
            }
            _ => Answer::Yes,
        }
    }

    fn reachable(
        &self,
        view: Option<&TargetView>,
        status: Option<&TargetClusterStatus>,
        users: &[&AccessFacts],
        accepted: AcceptedFacts,
    ) -> Answer {
        let asked_at = status.and_then(|status| time(status.last_probe_time.as_ref()));
        if let Some(at) = asked_at.filter(|at| self.is_old_answer(*at)) {
            return unknown(format!("last asked at {}", minute(at)));
        }
        let stated = status.and_then(|status| Stated::of_target(status, "TargetReachable"));
        match stated {
            Some(stated) if stated.is_true() => Answer::Yes,
            Some(stated) if stated.is_false() => stated.denial(),
            _ if accepted.accepted + accepted.refused > 0 => Answer::Yes,
            _ => unknown(why_unproven(view, accepted, users)),
        }
    }

    fn is_old_answer(&self, asked_at: Timestamp) -> bool {
        is_old(asked_at, self.snapshot.read_at, MAX_TARGET_ANSWER_AGE)
    }

    fn address(&self, view: Option<&TargetView>, users: &[&AccessFacts]) -> Option<ForeignText> {
        // A role is at the cluster of its base.
        let base = view.and_then(|view| ObjectName::new(view.spec.same_as.as_deref()?).ok());
        let base = base.and_then(|base| self.snapshot.targets.get(&base));
        let view = base.map(|read| &read.view).or(view);
        let own = view.map(|view| view.spec.address.as_str());
        let own = own
            .filter(|address| !address.is_empty())
            .map(ForeignText::new);
        own.or_else(|| self.stated_by_access(users, |it| it.server.as_deref()))
    }

    fn audience(&self, view: Option<&TargetView>, users: &[&AccessFacts]) -> Option<ForeignText> {
        let own = view.map(|view| view.spec.audience.as_str());
        let own = own
            .filter(|audience| !audience.is_empty())
            .map(ForeignText::new);
        own.or_else(|| self.stated_by_access(users, |it| it.audience.as_deref()))
    }

    /// What the status of an access says of its target: that is all that a tenant may read.
    fn stated_by_access(
        &self,
        users: &[&AccessFacts],
        text: impl Fn(&keyferry_api::status::ClusterStatus) -> Option<&str>,
    ) -> Option<ForeignText> {
        users.iter().find_map(|access| {
            let cluster = self
                .snapshot
                .accesses
                .get(&access.name)?
                .view
                .status
                .cluster
                .as_ref()?;
            text(cluster).map(ForeignText::new)
        })
    }

    fn authority(&self, view: Option<&TargetView>, users: &[&AccessFacts]) -> AuthorityFacts {
        let read_at = self.snapshot.read_at;
        let inline = view.and_then(|view| view.spec.ca_bundle.as_deref());
        let ends = match inline {
            Some(pem) => self.authorities.end_of_pem(pem, read_at),
            None => users.iter().find_map(|access| {
                let status = &self.snapshot.accesses.get(&access.name)?.view.status;
                let data = status
                    .cluster
                    .as_ref()?
                    .certificate_authority_data
                    .as_ref()?;
                self.authorities.end_of_base64(data, read_at)
            }),
        };
        let source = match view.map(|view| &view.spec) {
            Some(spec) if !spec.cert_secret_ref.name.is_empty() => {
                format!("Secret {}", spec.cert_secret_ref.name)
            }
            Some(spec) if !spec.cluster_trust_bundle_ref.name.is_empty() => {
                format!("ClusterTrustBundle {}", spec.cluster_trust_bundle_ref.name)
            }
            Some(spec) if spec.ca_bundle.is_some() => "inline".to_owned(),
            Some(spec) if spec.is_relying_party() => String::new(),
            Some(_) => "system roots".to_owned(),
            None => String::new(),
        };
        AuthorityFacts {
            source: ForeignText::new(&source),
            ends,
        }
    }

    fn own_namespace(&self) -> String {
        let namespace = self.snapshot.keyferry_namespace();
        namespace.map_or_else(|| "keyferry-system".to_owned(), |it| it.to_string())
    }
}

/// The status, if it is about the current spec and nothing contradicts it.
fn current_status(read: &ReadTarget) -> Option<&TargetClusterStatus> {
    read.view.current_status().filter(|_| !read.is_contradicted)
}

/// Why the status of a target says nothing.
fn unjudged(read: &ReadTarget) -> Option<Judged> {
    let not_known = |reason, cause| Some(Judged::new(Health::Unknown, "Ready", reason, cause));
    if read.is_contradicted {
        return not_known(
            "Contradiction",
            "it was not read whole, or twice with different content",
        );
    }
    match &read.view.status {
        None if read.view.metadata.uid.is_empty() => not_known(
            "StatusMissing",
            "it was not read from a hub, so nothing live is known",
        ),
        None => not_known("StatusMissing", "Keyferry has written no status of it"),
        Some(status) if status.conditions.is_empty() => {
            not_known("StatusMissing", "Keyferry has written no status of it")
        }
        Some(_) if read.view.current_status().is_none() => {
            not_known("StatusStale", "its status is about an earlier spec")
        }
        Some(_) => None,
    }
}

fn deletion(read: &ReadTarget) -> Option<Judged> {
    let reason = Reason::TargetDraining.as_str();
    let cause = "deleted; delivered objects stay until their tokens expire";
    let is_deleting = read.view.metadata.is_deleting();
    is_deleting.then(|| Judged::new(Health::Attention, "Ready", reason, cause))
}

/// Why Keyferry cannot use a target. What does not depend on its spec resolves itself.
fn not_ready(status: &TargetClusterStatus, describe: &str) -> Option<Judged> {
    let ready = Stated::of_target(status, "Ready").filter(|ready| !ready.is_true())?;
    let is_stalled = Stated::of_target(status, "Stalled").is_some_and(|it| it.is_true());
    let health = match is_stalled && !ready.has_reason(Reason::TargetSuspended) {
        true => Health::Broken,
        false => Health::Attention,
    };
    Some(Judged::of_condition(health, &ready, ready.hindrance()).with_next(describe))
}

/// What is unsafe, or differs from what was shipped.
fn condition_problem(status: &TargetClusterStatus, condition: &str) -> Option<Judged> {
    let stated = Stated::of_target(status, condition).filter(Stated::is_true)?;
    let health = match MINOR_PROBLEMS.contains(&condition) {
        true => Health::Ready,
        false => Health::Attention,
    };
    let cause = stated.warning().unwrap_or_else(|| match condition {
        "IdentityConflict" => "another TargetCluster has the same identity".to_owned(),
        _ => format!("see the condition {condition}"),
    });
    let next = match condition {
        "AdmissionPolicyIncomplete" | "PairingUnprotected" | "LabelsUnprotected" => {
            "keyferry admission-policies --check".to_owned()
        }
        _ => format!("keyferry explain {condition}"),
    };
    Some(Judged::of_condition(health, &stated, cause).with_next(next))
}

/// Why a target did not answer: as one of its accesses says it, or as its own column STATUS does.
fn silence_of_target(
    status: &TargetClusterStatus,
    stated: &Stated<'_>,
    users: &[&AccessFacts],
) -> String {
    let of_target = status.summary.as_deref().unwrap_or_default();
    let of_target = of_target.strip_prefix("declared; ");
    let is_silence = |text: &&str| text.starts_with("the target") || text.starts_with("Keyferry");
    if let Some(silence) = of_target.filter(is_silence) {
        return silence.to_owned();
    }
    let is_same = |access: &&&AccessFacts| {
        access
            .reason
            .as_ref()
            .is_some_and(|it| *it == *stated.reason)
    };
    match users.iter().find(is_same) {
        Some(access) => access.cause.to_string(),
        None => "the target does not answer".to_owned(),
    }
}

/// Sums up the accesses that need attention or do not work. A target of which another access works
/// is not broken itself.
fn findings_of_accesses(users: &[&AccessFacts]) -> Option<Judged> {
    let ill = |access: &&&AccessFacts| matches!(access.health, Health::Broken | Health::Attention);
    let worst = users
        .iter()
        .filter(ill)
        .min_by_key(|access| access.health)?;
    let same: Vec<&&AccessFacts> = users
        .iter()
        .filter(|it| it.health == worst.health)
        .collect();
    let health = match worst.health {
        Health::Broken if same.len() == users.len() => Health::Broken,
        _ => Health::Attention,
    };
    let cause = match (same.len(), users.len()) {
        (1, 1) => format!("{}: {}", worst.name, worst.cause),
        (1, all) => format!("1 of {all} accesses, {}: {}", worst.name, worst.cause),
        (some, all) => format!(
            "{some} of {all} accesses, such as {}: {}",
            worst.name, worst.cause
        ),
    };
    let reason = worst.reason.as_ref().map(ToString::to_string);
    let judged = Judged::new(health, "Accesses", &reason.unwrap_or_default(), cause);
    Some(judged.with_next(doctor(&worst.name)))
}

/// How a target answered: by its own status, else by those of its accesses.
fn accepted_facts(status: Option<&TargetClusterStatus>, users: &[&AccessFacts]) -> AcceptedFacts {
    if let Some(counts) = status.and_then(|status| status.accesses) {
        return AcceptedFacts {
            accepted: counts.accepted,
            refused: counts.refused,
            unanswered: counts.unanswered,
            // A folder may say any number.
            asked: counts
                .accepted
                .saturating_add(counts.refused)
                .saturating_add(counts.unanswered),
            asked_at: status.and_then(|status| time(status.last_probe_time.as_ref())),
        };
    }
    let mut facts = AcceptedFacts::default();
    for access in users.iter().filter(|access| access.asked_at.is_some()) {
        match access.accepted {
            Answer::Yes => facts.accepted += 1,
            Answer::No { .. } => facts.refused += 1,
            Answer::Unknown { .. } => facts.unanswered += 1,
        }
        facts.asked += 1;
        facts.asked_at = facts.asked_at.max(access.asked_at);
    }
    facts
}

/// Why nothing proves that a target works.
fn why_unproven(
    view: Option<&TargetView>,
    accepted: AcceptedFacts,
    users: &[&AccessFacts],
) -> String {
    let spec = view.map(|view| &view.spec);
    let why = match spec {
        Some(spec) if spec.is_relying_party() => "never asked: it is no cluster",
        Some(spec) if spec.hub => "never asked: it is the hub itself",
        Some(spec) if spec.probe == "Off" => "never asked: its probe is Off",
        _ if users.is_empty() => "no access uses it, so no token was tried",
        _ if accepted.asked == 0 => "no token of its accesses was tried",
        _ => "no token was accepted when it was last asked",
    };
    why.to_owned()
}

/// Whether the target differs from what it should be. One that treats tokens otherwise is broken;
/// one whose file or keys are others may work, and is not what policy says.
fn trust_finding(name: &ObjectName, trust: &TrustFacts) -> Option<Judged> {
    let (row, _) = trust.rows().into_iter().find(|(_, row)| row.differs())?;
    let health = match trust.behaviour.differs() {
        true => Health::Broken,
        false => Health::Attention,
    };
    let cause = format!("its {row} differs from what it should be");
    let next = format!("keyferry trust {name} --diff FILE");
    Some(Judged::new(health, "Trust", TRUST_DIFFERS, cause).with_next(next))
}

fn tenant_count(users: &[&AccessFacts]) -> usize {
    let mut namespaces: Vec<&str> = users.iter().map(|it| it.name.namespace.as_str()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    namespaces.len()
}

fn allow_facts(read: Option<&ReadTarget>) -> Vec<AllowFacts> {
    let rules = read
        .and_then(|read| read.spec.as_ref())
        .map(|spec| spec.allow.clone());
    let facts = |rule: &AllowRule| {
        let namespaces = match &rule.namespaces {
            NamespaceRule::Named(names) => {
                let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
                names.join(", ")
            }
            NamespaceRule::Selected(selector) => selector.to_string(),
        };
        AllowFacts {
            namespaces: ForeignText::new(&namespaces),
            service_accounts: rule
                .service_accounts
                .iter()
                .map(|name| ForeignText::new(name.as_str()))
                .collect(),
            deliveries: rule
                .deliveries
                .iter()
                .map(|delivery: &DeliveryType| ForeignText::new(delivery.as_str()))
                .collect(),
        }
    };
    rules
        .iter()
        .flat_map(|rules| rules.iter())
        .map(facts)
        .collect()
}

/// Returns which role a target is, and of which one.
fn role_of(view: &TargetView) -> Option<ForeignText> {
    let (role, base) = view.spec.role.as_ref().zip(view.spec.same_as.as_ref())?;
    Some(ForeignText::new(&format!("{role} of {base}")))
}
