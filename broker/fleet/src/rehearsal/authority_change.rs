//! Another CA for the discovery documents, or for a target's apiserver.

use keyferry_api::name::ObjectName;

use super::draft::{Draft, NeededFacts, Refused};
use super::scene::Scene;
use super::timing::{AGENT_INTERVAL, UNTIL_AUTHORITY_WRITTEN, UNTIL_INLINE_AUTHORITY_WRITTEN};
use super::window::{Window, after, printed};
use super::{CallerClass, SafeMoment};
use crate::facts::{AccessFacts, Comparison, KeyState, TargetFacts};

/// The documents are served with a certificate of another CA from the begin on.
///
/// A target verifies known keys from its copy, so nothing fails at once. One without the new CA
/// fails when it has to fetch keys again.
pub(super) fn rehearse_discovery_change(scene: &Scene<'_>) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Targets]);
    draft.check_scope(scene, "which targets of other namespaces have the new CA");
    let (mut ready, mut without) = (0, Vec::new());
    for target in scene.trusting_targets() {
        match target.trust.as_ref().map(|trust| &trust.file) {
            Some(Comparison::Matches) => ready += 1,
            Some(Comparison::Differs { .. }) => without.push(target),
            Some(Comparison::NotCompared { why }) => leave_file_open(&mut draft, target, why),
            None => leave_file_open(&mut draft, target, "its file was not compared"),
        }
    }
    let activating = scene
        .fleet
        .keys
        .keys
        .iter()
        .find(|key| key.state == KeyState::Activating);
    for target in &without {
        draft.refuse(
            Refused {
                caller: CallerClass::ObjectReader,
                access: None,
                target: Some(target.name.clone()),
                reason: "DiscoveryUntrusted",
                why: "its file differs from what it has to trust; without the new CA, it refuses \
                      every token from its next restart on, and tokens of a new key from the next \
                      rotation on"
                    .to_owned(),
            },
            None,
            Some(Window::since(scene.at)),
        );
    }
    if let Some(key) = activating {
        draft.add_branch(
            format!("the hub signs with key {}, which is activating", key.kid),
            "targets without the new CA refuse its tokens: finish the rotation first",
        );
    }
    let open = scene.trusting_targets().count() - ready - without.len();
    draft.answer = format!(
        "nothing fails at once; targets with the file that they need: {ready}; without, which fail \
         at the next key rotation or restart: {}; not known: {open}",
        without.len()
    );
    draft.assume(
        "the compared files were made after ca.crt had both CAs; a file that was compared before \
         proves nothing",
    );
    if without.is_empty() && !draft.is_open() {
        draft.earliest_safe = Some(SafeMoment {
            at: scene.at,
            step: "serve the certificate of the new CA".to_owned(),
        });
    }
    write_discovery_runbook(scene, &mut draft);
    draft
}

fn leave_file_open(draft: &mut Draft, target: &TargetFacts, why: &str) {
    draft.leave_open(
        format!("whether target {} trusts the new CA", target.name),
        why,
        format!(
            "keyferry trust {} --diff FILE, with the target's AuthenticationConfiguration",
            target.name
        ),
    );
}

fn write_discovery_runbook(scene: &Scene<'_>, draft: &mut Draft) {
    draft.add_step(
        "write the new CA beside the old one into ca.crt of keyferry-discovery-tls",
        Some("kubectl -n keyferry-system edit secret keyferry-discovery-tls".to_owned()),
        "status.discoveryCertificateAuthority of each TargetCluster has both",
    );
    let has_its_file = |target: &TargetFacts| {
        matches!(
            target.trust.as_ref().map(|trust| &trust.file),
            Some(Comparison::Matches)
        )
    };
    for target in scene
        .trusting_targets()
        .filter(|target| !has_its_file(target))
    {
        draft.add_step(
            format!("give target {} a file with both CAs", target.name),
            Some(format!("keyferry trust {}", target.name)),
            format!(
                "keyferry doctor targetcluster/{} --auth-config FILE --target-kubeconfig FILE does \
                 not say ConfigurationNotActive",
                target.name
            ),
        );
    }
    draft.add_step(
        "replace tls.crt and tls.key by those of the new CA; keep both in ca.crt",
        Some("keyferry rehearse ca-change discovery".to_owned()),
        "no target without the new CA, before you do",
    );
    draft.add_step(
        "remove the old CA: from ca.crt, then from each target's file",
        None,
        "each target's file has the new CA alone",
    );
}

/// The CA of a target is replaced at the begin, on the hub and at the target at once.
pub(super) fn rehearse_target_change(scene: &Scene<'_>, name: &ObjectName) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Accesses, NeededFacts::Targets]);
    draft.check_scope(scene, "which accesses of other namespaces use the target");
    let Some(target) = scene.target(name) else {
        draft.leave_open(
            format!("target {name}"),
            "no TargetCluster that was read has this name",
            "kubectl get targetclusters lists the names",
        );
        draft.answer = format!("target {name} is not known");
        return draft;
    };
    let Some(written_after) = time_until_written(target) else {
        draft.answer =
            format!("target {name} is verified with the system's roots, so no object holds its CA");
        draft.earliest_safe = Some(SafeMoment {
            at: scene.at,
            step: "exchange the target's certificate, if the system's roots have the new CA"
                .to_owned(),
        });
        return draft;
    };
    let written = scene.after(written_after);
    let accesses: Vec<&AccessFacts> = scene
        .fleet
        .accesses
        .iter()
        .filter(|access| access.target == *name)
        .collect();
    refuse_clients(scene, &mut draft, &accesses, target, written);
    draft.add_milestone_at(
        Some(name.clone()),
        "each delivered object has the new CA",
        scene.at,
        Some(written),
    );
    draft.answer = format!(
        "accesses that may be refused until {} if the CA is replaced at once: {}; none, if the hub \
         has both CAs before the target's certificate changes",
        printed(written),
        accesses.len()
    );
    draft.assume("the target's certificate and its CA on the hub change at the same moment");
    if !draft.is_open() {
        draft.earliest_safe = Some(SafeMoment {
            at: written,
            step: "exchange the target's certificate, if both CAs were written at the begin"
                .to_owned(),
        });
    }
    write_target_runbook(&mut draft, target);
    draft
}

/// How long the delivered objects lag behind; `None` if they hold no CA.
fn time_until_written(target: &TargetFacts) -> Option<std::time::Duration> {
    let source = target.certificate_authority.source.to_string();
    match source.as_str() {
        "system roots" => None,
        "inline" => Some(UNTIL_INLINE_AUTHORITY_WRITTEN),
        _ => Some(UNTIL_AUTHORITY_WRITTEN),
    }
}

fn refuse_clients(
    scene: &Scene<'_>,
    draft: &mut Draft,
    accesses: &[&AccessFacts],
    target: &TargetFacts,
    written: jiff::Timestamp,
) {
    for access in accesses.iter().filter(|access| {
        access
            .deliveries
            .iter()
            .any(|delivery| delivery.object.is_some())
    }) {
        draft.refuse(
            Refused {
                caller: CallerClass::ObjectReader,
                access: Some(access.name.clone()),
                target: Some(target.name.clone()),
                reason: "TargetUntrusted",
                why: "its object has the old CA until it is rewritten, and it has to read the \
                      object again"
                    .to_owned(),
            },
            None,
            Window::between(scene.at, Some(written)),
        );
    }
    let kept = |why: &str| Refused {
        caller: CallerClass::KeptCopy,
        access: None,
        target: Some(target.name.clone()),
        reason: "TargetUntrusted",
        why: why.to_owned(),
    };
    draft.refuse(
        kept("keyferry agent checks its files every ten minutes"),
        None,
        Window::between(scene.at, Some(after(scene.at, AGENT_INTERVAL))),
    );
    draft.add_branch(
        "a client has a kubeconfig that keyferry kubeconfig printed before",
        "it refuses the target's new certificate until the kubeconfig is printed again",
    );
}

fn write_target_runbook(draft: &mut Draft, target: &TargetFacts) {
    let name = &target.name;
    let source = &target.certificate_authority.source;
    let edit = match source.to_string().split_once(' ') {
        Some(("Secret", secret)) => format!("kubectl -n keyferry-system edit secret {secret}"),
        Some(("ClusterTrustBundle", bundle)) => format!("kubectl edit clustertrustbundle {bundle}"),
        _ => format!("kubectl edit targetcluster {name}"),
    };
    draft.add_step(
        format!("trust both: write the new CA of {name} beside the old one ({source})"),
        Some(edit.clone()),
        "each access of the target is Delivered, and its status.cluster has both CAs",
    );
    draft.add_step(
        format!("exchange the serving certificate of every apiserver of {name}"),
        Some(format!("keyferry doctor targetcluster/{name}")),
        "Connection is ok",
    );
    draft.add_step(
        "trust the new one alone: remove the old CA",
        Some(edit),
        "each access is Delivered, and its status.cluster has one CA",
    );
}
