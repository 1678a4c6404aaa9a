//! A signer of Pod certificates that writes the Pod's ServiceAccount into a URI.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_keys::testing::client_certificates::TestAuthority;
use rcgen::CertificateParams;
use serde_json::{Value, json};

use super::caller::authority;

/// Its name in Pods and in requests.
pub(crate) const SIGNER: &str = "keyferry.test/callers";

/// A signer with its CA and its account on the hub.
pub(crate) struct Signer {
    hub: Arc<ControlPlane>,
    authority: TestAuthority,
}

impl Signer {
    /// Creates the CA, the account `signer`, and the account `stranger`, which may not sign.
    pub(crate) async fn install(hub: &Arc<ControlPlane>) -> Result<Self, TestError> {
        grant(hub).await?;
        Ok(Self {
            hub: Arc::clone(hub),
            authority: authority("callers of Pods"),
        })
    }

    /// The certificate of its CA.
    pub(crate) fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// A client of the hub with one of its ServiceAccounts.
    pub(crate) async fn account(&self, name: &str) -> Result<RestClient, TestError> {
        let audience = format!("https://{}.keyferry.test", self.hub.name());
        let token = self
            .hub
            .token_request("signer", name, &[&audience], 3600)
            .await?;
        Ok(self.hub.as_bearer(&token.token)?)
    }

    /// Issues the certificate of a request, with these changes.
    pub(crate) async fn sign(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> TestResult {
        let status = format!("{}/status", request_path(namespace, name));
        let signed = self.signed(namespace, name, change).await?;
        self.account("signer")
            .await?
            .patch(&status, &signed)
            .await?;
        Ok(())
    }

    /// Makes the certificate as the signer does: with the ServiceAccount from the request, which
    /// the hub checked, and only the key from the CSR.
    pub(crate) async fn signed(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Value, TestError> {
        let signer = self.account("signer").await?;
        let request = signer.get(&request_path(namespace, name)).await?;
        let account = request["spec"]["serviceAccountName"]
            .as_str()
            .ok_or("no account")?;
        let csr = request["spec"]["stubPKCS10Request"]
            .as_str()
            .ok_or("no CSR")?;
        let (mut begin, mut end) = (Timestamp::now(), Timestamp::now());
        let uri = uri(namespace, account);
        let pem = self
            .authority
            .sign_request(&STANDARD.decode(csr)?, &uri, |params| {
                change(params);
                begin =
                    Timestamp::from_second(params.not_before.unix_timestamp()).unwrap_or_default();
                end = Timestamp::from_second(params.not_after.unix_timestamp()).unwrap_or_default();
            });
        let issued = json!({
            "type": "Issued", "status": "True", "reason": "Signed", "message": "",
            "lastTransitionTime": Timestamp::now().round(jiff::Unit::Second)?,
        });
        Ok(json!({ "status": {
            "conditions": [issued], "certificateChain": pem,
            "notBefore": begin, "notAfter": end,
            "beginRefreshAt": begin + SignedDuration::from_mins(20),
        } }))
    }
}

/// The URI in the certificates of a ServiceAccount's Pods.
pub(crate) fn uri(namespace: &str, account: &str) -> String {
    format!("spiffe://hub.test/ns/{namespace}/sa/{account}")
}

/// The path of a namespace's PodCertificateRequests.
pub(crate) fn requests(namespace: &str) -> String {
    format!("/apis/certificates.k8s.io/v1/namespaces/{namespace}/podcertificaterequests")
}

/// The path of a request.
pub(crate) fn request_path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", requests(namespace))
}

/// A signer's rights, as the documentation of signers lists them, and an account without the last.
async fn grant(hub: &ControlPlane) -> TestResult {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let group = "certificates.k8s.io";
    let status = [
        rule(group, "podcertificaterequests", &["get", "list", "watch"]),
        rule(group, "podcertificaterequests/status", &["update", "patch"]),
    ];
    let sign = json!({
        "apiGroups": [group], "resources": ["signers"], "verbs": ["sign"],
        "resourceNames": [SIGNER],
    });
    for (account, rules) in [
        ("signer", [&status[..], &[sign]].concat()),
        ("stranger", status.to_vec()),
    ] {
        hub.create_namespace_with_service_account("signer", account)
            .await?;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": account }, "rules": rules,
        });
        let base = "/apis/rbac.authorization.k8s.io/v1";
        hub.admin()
            .create(&format!("{base}/clusterroles"), &role)
            .await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": account },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account,
            },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": "signer" }],
        });
        hub.admin()
            .create(&format!("{base}/clusterrolebindings"), &binding)
            .await?;
    }
    Ok(())
}
