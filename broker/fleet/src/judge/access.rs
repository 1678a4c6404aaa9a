//! What is known about one TargetAccess.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::is_probe_result;
use keyferry_core::static_verdict::StaticVerdict;

use super::Judgement;
use super::findings::{Judged, Stated, minute, sorted, time, unknown};
use crate::facts::{AccessFacts, Answer, DeliveryFacts, Health};
use crate::object_view::{AccessView, DeliveryView};
use crate::snapshot::ReadAccess;

/// How old an answer about a token may be. The controller asks at least every ten minutes, leaves
/// out answers older than twenty, and writes their time to within five.
const MAX_ANSWER_AGE: SignedDuration = SignedDuration::from_mins(30);
/// How late a renewal may be before it counts as missed.
const MAX_RENEWAL_DELAY: SignedDuration = SignedDuration::from_mins(15);
/// The name of an object whose name is missing or not valid.
const NO_NAME: &str = "unnamed";

impl Judgement<'_> {
    /// Judges one access.
    pub(super) fn judge_access(&self, name: &AccessName, read: &ReadAccess) -> AccessFacts {
        let view = &read.view;
        let accepted = self.accepted(view);
        let deliveries = deliveries(view);
        let findings = sorted(self.access_findings(name, read, &deliveries));
        let worst = findings.first();
        let health = match (worst.map(|it| it.finding.health), &accepted) {
            (Some(health), _) => health,
            (None, Answer::Yes) => Health::Ready,
            (None, _) => Health::Unknown,
        };
        let unknown_cause = match &accepted {
            Answer::Unknown { why } if health == Health::Unknown => why.clone(),
            _ => ForeignText::default(),
        };
        let identity = view.status.identity.as_ref();
        AccessFacts {
            name: name.clone(),
            health,
            target: object_name(&view.spec.target_cluster_ref.name),
            service_account: object_name(&view.spec.service_account_name),
            callers: foreign_texts(&view.spec.callers),
            suspended: view.spec.suspend,
            deliveries,
            user: identity
                .and_then(|it| it.username.as_deref())
                .map(ForeignText::new),
            accepted,
            asked_at: time(view.status.last_probe_time.as_ref()),
            exposure_until: time(view.status.exposure_until.as_ref()),
            cause: worst.map_or(unknown_cause, |it| ForeignText::new(&it.cause)),
            reason: worst.map(|it| it.finding.reason.clone()),
            findings: findings.into_iter().map(|it| it.finding).collect(),
        }
    }

    fn access_findings(
        &self,
        name: &AccessName,
        read: &ReadAccess,
        deliveries: &[DeliveryFacts],
    ) -> Vec<Judged> {
        if let Some(finding) = unjudged(read) {
            // Whether policy grants it, needs no status.
            return vec![self.static_refusal(name, read).unwrap_or(finding)];
        }
        let status = &read.view.status;
        if read.view.metadata.is_deleting() {
            let cause = "deleted; its objects stay until their tokens expire";
            let reason = Reason::DeliveryDraining.as_str();
            return vec![Judged::new(Health::Attention, "Ready", reason, cause)];
        }
        if read.view.spec.suspend {
            return vec![suspended()];
        }
        let mut findings = Vec::new();
        let tokens = self.token_findings(deliveries);
        let has_ended = tokens.iter().any(|it| it.finding.health == Health::Broken);
        if let Some(ready) =
            Stated::of_access(&status.conditions, "Ready").filter(|it| !it.is_true())
        {
            let resolves_itself = Stated::of_access(&status.conditions, "Reconciling")
                .is_some_and(|reconciling| reconciling.is_true());
            findings.push(self.not_ready(name, read, &ready, resolves_itself && !has_ended));
        }
        findings.extend(self.answer_finding(&read.view));
        findings.extend(tokens);
        findings
    }

    /// Why an access is not ready. What resolves itself breaks nothing while its tokens live.
    fn not_ready(
        &self,
        name: &AccessName,
        read: &ReadAccess,
        ready: &Stated<'_>,
        resolves_itself: bool,
    ) -> Judged {
        if ready.has_reason(Reason::TargetSuspended) {
            return suspended();
        }
        let health = match resolves_itself {
            true => Health::Attention,
            false => Health::Broken,
        };
        let cause = match ready.has_reason(Reason::TargetNotGranted) {
            true => self.missing_grant(name, read),
            false => None,
        };
        Judged::of_condition(health, ready, cause.unwrap_or_else(|| ready.hindrance()))
            .with_next(doctor(name))
    }

    /// Why policy refuses an access without a status.
    fn static_refusal(&self, name: &AccessName, read: &ReadAccess) -> Option<Judged> {
        let access = read.spec.as_ref().filter(|_| !read.is_contradicted)?;
        let verdict = StaticVerdict::of(&self.policy, access);
        let refusals = [StaticVerdict::NotAllowed, StaticVerdict::NoSuchTarget];
        let cause = self
            .missing_grant(name, read)
            .filter(|_| refusals.contains(&verdict))?;
        let reason = Reason::TargetNotGranted.as_str();
        let next = format!("keyferry explain {reason}");
        Some(Judged::new(Health::Broken, "Authorized", reason, cause).with_next(next))
    }

    /// Which part of the grant is missing, for a reader of all TargetClusters. The status of the
    /// access does not say it, so that its tenant cannot learn what exists.
    fn missing_grant(&self, name: &AccessName, read: &ReadAccess) -> Option<String> {
        let access = read.spec.as_ref().filter(|_| self.knows_all_targets())?;
        let target = &access.target;
        let account = &access.service_account;
        let namespace = &name.namespace;
        if !self.snapshot.targets.contains_key(target) {
            return Some(format!("there is no TargetCluster {target}"));
        }
        let cause = match StaticVerdict::of(&self.policy, access) {
            StaticVerdict::NoSuchTarget => {
                format!("the spec of TargetCluster {target} has a mistake")
            }
            StaticVerdict::NotAllowed if self.policy.own_namespace.as_ref() == Some(namespace) => {
                "no access in Keyferry's own namespace is granted".to_owned()
            }
            StaticVerdict::NotAllowed => {
                format!("no rule of {target} allows {account} of {namespace} this")
            }
            StaticVerdict::PartlyAllowed => {
                format!("the rules of {target} allow {account} only some of its deliveries")
            }
            StaticVerdict::Suspended => return None,
            StaticVerdict::Allowed => {
                format!(
                    "ServiceAccount {account} does not exist, or its namespace is being deleted"
                )
            }
            StaticVerdict::ByNamespaceLabels => format!(
                "ServiceAccount {account} does not exist, or its namespace lacks the labels of {target}"
            ),
        };
        Some(cause)
    }

    /// What is wrong with the target's answer to a token of the access.
    fn answer_finding(&self, view: &AccessView) -> Option<Judged> {
        let stated = Stated::of_access(&view.status.conditions, "TargetAuthenticates")?;
        let name = view.metadata.access_name()?;
        if stated.is_true() {
            return None;
        }
        let cause = match stated.is_false() {
            true if stated.has_reason(Reason::IdentityUnexpected) => {
                "the target takes its token for an unexpected user".to_owned()
            }
            true => "the target refuses its token (401)".to_owned(),
            false if is_probe_result(true, stated.reason) => short_silence(view, &stated),
            // A token could not be tried, which says nothing about the target.
            false => return None,
        };
        Some(Judged::of_condition(Health::Broken, &stated, cause).with_next(doctor(&name)))
    }

    /// Whether the target accepts the token, as far as it was asked.
    fn accepted(&self, view: &AccessView) -> Answer {
        let asked_at = time(view.status.last_probe_time.as_ref());
        let Some(stated) = Stated::of_access(&view.status.conditions, "TargetAuthenticates") else {
            return unknown(never_asked(view));
        };
        if stated.is_false() {
            return stated.denial();
        }
        if !stated.is_true() {
            return unknown(stated.message);
        }
        match asked_at {
            Some(at) if self.snapshot.read_at.duration_since(at) > MAX_ANSWER_AGE => {
                unknown(format!("last accepted at {}", minute(at)))
            }
            _ => Answer::Yes,
        }
    }

    /// Tokens that have ended, or should have been renewed. What became of them after the reading is
    /// not known.
    fn token_findings(&self, deliveries: &[DeliveryFacts]) -> Vec<Judged> {
        let read_at = self.snapshot.read_at;
        let finding = |delivery: &DeliveryFacts| {
            let ends = delivery.expires_at?;
            let object = delivery.object.as_ref()?;
            let (health, cause) = if ends <= read_at {
                let cause = format!("the token in {object} ended {}", minute(ends));
                (Health::Broken, cause)
            } else if ends <= self.now {
                let cause = format!(
                    "the token in {object} ended {}, after the reading",
                    minute(ends)
                );
                (Health::Unknown, cause)
            } else {
                let due = delivery.renew_at?;
                if read_at.duration_since(due) <= MAX_RENEWAL_DELAY {
                    return None;
                }
                let cause = format!("the token in {object} was due for renewal {}", minute(due));
                (Health::Attention, cause)
            };
            let reason = delivery.reason.as_ref().map(ToString::to_string);
            let reason = reason.filter(|reason| reason != "Delivered");
            let reason = reason.unwrap_or_else(|| Reason::DeliveryFailed.as_str().to_owned());
            Some(Judged::new(health, "Delivered", &reason, cause))
        };
        deliveries.iter().filter_map(finding).collect()
    }
}

/// Why the status of an access says nothing.
fn unjudged(read: &ReadAccess) -> Option<Judged> {
    let status = &read.view.status;
    let not_known = |reason, cause| Some(Judged::new(Health::Unknown, "Ready", reason, cause));
    if read.is_contradicted {
        return not_known(
            "Contradiction",
            "it was not read whole, or twice with different content",
        );
    }
    if read.view.metadata.uid.is_empty() {
        return not_known(
            "StatusMissing",
            "it was not read from a hub, so nothing live is known",
        );
    }
    if status.conditions.is_empty() {
        return not_known("StatusMissing", "Keyferry has written no status of it");
    }
    if status.observed_generation != read.view.metadata.generation {
        return not_known("StatusStale", "its status is about an earlier spec");
    }
    None
}

fn suspended() -> Judged {
    let reason = Reason::TargetSuspended.as_str();
    let cause = "suspended: nothing is minted or refreshed";
    Judged::new(Health::Attention, "Ready", reason, cause)
}

/// Why a token of the access was never tried at its target.
fn never_asked(view: &AccessView) -> &'static str {
    let writes =
        |delivery: &DeliveryView| !matches!(delivery.delivery_type.as_str(), "HTTP" | "Exec");
    if view.spec.probe == "Off" {
        "never asked: its probe is Off"
    } else if !view.spec.deliveries.iter().any(writes) {
        "never asked: only callers use it"
    } else {
        "not asked"
    }
}

/// Why the target did not answer, in the words of the column STATUS.
fn short_silence(view: &AccessView, stated: &Stated<'_>) -> String {
    let summary = view.status.summary.as_deref().unwrap_or_default();
    match summary.strip_prefix("delivered, but ") {
        Some(silence) => silence.to_owned(),
        None if stated.has_reason(Reason::TargetAddressRefused) => {
            "Keyferry does not connect to the target's address".to_owned()
        }
        None => "the target does not answer".to_owned(),
    }
}

/// The command that checks an access step by step.
pub(super) fn doctor(name: &AccessName) -> String {
    format!(
        "keyferry doctor targetaccess/{} -n {}",
        name.name, name.namespace
    )
}

fn object_name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap_or_else(|_| unnamed())
}

#[expect(clippy::expect_used, reason = "a constant that a test reads")]
fn unnamed() -> ObjectName {
    ObjectName::new(NO_NAME).expect("the constant is a name")
}

fn foreign_texts(texts: &[String]) -> Vec<ForeignText> {
    texts.iter().map(|text| ForeignText::new(text)).collect()
}

/// The deliveries that wrote an object, as the status reports them, and those on request, which have
/// no report.
fn deliveries(view: &AccessView) -> Vec<DeliveryFacts> {
    let text = |text: &Option<String>| text.as_deref().map(ForeignText::new);
    let reported = view.status.deliveries.iter().map(|report| DeliveryFacts {
        delivery_type: ForeignText::new(&report.delivery_type),
        object: text(&report.object),
        reason: (!report.reason.is_empty()).then(|| ForeignText::new(&report.reason)),
        expires_at: time(report.expires_at.as_ref()),
        renew_at: time(report.renew_at.as_ref()),
        key_id: text(&report.key_id),
    });
    let is_reported = |name: &str| view.status.deliveries.iter().any(|it| it.name == name);
    let on_request = |delivery_type: &str| DeliveryFacts {
        delivery_type: ForeignText::new(delivery_type),
        object: None,
        reason: None,
        expires_at: None,
        renew_at: None,
        key_id: None,
    };
    let wanted = view
        .spec
        .deliveries
        .iter()
        .filter(|it| !is_reported(&it.name));
    let wanted = wanted.map(|it| on_request(&it.delivery_type));
    let default = view.spec.deliveries.is_empty();
    let default = ["HTTP", "Exec"]
        .into_iter()
        .filter(move |_| default)
        .map(on_request);
    reported.chain(wanted).chain(default).collect()
}

/// Whether an answer of this time is too old to be about the time of the reading.
pub(super) fn is_old(asked_at: Timestamp, read_at: Timestamp, most: SignedDuration) -> bool {
    read_at.duration_since(asked_at) > most
}
