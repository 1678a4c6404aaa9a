//! Builds the flags of a kube-apiserver.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::pki::{CertifiedKey, SigningKey, TestCa};

/// The settings that become the flags of one kube-apiserver.
#[derive(Debug)]
pub(crate) struct Flags<'a> {
    pub(crate) etcd_url: &'a str,
    pub(crate) etcd_prefix: &'a str,
    pub(crate) port: u16,
    pub(crate) ca: &'a TestCa,
    pub(crate) serving: &'a CertifiedKey,
    /// The first one signs; all are accepted.
    pub(crate) issuers: &'a [String],
    pub(crate) jwks_uri: Option<&'a str>,
    /// When empty, kube-apiserver uses the issuers.
    pub(crate) api_audiences: &'a [String],
    pub(crate) signing_key: &'a SigningKey,
    /// Public keys that are published and accepted beside the signing one.
    pub(crate) further_keys: &'a [SigningKey],
    pub(crate) authentication_config: Option<&'a Path>,
    pub(crate) audit: Option<&'a AuditFiles>,
    pub(crate) extra: &'a [String],
}

/// The file for audit events, and the policy that selects them.
#[derive(Debug, Clone)]
pub(crate) struct AuditFiles {
    pub(crate) log: PathBuf,
    pub(crate) policy: PathBuf,
}

impl AuditFiles {
    /// Logs every request once at level Metadata, when its response is complete.
    pub(crate) const POLICY: &'static str = concat!(
        "apiVersion: audit.k8s.io/v1\n",
        "kind: Policy\n",
        "omitStages: [RequestReceived]\n",
        "rules:\n",
        "- level: Metadata\n",
    );
}

impl Flags<'_> {
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut all = Arguments::default();
        self.server(&mut all);
        self.tokens(&mut all);
        if let Some(path) = self.authentication_config {
            all.path("authentication-config", path);
        }
        if let Some(audit) = self.audit {
            all.path("audit-log-path", &audit.log);
            all.path("audit-policy-file", &audit.policy);
        }
        all.0.extend(self.extra.iter().map(OsString::from));
        all.0
    }

    fn server(&self, all: &mut Arguments) {
        all.text("etcd-servers", self.etcd_url);
        all.text("etcd-prefix", self.etcd_prefix);
        all.text("bind-address", "127.0.0.1");
        all.text("advertise-address", "127.0.0.1");
        all.text("secure-port", &self.port.to_string());
        // Several servers advertise 127.0.0.1, so none may manage the endpoints of the Service
        // `kubernetes`.
        all.text("endpoint-reconciler-type", "none");
        all.text("service-cluster-ip-range", "10.96.0.0/24");
        all.text("authorization-mode", "RBAC");
        all.path("tls-cert-file", &self.serving.cert_path);
        all.path("tls-private-key-file", &self.serving.key_path);
        all.path("client-ca-file", self.ca.cert_path());
    }

    fn tokens(&self, all: &mut Arguments) {
        for issuer in self.issuers {
            all.text("service-account-issuer", issuer);
        }
        if let Some(uri) = self.jwks_uri {
            all.text("service-account-jwks-uri", uri);
        }
        if !self.api_audiences.is_empty() {
            all.text("api-audiences", &self.api_audiences.join(","));
        }
        let signing = self.signing_key;
        all.path("service-account-signing-key-file", &signing.private_path);
        all.path("service-account-key-file", &signing.public_path);
        for key in self.further_keys {
            all.path("service-account-key-file", &key.public_path);
        }
    }
}

/// Collects `--name=value`.
#[derive(Debug, Default)]
pub(crate) struct Arguments(pub(crate) Vec<OsString>);

impl Arguments {
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.0.push(format!("--{name}={value}").into());
    }

    pub(crate) fn path(&mut self, name: &str, path: &Path) {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(path);
        self.0.push(argument);
    }
}
