//! Each door with worlds in which it is open, shut and not known; each list taken away in turn; each
//! cut really removed.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "worlds/snapshot.rs"]
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use keyferry_api::name::ObjectName;
use keyferry_reach::answer::{Answers, Question, Verdict, answer_question};
use keyferry_reach::way::Removal;
use keyferry_reach::world::World;
use keyferry_reach::{ListKind, Subject};
use snapshot::{Snapshot, delete_deployments, now};

fn ask(world: &World, subject: Option<&str>) -> Answers {
    let question = Question {
        request: Some(delete_deployments("apps")),
        targets: BTreeSet::from([ObjectName::new("prod").unwrap()]),
        subject: subject.map(|text| text.parse::<Subject>().unwrap()),
        is_thorough: true,
        now: now(),
    };
    answer_question(world, &question)
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Yes { .. } => "yes",
        Verdict::No { .. } => "no",
        Verdict::Undetermined { .. } => "undetermined",
    }
}

/// The answer in one line: its word, and the first way, miss or doubts.
fn line(world: &World, subject: &str) -> String {
    let answers = ask(world, Some(subject));
    let answer = answers.answers.first().unwrap();
    let detail = match &answer.verdict {
        Verdict::Yes { ways, .. } => {
            let way = ways.first().unwrap();
            let hops = way.hub.iter().chain(&way.target);
            let hops: Vec<String> = hops
                .map(|hop| match hop.door {
                    Some(door) => format!("[{door}] {}", hop.text),
                    None => hop.text.clone(),
                })
                .collect();
            hops.join(" | ")
        }
        Verdict::No { nearest_miss } => nearest_miss.clone().unwrap_or_default(),
        Verdict::Undetermined { doubts } => {
            let doubts: Vec<String> = doubts.iter().map(keyferry_reach::Doubt::what).collect();
            doubts.join(" | ")
        }
    };
    format!("{}: {detail}", word(&answer.verdict))
}

/// A role and its binding for ServiceAccount tenant-a/ci, beside the usual world.
fn with_right(namespace: &str, rules: &str) -> String {
    let (kind, place) = match namespace {
        "" => ("Cluster", String::new()),
        namespace => ("", format!(", namespace: {namespace}")),
    };
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Role\nmetadata: {{name: given{place}}}\nrules: [{rules}]\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}RoleBinding\nmetadata: {{name: given{place}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}Role, name: given}}\n\
         subjects: [{{kind: ServiceAccount, name: ci, namespace: tenant-a}}]\n"
    )
}

const CORE: &str = "apiGroups: ['']";
const RBAC: &str = "apiGroups: [rbac.authorization.k8s.io]";

fn rule(groups: &str, resources: &str, verbs: &str) -> String {
    format!("{{{groups}, resources: [{resources}], verbs: [{verbs}]}}")
}

fn named(groups: &str, resources: &str, verbs: &str, names: &str) -> String {
    format!("{{{groups}, resources: [{resources}], verbs: [{verbs}], resourceNames: [{names}]}}")
}

/// A right of tenant-a/ci on the hub, and whether ci can delete Deployments in apps at prod.
#[test]
fn rights_of_the_hub_open_their_doors() {
    let token = "serviceaccounts/token";
    let write_bindings = rule(RBAC, "rolebindings", "create");
    let bind = |names: &str| named(RBAC, "clusterroles", "bind", names);
    let rows: Vec<(&str, &str, String, &str)> = vec![
        ("nothing", "tenant-a", rule(CORE, "configmaps", "get"), "no"),
        // Door 2.
        ("mint any", "tenant-a", rule(CORE, token, "create"), "yes"),
        (
            "mint by name",
            "tenant-a",
            named(CORE, token, "create", "reconciler"),
            "yes",
        ),
        (
            "mint another",
            "tenant-a",
            named(CORE, token, "create", "ci"),
            "no",
        ),
        (
            "mint elsewhere",
            "tenant-d",
            rule(CORE, token, "create"),
            "no",
        ),
        ("mint everywhere", "", rule(CORE, token, "create"), "yes"),
        (
            "create accounts only",
            "tenant-a",
            rule(CORE, "serviceaccounts", "create"),
            "no",
        ),
        // Door 3.
        ("run Pods", "tenant-a", rule(CORE, "pods", "create"), "yes"),
        (
            "run Jobs",
            "tenant-a",
            rule("apiGroups: [batch]", "jobs", "create"),
            "yes",
        ),
        (
            "run named Pods",
            "tenant-a",
            named(CORE, "pods", "create", "x"),
            "no",
        ),
        (
            "run Pods elsewhere",
            "tenant-d",
            rule(CORE, "pods", "create"),
            "no",
        ),
        (
            "change Deployments",
            "tenant-a",
            rule("apiGroups: [apps]", "deployments", "patch"),
            "undetermined",
        ),
        // Door 4. Pod worker runs as reconciler with a token for the target, web as web without.
        ("exec", "tenant-a", rule(CORE, "pods/exec", "create"), "yes"),
        (
            "exec by name",
            "tenant-a",
            named(CORE, "pods/exec", "create", "worker"),
            "yes",
        ),
        (
            "exec of another",
            "tenant-a",
            named(CORE, "pods/exec", "create", "web"),
            "no",
        ),
        (
            "exec of an ended Pod",
            "tenant-a",
            named(CORE, "pods/exec", "create", "done"),
            "no",
        ),
        (
            "get exec",
            "tenant-a",
            rule(CORE, "pods/exec", "get"),
            "undetermined",
        ),
        (
            "ephemeral",
            "tenant-a",
            rule(CORE, "pods/ephemeralcontainers", "patch"),
            "yes",
        ),
        (
            "change Pods",
            "tenant-a",
            rule(CORE, "pods", "patch"),
            "yes",
        ),
        ("node proxy", "", rule(CORE, "nodes/proxy", "create"), "yes"),
        (
            "node proxy of no node",
            "",
            named(CORE, "nodes/proxy", "create", "other"),
            "no",
        ),
        ("logs", "tenant-a", rule(CORE, "pods/log", "get"), "no"),
        // Door 5. Secret prod-kubeconfig is delivered to tenant-b, robot-token is the hub's.
        ("delivered", "tenant-b", rule(CORE, "secrets", "get"), "yes"),
        (
            "delivered by list",
            "tenant-b",
            rule(CORE, "secrets", "list"),
            "yes",
        ),
        (
            "delivered by name",
            "tenant-b",
            named(CORE, "secrets", "get", "prod-kubeconfig"),
            "yes",
        ),
        (
            "another Secret",
            "tenant-b",
            named(CORE, "secrets", "get", "other"),
            "no",
        ),
        (
            "secrets of tenant-a",
            "tenant-a",
            rule(CORE, "secrets", "get"),
            "no",
        ),
        (
            "token of robot",
            "tenant-c",
            named(CORE, "secrets", "get", "robot-token"),
            "yes",
        ),
        (
            "create and read",
            "tenant-c",
            rule(CORE, "secrets", "create, get"),
            "yes",
        ),
        (
            "create alone",
            "tenant-c",
            rule(CORE, "secrets", "create"),
            "no",
        ),
        // Door 7. Robot of tenant-c may mint in tenant-a.
        (
            "impersonate robot",
            "tenant-c",
            rule(CORE, "serviceaccounts", "impersonate"),
            "yes",
        ),
        (
            "impersonate robot by name",
            "tenant-c",
            named(CORE, "serviceaccounts", "impersonate", "robot"),
            "yes",
        ),
        (
            "impersonate an account",
            "tenant-a",
            rule(CORE, "serviceaccounts", "impersonate"),
            "yes",
        ),
        (
            "impersonate minter",
            "",
            named(CORE, "users", "impersonate", "minter"),
            "yes",
        ),
        (
            "impersonate in a namespace",
            "tenant-a",
            named(CORE, "users", "impersonate", "minter"),
            "no",
        ),
        (
            "impersonate a user",
            "",
            named(CORE, "users", "impersonate", "jane"),
            "no",
        ),
        (
            "impersonate a group alone",
            "",
            named(CORE, "groups", "impersonate", "minters"),
            "no",
        ),
        (
            "impersonate a user and a group",
            "",
            [
                named(CORE, "users", "impersonate", "jane"),
                named(CORE, "groups", "impersonate", "minters"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "constrained",
            "",
            rule(
                "apiGroups: [authentication.k8s.io]",
                "users",
                "'impersonate:user-info'",
            ),
            "undetermined",
        ),
        // Door 8. ClusterRole minter has create on serviceaccounts/token.
        (
            "bind",
            "tenant-a",
            [write_bindings.clone(), bind("minter")].join(", "),
            "yes",
        ),
        ("bind without writing", "tenant-a", bind("minter"), "no"),
        (
            "write without bind",
            "tenant-a",
            write_bindings.clone(),
            "no",
        ),
        (
            "bind another role",
            "tenant-a",
            [write_bindings.clone(), bind("harmless")].join(", "),
            "no",
        ),
        (
            "bind elsewhere",
            "tenant-d",
            [write_bindings.clone(), bind("minter")].join(", "),
            "no",
        ),
        (
            "join a binding",
            "tenant-a",
            [
                rule(RBAC, "rolebindings", "patch"),
                rule(RBAC, "clusterroles", "bind"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "join a binding of all",
            "",
            [
                rule(RBAC, "clusterrolebindings", "update"),
                rule(RBAC, "clusterroles", "bind"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "escalate its own role",
            "tenant-a",
            rule(RBAC, "roles", "escalate, patch"),
            "yes",
        ),
        (
            "escalate without writing",
            "tenant-a",
            rule(RBAC, "roles", "escalate"),
            "no",
        ),
        (
            "escalate another role",
            "tenant-a",
            named(RBAC, "roles", "'escalate', patch", "other"),
            "undetermined",
        ),
        // Doors that are not evaluated.
        (
            "6",
            "tenant-a",
            rule(
                "apiGroups: [kustomize.toolkit.fluxcd.io]",
                "kustomizations",
                "create",
            ),
            "no",
        ),
        (
            "9 targets",
            "",
            rule("apiGroups: [keyferry.dev]", "targetclusters", "patch"),
            "undetermined",
        ),
        (
            "9 accesses",
            "tenant-a",
            rule("apiGroups: [keyferry.dev]", "targetaccesses", "create"),
            "no",
        ),
        (
            "10",
            "",
            rule(
                "apiGroups: [admissionregistration.k8s.io]",
                "validatingadmissionpolicies",
                "patch",
            ),
            "undetermined",
        ),
        (
            "11",
            "keyferry-system",
            rule(CORE, "secrets", "get"),
            "undetermined",
        ),
        (
            "12",
            "",
            rule("apiGroups: [certificates.k8s.io]", "signers", "approve"),
            "undetermined",
        ),
        (
            "everything",
            "",
            "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}".to_owned(),
            "yes",
        ),
    ];
    let mut lines = Vec::new();
    for (case, namespace, rules, expected) in rows {
        let world = Snapshot::usual()
            .and(&with_right(namespace, &rules))
            .to_world();
        let found = line(&world, "tenant-a/ci");
        lines.push(format!("{case}: {found}"));
        if found.split(':').next().unwrap() != expected {
            lines.push(format!("   ^ EXPECTED {expected}"));
        }
    }
    let lines = lines.join("\n");
    assert!(!lines.contains("EXPECTED"), "{lines}");
    insta::assert_snapshot!("doors-of-the-hub", lines);
}

/// What else decides: the access, the policies, the target's file and its RBAC.
#[test]
fn everything_between_subject_and_right_decides() {
    let usual = Snapshot::usual;
    let suspended = "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {name: prod, namespace: tenant-a, uid: u-a, \
        resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z'}\nspec: {targetClusterRef: {name: prod}, \
        serviceAccountName: reconciler, suspend: true, deliveries: [{name: http, type: HTTP}]}\n";
    let mint = with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create"));
    let access = with_right(
        "tenant-a",
        &rule("apiGroups: [keyferry.dev]", "targetaccesses", "create"),
    );
    let labels = with_right("", &rule(CORE, "namespaces", "patch"));
    let flux = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}}\n";
    let kustomize = with_right(
        "tenant-a",
        &rule(
            "apiGroups: [kustomize.toolkit.fluxcd.io]",
            "kustomizations",
            "create",
        ),
    );
    let impersonate = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: as}\n\
        rules: [{apiGroups: [''], resources: [users], verbs: [impersonate], resourceNames: ['hub:system:serviceaccount:tenant-b:deployer']}]\n\
        ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: as}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: as}\n\
        subjects: [{kind: Group, name: 'system:authenticated'}]\n";
    let mut without_rights = usual().without("Pod", "");
    without_rights
        .target
        .retain(|object| object["kind"] != "RoleBinding");
    let with = |text: &str| {
        let mut world = usual();
        world.authentication = text.to_owned();
        world
    };
    let rows: Vec<(&str, Snapshot, &str, &str)> = vec![
        ("account", usual(), "tenant-a/reconciler", "yes"),
        ("caller", usual(), "tenant-a/caller", "yes"),
        (
            "caller without the right",
            usual(),
            "tenant-a/stranger",
            "no",
        ),
        ("anybody", usual(), "group:system:authenticated", "no"),
        ("platform admins", usual(), "group:platform-admins", "yes"),
        ("masters", usual(), "group:system:masters", "yes"),
        ("another group", usual(), "group:others", "no"),
        ("a group that mints", usual(), "group:minters", "yes"),
        ("a user that mints", usual(), "user:minter", "yes"),
        ("a node", usual(), "group:system:nodes", "undetermined"),
        (
            "Keyferry's account",
            usual(),
            "keyferry-system/keyferry",
            "undetermined",
        ),
        (
            "an account that delivers",
            usual(),
            "tenant-b/deployer",
            "no",
        ),
        ("no such account", usual(), "tenant-a/nobody", "no"),
        (
            "suspended, with a Pod",
            usual().and(suspended),
            "tenant-a/reconciler",
            "yes",
        ),
        (
            "suspended, without",
            usual().and(suspended).without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "suspended, and mint",
            usual().and(suspended).without("Pod", "").and(&mint),
            "tenant-a/ci",
            "yes",
        ),
        (
            "not paired",
            usual().without("AudiencePairing", ""),
            "tenant-a/caller",
            "yes",
        ),
        ("mint of web", usual(), "tenant-a/ci", "no"),
        (
            "no pairing policy, but the target knows no such user",
            usual()
                .without("ValidatingAdmissionPolicyBinding", "keyferry-pairing")
                .and(&mint),
            "tenant-a/ci",
            "yes",
        ),
        (
            "Keyferry may not mint",
            usual()
                .without("RoleBinding", "keyferry")
                .without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "Keyferry may not use the audience",
            usual()
                .without("ClusterRoleBinding", "keyferry-audiences")
                .without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "author policy away",
            usual()
                .without("ValidatingAdmissionPolicyBinding", "keyferry-author")
                .and(&access),
            "tenant-a/ci",
            "undetermined",
        ),
        (
            "labels without a selector",
            usual().and(&labels),
            "tenant-a/ci",
            "no",
        ),
        (
            "Flux is there",
            usual().and(flux).and(&kustomize),
            "tenant-a/ci",
            "undetermined",
        ),
        (
            "impersonation at the target",
            without_rights.clone().and_at_target(impersonate),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "no right at the target",
            without_rights,
            "tenant-a/reconciler",
            "no",
        ),
        (
            "impersonation of who has it",
            usual()
                .without("TargetAccess", "none")
                .and_at_target(impersonate),
            "tenant-a/reconciler",
            "yes",
        ),
        ("no file", with(""), "tenant-a/reconciler", "undetermined"),
        (
            "another audience",
            with(
                &usual()
                    .authentication
                    .replace("[https://prod.test]", "[https://other.test]"),
            ),
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "one more audience",
            with(&usual().authentication.replace(
                "[https://prod.test]",
                "[https://prod.test, https://b.test]\n      , audienceMatchPolicy: MatchAny",
            )),
            "tenant-a/ci",
            "undetermined",
        ),
        (
            "another issuer",
            with(
                &usual()
                    .authentication
                    .replace("https://hub.test", "https://other.test"),
            ),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "another prefix",
            with(&usual().authentication.replace("hub:", "other:")),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "a rule that refuses",
            with(&format!(
                "{}    claimValidationRules: [{{claim: environment, requiredValue: prod}}]\n",
                usual().authentication
            )),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "a newer release",
            Snapshot {
                release: "v1.38.0",
                ..usual()
            },
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "no release",
            Snapshot {
                release: "",
                ..usual()
            },
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "no release, and no way",
            Snapshot {
                release: "",
                ..usual()
            },
            "tenant-a/ci",
            "no",
        ),
    ];
    let mut lines = Vec::new();
    for (case, snapshot, subject, expected) in rows {
        let found = line(&snapshot.to_world(), subject);
        lines.push(format!("{case}: {subject}: {found}"));
        if found.split(':').next().unwrap() != expected {
            lines.push(format!("   ^ EXPECTED {expected}"));
        }
    }
    let lines = lines.join("\n");
    assert!(!lines.contains("EXPECTED"), "{lines}");
    insta::assert_snapshot!("between-subject-and-right", lines);
}

/// A list that was not read turns no yes into a no, and no no into a yes: the answer of everyone, for
/// each list in turn, from a world with all kinds of rights.
#[test]
fn a_list_that_was_not_read_turns_no_answer_into_its_opposite() {
    let rights = [
        with_right("tenant-a", &rule(CORE, "pods/exec, secrets", "create, get")),
        with_right("tenant-c", &rule(CORE, "pods", "create")).replace("given", "runner"),
        with_right("tenant-b", &rule(CORE, "secrets", "list"))
            .replace("name: ci", "name: web")
            .replace("given", "reader"),
    ];
    let rich = Snapshot::usual().and(&rights.concat());
    let whole = words_of_all(&rich.to_world());
    let decided = whole
        .values()
        .filter(|word| **word != "undetermined")
        .count();
    assert!(
        decided * 10 >= whole.len() * 9,
        "most are decided: {whole:?}"
    );
    let mut lines = Vec::new();
    for kind in ListKind::ALL {
        let blind = words_of_all(&rich.clone().unread(kind).to_world());
        lines.push(format!("{}: {}", kind.resource(), compare(&whole, &blind)));
    }
    for kind in ListKind::RBAC {
        let mut blind = rich.clone();
        blind.unread_of_target.insert(kind);
        let blind = words_of_all(&blind.to_world());
        lines.push(format!(
            "{} of the target: {}",
            kind.resource(),
            compare(&whole, &blind)
        ));
    }
    insta::assert_snapshot!("lists-taken-away", lines.join("\n"));
}

type Words = BTreeMap<Subject, &'static str>;

fn words_of_all(world: &World) -> Words {
    let answers = ask(world, None).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

/// How many answers became undetermined; fails if one became its opposite, or appeared.
fn compare(whole: &Words, blind: &Words) -> String {
    for (subject, word) in blind {
        // An account that was only named has no way if it exists, or does not exist.
        let before = whole.get(subject).copied().unwrap_or("no");
        assert!(
            *word == before || *word == "undetermined",
            "{subject}: {before}, then {word}"
        );
    }
    let undetermined = |words: &Words| {
        words
            .values()
            .filter(|word| **word == "undetermined")
            .count()
    };
    format!(
        "{} of {} subjects known, {} undetermined instead of {}",
        blind.len(),
        whole.len(),
        undetermined(blind),
        undetermined(whole)
    )
}

/// Whatever a cut names is enough, and no part of it is.
#[test]
fn every_cut_closes_every_way_and_no_part_of_it_does() {
    let rights = [
        with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create")),
        with_right("tenant-b", &rule(CORE, "pods", "create")).replace("given", "runner"),
    ];
    let world = Snapshot::usual().and(&rights.concat()).to_world();
    let answers = ask(&world, None);
    let mut lines = Vec::new();
    for answer in &answers.answers {
        let Verdict::Yes { .. } = answer.verdict else {
            assert_eq!(answer.cut, None);
            continue;
        };
        let Some(cut) = &answer.cut else {
            lines.push(format!("{}: no cut", answer.subject));
            continue;
        };
        let names: Vec<String> = cut.iter().map(ToString::to_string).collect();
        lines.push(format!("{}: {}", answer.subject, names.join(", ")));
        let name = match &answer.subject {
            Subject::ServiceAccount(..) => answer.subject.name(),
            other => format!("{}:{}", other.kind().to_lowercase(), other.name()),
        };
        let without = |removals: &BTreeSet<Removal>| {
            word(
                &ask(&world.without(removals), Some(&name))
                    .answers
                    .first()
                    .unwrap()
                    .verdict,
            )
        };
        assert_eq!(without(cut), "no", "{name}: {cut:?}");
        for kept in cut {
            let part = cut
                .iter()
                .filter(|removal| *removal != kept)
                .cloned()
                .collect();
            assert_eq!(without(&part), "yes", "{name}: {part:?}");
        }
    }
    let all: Vec<String> = answers
        .cut
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    lines.push(format!("all: {}", all.join(", ")));
    insta::assert_snapshot!("cuts", lines.join("\n"));
}
