//! The flags of impersonation, and the files of examples/impersonation, on the embedded target.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

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

fn demo(auth_config: &Path, rbac: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["demo", "--once", "--auth-config"])
        .arg(auth_config)
        .arg("--rbac")
        .arg(rbac)
        .args(more)
        .output()
        .unwrap()
}

/// The last step of the demo.
fn last_step(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let (_, last) = text.split_once("\n6. ").unwrap_or_else(|| {
        panic!("{text}{}", String::from_utf8_lossy(&output.stderr));
    });
    last.to_owned()
}

#[test]
fn both_example_files_let_the_workload_be_the_deployer_alone() {
    let folder = tempfile::tempdir().unwrap();
    let auth_config = auth_config(folder.path());
    for (file, denied) in [
        ("legacy.yaml", "cannot impersonate-on:serviceaccount:create"),
        (
            "constrained.yaml",
            "cannot impersonate:serviceaccount resource",
        ),
    ] {
        let output = demo(&auth_config, &example(file), &[]);
        let step = last_step(&output);
        assert!(output.status.success(), "{file}: {step}");
        assert!(
            step.contains("201 the target sees this user:")
                && step.contains("username  system:serviceaccount:tenant-a:deployer\n"),
            "{file}: {step}"
        );
        for other in ["tenant-a:other", "apps:deployer"] {
            let step = last_step(&demo(&auth_config, &example(file), &["--as", other]));
            assert!(
                step.contains("403 ") && !step.contains("201 "),
                "{file} as {other}: {step}"
            );
            assert!(step.contains(denied), "{file} as {other}: {step}");
        }
        let more = ["--as", "tenant-a:deployer", "--as-group", "system:masters"];
        let step = last_step(&demo(&auth_config, &example(file), &more));
        assert!(
            step.contains("403 ") && !step.contains("201 "),
            "{file}: {step}"
        );
    }
}

#[test]
fn a_workload_that_the_file_refuses_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let auth_config = auth_config(folder.path());
    let output = demo(
        &auth_config,
        &example("legacy.yaml"),
        &["--service-account", "tenant-a/other"],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("this ServiceAccount may not use this cluster") && said.contains("fix: "),
        "{said}"
    );
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let auth_config = auth_config(folder.path());
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "kind: [").unwrap();
    let shipped = repository().join("auth-configs/hub.yaml");
    for (auth_config, rbac, fault) in [
        (&broken, &example("legacy.yaml"), "broken.yaml"),
        (&shipped, &example("legacy.yaml"), "certificateAuthority"),
        (&auth_config, &broken, "is not YAML"),
    ] {
        let output = demo(auth_config, rbac, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(fault), "{said}");
    }
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

    /// Runs a command at the target; returns its exit code and all that it prints.
    async fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let (token, ca) = (self.file("token"), self.file("ca.crt"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
        command
            .args(args)
            .args(["--target-address", self.target.url()])
            .args(["--target-certificate-authority", &ca])
            .args(["--target-token-file", &token]);
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = output.await.unwrap().unwrap();
        let (out, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        (output.status.code(), format!("{out}{error}"))
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
    let (code, text) = world
        .run(&[&["whoami", "-o", "json"][..], &everything].concat())
        .await;
    assert_eq!(code, Some(0), "{text}");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        document["impersonated"],
        serde_json::json!({
            "username": "jane", "uid": "u-1", "groups": ["developers", "system:authenticated"],
            "extra": { "example.com/team": ["red"] },
        })
    );
    assert_eq!(
        document["user"]["username"],
        "hub:system:serviceaccount:ci:app"
    );

    let (code, text) = world.run(&["can-i", "get", "pods", "--as", "jane"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("yes: jane may get pods"), "{text}");
    let (code, text) = world
        .run(&["can-i", "delete", "pods", "--as", "jane"])
        .await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("no: jane may not") && text.contains("kind: Cluster"),
        "{text}"
    );
    let (code, text) = world
        .run(&["can-i", "--list", "-o", "json", "--as", "jane"])
        .await;
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &document["user"]), (Some(0), &"jane".into()));
    assert_eq!(document["incomplete"], false, "{document}");
    let rules = document["rules"].as_array().unwrap();
    let reads = serde_json::json!({
        "groups": ["*"], "resources": ["*"], "names": [], "verbs": ["get", "list", "watch"],
    });
    assert!(rules.contains(&reads), "{document}");
}

#[tokio::test]
async fn a_refused_impersonation_names_its_reason() {
    let world = World::start(false).await;
    let apps = world.file("apps.yaml");
    for args in [
        &["whoami", "--as", "joe"][..],
        &["whoami", "--as", "jane", "--as-group", "admins"],
        &["can-i", "get", "pods", "--as", "joe"],
        &["can-i", "--list", "--as", "joe"],
        &["can-i", "apply", "-f", &apps, "--as", "joe"],
    ] {
        let (code, text) = world.run(args).await;
        assert_eq!(code, Some(1), "{args:?}: {text}");
        for expected in ["ImpersonationDenied", "cannot impersonate", "fix: "] {
            assert!(text.contains(expected), "{args:?}: {text}");
        }
        assert!(!text.contains("kind: "), "a Role would not help: {text}");
    }
    let (code, text) = world
        .run(&["can-i", "get", "pods", "--as", "joe", "-o", "json"])
        .await;
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(document["answer"], "no");
    assert_eq!(document["reason"], "ImpersonationDenied");
}

#[tokio::test]
async fn a_dropped_impersonation_is_no_answer() {
    let world = World::start(true).await;
    let (code, text) = world.run(&["whoami", "--as", "jane"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("ImpersonationIgnored") && text.contains("fix: "),
        "{text}"
    );
    let (code, text) = world.run(&["can-i", "get", "pods", "--as", "jane"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("ImpersonationIgnored"), "{text}");
}
