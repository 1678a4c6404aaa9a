//! Writes the status of TargetClusters. Only the leader writes it.

mod answers;
mod canary;
mod discovery_authority;
mod target_finalizer;
mod unchecked_policies;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::{Finding, condition_state, conditions, format_seconds};
use keyferry_api::config::{
    CertificateSource, ObjectFault, ObjectSize, Probe, Record, TargetCluster, TokenIssuer,
};
use keyferry_api::issuer::discovery_url;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::{ProbeCounts, TargetClusterStatus};
use keyferry_api::summary;
use keyferry_core::access_status::{merge_patch, recent_probe_time};
use keyferry_core::readiness::{NotReady, check_readiness};
use keyferry_hub::admission_policy::AdmissionPolicyReader;
use keyferry_hub::event::{self, Subject};
use keyferry_hub::ports::HubError;
use keyferry_hub::targets::Readiness;
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_platform::fleet_index::FleetIndexReader;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::answers::{AnswersByTarget, KnownAnswers};
use self::canary::{CanaryTrial, current_trial};
pub use self::discovery_authority::DiscoveryAuthority;
use crate::audience_pairing::UnlistedAudiences;
use crate::context::Context;

/// The shortest and the longest pause between two looks at all targets.
const PAUSES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5);
/// The pause lasts this many times as long as the statuses of all accesses took to read. So that
/// reading costs the leader of a large fleet about a twentieth of a core, up to 250 ms for each.
const PAUSE_PER_READING: u32 = 20;

/// What the statuses of TargetClusters are written from.
pub struct TargetStatusWriter {
    /// What the tasks share.
    pub context: Arc<Context>,
    /// The active policy with its index, for conflicts of identities.
    pub fleet: FleetIndexReader,
    /// Mints the canary's tokens.
    pub guard: AudienceGuard,
    /// The public URL of the published documents.
    pub public_url: String,
    /// The CA certificates of their server.
    pub discovery_authority: DiscoveryAuthority,
    /// Keyferry's own namespace.
    pub namespace: Namespace,
    /// Whether the admission policy that reserves targets' audiences for their grants is active.
    pub pairing: AdmissionPolicyReader,
    /// Whether the admission policy that protects the labels by which targets select namespaces is
    /// active.
    pub labels: AdmissionPolicyReader,
    /// Whether the other admission policies of the hub are as shipped.
    pub policies: Vec<AdmissionPolicyReader>,
    /// Audiences for which the hub refuses a token to no ServiceAccount.
    pub unlisted: UnlistedAudiences,
}

/// Updates statuses until the task is dropped.
pub async fn run_target_status(writer: TargetStatusWriter) {
    let writer = Arc::new(writer);
    let mut trials: HashMap<ObjectName, CanaryTrial> = HashMap::new();
    let mut running_trials = JoinSet::new();
    let mut finalizers = target_finalizer::TargetFinalizers::default();
    loop {
        let mut reading = Duration::ZERO;
        if writer.context.is_leader() {
            let started = writer.context.clock.now();
            writer.discovery_authority.refresh(started.wall);
            finalizers.update_users(&writer);
            let answers = answers::count_answers(&writer.context.store, started.wall);
            reading = writer.context.clock.now().mono.saturating_sub(started.mono);
            for name in writer.context.store.target_names() {
                if let Some(record) = writer.context.store.target(&name)
                    && let Err(error) = finalizers
                        .reconcile_finalizer(&writer, &name, &record)
                        .await
                {
                    tracing::debug!(target_cluster = %name, %error, "a deleted TargetCluster could \
                        not be processed; trying again");
                }
                if let Err(error) = update_status(&writer, &name, &trials, &answers).await {
                    tracing::debug!(target_cluster = %name, %error, "the status of a TargetCluster \
                        could not be written; trying again");
                }
            }
            trials.retain(|name, _| writer.context.store.target(name).is_some());
            writer
                .context
                .metrics
                .keep_targets(|name| writer.context.store.target(name).is_some());
            canary::start_canary_trials(&writer, &mut trials, &mut running_trials);
        } else {
            // Another replica asks the targets, so what this one knows becomes outdated.
            writer.context.metrics.keep_targets(|_| false);
            if writer
                .context
                .leadership
                .is_missing(writer.context.clock.now())
            {
                report_missing_leader(&writer).await;
            }
        }
        while let Some(Ok((name, outcome))) = running_trials.try_join_next() {
            trials.insert(name, outcome);
        }
        tokio::time::sleep(pause_after(reading)).await;
    }
}

fn pause_after(reading: Duration) -> Duration {
    (reading * PAUSE_PER_READING).clamp(*PAUSES.start(), *PAUSES.end())
}

async fn update_status(
    writer: &TargetStatusWriter,
    name: &ObjectName,
    trials: &HashMap<ObjectName, CanaryTrial>,
    answers: &AnswersByTarget,
) -> Result<(), HubError> {
    let Some(record) = writer.context.store.target(name).filter(is_reported) else {
        return Ok(());
    };
    // Findings of an earlier spec are not reported for this one: a conflict in the status is final
    // for its generation.
    let (spec, policy, faults) = (
        record.spec(),
        writer.context.policy.current(),
        writer.context.faults.last_assembly(),
    );
    let target = policy
        .targets
        .get(name)
        .filter(|target| target.spec_generation == spec);
    let fault = faults
        .targets
        .get(name)
        .filter(|fault| fault.generation == spec);
    let ready = match (target, fault) {
        (Some(target), _) => ready_finding(writer, target),
        (None, Some(fault)) => Finding::failed(fault.reason, fault.message.clone()),
        // The policy does not include this version of the object yet.
        (None, None) => return Ok(()),
    };
    let assembled = AssembledTarget {
        target,
        fault,
        ready,
    };
    let results = known_answers(target, &assembled.ready, trials, answers);
    writer.context.metrics.report_target(
        name,
        results.reachable_finding().as_ref().map(Finding::is_true),
        results.accesses.map(|accesses| accesses.counts),
    );
    let further = further_findings(writer, name, &assembled, trials, &results);
    let mut findings = vec![("Ready", &assembled.ready)];
    findings.extend(further.iter().map(|(kind, finding)| (*kind, finding)));
    let outcome = TargetOutcome {
        summary: summary::summarize_target(&assembled.ready, &findings, &results.status_summary()),
        findings,
        counts: results.accesses.map(|accesses| accesses.counts),
        asked_at: results.asked_at(),
    };
    write_status(writer, name, &record, target, outcome).await
}

/// What policy made of one version of a TargetCluster: a target, or a fault.
struct AssembledTarget<'a> {
    target: Option<&'a TargetCluster>,
    fault: Option<&'a ObjectFault>,
    ready: Finding,
}

/// Returns what a status reports beside `Ready`, by the type of the condition.
fn further_findings(
    writer: &TargetStatusWriter,
    name: &ObjectName,
    assembled: &AssembledTarget<'_>,
    trials: &HashMap<ObjectName, CanaryTrial>,
    results: &KnownAnswers<'_>,
) -> Vec<(&'static str, Finding)> {
    let AssembledTarget {
        target,
        fault,
        ready,
    } = assembled;
    let same_identity = target.and_then(|target| identity_conflict(writer, target));
    let admits_unlisted = target
        .filter(|_| ready.is_true())
        .and_then(|target| canary::admits_unlisted_user(target, trials));
    let unpaired = target.and_then(|target| {
        unchecked_policies::others_may_mint(&writer.pairing, &writer.unlisted, target)
    });
    let unguarded = target
        .and_then(|target| unchecked_policies::others_may_be_selected(&writer.labels, target));
    let incomplete = unchecked_policies::policies_are_incomplete(&writer.policies);
    let client_certificate = ignored_client_certificate(writer, name);
    let findings = [
        ("TargetReachable", results.reachable_finding()),
        ("TargetAuthenticates", results.authenticates_finding()),
        ("Stalled", stalled_finding(ready)),
        ("AudienceConflict", fault.and_then(audience_conflict)),
        ("IdentityConflict", same_identity),
        ("ClientCertificateIgnored", client_certificate),
        ("TargetUnrestricted", admits_unlisted),
        ("PairingUnprotected", unpaired),
        ("LabelsUnprotected", unguarded),
        ("AdmissionPolicyIncomplete", incomplete),
    ];
    findings
        .into_iter()
        .filter_map(|(kind, finding)| Some((kind, finding?)))
        .collect()
}

/// Returns a finding if the target stays as it is until its spec changes.
fn stalled_finding(ready: &Finding) -> Option<Finding> {
    let passes = [Reason::BaseTargetMissing, Reason::TargetNotReady].contains(&ready.reason);
    (!ready.is_true() && !passes).then(|| Finding::problem(ready.reason, ready.message.clone()))
}

fn audience_conflict(fault: &ObjectFault) -> Option<Finding> {
    (fault.reason == Reason::AudienceConflict)
        .then(|| Finding::problem(fault.reason, fault.message.clone()))
}

fn identity_conflict(writer: &TargetStatusWriter, target: &TargetCluster) -> Option<Finding> {
    let identity = target.identity.as_ref()?;
    let conflicts = writer
        .fleet
        .current()
        .index
        .conflicts(&identity.cluster_dns);
    // Does not name the other target, as with audiences.
    let message = "another TargetCluster has the same identity.clusterDNS, so the inputs of \
                   neither are served; delete one of them, or create it again with another";
    conflicts.then(|| Finding::problem(Reason::IdentityConflict, message))
}

fn ignored_client_certificate(writer: &TargetStatusWriter, name: &ObjectName) -> Option<Finding> {
    let state = writer.context.targets.last_state(name)?;
    let message = "the Secret of certSecretRef also holds a client certificate or key; it is never \
                   issued, because an apiserver would authenticate every tenant as its user";
    state
        .client_certificate
        .then(|| Finding::problem(Reason::ClientCertificateIgnored, message))
}

/// Returns what is known of the target's answers; nothing of a target that cannot be used, of a
/// relying party that is no cluster, and of the hub itself.
fn known_answers<'a>(
    target: Option<&TargetCluster>,
    ready: &Finding,
    trials: &'a HashMap<ObjectName, CanaryTrial>,
    answers: &AnswersByTarget,
) -> KnownAnswers<'a> {
    let asked = |target: &&TargetCluster| {
        ready.is_true()
            && target.is_cluster()
            && target.probe != Probe::Off
            && target.client_certificates.is_none()
    };
    let Some(target) = target.filter(asked) else {
        return KnownAnswers {
            accesses: None,
            canary: None,
        };
    };
    KnownAnswers {
        accesses: Some(answers.get(&target.name).copied().unwrap_or_default()),
        canary: current_trial(trials, target).and_then(|trial| trial.answer.as_ref()),
    }
}

/// What a status is to report.
struct TargetOutcome<'a> {
    findings: Vec<(&'static str, &'a Finding)>,
    summary: String,
    counts: Option<ProbeCounts>,
    asked_at: Option<Timestamp>,
}

/// Reports at each target that no replica leads. This is the only status that a follower writes;
/// the next leader removes it.
async fn report_missing_leader(writer: &TargetStatusWriter) {
    let message = "no replica of Keyferry has led for a minute: deliveries and withdrawals \
                   wait, and statuses are old; check which process holds the Lease \
                   keyferry in Keyferry's namespace";
    let finding = Finding::problem(Reason::LeaderMissing, message);
    for name in writer.context.store.target_names() {
        let Some(record) = writer.context.store.target(&name).filter(is_reported) else {
            continue;
        };
        if condition_state(&record.status, "LeaderMissing").is_some() {
            continue;
        }
        let mut all = record
            .status
            .get("conditions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let added = conditions(
            &record.status,
            record.generation,
            writer.context.clock.now().wall,
            &[("LeaderMissing", &finding)],
        );
        all.extend(added.iter().map(|condition| json!(condition)));
        let metadata = json!({ "uid": record.uid.as_str(), "resourceVersion": record.version });
        let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}/status");
        if let Err(error) = writer
            .context
            .objects
            .patch(
                &path,
                &json!({ "metadata": metadata, "status": { "conditions": all } }),
            )
            .await
        {
            tracing::debug!(target_cluster = %name, %error, "the condition that no replica leads \
                could not be written to a TargetCluster");
            return;
        }
    }
}

/// Whether the status is written. One that is too large is not known, so it cannot be compared, and
/// would be written again and again.
fn is_reported(record: &Record) -> bool {
    record.deleting.is_none() && record.size != ObjectSize::StatusTooLarge
}

fn ready_finding(writer: &TargetStatusWriter, target: &TargetCluster) -> Finding {
    let published = writer.context.published.current();
    let issuer = published.as_ref().map(|published| &published.issuer);
    match check_readiness(target, issuer) {
        Err(error @ NotReady::Suspended) => Finding::failed(
            error.reason(),
            match &target.role {
                Some(_) => {
                    "nothing is minted while spec.suspend of it, or of the target that sameAs \
                     names, is true, or that target is being deleted"
                }
                None => "nothing is minted while spec.suspend is true",
            },
        ),
        _ if writer.guard.is_known_as_hubs(&target.audience) => Finding::failed(
            Reason::AudienceIsHubs,
            "the hub's own apiserver accepts this audience; nothing is minted for it",
        ),
        Err(error @ NotReady::IssuerCollision(_)) => Finding::failed(
            error.reason(),
            "the target has the hub's issuer as its own and refuses tokens of it",
        ),
        // The status of a target does not wait for the hub's keys.
        Ok(()) | Err(NotReady::IssuerUnknown | NotReady::Certificates { .. }) => {
            match writer.context.targets.readiness(target) {
                // Whether it can be used, only its answers tell.
                Readiness::Ready(_) => Finding::ok(
                    "declared: its spec and CA certificates are valid; TargetReachable and \
                     TargetAuthenticates say what it answers",
                ),
                Readiness::NotReady { reason, message } => Finding::failed(reason, message),
            }
        }
    }
}

async fn write_status(
    writer: &TargetStatusWriter,
    name: &ObjectName,
    record: &Record,
    target: Option<&TargetCluster>,
    outcome: TargetOutcome<'_>,
) -> Result<(), HubError> {
    let now = writer.context.clock.now().wall;
    let mut status = TargetClusterStatus {
        observed_generation: Some(record.generation),
        conditions: conditions(&record.status, record.generation, now, &outcome.findings),
        accesses: outcome.counts,
        last_probe_time: last_probe_time(record, &outcome),
        last_handled_reconcile_at: record.requested_at.clone(),
        summary: Some(outcome.summary),
        ..TargetClusterStatus::default()
    };
    if let Some(target) = target {
        describe_target(writer, target, &mut status);
    }
    let Some(mut change) = merge_patch(&record.status, &json!(status)) else {
        return Ok(());
    };
    change["metadata"] = json!({ "uid": record.uid.as_str(), "resourceVersion": record.version });
    let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}/status");
    match writer.context.objects.patch(&path, &change).await {
        Err(HubError::NotFound(_) | HubError::Conflict(_)) => return Ok(()),
        outcome => drop(outcome?),
    }
    write_events(writer, name, record, &outcome.findings, now).await;
    Ok(())
}

/// Returns when the target was asked last. The time alone is no reason to write a status, so an
/// earlier time stays for a while.
fn last_probe_time(record: &Record, outcome: &TargetOutcome<'_>) -> Option<String> {
    let same_counts = record.status.get("accesses") == Some(&json!(outcome.counts))
        && record.status.get("lastHandledReconcileAt")
            == record.requested_at.as_ref().map(|at| json!(at)).as_ref();
    let asked_at = outcome.asked_at?;
    let time = recent_probe_time(&record.status, asked_at)
        .filter(|_| same_counts)
        .unwrap_or_else(|| format_seconds(asked_at));
    Some(time)
}

/// Adds to a status what the administrator of a valid target configures there.
fn describe_target(
    writer: &TargetStatusWriter,
    target: &TargetCluster,
    status: &mut TargetClusterStatus,
) {
    let source = match target.certificate {
        CertificateSource::Secret(_) => "Secret",
        CertificateSource::TrustBundle(_) => "ClusterTrustBundle",
        CertificateSource::Inline(_) => "Inline",
        CertificateSource::System => "SystemRoots",
    };
    status.certificate_authority = Some(source.to_owned());
    let base = match target.issuer {
        TokenIssuer::Hub => {
            let published = writer.context.published.current();
            status.issuer = published.map(|published| published.issuer.as_str().to_owned());
            writer.public_url.clone()
        }
        TokenIssuer::Keyferry => {
            let own = format!("{}/issuers/{}", writer.public_url, target.name);
            status.issuer = Some(own.clone());
            own
        }
    };
    status.discovery_url = Some(discovery_url(&base));
    status.discovery_certificate_authority = writer.discovery_authority.current();
    status.username_prefix = Some(target.username_prefix(writer.context.store.hub_name()));
    status.cluster_resource_namespace = Some(writer.namespace.to_string());
}

/// Writes an Event about each finding that the status did not have yet.
async fn write_events(
    writer: &TargetStatusWriter,
    name: &ObjectName,
    record: &Record,
    findings: &[(&str, &Finding)],
    now: Timestamp,
) {
    let subject = Subject::of_target(name, record.uid.as_str());
    for (kind, finding) in findings {
        let truth = if finding.is_true() { "True" } else { "False" };
        let news = condition_state(&record.status, kind) != Some((truth, finding.reason.as_str()));
        // An admission policy of the hub affects all targets at once, so only the log reports it.
        if news
            && !matches!(
                *kind,
                "Stalled"
                    | "TargetAuthenticates"
                    | "PairingUnprotected"
                    | "LabelsUnprotected"
                    | "AdmissionPolicyIncomplete"
            )
        {
            event::write_event(
                &writer.context.objects,
                &*writer.context.random,
                &subject,
                finding,
                now,
            )
            .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_fleet_is_looked_at_less_often() {
        let pause = |millis| pause_after(Duration::from_millis(millis)).as_millis();
        assert_eq!([0, 10, 50].map(pause), [1000; 3]);
        assert_eq!(pause(170), 3400);
        assert_eq!([250, 60_000].map(pause), [5000; 2]);
    }
}
