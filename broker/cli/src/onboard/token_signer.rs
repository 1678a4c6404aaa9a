//! Who signs the tokens of an access.

use keyferry_client::object_view::{AccessView, TargetSpecView, TargetView};

/// Who signs the tokens of a TargetAccess.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenSigner {
    /// The name of its ServiceAccount.
    pub(super) account: String,
    /// Whether its target has a managed issuer.
    pub(super) is_managed: bool,
    /// Whether its target issues client certificates of the hub instead of tokens.
    pub(super) is_of_certificates: bool,
}

impl TokenSigner {
    /// Reads it from a TargetAccess and its TargetCluster on the hub.
    pub(super) fn of(access: &AccessView, target: Option<&TargetView>) -> Self {
        let target = target.map(|target| &target.spec);
        Self {
            account: access.spec.service_account_name.clone(),
            is_managed: target.is_some_and(TargetSpecView::has_managed_issuer),
            is_of_certificates: target.is_some_and(|spec| spec.client_certificates.is_some()),
        }
    }

    /// Whether Keyferry tries such tokens. It probes no hub, and `keyferry.dev/requestedAt` also
    /// makes it request a certificate again that a person has denied.
    pub(super) fn is_probed(&self) -> bool {
        !self.is_of_certificates
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The annotation that requests a probe also ended the denial of a certificate.
    #[test]
    fn no_probe_is_requested_where_the_hub_signs_certificates() {
        let access = AccessView::of(&json!({ "spec": { "serviceAccountName": "reconciler" } }));
        let tokens = TargetView::of(&json!({ "spec": { "issuer": "Keyferry" } }));
        let certificates = json!({ "spec": { "hub": true, "clientCertificates": {} } });
        let certificates = TargetView::of(&certificates);
        let signer = TokenSigner::of(&access, Some(&tokens));
        assert_eq!(
            (signer.account.as_str(), signer.is_managed),
            ("reconciler", true)
        );
        assert!(signer.is_probed());
        assert!(TokenSigner::of(&access, None).is_probed());
        assert!(!TokenSigner::of(&access, Some(&certificates)).is_probed());
    }
}
