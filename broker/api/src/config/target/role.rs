//! `spec.sameAs` and `spec.role`: a target that is another audience at the cluster of a target.

use super::super::check::Check;
use super::super::duration::print_duration;
use super::{TargetCluster, TargetClusterSpec, TargetKind};
use crate::managed_issuer;
use crate::name::{ObjectName, RoleName};
use crate::reason::Reason;

/// What a target is at the cluster of another one. Its tokens have an audience of their own, by
/// which the cluster gives them another user, and so other rights, than the account's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRole {
    /// The TargetCluster of that cluster: the base.
    pub same_as: ObjectName,
    /// The role's name, which is part of the username at the cluster.
    pub role: RoleName,
}

/// Why a role cannot be used at its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct RoleFault {
    pub(in crate::config) reason: Reason,
    /// The field of the role that is at fault.
    pub(in crate::config) path: &'static str,
    pub(in crate::config) problem: String,
    pub(in crate::config) fix: String,
}

impl TargetCluster {
    /// The prefix of the users and groups that the target gives the hub's tokens for this audience:
    /// `<hub>:`, or `<hub>:<role>:` for a role.
    pub fn username_prefix(&self, hub_name: &str) -> String {
        match &self.role {
            Some(TargetRole { role, .. }) => format!("{hub_name}:{role}:"),
            None => format!("{hub_name}:"),
        }
    }

    /// Returns the role with everything that it takes from its base. A suspended base suspends it.
    /// Its generation changes with either spec, because caches and grants depend on both.
    #[must_use]
    pub fn at_base(&self, base: &Self) -> Self {
        Self {
            generation: self.generation.of_role(base.generation),
            kind: base.kind,
            address: base.address.clone(),
            tls_server_name: base.tls_server_name.clone(),
            proxy_url: base.proxy_url.clone(),
            certificate: base.certificate.clone(),
            issuer: base.issuer,
            target_issuer: base.target_issuer.clone(),
            probe: base.probe,
            suspend: self.suspend || base.suspend,
            ..self.clone()
        }
    }
}

/// Reads `sameAs` and `role`, and notes the fields that a role takes from its base.
pub(super) fn read_role(
    spec: &TargetClusterSpec,
    name: Option<&ObjectName>,
    check: &mut Check<'_>,
) -> Option<TargetRole> {
    let (same_as, role) = match (&spec.same_as, &spec.role) {
        (None, None) => return None,
        (Some(same_as), Some(role)) => (same_as, role),
        (None, Some(_)) => {
            let fix = "name the TargetCluster at whose cluster this is a role, or remove role";
            check.wrong("spec.sameAs", "is missing beside role", fix);
            return None;
        }
        (Some(_), None) => {
            let fix = "name the role, such as view, or remove sameAs";
            check.wrong("spec.role", "is missing beside sameAs", fix);
            return None;
        }
    };
    for (field, is_set) in [
        ("address", spec.address.is_some()),
        ("tlsServerName", spec.tls_server_name.is_some()),
        ("proxyURL", spec.proxy_url.is_some()),
        ("certSecretRef", spec.cert_secret_ref.is_some()),
        (
            "clusterTrustBundleRef",
            spec.cluster_trust_bundle_ref.is_some(),
        ),
        ("caBundle", spec.ca_bundle.is_some()),
        // The schema writes the default Hub into every object.
        ("issuer", spec.issuer != "Hub"),
        ("targetIssuer", spec.target_issuer.is_some()),
        ("identity", spec.identity.is_some()),
        ("probe", spec.probe.is_some()),
        (
            "kind",
            spec.kind.as_deref().is_some_and(|kind| kind != "Cluster"),
        ),
        ("hub", spec.hub == Some(true)),
        ("clientCertificates", spec.client_certificates.is_some()),
    ] {
        if is_set {
            check.wrong(
                &format!("spec.{field}"),
                "is set beside sameAs, so it would contradict the named TargetCluster",
                "remove it; it counts as the named TargetCluster has it",
            );
        }
    }
    let same_as = check.take(
        "spec.sameAs",
        ObjectName::new(same_as),
        "name a TargetCluster",
    )?;
    if name == Some(&same_as) {
        let fix = "name the TargetCluster at whose cluster this is a role";
        check.wrong("spec.sameAs", "names this TargetCluster itself", fix);
    }
    let role = check.take(
        "spec.role",
        RoleName::new(role),
        "write at most 32 of a-z, 0-9 and -, such as view",
    )?;
    Some(TargetRole { same_as, role })
}

/// Checks that a role can be used at its base.
pub(in crate::config) fn check_base(
    target: &TargetCluster,
    role: &TargetRole,
    base: &TargetCluster,
) -> Result<(), RoleFault> {
    let refuse = |path, problem: String, fix: String| {
        Err(RoleFault {
            reason: Reason::SpecInvalid,
            path,
            problem,
            fix,
        })
    };
    let name = &role.same_as;
    if let Some(further) = &base.role {
        let problem = format!("TargetCluster/{name} is a role itself");
        return refuse(
            "spec.sameAs",
            problem,
            format!("name its base, {}", further.same_as),
        );
    }
    if base.kind != TargetKind::Cluster || base.client_certificates.is_some() {
        let problem = format!("TargetCluster/{name} is no cluster that accepts tokens of the hub");
        let fix = "name a TargetCluster with an address, and without hub: true";
        return refuse("spec.sameAs", problem, fix.to_owned());
    }
    if managed_issuer::secret_name(&target.name).is_err() {
        let problem = "is too long: the role may have a managed issuer, and then it is part of a \
                       Secret's name";
        let fix = "choose a name of at most 200 characters";
        return refuse("metadata.name", problem.to_owned(), fix.to_owned());
    }
    let (max, limit) = (target.lifetime.max, base.lifetime.max);
    if max > limit {
        let (max, limit) = (print_duration(max), print_duration(limit));
        let problem = format!("{max} is longer than that of TargetCluster/{name}, {limit}");
        let fix = format!("write at most {limit}");
        return refuse("spec.tokenLifetime.max", problem, fix);
    }
    Ok(())
}
