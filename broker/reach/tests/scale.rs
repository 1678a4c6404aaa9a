//! A fleet of the size that is promised, from the text of its files to the answers of all subjects at
//! all targets. Built with `--release` it has that size, prints how
//! long it takes, and has its limit of memory; else it is small.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs
)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use keyferry_api::name::Namespace;
use keyferry_kube_rbac::{Attributes, ResourceRequest};
use keyferry_reach::answer::{Question, answer_question};
use keyferry_reach::what_if::{WayChange, compare_worlds};
use keyferry_reach::world::{ChangedObject, World};
use serde_json::json;

/// As in the command: a third of this work is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MAX_MEMORY_KIB: u64 = 500 * 1024;

/// The files of so many targets are some 4 MiB, which is what the command parses at once.
const TARGETS_AT_ONCE: usize = 100;

struct Size {
    namespaces: usize,
    targets: usize,
    accesses: usize,
    rbac_of_hub: usize,
    rbac_of_target: usize,
}

const WHOLE: Size = Size {
    namespaces: 500,
    targets: 300,
    accesses: 10_000,
    rbac_of_hub: 30_000,
    rbac_of_target: 100,
};
const SMALL: Size = Size {
    namespaces: 5,
    targets: 3,
    accesses: 30,
    rbac_of_hub: 60,
    rbac_of_target: 10,
};

/// Items as kubectl prints them.
struct List(String);

impl List {
    fn new() -> Self {
        Self("apiVersion: v1\nitems:\n".to_owned())
    }

    fn push(&mut self, kind: &str, api_version: &str, namespace: &str, name: &str, rest: &str) {
        let place = match namespace {
            "" => String::new(),
            namespace => format!("    namespace: {namespace}\n"),
        };
        write!(
            self.0,
            "- apiVersion: {api_version}\n  kind: {kind}\n  metadata:\n    creationTimestamp: \"2026-01-01T00:00:00Z\"\n    \
             name: {name}\n{place}    resourceVersion: \"1\"\n    uid: {namespace}-{name}\n    generation: 1\n{rest}"
        )
        .unwrap();
    }

    fn end(mut self) -> String {
        self.0
            .push_str("kind: List\nmetadata:\n  resourceVersion: \"\"\n");
        self.0
    }
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn role(verbs: &str, groups: &str, resources: &str) -> String {
    format!(
        "  rules:\n  - apiGroups:\n    - {groups}\n    resources:\n    - {resources}\n    verbs:\n    - {verbs}\n"
    )
}

fn binding(kind: &str, role: &str, subject: &str) -> String {
    format!(
        "  roleRef:\n    apiGroup: rbac.authorization.k8s.io\n    kind: {kind}\n    name: {role}\n  subjects:\n  - {subject}\n"
    )
}

fn account(namespace: &str, name: &str) -> String {
    format!("{{kind: ServiceAccount, namespace: {namespace}, name: {name}}}")
}

fn hub_files(size: &Size) -> Vec<(String, String)> {
    let (mut accounts, mut namespaces) = (List::new(), List::new());
    let (mut targets, mut accesses) = (List::new(), List::new());
    let (mut roles, mut bindings) = (List::new(), List::new());
    let (mut cluster_roles, mut cluster_bindings) = (List::new(), List::new());
    namespaces.push("Namespace", "v1", "", "keyferry-system", "");
    accounts.push("ServiceAccount", "v1", "keyferry-system", "keyferry", "");
    let per_namespace = size.accesses / size.namespaces;
    for index in 0..size.targets {
        let spec = format!(
            "  spec:\n    address: https://t{index}.test:6443\n    audience: https://t{index}.test\n    allow:\n    \
             - namespaceSelector: {{matchLabels: {{access.keyferry.dev/all: \"true\"}}}}\n      serviceAccounts: [a{}]\n  \
             status:\n    issuer: https://hub.test\n",
            index % per_namespace
        );
        targets.push(
            "TargetCluster",
            "keyferry.dev/v1alpha1",
            "",
            &format!("t{index}"),
            &spec,
        );
    }
    let mut pairs = vec![Vec::new(); size.targets];
    for number in 0..size.namespaces {
        let namespace = format!("n{number}");
        let labels = "    labels:\n      access.keyferry.dev/all: \"true\"\n";
        namespaces.push("Namespace", "v1", "", &namespace, labels);
        for index in 0..per_namespace {
            let name = format!("a{index}");
            accounts.push("ServiceAccount", "v1", &namespace, &name, "");
            let fitting = size.targets / per_namespace;
            let target = index + per_namespace * (number % fitting.max(1));
            let spec = format!(
                "  spec:\n    targetClusterRef: {{name: t{target}}}\n    serviceAccountName: {name}\n"
            );
            accesses.push(
                "TargetAccess",
                "keyferry.dev/v1alpha1",
                &namespace,
                &name,
                &spec,
            );
            if let Some(pairs) = pairs.get_mut(target) {
                pairs.push(format!("{namespace}/{name}"));
            }
        }
        let minter = binding(
            "ClusterRole",
            "minter",
            &account("keyferry-system", "keyferry"),
        );
        bindings.push("RoleBinding", RBAC, &namespace, "keyferry", &minter);
    }
    for index in 0..size.rbac_of_hub / 2 {
        let namespace = format!("n{}", index % size.namespaces);
        let name = format!("r{index}");
        let rules = match index % 50 {
            0 => role("create", "\"\"", "pods"),
            1 => role("create", "\"\"", "serviceaccounts/token"),
            _ => role("get", "\"\"", "configmaps"),
        };
        roles.push("Role", RBAC, &namespace, &name, &rules);
        let subject = account(&namespace, &format!("a{}", index % per_namespace));
        bindings.push(
            "RoleBinding",
            RBAC,
            &namespace,
            &name,
            &binding("Role", &name, &subject),
        );
    }
    cluster_roles.push(
        "ClusterRole",
        RBAC,
        "",
        "minter",
        &role("create", "\"\"", "serviceaccounts/token"),
    );
    cluster_roles.push(
        "ClusterRole",
        RBAC,
        "",
        "cluster-admin",
        &role("'*'", "'*'", "'*'"),
    );
    for index in 0..20 {
        let subject = format!("{{kind: Group, name: admins-{index}}}");
        let rest = binding("ClusterRole", "cluster-admin", &subject);
        cluster_bindings.push(
            "ClusterRoleBinding",
            RBAC,
            "",
            &format!("admins-{index}"),
            &rest,
        );
        let subject = account("n0", &format!("a{index}"));
        let rest = binding("ClusterRole", "minter", &subject);
        cluster_bindings.push(
            "ClusterRoleBinding",
            RBAC,
            "",
            &format!("minter-{index}"),
            &rest,
        );
    }
    let mut pairing = "  pairs:\n".to_owned();
    for (index, accounts) in pairs.iter().enumerate() {
        writeln!(
            pairing,
            "    https://t{index}.test: [{}]",
            accounts.join(", ")
        )
        .unwrap();
    }
    let mut pairings = List::new();
    pairings.push(
        "AudiencePairing",
        "keyferry.dev/v1alpha1",
        "",
        "keyferry",
        &pairing,
    );
    let policies = [
        include_str!("../../../examples/admission-policies/pairing.yaml"),
        include_str!("../../../examples/admission-policies/author.yaml"),
        include_str!("../../../examples/admission-policies/labels.yaml"),
        include_str!("../../../examples/admission-policies/pairing-binding.yaml"),
    ];
    let hub = |list: &str, text: String| (format!("hub/{list}.yaml"), text);
    vec![
        hub("serviceaccounts", accounts.end()),
        hub("namespaces", namespaces.end()),
        hub("targetclusters", targets.end()),
        hub("targetaccesses", accesses.end()),
        hub("audiencepairings", pairings.end()),
        hub("roles", roles.end()),
        hub("rolebindings", bindings.end()),
        hub("clusterroles", cluster_roles.end()),
        hub("clusterrolebindings", cluster_bindings.end()),
        hub("pods", List::new().end()),
        hub("secrets", List::new().end()),
        hub("customresourcedefinitions", List::new().end()),
        hub("validatingadmissionpolicies", policies[..3].join("---\n")),
        hub("validatingadmissionpolicybindings", policies[3].to_owned()),
    ]
}

fn target_files(size: &Size, index: usize) -> Vec<(String, String)> {
    let (mut roles, mut bindings, mut cluster_roles) = (List::new(), List::new(), List::new());
    cluster_roles.push(
        "ClusterRole",
        RBAC,
        "",
        "edit",
        &role("delete", "apps", "deployments"),
    );
    for number in 0..size.rbac_of_target / 2 {
        let name = format!("r{number}");
        roles.push(
            "Role",
            RBAC,
            "apps",
            &name,
            &role("get", "\"\"", "configmaps"),
        );
        let user = format!("hub:system:serviceaccount:n{number}:a{}", index % 20);
        let subject = format!("{{kind: User, name: '{user}'}}");
        let role = if number % 2 == 0 {
            ("ClusterRole", "edit")
        } else {
            ("Role", name.as_str())
        };
        bindings.push(
            "RoleBinding",
            RBAC,
            "apps",
            &name,
            &binding(role.0, role.1, &subject),
        );
    }
    let authentication = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n  - issuer: {{url: https://hub.test, audiences: \
         [https://t{index}.test]}}\n    claimValidationRules: [{{expression: claims.aud.size() == 1}}]\n    claimMappings: {{username: {{claim: sub, prefix: 'hub:'}}}}\n"
    );
    let file = |name: &str, text: String| (format!("targets/t{index}/{name}"), text);
    vec![
        file("rbac/roles.yaml", roles.end()),
        file("rbac/rolebindings.yaml", bindings.end()),
        file("rbac/clusterroles.yaml", cluster_roles.end()),
        file("rbac/clusterrolebindings.yaml", List::new().end()),
        file("authentication.yaml", authentication),
        file("release", "v1.37.2\n".to_owned()),
    ]
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

#[test]
fn all_subjects_at_all_targets_are_answered_in_time() {
    let size = if cfg!(debug_assertions) { SMALL } else { WHOLE };
    let mut world = World::new(Namespace::new("keyferry-system").unwrap());
    let mut reading = Duration::ZERO;
    let mut bytes = 0;
    let mut read = |files: &[(String, String)]| {
        bytes += files.iter().map(|(_, text)| text.len()).sum::<usize>();
        let began = Instant::now();
        assert_eq!(world.add_files(files).unwrap(), []);
        reading += began.elapsed();
    };
    for file in hub_files(&size) {
        read(&[file]);
    }
    let targets: Vec<usize> = (0..size.targets).collect();
    for some in targets.chunks(TARGETS_AT_ONCE) {
        let files = some.iter().flat_map(|index| target_files(&size, *index));
        read(&files.collect::<Vec<_>>());
    }
    let question = Question {
        request: Some(Attributes::resource(
            "delete",
            ResourceRequest {
                group: "apps".to_owned(),
                resource: "deployments".to_owned(),
                namespace: "apps".to_owned(),
                ..ResourceRequest::default()
            },
        )),
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: false,
        now: "2026-06-01T00:00:00Z".parse().unwrap(),
    };
    let began = Instant::now();
    let answers = answer_question(&world, &question);
    let answering = began.elapsed();
    let yes: usize = answers.counts.values().map(|[yes, ..]| yes).sum();
    let undetermined: usize = answers.counts.values().map(|[_, _, it]| it).sum();
    let memory = peak_memory_kib();
    eprintln!(
        "reach: {} MiB read in {reading:?}, answered in {answering:?}, at most {} MiB; {yes} yes, {undetermined} undetermined",
        bytes >> 20,
        memory >> 10
    );
    assert!(yes > 0, "someone can");
    if !cfg!(debug_assertions) {
        assert!(memory < MAX_MEMORY_KIB, "{memory} KiB");
    }
    predict_ten_objects(&world, question.now);
}

/// Five roles and their bindings, each of which lets an account run Pods as the others.
fn predict_ten_objects(world: &World, now: Timestamp) {
    let began = Instant::now();
    let (mut after, mut changed) = (world.clone(), Vec::new());
    for number in 0..5 {
        let metadata = json!({ "name": "new", "namespace": format!("n{number}") });
        let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["create"] }]);
        let role =
            json!({ "apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules });
        let subject = json!({ "kind": "ServiceAccount", "name": "a1", "namespace": "n4" });
        let binding = json!({ "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "new" } });
        for value in [role, binding] {
            let object = ChangedObject::of(&value, None).unwrap();
            assert_eq!(after.apply(&object, value, now).unwrap(), None);
            changed.push(object);
        }
    }
    assert!(after.settle(world, &changed).is_empty());
    let comparison = compare_worlds(world, &after, &changed, now);
    let appear = comparison.ways.iter().filter(|way| way.appears).count();
    eprintln!(
        "what-if: {} objects in {:?}, at most {} MiB; {appear} ways appear, {} disappear",
        changed.len(),
        began.elapsed(),
        peak_memory_kib() >> 10,
        comparison.ways.len() - appear
    );
    assert!(appear > 0 && appear == comparison.ways.len());
    let is_of_account = |way: &WayChange| way.subject.name() == "n4/a1";
    assert!(comparison.ways.iter().any(is_of_account));
}
