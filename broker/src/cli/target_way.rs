//! The flags by which `doctor`, `whoami` and `can-i` find a target and a token for it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use keyferry_core::name::{AccessName, Namespace, ObjectName};
use keyferry_trust::doctor::Held;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::HubArgs;
use super::access::AccessArgs;
use crate::client::direct::Direct;
use crate::client::doctor::flux::{Kind, from_flux};
use crate::client::doctor::start::{Plan, from_access, from_secret};
use crate::client::doctor::{TargetAddress, found_kubeconfig};

/// More than a token, a CA bundle or a configuration has.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `KIND/NAME`.
#[derive(Clone, Debug)]
pub(super) struct StartArg {
    kind: StartKind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartKind {
    Access,
    Secret,
    Kustomization,
    HelmRelease,
}

impl FromStr for StartArg {
    type Err = String;

    fn from_str(text: &str) -> Result<StartArg, String> {
        let wrong = || "write access/NAME, secret/NAME, kustomization/NAME or helmrelease/NAME".to_owned();
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = match kind {
            "access" => StartKind::Access,
            "secret" | "secrets" => StartKind::Secret,
            "kustomization" | "kustomizations" | "ks" => StartKind::Kustomization,
            "helmrelease" | "helmreleases" | "hr" => StartKind::HelmRelease,
            _ => return Err(wrong()),
        };
        ObjectName::new(name).map_err(|error| format!("the name {error}"))?;
        Ok(StartArg { kind, name: name.to_owned() })
    }
}

#[derive(Args)]
pub(super) struct WayArgs {
    /// The key of the Secret; without it, value or value.yaml.
    #[arg(long, value_name = "KEY")]
    secret_key: Option<String>,
    /// The configuration file with the access.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The Keyferry server to fetch the access's kubeconfig from, in the place of --config.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    server: Option<String>,
    /// CA certificates of that server.
    #[arg(long, value_name = "FILE", requires = "server")]
    server_ca: Option<PathBuf>,
    /// The caller's own token for that server.
    #[arg(long, value_name = "FILE", requires = "server")]
    caller_token_file: Option<PathBuf>,
    /// The issuer that the target trusts.
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The audience that the target accepts.
    #[arg(long, value_name = "TEXT")]
    audience: Option<String>,
    /// Where the target reads the discovery document.
    #[arg(long, value_name = "URL")]
    discovery_url: Option<String>,
    /// CA certificates of the server of the discovery document.
    #[arg(long, value_name = "FILE")]
    discovery_ca: Option<PathBuf>,
    /// The target's address.
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// CA certificates of the target.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// The name in the target's certificate, where it is not the address's.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// The target's own ServiceAccount issuer.
    #[arg(long = "own-issuer", value_name = "URL")]
    target_issuer: Vec<String>,
    /// The token for the target.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The ServiceAccount that Flux impersonates at the target, as NAMESPACE:NAME or system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

impl WayArgs {
    /// What is to be asked: the start, with the flags before it.
    pub(super) async fn plan(&self, start: Option<&StartArg>, namespace: Option<&str>) -> Result<Plan, String> {
        let mut plan = match start {
            Some(start) => self.started(start, namespace).await?,
            None => Plan::named("flags"),
        };
        plan.issuer = self.issuer.clone().or(plan.issuer);
        plan.audiences = self.audience.clone().map_or(plan.audiences, |audience| vec![audience]);
        plan.discovery_url = self.discovery_url.clone().or(plan.discovery_url);
        plan.discovery_ca = self.discovery_ca.as_deref().map(file).transpose()?.or(plan.discovery_ca);
        plan.own_issuers.extend(self.target_issuer.iter().cloned());
        if let Some(url) = &self.target {
            let tls_server_name = self.tls_server_name.clone();
            plan.target = Some(TargetAddress { url: url.clone(), tls_server_name, ..plan.target.unwrap_or_default() });
        }
        if let (Some(target), Some(path)) = (&mut plan.target, &self.certificate_authority) {
            target.ca_pem = Some(file(path)?);
        }
        if let Some(path) = &self.token_file {
            plan.held = Held::Token(file(path)?.trim_ascii().to_vec());
        }
        if let Some(user) = &self.impersonate {
            let short = user.strip_prefix("system:serviceaccount:").unwrap_or(user);
            let parts = short.split_once(':').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains(':'));
            let (namespace, name) = parts.ok_or("reading --as: write NAMESPACE:NAME of a ServiceAccount")?;
            plan.impersonate = Some((namespace.to_owned(), name.to_owned()));
        }
        Ok(plan)
    }

    async fn started(&self, start: &StartArg, namespace: Option<&str>) -> Result<Plan, String> {
        let namespace = namespace.ok_or("the namespace of what is started from is missing")?;
        let namespace = Namespace::new(namespace).map_err(|error| format!("the namespace {error}"))?;
        let hub = self.hub.access();
        Ok(match start.kind {
            StartKind::Access => self.access(namespace, &start.name).await?,
            StartKind::Secret => from_secret(&hub, &namespace, &start.name, self.secret_key.as_deref()).await,
            StartKind::Kustomization => from_flux(&hub, Kind::Kustomization, &namespace, &start.name).await,
            StartKind::HelmRelease => from_flux(&hub, Kind::HelmRelease, &namespace, &start.name).await,
        })
    }

    async fn access(&self, namespace: Namespace, name: &str) -> Result<Plan, String> {
        let name = ObjectName::new(name).map_err(|error| format!("the access's name {error}"))?;
        let access = AccessName { namespace, name };
        if let Some(url) = &self.server {
            let args = AccessArgs::through(&access, url.clone(), self.server_ca.clone(), self.caller_token_file.clone(), self.hub.clone());
            let source = args.source().map_err(|usage| usage.problem)?;
            let kubeconfig = source.kubeconfig().await.map_err(|error| error.to_string())?;
            let mut plan = Plan::named(format!("access/{access} at {url}"));
            plan.take(
                found_kubeconfig::read(kubeconfig.expose_secret())
                    .map_err(|problem| format!("reading the server's kubeconfig: {problem}"))?,
            );
            return Ok(plan);
        }
        let config = self.config.clone().ok_or("the access's file is missing: give --config FILE, or --server URL")?;
        Ok(from_access(&access, &Direct { config, hub: self.hub.access() }).await)
    }
}

/// Reads a file, at most 1 MiB.
pub(super) fn file(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!("reading {}: it is larger than 1 MiB", path.display()));
    }
    std::fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))
}

/// `VERB/RESOURCE[.GROUP]` as attributes of a review.
pub(super) fn need(text: &str, namespace: Option<&str>) -> Result<Value, String> {
    let (verb, resource) = text.split_once('/').ok_or_else(|| format!("reading {text:?}: write VERB/RESOURCE"))?;
    Ok(attributes(verb, resource, namespace))
}

/// Attributes of a review, as `kubectl auth can-i` reads them: `RESOURCE[.GROUP][/SUBRESOURCE]`.
pub(super) fn attributes(verb: &str, resource: &str, namespace: Option<&str>) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    json!({
        "verb": verb, "resource": resource, "group": group, "subresource": subresource, "namespace": namespace.unwrap_or_default(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{StartArg, attributes, need};

    #[test]
    fn a_start_is_a_kind_and_a_name() {
        for good in ["access/a", "secret/b", "ks/c", "helmrelease/d"] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for bad in ["a", "pod/a", "secret/", "secret/a/b", "secret/A b"] {
            assert!(bad.parse::<StartArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn resources_are_read_as_kubectl_does() {
        let scale = attributes("patch", "deployments.apps/scale", Some("n"));
        assert_eq!((scale["resource"].as_str(), scale["group"].as_str()), (Some("deployments"), Some("apps")));
        assert_eq!((scale["subresource"].as_str(), scale["namespace"].as_str()), (Some("scale"), Some("n")));
        assert_eq!(need("get/pods", None).unwrap()["verb"], "get");
        assert!(need("get", None).is_err());
    }
}
