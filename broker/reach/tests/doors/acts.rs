//! A row for each way to change policy, keys, certificates or controllers, and for each admission
//! policy that stands in the way.

use keyferry_reach::Subject;
use keyferry_reach::answer::{Question, answer_question};
use keyferry_reach::sample::{SampledCell, sample_cells};

use super::asked::{CORE, ask, line, named, rule, with_right, word};
use super::snapshot::{Snapshot, delete_deployments, now};

const KEYFERRY: &str = "apiGroups: [keyferry.dev]";
const ADMISSION: &str = "apiGroups: [admissionregistration.k8s.io]";
const CERTIFICATES: &str = "apiGroups: [certificates.k8s.io]";

/// The usual world, where web has the right at the target, no access, and is not paired. Everyone
/// of the rows may mint for it.
pub(super) fn web_may() -> Snapshot {
    let at_target = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
        metadata: {name: web, namespace: apps}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\n\
        subjects: [{kind: User, name: 'hub:system:serviceaccount:tenant-a:web'}]\n";
    let mint = with_right(
        "tenant-a",
        &named(CORE, "serviceaccounts/token", "create", "web"),
    );
    let mint = mint.replace("given", "mint");
    Snapshot::usual().and(&mint).and_at_target(at_target)
}

#[test]
fn acts_open_other_doors_unless_a_policy_stands_in_the_way() {
    let targets = rule(KEYFERRY, "targetclusters", "patch");
    let accesses = rule(KEYFERRY, "targetaccesses", "create");
    let change = |names: &str| {
        named(
            ADMISSION,
            "validatingadmissionpolicybindings",
            "delete",
            names,
        )
    };
    let certificates = |name: &str| {
        [
            rule(CERTIFICATES, "certificatesigningrequests", "create"),
            rule(
                CERTIFICATES,
                "certificatesigningrequests/approval",
                "update",
            ),
            named(CERTIFICATES, "signers", "approve", name),
        ]
    };
    let seal = |verb: &str| named(CORE, "secrets", verb, "keyferry-seal");
    let both = |one: &str, other: &str| format!("{one}, {other}");
    let author = "ValidatingAdmissionPolicyBinding keyferry-author";
    let retarget = "ValidatingAdmissionPolicyBinding keyferry-retarget";
    let kept = "ValidatingAdmissionPolicyBinding keyferry-kept";
    // The case, the namespace of the right, its rules, what is taken away, and the answer.
    let rows: Vec<(&str, &str, String, &str, &str)> = vec![
        ("mint alone", "", rule(CORE, "configmaps", "get"), "", "no"),
        ("write targets", "", targets.clone(), "", "no"),
        ("write accesses", "tenant-a", accesses.clone(), "", "no"),
        ("write both", "", both(&targets, &accesses), "", "yes"),
        (
            "write both elsewhere",
            "tenant-b",
            both(&targets, &accesses),
            "",
            "no",
        ),
        (
            "create targets",
            "",
            both(&rule(KEYFERRY, "targetclusters", "create"), &accesses),
            "",
            "no",
        ),
        (
            "retarget",
            "",
            rule(KEYFERRY, "targetclusters", "patch, retarget"),
            "",
            "undetermined",
        ),
        (
            "no retarget policy",
            "",
            targets.clone(),
            retarget,
            "undetermined",
        ),
        (
            "no author policy",
            "tenant-a",
            accesses.clone(),
            author,
            "no",
        ),
        (
            "no author policy, and a target",
            "",
            both(&targets, &accesses),
            author,
            "yes",
        ),
        (
            "change a target's access",
            "",
            named(KEYFERRY, "targetaccesses", "patch", "prod"),
            "",
            "undetermined",
        ),
        (
            "take every policy",
            "",
            rule(ADMISSION, "validatingadmissionpolicies", "patch"),
            "",
            "yes",
        ),
        (
            "take the pairing",
            "",
            change("keyferry-pairing"),
            "",
            "yes",
        ),
        (
            "take another policy",
            "",
            change("keyferry-labels"),
            "",
            "no",
        ),
        ("take a foreign policy", "", change("others"), "", "no"),
        (
            "take a policy by the name of a binding",
            "",
            named(
                ADMISSION,
                "validatingadmissionpolicies",
                "delete",
                "keyferry-pairing-closed",
            ),
            "",
            "no",
        ),
        (
            "create policies",
            "",
            rule(ADMISSION, "validatingadmissionpolicies", "create"),
            "",
            "no",
        ),
        (
            "write the pairs",
            "",
            rule(KEYFERRY, "audiencepairings", "update"),
            "",
            "yes",
        ),
        (
            "delete the pairs",
            "",
            rule(KEYFERRY, "audiencepairings", "delete"),
            "",
            "no",
        ),
        (
            "delete the pairs, not kept",
            "",
            rule(KEYFERRY, "audiencepairings", "delete"),
            kept,
            "yes",
        ),
        (
            "mutate",
            "",
            rule(ADMISSION, "mutatingwebhookconfigurations", "create"),
            "",
            "undetermined",
        ),
        (
            "watch writes",
            "",
            rule(ADMISSION, "validatingwebhookconfigurations", "create"),
            "",
            "undetermined",
        ),
        ("read the seal", "keyferry-system", seal("get"), "", "no"),
        (
            "read the seal and write the journal",
            "keyferry-system",
            both(
                &seal("get"),
                &named(CORE, "secrets", "update", "keyferry-keys"),
            ),
            "",
            "undetermined",
        ),
        (
            "read a managed key",
            "keyferry-system",
            named(CORE, "secrets", "get", "keyferry-issuer-prod"),
            "",
            "no",
        ),
        (
            "read all of Keyferry's",
            "keyferry-system",
            rule(CORE, "secrets", "get"),
            "",
            "undetermined",
        ),
        (
            "certificates",
            "",
            certificates("kubernetes.io/kube-apiserver-client").join(", "),
            "",
            "yes",
        ),
        (
            "certificates of the domain",
            "",
            certificates("'kubernetes.io/*'").join(", "),
            "",
            "yes",
        ),
        (
            "certificates of kubelets",
            "",
            certificates("kubernetes.io/kube-apiserver-client-kubelet").join(", "),
            "",
            "undetermined",
        ),
        (
            "certificates of another signer",
            "",
            certificates("example.com/a").join(", "),
            "",
            "no",
        ),
        (
            "approve alone",
            "",
            certificates("'kubernetes.io/*'")[2].clone(),
            "",
            "no",
        ),
        (
            "approve what others request",
            "",
            certificates("'kubernetes.io/*'")[1..].join(", "),
            "",
            "no",
        ),
    ];
    let mut lines = Vec::new();
    for (case, namespace, rules, taken, expected) in rows {
        let mut snapshot = web_may().and(&with_right(namespace, &rules));
        if let Some((kind, name)) = taken.split_once(' ') {
            snapshot = snapshot.without(kind, name);
        }
        let world = snapshot.to_world();
        let found = line(&world, "tenant-a/ci");
        if expected == "yes" {
            let answers = ask(&world, Some("tenant-a/ci")).answers;
            assert!(answers[0].cut.is_some(), "{case} has a cut");
        }
        lines.push(format!("{case}: {found}"));
        if found.split(':').next().unwrap() != expected {
            lines.push(format!("   ^ EXPECTED {expected}"));
        }
    }
    let lines = lines.join("\n");
    assert!(!lines.contains("EXPECTED"), "{lines}");
    insta::assert_snapshot!("acts", lines);
}

/// The sample is the same each time and has both answers, and a hub that disagrees makes exactly what
/// rests on it undetermined.
#[test]
fn what_rests_on_a_cell_that_the_hub_denies_is_undetermined() {
    let mut world = Snapshot::usual().to_world();
    let question = |subject: Option<&str>| Question {
        request: Some(delete_deployments("apps")),
        targets: std::collections::BTreeSet::new(),
        subject: subject.map(|text| text.parse::<Subject>().unwrap()),
        is_thorough: true,
        now: now(),
    };
    let cells = sample_cells(&world, &question(None), 200);
    assert_eq!(cells, sample_cells(&world, &question(None), 200));
    assert_eq!(cells.len(), 200);
    let allowed = cells.iter().filter(|cell| cell.is_allowed).count();
    assert!((20..=150).contains(&allowed), "{allowed}");
    let is_caller = |cell: &&SampledCell| {
        cell.is_allowed && cell.user() == "system:serviceaccount:tenant-a:caller"
    };
    let cell = cells.iter().find(is_caller).unwrap();
    world.distrust(cell);
    let words: Vec<String> = answer_question(&world, &question(None))
        .answers
        .iter()
        .map(|answer| format!("{}: {}", answer.subject, word(&answer.verdict)))
        .collect();
    insta::assert_snapshot!(
        "distrusted",
        format!("{}\n{}", cell.disagreement(), words.join("\n"))
    );
}
