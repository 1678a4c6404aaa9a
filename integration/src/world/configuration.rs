//! Targets and accesses of a test, and the configuration objects made from them.

use std::fmt::Write;

use crate::control_plane::ControlPlane;

/// A TargetCluster of a test.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The address of its apiserver.
    pub address: String,
    /// The Secret of `certSecretRef`. Without one, `caBundle` contains `ca_pem`.
    pub ca_secret: Option<String>,
    /// The ClusterTrustBundle of `clusterTrustBundleRef`, instead of both.
    pub trust_bundle: Option<String>,
    /// Its CA.
    pub ca_pem: String,
    /// The audience of its tokens.
    pub audience: String,
    /// `allow[]`: namespace and ServiceAccounts.
    pub allow: Vec<(String, Vec<String>)>,
    /// Further lines of the spec, indented by two.
    pub further: String,
}

impl Target {
    /// A target for a control plane, with an empty `allow[]`.
    pub fn of(plane: &ControlPlane, audience: &str) -> Self {
        Self {
            name: plane.name().to_owned(),
            address: plane.url(),
            ca_secret: None,
            trust_bundle: None,
            ca_pem: plane.ca_pem().to_owned(),
            audience: audience.to_owned(),
            allow: Vec::new(),
            further: String::new(),
        }
    }

    /// A relying party that is not a cluster. `tenant-a/reconciler` may use it.
    pub fn audience(name: &str, audience: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: String::new(),
            ca_secret: None,
            ca_pem: String::new(),
            trust_bundle: None,
            audience: audience.to_owned(),
            allow: Vec::new(),
            further: "  kind: Audience\n  allow:\n    - namespaces: [tenant-a]\n      \
                serviceAccounts: [reconciler]\n      deliveries: [HTTP]\n"
                .to_owned(),
        }
    }

    /// Changes the name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds an entry to `allow[]`.
    #[must_use]
    pub fn allowing(mut self, namespace: &str, accounts: &[&str]) -> Self {
        self.allow.push((
            namespace.to_owned(),
            accounts
                .iter()
                .map(|account| (*account).to_owned())
                .collect(),
        ));
        self
    }

    fn write(&self, text: &mut String) {
        let Self {
            name,
            address,
            audience,
            ..
        } = self;
        let _ = write!(
            text,
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata:\n  name: \
             {name}\nspec:\n"
        );
        if !address.is_empty() {
            let _ = writeln!(text, "  address: {address}");
        }
        let _ = writeln!(text, "  audience: {audience}");
        match (&self.trust_bundle, &self.ca_secret) {
            (Some(bundle), _) => {
                let _ = writeln!(text, "  clusterTrustBundleRef:\n    name: {bundle}");
            }
            (None, None) if address.is_empty() => {}
            (None, Some(secret)) => {
                let _ = writeln!(text, "  certSecretRef:\n    name: {secret}");
            }
            (None, None) => {
                let _ = writeln!(
                    text,
                    "  caBundle: {}",
                    serde_json::Value::from(self.ca_pem.as_str())
                );
            }
        }
        text.push_str(&self.further);
        if !self.allow.is_empty() {
            text.push_str("  allow:\n");
        }
        for (namespace, accounts) in &self.allow {
            let _ = writeln!(
                text,
                "    - namespaces: [{namespace}]\n      serviceAccounts: [{}]",
                accounts.join(", ")
            );
        }
    }
}

/// A TargetAccess of a test.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of the TargetCluster.
    pub target: String,
    /// The ServiceAccount that tokens are minted for.
    pub account: String,
    /// `callers[]`.
    pub callers: Vec<String>,
}

impl Access {
    /// An access without further callers.
    pub fn of(namespace: &str, name: &str, target: &str, account: &str) -> Self {
        let own = str::to_owned;
        Self {
            namespace: own(namespace),
            name: own(name),
            target: own(target),
            account: own(account),
            callers: Vec::new(),
        }
    }

    /// Sets the further callers.
    #[must_use]
    pub fn for_callers(mut self, callers: &[&str]) -> Self {
        self.callers = callers.iter().map(|caller| (*caller).to_owned()).collect();
        self
    }

    fn write(&self, text: &mut String) {
        let Self {
            namespace,
            name,
            target,
            account,
            callers,
        } = self;
        let _ = write!(
            text,
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata:\n  name: \
             {name}\n  namespace: {namespace}\nspec:\n  targetClusterRef:\n    name: \
             {target}\n  serviceAccountName: {account}\n"
        );
        if !callers.is_empty() {
            let _ = writeln!(text, "  callers: [{}]", callers.join(", "));
        }
    }
}

/// The targets and accesses as YAML documents.
pub(super) fn objects(targets: &[Target], accesses: &[Access]) -> String {
    let mut text = String::new();
    for target in targets {
        target.write(&mut text);
    }
    for access in accesses {
        access.write(&mut text);
    }
    text
}
