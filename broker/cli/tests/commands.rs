//! All that a person sees of commands that need no hub and no target, and of the main mistakes in
//! calling each command. Other tests show what commands print with a hub.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

#[path = "commands/large_changes.rs"]
mod large_changes;
#[path = "commands/live.rs"]
mod live;
#[path = "commands/reach_folders.rs"]
mod reach_folders;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};

const CONFIG: &str = "apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.test
discovery: {tls: {secretName: tls}}
api: {tls: {secretName: tls}}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: {name: prod}
spec:
  address: https://prod.test:6443
  audience: https://prod.test
  identity: {clusterName: prod, clusterDNS: prod.fleet.test, environment: production}
  allow: [{namespaces: [tenant-a], serviceAccounts: [reconciler]}]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: prod, namespace: tenant-a}
spec: {targetClusterRef: {name: prod}, serviceAccountName: reconciler}
";

/// A token of tenant-a/reconciler that no key signed.
fn unsigned_token() -> String {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims = r#"{"iss":"https://hub.test","sub":"system:serviceaccount:tenant-a:reconciler",
        "aud":["https://prod.test"],"iat":1790000000,"nbf":1790000000,"exp":1790003600,"jti":"one",
        "kubernetes.io":{"namespace":"tenant-a","serviceaccount":{"name":"reconciler","uid":"u-1"}}}"#;
    let header = encode(r#"{"alg":"ES256","kid":"key-1"}"#);
    format!("{header}.{}.{}", encode(claims), encode("hunter2"))
}

/// The same objects with what Keyferry states of them, as kubectl prints them, and the keys.
const HUB_OBJECTS: &str = "apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: {name: prod}
spec:
  address: https://prod.test:6443
  audience: https://prod.test
  certSecretRef: {name: prod-ca}
  allow: [{namespaces: [tenant-a], serviceAccounts: [reconciler], deliveries: [KubeConfigSecret, FluxConfigMap]}]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: apps, namespace: tenant-a, generation: 1}
spec:
  targetClusterRef: {name: prod}
  serviceAccountName: reconciler
  deliveries: [{name: secret, type: KubeConfigSecret}, {name: flux, type: FluxConfigMap}]
status:
  observedGeneration: 1
  deliveries:
  - name: secret
    type: KubeConfigSecret
    object: apps-kubeconfig
    reason: Delivered
    expiresAt: 2099-01-01T02:00:00Z
    renewAt: 2099-01-01T01:00:00Z
    keyID: k1
  - {name: flux, type: FluxConfigMap, object: apps, reason: Delivered}
";
const KEYS: &str = r#"{"issuer": "https://hub.test", "revoked": [], "keys": [{"kid": "k1", "algorithm": "RS256",
  "signs": "lastSeen", "signsSince": "2098-12-01T00:00:00Z", "publishedAt": "2098-12-01T00:00:00Z",
  "activeAt": "2098-12-01T00:00:00Z", "tokensUntil": "2099-01-01T02:00:00Z"}]}"#;

/// A snapshot in which all is well.
const SNAPSHOT: &str = include_str!("commands/snapshot.yaml");

/// The trail of two tokens. The second one is none that Keyferry recorded.
const AUDIT_LOGS: [(&str, &str); 3] = [
    ("hub.log", include_str!("commands/hub-audit.jsonl")),
    (
        "keyferry.jsonl",
        include_str!("commands/keyferry-audit.jsonl"),
    ),
    ("prod.log", include_str!("commands/target-audit.jsonl")),
];
/// All of them.
const ALL_LOGS: &str = "--hub-audit hub.log --audit keyferry.jsonl --target-audit prod.log";

/// Calls the program in a folder with these files, which is the home folder too.
fn transcript_of(line: &str) -> Transcript {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("config.yaml", CONFIG);
    std::fs::create_dir_all(folder.path().join("snapshot/hub")).unwrap();
    write("snapshot/hub/all.yaml", SNAPSHOT);
    write(
        "snapshot/gaps.yaml",
        "schema: keyferry.dev/snapshot/v1\nreadAt: \"2026-01-02T00:03:00Z\"\nuser: jane\n",
    );
    write("typo.yaml", &CONFIG.replace("hubName", "hubNam"));
    std::fs::create_dir_all(folder.path().join("read/hub")).unwrap();
    write("read/hub/objects.yaml", HUB_OBJECTS);
    write("read/keys.json", KEYS);
    write(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: hub\n\
         contexts: [{name: hub, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
         users: [{name: u, user: {token: hunter2}}]\n",
    );
    write("token", &unsigned_token());
    write("opaque-token", "hunter2");
    reach_folders::write_snapshots(folder.path());
    for (name, text) in AUDIT_LOGS {
        write(name, text);
    }
    let words = shlex::split(&line.replace("LOGS", ALL_LOGS)).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(&words)
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = Transcript::new("keyferry", &words, &output)
        .with_name(&folder.path().display().to_string(), "/home/jane")
        .without_random_words();
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    shown
}

#[test]
fn what_is_printed_without_a_hub() {
    for (case, line) in [
        ("targets", "targets --config config.yaml"),
        ("targets-as-json", "targets --config config.yaml -o json"),
        (
            "fleet",
            "fleet --snapshot snapshot --at 2026-01-02T00:04:00Z",
        ),
        (
            "fleet-as-json",
            "fleet --snapshot snapshot --at 2026-01-02T00:04:00Z --redact -o json",
        ),
        (
            "fleet-of-a-tenant",
            "status --snapshot snapshot --at 2026-01-02T00:04:00Z -n tenant-a",
        ),
        (
            "runtime-info",
            "runtime-info prod --config config.yaml --internal-api-url https://keyferry.test:9443",
        ),
        (
            "proxy-role",
            "proxy-role charts-0 -n charts --port 8080 --account tenant-a/reader",
        ),
        ("tls-init", "tls init https://keyferry.test"),
        (
            "inputs-credential-new",
            "inputs credential new prod --cluster prod.fleet.test",
        ),
        (
            "tree-of-a-file-as-yaml",
            "tree tenant-a/prod --config config.yaml -o yaml",
        ),
        ("tree-of-a-file", "tree tenant-a/prod --config config.yaml"),
        ("inspect", "inspect token --at 2026-09-21T14:38:20Z"),
        (
            "inspect-as-yaml",
            "inspect token --at 2026-09-21T14:38:20Z -o yaml",
        ),
        ("trace", "trace issued LOGS"),
        ("trace-of-all", "trace LOGS --same-network 10.0.0.0/8"),
        ("serve-check", "serve --check --config config.yaml"),
        (
            "rehearse-hub-outage",
            "rehearse hub-outage --for 4h --snapshot read --at 2099-01-01T00:00:00Z",
        ),
        (
            "rehearse-key-rotation",
            "rehearse key-rotation --sign-at-once --snapshot read --at 2099-01-01T00:00:00Z -o yaml",
        ),
        ("doctor-without-anything", "doctor"),
        (
            "who-can",
            "who-can delete deployments.apps --target-namespace apps --target prod --snapshot fleet",
        ),
        (
            "who-can-as-a-table",
            "who-can delete deployments.apps --target-namespace apps --all --snapshot fleet -o table",
        ),
        ("reach", "reach tenant-a/ci --snapshot fleet"),
        (
            "reach-as-json",
            "reach tenant-a/ci --snapshot fleet -o json",
        ),
        ("what-if", "what-if -f change.yaml --snapshot fleet"),
        (
            "what-if-at-a-target-as-markdown",
            "what-if -f target-change.yaml --at prod --snapshot fleet -o markdown",
        ),
        (
            "what-if-as-json",
            "what-if --delete RoleBinding/tenant-a/caller --snapshot fleet -o json",
        ),
        (
            "what-if-as-sarif",
            "what-if -f change.yaml --snapshot fleet --check no-new-access --target prod -o sarif",
        ),
        (
            "what-if-allowed",
            "what-if -f change.yaml --snapshot fleet --check no-new-access --allow allow.yaml",
        ),
        (
            "what-if-of-two-folders",
            "what-if --from fleet --to partial",
        ),
    ] {
        assert_snapshot!(case, transcript_of(line));
    }
}

/// Each command with its main mistakes: what is missing, what is wrong, and a hub that is not there.
#[test]
fn what_is_wrong_is_said_with_its_fix() {
    const HUB: &str = "--kubeconfig kubeconfig";
    let mistakes: &[(&str, &[&str])] = &[
        (
            "exec",
            &["exec", "exec tenant-a/prod -- true", "exec a -- true"],
        ),
        ("kubeconfig", &["kubeconfig", "kubeconfig tenant-a/prod"]),
        (
            "token",
            &[
                "token",
                "token tenant-a/prod",
                "token tenant-a/prod --server http://keyferry.test",
                "token tenant-a/prod --config config.yaml HUB",
            ],
        ),
        (
            "agent",
            &["agent", "agent tenant-a/prod --dir tokens --once"],
        ),
        (
            "serve",
            &[
                "serve",
                "serve --check --config nowhere.yaml",
                "serve --check --config typo.yaml",
            ],
        ),
        ("keys", &["keys", "keys HUB"]),
        (
            "revoke",
            &["revoke", "revoke --kid a", "revoke --kid a HUB"],
        ),
        (
            "rehearse",
            &[
                "rehearse",
                "rehearse key-rotation",
                "rehearse ca-change target",
                "rehearse hub-outage HUB",
                "rehearse hub-outage --snapshot nowhere",
                "rehearse hub-outage --snapshot read --at 2000-01-01T00:00:00Z",
                "rehearse ca-change discovery --snapshot read --at 2099-01-01T00:00:00Z",
                "rehearse remove-key k2 --snapshot read --at 2099-01-01T00:00:00Z",
            ],
        ),
        (
            "admission-policies",
            &[
                "admission-policies --check",
                "admission-policies --check HUB",
            ],
        ),
        (
            "tls",
            &[
                "tls init http://keyferry.test",
                "tls renew https://keyferry.test",
                "tls renew https://keyferry.test --ca-secret nowhere.yaml",
            ],
        ),
        (
            "inputs",
            &[
                "inputs credential new prod",
                "inputs credential new prod --admin --cluster prod.fleet.test",
                "inputs credential rotate --hub-secret nowhere.yaml",
            ],
        ),
        (
            "approve-certificates",
            &[
                "approve-certificates HUB",
                "approve-certificates --config config.yaml HUB",
            ],
        ),
        (
            "export",
            &["export", "export documents", "export documents HUB"],
        ),
        (
            "targets",
            &[
                "targets",
                "targets --config nowhere.yaml",
                "targets --config typo.yaml",
                "targets HUB",
            ],
        ),
        (
            "fleet",
            &[
                "fleet",
                "fleet HUB",
                "fleet --config config.yaml",
                "fleet --config typo.yaml",
                "fleet --snapshot nowhere",
                "fleet --snapshot .",
                "fleet --snapshot snapshot --config config.yaml",
                "fleet --snapshot snapshot -n Tenant",
                "fleet --snapshot snapshot --keys config.yaml",
                "fleet --snapshot snapshot --audit config.yaml",
            ],
        ),
        (
            "snapshot",
            &["snapshot", "snapshot new", "snapshot new HUB", "snapshot ."],
        ),
        (
            "onboard",
            &[
                "onboard target prod",
                "onboard tenant tenant-a --target prod",
                "onboard tenant tenant-a --target prod --service-account reconciler HUB",
            ],
        ),
        (
            "offboard",
            &[
                "offboard target",
                "offboard target prod",
                "offboard tenant tenant-a/reconciler --target prod HUB",
                "offboard target prod HUB",
            ],
        ),
        (
            "proxy-role",
            &[
                "proxy-role charts-0",
                "proxy-role charts-0 -n charts --port 8080 --account tenant-a",
            ],
        ),
        (
            "runtime-info",
            &[
                "runtime-info prod",
                "runtime-info other --config config.yaml --internal-api-url https://keyferry.test",
                "runtime-info prod --config config.yaml --internal-api-url http://keyferry.test",
            ],
        ),
        ("crds", &["crds --yaml"]),
        (
            "doctor",
            &[
                "doctor tenant-a/prod",
                "doctor prod --config config.yaml",
                "doctor tenant-a/prod --server https://127.0.0.1:1 --token-file nowhere",
            ],
        ),
        (
            "whoami",
            &[
                "whoami",
                "whoami --target-address https://127.0.0.1:1 --target-token-file nowhere",
            ],
        ),
        (
            "can-i",
            &["can-i", "can-i get pods", "can-i apply -f nowhere.yaml"],
        ),
        (
            "inspect",
            &[
                "inspect",
                "inspect nowhere",
                "inspect -",
                "inspect opaque-token",
                "inspect token more",
                "inspect token --jwks opaque-token",
            ],
        ),
        (
            "trace",
            &[
                "trace",
                "trace --audit keyferry.jsonl",
                "trace issued --target-audit nowhere",
                "trace issued --audit .",
                "trace eyJhbGciOiJFUzI1NiJ9.eyJqdGkiOiJvbmUifQ.hunter2 LOGS",
                "trace issued --target-audit keyferry.jsonl",
                "trace --target-audit prod.log --keys opaque-token",
            ],
        ),
        (
            "tree",
            &[
                "tree",
                "tree prod --config config.yaml",
                "tree tenant-a/other --config config.yaml",
                "tree tenant-a/prod --config typo.yaml",
                "tree tenant-a/prod --config config.yaml -f config.yaml",
                "tree tenant-a/prod HUB",
            ],
        ),
        (
            "dashboard",
            &[
                "dashboard --address 0.0.0.0",
                "dashboard --snapshot nowhere",
                "dashboard -n No_Name --snapshot snapshot",
                "dashboard HUB",
            ],
        ),
        (
            "who-can",
            &[
                "who-can",
                "who-can get pods --snapshot fleet",
                "who-can get pods --all --snapshot nowhere",
                "who-can get pods --target other --snapshot fleet",
                "who-can get pods --all --snapshot partial",
                "who-can get /metrics --target-namespace a --all --snapshot fleet",
                "who-can get pods/a/b --all --snapshot fleet",
                "who-can get pods --all --snapshot broken",
                "who-can get pods --all --kubeconfig nowhere.yaml",
                "who-can get pods --all --check-live",
                "who-can get pods --all --snapshot fleet --target-kubeconfigs nowhere",
            ],
        ),
        (
            "reach",
            &[
                "reach",
                "reach ci --snapshot fleet",
                "reach tenant-a/ci --target other --snapshot fleet",
                "reach tenant-a/ci --snapshot partial",
            ],
        ),
        (
            "what-if",
            &[
                "what-if --snapshot fleet",
                "what-if -f change.yaml",
                "what-if -f cut.yaml --snapshot fleet",
                "what-if -f cut-list.yaml --snapshot fleet",
                "what-if -f broken/hub/pods.yaml --snapshot fleet",
                "what-if -f empty.yaml --snapshot fleet",
                "what-if -f twice.yaml --snapshot fleet",
                "what-if -f typing-error.yaml --snapshot fleet",
                "what-if -f labels.yaml --snapshot fleet",
                "what-if -f unjudged.yaml --snapshot fleet",
                "what-if -f large.yaml --snapshot fleet",
                "what-if -f change.yaml --at other --snapshot fleet",
                "what-if --delete RoleBinding/tenant-a/none --snapshot fleet",
                "what-if --delete RoleBinding/ci --snapshot fleet",
                "what-if -f change.yaml --snapshot fleet --check no-new-access --target other",
                "what-if -f change.yaml --snapshot fleet --check no-new-access --allow change.yaml",
                "what-if -f change.yaml --snapshot fleet --check no-new-access",
                "what-if -f unjudged.yaml --snapshot fleet --check no-new-access",
                "what-if --from fleet --to nowhere",
            ],
        ),
        ("completion", &["completion", "completion zs"]),
        ("no-command", &["tok", "--verbos"]),
    ];
    for (command, lines) in mistakes {
        let shown: Vec<Transcript> = lines
            .iter()
            .map(|line| transcript_of(&line.replace("HUB", HUB)))
            .collect();
        for transcript in &shown {
            assert!(
                !transcript.to_string().contains("exit code 0"),
                "{transcript}"
            );
        }
        assert_snapshot!(format!("{command}-with-mistakes"), joined(&shown));
    }
}

/// What a command prints when all is well, where no snapshot can show it.
const SHOWN_ELSEWHERE: &[(&str, &str)] = &[
    ("snapshot", "needs a hub: the suite walk"),
    ("crds", "the files of broker/crds, which a test compares"),
    (
        "admission-policies",
        "the files of examples/admission-policies, which a test compares",
    ),
    ("completion", "a script that clap writes"),
    ("revoke", "needs a hub with two keys: the suite rotation"),
    (
        "dashboard",
        "serves until it is stopped: the tests of its module",
    ),
    ("tree", "needs a hub with Keyferry: the suite flux"),
    (
        "approve-certificates",
        "needs a hub with the admission policies: the suite flux",
    ),
    (
        "onboard",
        "needs a hub with the admission policies: the suite walk",
    ),
    (
        "offboard",
        "needs a hub with the admission policies: the suite walk",
    ),
];

/// A changed word of any command is seen in a snapshot, when all is well and when it is not.
#[test]
fn every_command_has_a_snapshot_of_its_output_and_of_its_mistakes() {
    let help = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(commands.len() > 20, "{help}");
    let (well, failed) = recorded_commands();
    let elsewhere: BTreeSet<&str> = SHOWN_ELSEWHERE.iter().map(|(name, _)| *name).collect();
    for command in commands {
        assert!(
            failed.contains(command),
            "no snapshot shows a mistake: {command}"
        );
        assert_eq!(
            well.contains(command),
            !elsewhere.contains(command),
            "{command} has a snapshot when all is well, or stands in the list above"
        );
    }
}

/// The commands that ended with exit code 0, and those that did not, in all transcripts.
fn recorded_commands() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut well, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut command = None;
        for line in text.lines() {
            if let Some((_, rest)) = line
                .strip_prefix('$')
                .and_then(|it| it.split_once("keyferry "))
            {
                command = rest.split(' ').next().map(str::to_owned);
            } else if let Some(code) = line.strip_prefix("--- exit code ") {
                let commands = if code == "0" { &mut well } else { &mut failed };
                commands.extend(command.take());
            }
        }
    }
    (well, failed)
}
