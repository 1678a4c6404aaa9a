//! Judges the steps of a path by what was read. Nothing here reads anything.

mod target_steps;

use jiff::Timestamp;
use keyferry_api::config::{Policy, TargetAccess};
use keyferry_api::foreign_text::visible_ascii;
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_core::delivery::ObjectKind;
use keyferry_core::static_verdict::{StaticVerdict, explain_refusal, offered_deliveries};

use super::flux_consumers::consumer_steps;
use super::observed::Observed;
use super::read_hub::{AccessReading, DeliveredObject, NamedObjects, ObservedAccess};
use super::{PathStep, StepState};
use crate::object_view::{AccessStatusView, DeliveryView};
use crate::stated_condition::StatedCondition;

/// The most characters of a reason code in a command.
const MAX_REASON_CHARACTERS: usize = 60;
/// What is said of a status that is missing or about an earlier spec.
const NOT_JUDGED: &str = "no status is about the current spec: Keyferry has not judged it yet";
/// The reason of a delivery whose object is written.
const DELIVERED: &str = "Delivered";
const NOT_JUDGED_FIX: &str = "wait a minute; if it lasts, check that Keyferry's leader runs: kubectl get lease -n \
     keyferry-system";

/// Makes the step of the TargetAccess, with all others below it.
pub(super) fn root_step(name: &AccessName, reading: &AccessReading, now: Timestamp) -> PathStep {
    let kind = "TargetAccess";
    let text = name.to_string();
    let access = match &reading.access {
        Observed::Known(access) => access,
        Observed::Absent => {
            return PathStep::new(kind, text, StepState::Broken, "there is none of this name")
                .with_fix("keyferry targets lists the accesses");
        }
        other => {
            let step = other.unknown_step(kind, text, "");
            return step.unwrap_or_else(|| PathStep::new(kind, "", StepState::Unknown, ""));
        }
    };
    let root = access_step(name, access);
    let (Some(spec), Some(named)) = (&access.spec, &reading.named) else {
        return root;
    };
    let status = access.status.as_ref();
    let mut below: Vec<PathStep> = named
        .delivered
        .iter()
        .map(|object| delivered_step(name, object, status, named, now))
        .collect();
    below.push(account_step(spec, &named.service_account));
    below.push(target_steps::target_step(spec, &named.target, status, now));
    root.with_below(below)
}

/// Judges whether policy grants the access, as its status states it.
fn access_step(name: &AccessName, access: &ObservedAccess) -> PathStep {
    let step =
        |state, detail: String| PathStep::new("TargetAccess", name.to_string(), state, detail);
    let conditions = access.status.as_ref().map(|status| &status.conditions);
    let find = |kind| StatedCondition::find(conditions?, kind);
    if access.deleting {
        return step(
            StepState::Broken,
            "it is being deleted, so nothing is issued for it".to_owned(),
        );
    }
    let Some(spec) = &access.spec else {
        let said = find("Ready").map_or_else(String::new, |ready| format!(": {}", ready.message));
        return step(StepState::Broken, format!("its spec has a mistake{said}"))
            .with_fix(explain(Reason::SpecInvalid.as_str()));
    };
    if spec.suspend {
        return step(
            StepState::Broken,
            "it is suspended, so nothing is issued for it".to_owned(),
        )
        .with_fix("set spec.suspend to false");
    }
    let Some(authorized) = find("Authorized") else {
        return step(StepState::Unknown, NOT_JUDGED.to_owned()).with_fix(NOT_JUDGED_FIX);
    };
    match authorized.status.as_str() {
        "True" => step(
            StepState::Holds,
            format!("policy grants it; it offers {}", offers(spec)),
        ),
        "False" => broken_by(
            step(StepState::Broken, reason_and_message(authorized)),
            authorized,
        ),
        _ => step(StepState::Unknown, reason_and_message(authorized))
            .with_fix(explain(&authorized.reason)),
    }
}

fn offers(access: &TargetAccess) -> String {
    let names: Vec<&str> = offered_deliveries(access)
        .map(keyferry_api::config::DeliveryType::as_str)
        .collect();
    names.join(", ")
}

/// Judges an object that a delivery writes, with its consumers below it.
fn delivered_step(
    access: &AccessName,
    object: &DeliveredObject,
    status: Option<&AccessStatusView>,
    named: &NamedObjects,
    now: Timestamp,
) -> PathStep {
    let stated = status.and_then(|status| {
        status.deliveries.iter().find(|delivery| {
            delivery.delivery_type == object.delivery_type.as_str()
                && delivery.object.as_deref() == Some(object.name.as_str())
        })
    });
    let step = judge_delivered(access, object, stated, now);
    let used_by_flux = matches!(object.kind, ObjectKind::ConfigMap | ObjectKind::Secret);
    if !used_by_flux || named.flux.is_empty() {
        return step;
    }
    let consumer = (object.kind, object.name.as_str());
    step.with_below(consumer_steps(&named.flux, &access.namespace, consumer))
}

fn judge_delivered(
    access: &AccessName,
    object: &DeliveredObject,
    stated: Option<&DeliveryView>,
    now: Timestamp,
) -> PathStep {
    let kind = object.kind.as_str();
    let name = object.name.as_str();
    let step = |state, detail: String| PathStep::new(kind, name, state, detail);
    let delivery_type = object.delivery_type.as_str();
    let delivered = DELIVERED;
    if let Some(failed) = stated.filter(|stated| stated.reason != delivered) {
        let message = failed.message.as_deref().unwrap_or_default();
        return step(
            StepState::Broken,
            format!("{delivery_type}: {}: {message}", failed.reason),
        )
        .with_fix(explain(&failed.reason));
    }
    if object.live == Observed::Absent {
        return step(
            StepState::Broken,
            format!("{delivery_type}: there is none of this name"),
        )
        .with_fix(format!(
            "have it written again: kubectl annotate targetaccess {} -n {} --overwrite \
             keyferry.dev/requestedAt=\"$(date -u +%FT%TZ)\"",
            access.name, access.namespace
        ));
    }
    let end = stated.and_then(|stated| stated.expires_at.as_deref());
    let end: Option<Timestamp> = end.and_then(|end| end.parse().ok());
    let written = match end {
        Some(end) if end <= now => {
            return step(
                StepState::Broken,
                format!("{delivery_type}: its token ended at {end}, and was not renewed"),
            )
            .with_fix(format!(
                "keyferry doctor targetaccess/{} -n {}",
                access.name, access.namespace
            ));
        }
        Some(end) => format!("{delivery_type}: delivered; its token ends at {end}"),
        None => format!("{delivery_type}: delivered"),
    };
    let said = match stated {
        Some(_) => format!("the status says {written}"),
        None => String::new(),
    };
    if let Some(unknown) = object.live.unknown_step(kind, name, &said) {
        return unknown;
    }
    match stated {
        Some(_) => step(StepState::Holds, written),
        None => step(
            StepState::Unknown,
            format!("{delivery_type}: it is there, and {NOT_JUDGED}"),
        )
        .with_fix(NOT_JUDGED_FIX),
    }
}

fn account_step(access: &TargetAccess, account: &Observed<()>) -> PathStep {
    let kind = "ServiceAccount";
    let name = access.service_account.as_str();
    if let Some(unknown) = account.unknown_step(kind, name, "") {
        return unknown;
    }
    if *account == Observed::Absent {
        return PathStep::new(kind, name, StepState::Broken, "there is none of this name")
            .with_fix(format!(
                "kubectl create serviceaccount {name} -n {}",
                access.name.namespace
            ));
    }
    PathStep::new(kind, name, StepState::Holds, "it exists")
}

/// Makes the steps of an access of a configuration file.
pub(super) fn root_of_policy(policy: &Policy, name: &AccessName, hub_name: &str) -> PathStep {
    let step =
        |state, detail: String| PathStep::new("TargetAccess", name.to_string(), state, detail);
    let Some(access) = policy.accesses.get(name) else {
        return step(StepState::Broken, explain_refusal(policy, name))
            .with_fix("keyferry targets lists the accesses");
    };
    let root = match StaticVerdict::of(policy, access) {
        StaticVerdict::Allowed => step(
            StepState::Holds,
            format!("policy grants it; it offers {}", offers(access)),
        ),
        StaticVerdict::ByNamespaceLabels => step(
            StepState::Unknown,
            "it depends on the labels of its namespace, which only the hub knows".to_owned(),
        ),
        StaticVerdict::Suspended => step(
            StepState::Broken,
            "the access or its target is suspended".to_owned(),
        )
        .with_fix("set spec.suspend to false"),
        StaticVerdict::PartlyAllowed => step(
            StepState::Broken,
            "allow[] of its target does not allow all of its deliveries".to_owned(),
        )
        .with_fix("add the delivery types to the rule of allow[], or remove the deliveries"),
        StaticVerdict::NotAllowed | StaticVerdict::NoSuchTarget => {
            step(StepState::Broken, explain_refusal(policy, name))
                .with_fix(explain(Reason::TargetNotGranted.as_str()))
        }
    };
    let only_hub = "only the hub knows: ask it without the file";
    let delivered = access.deliveries.iter().filter_map(|delivery| {
        Some(PathStep::new(
            ObjectKind::of(delivery.delivery_type)?.as_str(),
            delivery.object_name.as_ref()?.as_str(),
            StepState::Unknown,
            format!("{}: {only_hub}", delivery.delivery_type.as_str()),
        ))
    });
    let mut below: Vec<PathStep> = delivered.collect();
    below.push(PathStep::new(
        "ServiceAccount",
        access.service_account.as_str(),
        StepState::Unknown,
        only_hub,
    ));
    below.push(target_steps::target_of_policy(policy, access, hub_name));
    root.with_below(below)
}

/// The reason and the message of a condition.
fn reason_and_message(condition: &StatedCondition) -> String {
    format!("{}: {}", condition.reason, condition.message)
}

fn broken_by(step: PathStep, condition: &StatedCondition) -> PathStep {
    step.with_fix(explain(&condition.reason))
}

/// The command that explains a reason code, which another program may have written.
fn explain(reason: &str) -> String {
    format!(
        "keyferry explain {}",
        visible_ascii(reason, MAX_REASON_CHARACTERS)
    )
}
