//! Tests constrained impersonation (KEP-5284) on a real target: what `keyferry trust` prints for it
//! works, and doctor does not call it denied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::federation::{AUDIENCE, Federation};

const ACCOUNT: &str = "flux-apps/deployer";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// The exit code and the report of doctor.
type Asked = (Option<i32>, Value);

pub(super) async fn constrained(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    federation
        .target
        .restart_with_authentication_config(&federation.configuration)
        .await?;
    federation.until_initialized().await?;
    let token = federation.token("reconciler", &[AUDIENCE]).await?;
    let mut flags = federation.target_flags(&federation.target)?;
    flags.extend([
        "--target-token-file".to_owned(),
        federation.file("token", &token)?.display().to_string(),
        "--discovery-url".to_owned(),
        federation.discovery_url.clone(),
        "--discovery-ca".to_owned(),
        federation
            .file("discovery-ca.crt", federation.ground.ca().cert_pem())?
            .display()
            .to_string(),
        "--target-namespace".to_owned(),
        "flux-apps".to_owned(),
        "--as".to_owned(),
        ACCOUNT.to_owned(),
    ]);
    let doctor = Doctor {
        federation,
        flags,
        token,
    };

    let (code, report) = doctor.ask(&[]).await?;
    assert_eq!(
        (code, broken(&report)),
        (Some(1), ("Impersonation", "ImpersonationDenied")),
        "{report:#}"
    );
    let detail = said(&report, "Impersonation");
    for right in ["impersonate serviceaccounts", "impersonate:serviceaccount"] {
        assert!(detail.contains(right), "{right}: {detail}");
    }

    let rbac = printed_rbac(federation).await?;
    apply_manifests(
        &federation.target,
        &[&federation.file("constrained.yaml", &rbac)?],
    )
    .await?;
    let (_, report) = doctor.until(|(code, _)| *code == Some(0)).await?;
    assert_eq!(status(&report, "Impersonation"), "Well", "{report:#}");
    let detail = said(&report, "Impersonation");
    for checked in [
        "impersonate:serviceaccount serviceaccounts deployer in flux-apps",
        "impersonate-on:serviceaccount:patch",
        "impersonate-on:serviceaccount:get /apis",
        "other requests were not checked",
    ] {
        assert!(detail.contains(checked), "{checked}: {detail}");
    }
    // The target answers with the rights of the ServiceAccount, to which --bind binds a role.
    let (code, report) = doctor.ask(&["get/pods"]).await?;
    assert_eq!(
        (code, status(&report, "Rights")),
        (Some(0), "Well"),
        "{report:#}"
    );

    // A right on some resources only, without access reviews and discovery.
    let narrow = json!({ "rules": [
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:serviceaccount:get"] },
    ] });
    let path = format!("{CLUSTER_ROLES}/keyferry-hub-impersonate-on");
    federation.target.admin().patch(&path, &narrow).await?;
    let (code, report) = doctor
        .until(|(_, report)| status(report, "Impersonation") == "Warning")
        .await?;
    assert_eq!(
        (code, status(&report, "Rights")),
        (Some(3), "Undetermined"),
        "not broken, because no right is named: {report:#}"
    );
    assert!(
        said(&report, "Impersonation").contains("--needs"),
        "{report:#}"
    );
    let (code, report) = doctor.ask(&["get/pods"]).await?;
    assert_eq!(
        (code, status(&report, "Impersonation")),
        (Some(3), "Warning"),
        "the needed right is granted, and discovery is not: {report:#}"
    );
    let (code, report) = doctor.ask(&["patch/pods"]).await?;
    assert_eq!(
        (code, broken(&report)),
        (Some(1), ("Impersonation", "ImpersonationDenied")),
        "{report:#}"
    );
    let detail = said(&report, "Impersonation");
    assert!(
        detail.contains("impersonate-on:serviceaccount:patch pods in flux-apps is not allowed"),
        "{detail}"
    );
    federation.target.admin().delete(&path).await?;
    Ok(())
}

/// The RBAC that `keyferry trust` prints for Flux, without the AuthenticationConfiguration.
async fn printed_rbac(it: &Federation) -> Result<String, TestError> {
    let arguments = [
        "trust",
        "target",
        "--issuer=https://hub.keyferry.test",
        "--audience",
        AUDIENCE,
        "--prefix=hub:",
        "--allow=tenant-a/reconciler",
        "--bind=reader",
        "--bind-cluster-wide",
        "--kubernetes=1.36",
        "--flux-service-account",
        ACCOUNT,
    ];
    let output = it.ground.binary().run(&arguments, &[]).await?;
    let text = String::from_utf8(output.stdout)?;
    let (_, rbac) = text.split_once("\n---\n").ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("no RBAC is printed: {text}{error}")
    })?;
    Ok(rbac.to_owned())
}

/// Runs doctor for a user who is to impersonate the ServiceAccount.
struct Doctor<'a> {
    federation: &'a Federation,
    flags: Vec<String>,
    token: String,
}

impl Doctor<'_> {
    async fn ask(&self, needs: &[&str]) -> Result<Asked, TestError> {
        let needs = needs.iter().map(|need| format!("--needs={need}"));
        let arguments: Vec<String> = self.flags.iter().cloned().chain(needs).collect();
        self.federation.doctor(&arguments, &self.token).await
    }

    /// Waits, because the target's authorizer sees RBAC objects a little later than the API.
    async fn until(&self, done: fn(&Asked) -> bool) -> Result<Asked, TestError> {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            let asked = self.ask(&[]).await?;
            if done(&asked) {
                return Ok(asked);
            }
            if Instant::now() > limit {
                return Err(format!("still {:?}: {:#}", asked.0, asked.1).into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn broken(report: &Value) -> (&str, &str) {
    let text = |name: &str| report["broken"][name].as_str().unwrap_or_default();
    (text("hop"), text("reason"))
}

fn status<'a>(report: &'a Value, hop: &str) -> &'a str {
    hop_of_report(report, hop)["status"]
        .as_str()
        .unwrap_or_default()
}

fn said<'a>(report: &'a Value, hop: &str) -> &'a str {
    hop_of_report(report, hop)["detail"]
        .as_str()
        .unwrap_or_default()
}

fn hop_of_report<'a>(report: &'a Value, hop: &str) -> &'a Value {
    report["hops"]
        .as_array()
        .and_then(|hops| hops.iter().find(|found| found["hop"] == hop))
        .unwrap_or(&Value::Null)
}
