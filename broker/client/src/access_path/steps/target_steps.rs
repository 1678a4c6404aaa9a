//! Judges the steps from the TargetCluster to the rights at the target.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::config::{CertificateSource, Policy, TargetAccess, TargetCluster};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_core::static_verdict::matching_rules;
use keyferry_keys::ca_bundle::CaBundle;

use super::{NOT_JUDGED, NOT_JUDGED_FIX, broken_by, explain, reason_and_message};
use crate::access_path::observed::Observed;
use crate::access_path::read_hub::ObservedTarget;
use crate::access_path::{PathStep, StepState};
use crate::object_view::AccessStatusView;
use crate::stated_condition::StatedCondition;

/// Makes the step of the TargetCluster, with the target, its CA, the user and the rights below it.
pub(super) fn target_step(
    access: &TargetAccess,
    target: &Observed<ObservedTarget>,
    status: Option<&AccessStatusView>,
    now: Timestamp,
) -> PathStep {
    let kind = "TargetCluster";
    let name = access.target.as_str();
    let spec = match target {
        Observed::Known(target) => target.spec.as_ref(),
        _ => None,
    };
    let live = live_step(access, spec, status, now);
    let step = match target {
        Observed::Known(observed) => cluster_step(access, observed),
        Observed::Absent => {
            return PathStep::new(kind, name, StepState::Broken, "there is none of this name")
                .with_fix("keyferry onboard target creates one");
        }
        other => other
            .unknown_step(kind, name, "")
            .unwrap_or_else(|| PathStep::new(kind, name, StepState::Unknown, "")),
    };
    step.with_below(live.into_iter().collect())
}

/// Judges which rule of `allow[]` grants the access.
fn cluster_step(access: &TargetAccess, observed: &ObservedTarget) -> PathStep {
    let name = access.target.as_str();
    let step = |state, detail: String| PathStep::new("TargetCluster", name, state, detail);
    let Some(target) = &observed.spec else {
        return step(StepState::Broken, "its spec has a mistake".to_owned())
            .with_fix(format!("kubectl describe targetcluster {name}"));
    };
    if target.suspend {
        return step(
            StepState::Broken,
            "it is suspended, so nothing is issued for it".to_owned(),
        )
        .with_fix("set spec.suspend to false");
    }
    let conditions = observed.status.as_ref().map(|status| &status.conditions);
    let ready = conditions.and_then(|conditions| {
        conditions
            .iter()
            .find(|condition| condition.kind == "Ready")
    });
    match ready {
        None => step(StepState::Unknown, NOT_JUDGED.to_owned()).with_fix(NOT_JUDGED_FIX),
        Some(ready) if ready.status == "False" => step(
            StepState::Broken,
            format!("{}: {}", ready.reason, ready.message),
        )
        .with_fix(explain(&ready.reason)),
        Some(_) => rule_step(access, target),
    }
}

/// Names the rules of `allow[]` that match. Which namespaces a selector matches, the status of the
/// access says.
fn rule_step(access: &TargetAccess, target: &TargetCluster) -> PathStep {
    let step =
        |state, detail: String| PathStep::new("TargetCluster", target.name.as_str(), state, detail);
    let rules = matching_rules(target, access);
    if rules.is_empty() {
        return step(
            StepState::Broken,
            format!(
                "no rule of allow[] names ServiceAccount {} of {} with a delivery of the access",
                access.service_account, access.name.namespace
            ),
        )
        .with_fix("add a rule to allow[], or ask the platform admin for it");
    }
    let names: Vec<String> = rules
        .iter()
        .map(|(index, by_labels)| match by_labels {
            true => format!(
                "allow[{index}] if the labels of {} match",
                access.name.namespace
            ),
            false => format!("allow[{index}]"),
        })
        .collect();
    step(
        StepState::Holds,
        format!(
            "{} names ServiceAccount {} of {}",
            names.join(", "),
            access.service_account,
            access.name.namespace
        ),
    )
}

/// Makes the step of the target as the status of the access states it; `None` if the status does not
/// say where it is.
fn live_step(
    access: &TargetAccess,
    spec: Option<&TargetCluster>,
    status: Option<&AccessStatusView>,
    now: Timestamp,
) -> Option<PathStep> {
    let cluster = status.and_then(|status| status.cluster.as_ref());
    let stated = cluster.and_then(|cluster| cluster.server.clone());
    let address = stated.or_else(|| {
        spec.filter(|target| target.is_cluster())
            .map(|target| target.address.clone())
    });
    let Some(address) = address else {
        let relying_party = spec.is_some_and(|target| !target.is_cluster())
            || cluster.is_some_and(|cluster| cluster.audience.is_some());
        return relying_party.then(|| {
            PathStep::new(
                "target",
                "",
                StepState::NotAsked,
                "it is no cluster (kind: Audience), so nothing is asked there",
            )
        });
    };
    let step = asked_step("target", &address, "TargetReachable", "it answers", status);
    let user = user_step(access, status);
    let authority = authority_step(spec, status, now);
    Some(step.with_below([authority, user].into_iter().flatten().collect()))
}

/// Judges a condition that says how the target answered.
fn asked_step(
    kind: &'static str,
    name: &str,
    condition: &str,
    holds: &str,
    status: Option<&AccessStatusView>,
) -> PathStep {
    let step = |state, detail: String| PathStep::new(kind, name, state, detail);
    let Some(status) = status else {
        return step(StepState::Unknown, NOT_JUDGED.to_owned()).with_fix(NOT_JUDGED_FIX);
    };
    let asked = match &status.last_probe_time {
        Some(time) => format!(", asked at {time}"),
        None => String::new(),
    };
    match StatedCondition::find(&status.conditions, condition) {
        Some(stated_condition) if stated_condition.status == "True" => {
            step(StepState::Holds, format!("{holds}{asked}"))
        }
        Some(stated_condition) if stated_condition.status == "False" => broken_by(
            step(
                StepState::Broken,
                format!("{}{asked}", reason_and_message(stated_condition)),
            ),
            stated_condition,
        ),
        Some(stated_condition) => step(
            StepState::Unknown,
            format!("{}{asked}", reason_and_message(stated_condition)),
        )
        .with_fix(explain(&stated_condition.reason)),
        None => step(
            StepState::Unknown,
            "Keyferry does not ask the target about this access".to_owned(),
        )
        .with_fix("keyferry doctor asks it with a token of yours"),
    }
}

/// Judges the CA certificates that the status of the access hands to its users.
fn authority_step(
    spec: Option<&TargetCluster>,
    status: Option<&AccessStatusView>,
    now: Timestamp,
) -> Option<PathStep> {
    let step = |state, detail: String| {
        let source = spec.map_or_else(String::new, |target| source_of(&target.certificate));
        PathStep::new("CA", source, state, detail)
    };
    let cluster = status?.cluster.as_ref()?;
    let Some(encoded) = &cluster.certificate_authority_data else {
        return Some(step(
            StepState::NotAsked,
            "none is stated, so clients use their system's roots".to_owned(),
        ));
    };
    let unreadable = |error: String| {
        step(StepState::Broken, error)
            .with_fix(explain(Reason::CertificateAuthorityInvalid.as_str()))
    };
    let Ok(pem) = STANDARD.decode(encoded) else {
        return Some(unreadable("it is not base64".to_owned()));
    };
    Some(match CaBundle::from_pem(&pem, now) {
        Ok(bundle) => step(
            StepState::Holds,
            format!(
                "{}, the first ends at {}",
                match bundle.certificates().len() {
                    1 => "1 certificate".to_owned(),
                    many => format!("{many} certificates"),
                },
                bundle.earliest_expiry()
            ),
        ),
        Err(error) => unreadable(error.to_string()),
    })
}

fn source_of(certificate: &CertificateSource) -> String {
    match certificate {
        CertificateSource::Secret(name) => format!("Secret {name}"),
        CertificateSource::TrustBundle(name) => format!("ClusterTrustBundle {name}"),
        CertificateSource::Inline(_) => "inline".to_owned(),
        CertificateSource::System => "system roots".to_owned(),
    }
}

/// Judges which user the target takes the token for, with the rights below it.
fn user_step(access: &TargetAccess, status: Option<&AccessStatusView>) -> Option<PathStep> {
    let identity = status.and_then(|status| status.identity.as_ref());
    let user = identity.and_then(|identity| identity.username.as_deref());
    let step = asked_step(
        "user",
        user.unwrap_or_default(),
        "TargetAuthenticates",
        "the target accepts its token",
        status,
    );
    Some(step.with_below(vec![rights_step(&access.name)]))
}

fn rights_step(access: &AccessName) -> PathStep {
    PathStep::new(
        "rights",
        "",
        StepState::NotAsked,
        format!(
            "not asked: keyferry can-i --list --from targetaccess/{} -n {}",
            access.name, access.namespace
        ),
    )
}

/// Makes the steps from the TargetCluster on, for an access of a configuration file.
pub(super) fn target_of_policy(policy: &Policy, access: &TargetAccess, hub_name: &str) -> PathStep {
    let name = access.target.as_str();
    let Some(target) = policy.targets.get(&access.target) else {
        return PathStep::new(
            "TargetCluster",
            name,
            StepState::Broken,
            "there is none of this name",
        )
        .with_fix("add it to the file");
    };
    let step = if target.suspend {
        PathStep::new("TargetCluster", name, StepState::Broken, "it is suspended")
            .with_fix("set spec.suspend to false")
    } else {
        rule_step(access, target)
    };
    if !target.is_cluster() {
        return step.with_below(vec![PathStep::new(
            "target",
            "",
            StepState::NotAsked,
            "it is no cluster (kind: Audience), so nothing is asked there",
        )]);
    }
    let unknown =
        |kind, name: &str, detail: &str| PathStep::new(kind, name, StepState::Unknown, detail);
    let account = format!(
        "{}system:serviceaccount:{}:{}",
        target.username_prefix(hub_name),
        access.name.namespace,
        access.service_account
    );
    let user = unknown(
        "user",
        &account,
        "expected; whether the target knows it: keyferry doctor",
    )
    .with_below(vec![rights_step(&access.name)]);
    let authority = unknown(
        "CA",
        &source_of(&target.certificate),
        "not read: keyferry doctor connects with it",
    );
    let live = unknown(
        "target",
        &target.address,
        "not asked by this command: keyferry doctor",
    )
    .with_below(vec![authority, user]);
    step.with_below(vec![live])
}
