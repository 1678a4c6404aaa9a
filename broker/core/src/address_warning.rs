//! What about the address of a target is likely to be a mistake, although it is well formed.

use std::net::IpAddr;

use url::{Host, Url};

/// The names of the apiserver inside every cluster.
const IN_CLUSTER: [&str; 4] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Warns of an address that only this machine or the hub itself has.
pub(crate) fn address_warning(server: &str) -> Option<String> {
    let url = Url::parse(server).ok()?;
    let host = url.host()?;
    let address = match &host {
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        Host::Domain(_) => None,
    };
    let is_local_name = |name: &str| {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost")
    };
    let is_local = address.is_some_and(|it| it.to_canonical().is_loopback() || it.is_unspecified())
        || matches!(&host, Host::Domain(name) if is_local_name(name));
    if is_local {
        return Some(format!(
            "{host} is an address of this machine alone, so the hub does not reach the target \
             there, and Keyferry refuses it (TargetAddressRefused); write the address that the hub \
             reaches"
        ));
    }
    let name = host.to_string();
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    IN_CLUSTER.contains(&name.as_str()).then(|| {
        format!(
            "{name} is the cluster that asks, so here it is the hub itself and no target; workloads \
             of the hub need no Keyferry for it"
        )
    })
}
