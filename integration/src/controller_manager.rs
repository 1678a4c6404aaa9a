//! Builds the flags of a kube-controller-manager for root CA ConfigMaps, default ServiceAccounts,
//! CSR signing and garbage collection.

use std::ffi::OsString;
use std::path::Path;

use crate::apiserver::Arguments;
use crate::pki::{SigningKey, TestCa};

/// Arguments for one control plane.
pub(crate) fn arguments(kubeconfig: &Path, ca: &TestCa, signing_key: &SigningKey) -> Vec<OsString> {
    let mut all = Arguments::default();
    all.path("kubeconfig", kubeconfig);
    all.path("root-ca-file", ca.cert_path());
    all.path("cluster-signing-cert-file", ca.cert_path());
    all.path("cluster-signing-key-file", ca.key_path());
    all.path(
        "service-account-private-key-file",
        &signing_key.private_path,
    );
    all.text("use-service-account-credentials", "false");
    all.text("leader-elect", "false");
    all.text("secure-port", "0");
    all.text("controllers", "*,-node-ipam-controller");
    all.0
}
