//! The number of objects, and the content of each.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Outcome;
use crate::harness::arguments::Arguments;

/// The number of namespaces, each with one ServiceAccount for all its accesses.
pub const TENANTS: usize = 100;
/// The number of additional accesses with tokens of ten minutes. Each has its own ServiceAccount,
/// so that the hub's audit log distinguishes their keys.
pub const SHORT_LIVED: usize = 20;
/// The number of accesses that are created one after the other when all others are ready.
pub const NEWCOMERS: usize = 20;
/// The ServiceAccount of each tenant.
pub const ACCOUNT: &str = "reconciler";
/// The access of each tenant for which callers may also request tokens.
pub const OFFERED: &str = "access-0";
/// The namespace of the accesses with short-lived tokens.
pub const SHORT: &str = "short-lived";

/// The size of a fleet, and how long to watch it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of accesses of each tenant.
    pub per_tenant: usize,
    /// The number of TargetClusters.
    pub targets: usize,
    /// How long a ready fleet is watched.
    pub watched: Duration,
}

/// One TargetAccess.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    account: String,
    target: usize,
    deliveries: Vec<Value>,
}

impl Plan {
    /// Reads the plan from the arguments of the command.
    pub fn of(arguments: &Arguments) -> Outcome<Self> {
        let accesses = arguments.number("--accesses", 2000)?;
        let targets = arguments.number("--targets", 40)?;
        let minutes = arguments.number("--minutes", 15)?;
        let tenants = TENANTS as u64;
        let max_accesses = tenants * targets / 2;
        if accesses == 0 || accesses % tenants != 0 || accesses > max_accesses {
            return Err(format!(
                "--accesses takes a multiple of {TENANTS} up to {max_accesses} for {targets} targets"
            )
            .into());
        }
        Ok(Self {
            per_tenant: usize::try_from(accesses / tenants)?,
            targets: usize::try_from(targets)?,
            watched: Duration::from_secs(minutes * 60),
        })
    }

    /// The accesses that are created at once. For half of them Keyferry writes a Secret with a
    /// token, for the others a ConfigMap for Flux.
    pub fn accesses(self) -> Vec<Access> {
        let of = |tenant: usize| {
            (0..self.per_tenant).map(move |index| {
                one(
                    tenant,
                    (tenant + index) % self.targets,
                    format!("access-{index}"),
                    index % 2 == 0,
                )
            })
        };
        (0..TENANTS).flat_map(of).collect()
    }

    /// The accesses that are created later. Their ServiceAccounts have had no token for these
    /// targets before.
    pub fn newcomers(self) -> Vec<Access> {
        (0..NEWCOMERS)
            .map(|index| {
                one(
                    index,
                    (index + self.targets / 2 + index % 3) % self.targets,
                    format!("newcomer-{index}"),
                    index % 2 == 0,
                )
            })
            .collect()
    }

    /// The accesses with tokens of ten minutes.
    pub fn short_lived(self) -> Vec<Access> {
        let one = |index: usize| Access {
            namespace: SHORT.to_owned(),
            name: format!("access-{index}"),
            account: short_lived_account(index),
            target: index % self.targets,
            deliveries: vec![
                json!({ "name": "flux", "type": "KubeConfigSecret", "tokenLifetime": "10m" }),
            ],
        };
        (0..SHORT_LIVED).map(one).collect()
    }
}

/// The ServiceAccount of one access with short-lived tokens.
pub fn short_lived_account(index: usize) -> String {
    format!("reconciler-{index}")
}

/// The namespace of a tenant.
pub fn tenant(index: usize) -> String {
    format!("tenant-{index}")
}

/// The name of a TargetCluster.
pub fn target(index: usize) -> String {
    format!("cluster-{index}")
}

/// The `allow[]` of every TargetCluster.
pub fn allow() -> Value {
    let deliveries = ["HTTP", "Exec", "FluxConfigMap", "KubeConfigSecret"];
    let namespaces: Vec<String> = (0..TENANTS).map(tenant).collect();
    let short: Vec<String> = (0..SHORT_LIVED).map(short_lived_account).collect();
    json!([
        { "namespaces": namespaces, "serviceAccounts": [ACCOUNT], "deliveries": deliveries },
        { "namespaces": [SHORT], "serviceAccounts": short, "deliveries": deliveries },
    ])
}

fn one(tenant_index: usize, target: usize, name: String, holds_token: bool) -> Access {
    let shape = if holds_token {
        "KubeConfigSecret"
    } else {
        "FluxConfigMap"
    };
    let mut deliveries = vec![json!({ "name": "flux", "type": shape })];
    if name == OFFERED {
        deliveries.extend([
            json!({ "name": "http", "type": "HTTP" }),
            json!({ "name": "exec", "type": "Exec" }),
        ]);
    }
    Access {
        namespace: tenant(tenant_index),
        name,
        account: ACCOUNT.to_owned(),
        target,
        deliveries,
    }
}

impl Access {
    /// `<namespace>/<name>`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The index of its target.
    pub fn target(&self) -> usize {
        self.target
    }

    /// `<namespace>/<name>` of the object that is written for it.
    pub fn written(&self) -> String {
        if self.holds_token() {
            format!("{}-kubeconfig", self.id())
        } else {
            self.id()
        }
    }

    /// Whether a token is written for it.
    pub fn holds_token(&self) -> bool {
        self.deliveries
            .first()
            .is_some_and(|delivery| delivery["type"] == "KubeConfigSecret")
    }

    /// The TargetAccess object.
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": {
                "targetClusterRef": { "name": target(self.target) }, "serviceAccountName": self.account,
                "deliveries": self.deliveries, "probe": "Off",
            },
        })
    }
}
