//! The flags of impersonation, and the files of examples/impersonation, on the embedded target.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};
use keyferry_testing::{Authority, EmbeddedHub, EmbeddedTarget, HubOptions, TargetOptions};
use secrecy::ExposeSecret;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> PathBuf {
    repository().join("examples/impersonation").join(name)
}

/// Writes the shipped file of a target whose hub has a public CA: the placeholder of a CA is no
/// certificate.
fn auth_config(folder: &Path) -> PathBuf {
    let shipped = std::fs::read_to_string(repository().join("auth-configs/hub.yaml")).unwrap();
    let (before, rest) = shipped.split_once("      certificateAuthority:").unwrap();
    let (_, after) = rest.split_once("-----END CERTIFICATE-----\n").unwrap();
    let path = folder.join("authentication.yaml");
    std::fs::write(&path, format!("{before}{after}")).unwrap();
    path
}

/// All that a person sees of the demo; of its steps, the last one, in which the workload is another
/// user.
fn last_step(auth_config: &Path, rbac: &Path, more: &[&str]) -> Transcript {
    let [auth_config_text, rbac] = [auth_config, rbac].map(|path| path.display().to_string());
    let files = ["--auth-config", &auth_config_text, "--rbac", &rbac];
    let words = [&["demo", "--once"], &files[..], more].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
    let mut output = command.args(&words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.split_once("\n6. ").map(|(_, last)| last);
    output.stdout = last.unwrap_or_default().as_bytes().to_vec();
    let folder = auth_config.parent().unwrap().display().to_string();
    Transcript::new("keyferry", &words, &output)
        .with_name(&repository().display().to_string(), "REPOSITORY")
        .with_name(&folder, "FOLDER")
}

#[test]
fn both_example_files_let_the_workload_be_the_deployer_alone() {
    let folder = tempfile::tempdir().unwrap();
    let auth_config = auth_config(folder.path());
    let group = ["--as", "tenant-a:deployer", "--as-group", "system:masters"];
    for name in ["legacy", "constrained"] {
        let file = example(&format!("{name}.yaml"));
        let allowed = last_step(&auth_config, &file, &[]);
        let users = [
            &["--as", "tenant-a:other"][..],
            &["--as", "apps:deployer"],
            &group,
        ];
        let refused = users.map(|user| last_step(&auth_config, &file, user));
        for step in &refused {
            assert!(!step.to_string().contains("201 "), "{step}");
        }
        let all = std::iter::once(&allowed).chain(&refused);
        assert_snapshot!(format!("demo-with-{name}"), joined(all));
    }
}

#[test]
fn what_the_demo_cannot_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let auth_config = auth_config(folder.path());
    let legacy = example("legacy.yaml");
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "kind: [").unwrap();
    let shipped = repository().join("auth-configs/hub.yaml");
    let other = ["--service-account", "tenant-a/other"];
    let shown = [
        last_step(&auth_config, &legacy, &other),
        last_step(&broken, &legacy, &[]),
        last_step(&shipped, &legacy, &[]),
        last_step(&auth_config, &broken, &[]),
    ];
    assert_snapshot!("demo-with-faults", joined(&shown));
}

#[test]
fn the_lock_down_names_the_account_of_the_example() {
    let patch = std::fs::read_to_string(example("flux-lock-down.yaml")).unwrap();
    let component: serde_json::Value = serde_saphyr::from_str(&patch).unwrap();
    let operations = component["patches"][0]["patch"].as_str().unwrap();
    let operations: serde_json::Value = serde_saphyr::from_str(operations).unwrap();
    assert_eq!(operations[0]["value"], "--default-service-account=deployer");
    for file in ["legacy.yaml", "constrained.yaml"] {
        let text = std::fs::read_to_string(example(file)).unwrap();
        assert!(text.contains("resourceNames: [deployer]"), "{file}");
    }
}

/// Lets the hub user impersonate jane, with one group, UID and extra.
const JANE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: impersonate-jane}
rules:
- {apiGroups: [''], resources: [users], resourceNames: [jane], verbs: [impersonate]}
- {apiGroups: [''], resources: [groups], resourceNames: [developers], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: [uids], resourceNames: [u-1], verbs: [impersonate]}
- apiGroups: [authentication.k8s.io]
  resources: [userextras/example.com/team]
  resourceNames: [red]
  verbs: [impersonate]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: impersonate-jane}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonate-jane}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: 'hub:system:serviceaccount:ci:app'}
";

/// A target with a token for it.
struct World {
    _hub: EmbeddedHub,
    target: EmbeddedTarget,
    folder: tempfile::TempDir,
}

impl World {
    async fn start(ignores_impersonation: bool) -> Self {
        let ca = Authority::new("a CA of a test").unwrap();
        let hub = EmbeddedHub::start(HubOptions {
            discovery_ca: Some(ca.clone()),
            ..HubOptions::default()
        })
        .await
        .unwrap();
        hub.add_service_account("ci", "app");
        let target = EmbeddedTarget::start(TargetOptions {
            discovery_url: Some(hub.discovery_url()),
            allowed_subjects: vec!["system:serviceaccount:ci:app".to_owned()],
            ignores_impersonation,
            ..TargetOptions::new(hub.issuer(), "target-a", "hub:", ca.ca_pem())
        })
        .await
        .unwrap();
        target.add_rbac(JANE).unwrap();
        let hour = Duration::from_secs(3600);
        let token = hub.token("ci", "app", "target-a", hour).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), token.expose_secret()).unwrap();
        std::fs::write(folder.path().join("ca.crt"), target.ca_pem()).unwrap();
        let object = "{apiVersion: v1, kind: Namespace, metadata: {name: apps}}";
        std::fs::write(folder.path().join("apps.yaml"), object).unwrap();
        Self {
            _hub: hub,
            target,
            folder,
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a command at the target, and returns all that a person sees.
    async fn run(&self, args: &[&str]) -> Transcript {
        let (token, ca) = (self.file("token"), self.file("ca.crt"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
        command
            .args(args)
            .args(["--target-address", self.target.url()])
            .args(["--target-certificate-authority", &ca])
            .args(["--target-token-file", &token]);
        let output = tokio::task::spawn_blocking(move || command.output());
        Transcript::new("keyferry", args, &output.await.unwrap().unwrap())
            .with_name(&self.folder.path().display().to_string(), "FOLDER")
            .with_name(self.target.url(), "https://TARGET")
            .without_random_words()
    }
}

#[tokio::test]
async fn whoami_and_can_i_ask_as_another_user() {
    let world = World::start(false).await;
    let everything = [
        "--as",
        "jane",
        "--as-group",
        "developers",
        "--as-uid",
        "u-1",
        "--as-user-extra",
        "example.com/team=red",
    ];
    let whoami = [&["whoami", "-o", "json"][..], &everything].concat();
    for (case, args) in [
        ("whoami-as-another-user", &whoami[..]),
        ("can-i-says-yes", &["can-i", "get", "pods", "--as", "jane"]),
        (
            "can-i-says-no",
            &["can-i", "delete", "pods", "--as", "jane"],
        ),
        (
            "can-i-lists",
            &["can-i", "--list", "-o", "json", "--as", "jane"],
        ),
    ] {
        assert_snapshot!(case, world.run(args).await);
    }
}

#[tokio::test]
async fn a_refused_impersonation_names_its_reason() {
    let world = World::start(false).await;
    let apps = world.file("apps.yaml");
    let mut shown = Vec::new();
    for args in [
        &["whoami", "--as", "joe"][..],
        &["whoami", "--as", "jane", "--as-group", "admins"],
        &["can-i", "get", "pods", "--as", "joe"],
        &["can-i", "get", "pods", "--as", "joe", "-o", "json"],
        &["can-i", "--list", "--as", "joe"],
        &["can-i", "apply", "-f", &apps, "--as", "joe"],
    ] {
        let answer = world.run(args).await;
        let has_role = answer.to_string().contains("kind: ");
        assert!(!has_role, "a Role would not help: {answer}");
        shown.push(answer);
    }
    assert_snapshot!("impersonation-denied", joined(&shown));
}

#[tokio::test]
async fn a_dropped_impersonation_is_no_answer() {
    let world = World::start(true).await;
    let shown = [
        world.run(&["whoami", "--as", "jane"]).await,
        world.run(&["can-i", "get", "pods", "--as", "jane"]).await,
    ];
    assert_snapshot!("impersonation-ignored", joined(&shown));
}
