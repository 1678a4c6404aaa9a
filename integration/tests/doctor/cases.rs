//! The expected reports of doctor on one broken federation, in each mode.

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use serde_json::{Value, json};

use super::federation::Federation;

/// The expected report of doctor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// All is well: exit code 0.
    Well,
    /// This hop is broken, for this reason: exit code 1.
    Broken(&'static str, &'static str),
    /// Doctor cannot determine it: exit code 3.
    Undetermined,
}

/// One broken federation.
pub(super) struct Case<'a> {
    pub(super) name: &'a str,
    pub(super) token: String,
    /// The URL where the target reads the discovery document, and the CA of that server.
    pub(super) discovery: (&'a str, &'a str),
    /// The target's AuthenticationConfiguration.
    pub(super) configuration: &'a str,
    /// Further flags.
    pub(super) flags: Vec<String>,
    /// The expected reports by the network alone, by the file, and by a TokenReview.
    pub(super) says: [Says; 3],
}

impl Case<'_> {
    /// Asks in all three modes. Errors of doctor are collected, so that one run reports all of
    /// them.
    pub(super) async fn check(
        &self,
        federation: &Federation,
        target: &ControlPlane,
    ) -> Result<Vec<String>, TestError> {
        let path = |name: &str, content: &str| {
            federation
                .file(name, content)
                .map(|path| path.display().to_string())
        };
        let token = path("token", &self.token)?;
        let mut base = federation.target_flags(target)?;
        if self
            .flags
            .iter()
            .any(|flag| flag == "--target-certificate-authority")
        {
            base.truncate(2);
        }
        base.extend(["--target-token-file".to_owned(), token]);
        base.extend(self.flags.iter().cloned());
        let discovery = [
            "--discovery-url".to_owned(),
            self.discovery.0.to_owned(),
            "--discovery-ca".to_owned(),
            path("discovery-ca.crt", self.discovery.1)?,
        ];
        let by_network = [base.clone(), discovery.to_vec()].concat();
        let by_file = [
            base,
            vec![
                "--auth-config".to_owned(),
                path("auth-config.yaml", self.configuration)?,
            ],
        ]
        .concat();
        let kubeconfig = target.admin_kubeconfig().display().to_string();
        let by_review = [
            by_network.clone(),
            vec!["--target-kubeconfig".to_owned(), kubeconfig],
        ]
        .concat();
        let mut wrong = Vec::new();
        for (mode, arguments, says) in [
            ("network", by_network, self.says[0]),
            ("file", by_file, self.says[1]),
            ("review", by_review, self.says[2]),
        ] {
            let (code, report) = federation.doctor(&arguments, &self.token).await?;
            wrong.extend(
                differs(says, code, &report).map(|how| format!("{} by {mode}: {how}", self.name)),
            );
        }
        Ok(wrong)
    }
}

/// How a report differs from the expected one.
pub(super) fn differs(says: Says, code: Option<i32>, report: &Value) -> Option<String> {
    let (verdict, broken, expected) = match says {
        Says::Well => ("Well", json!([null, null]), 0),
        Says::Broken(hop, reason) => ("Broken", json!([hop, reason]), 1),
        Says::Undetermined => ("Undetermined", json!([null, null]), 3),
    };
    let found = json!([report["broken"]["hop"], report["broken"]["reason"]]);
    let same = report["verdict"] == verdict && found == broken && code == Some(expected);
    (!same).then(|| {
        format!(
            "is to say {says:?}, says {code:?} {} {found}\n{report:#}",
            report["verdict"]
        )
    })
}
