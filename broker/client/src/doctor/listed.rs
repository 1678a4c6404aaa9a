//! The targets that platform admins have listed, as objects of the hub or in a configuration file.
//! Tenants write Secrets, ConfigMaps and Flux objects. So where these lead is compared with this
//! list before a token is issued or sent.

mod error;
mod sources;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::{
    CertificateSource, ObjectSource, Overrides, ServerConfiguration, TargetCluster, TokenIssuer,
};
use keyferry_api::managed_issuer;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_core::public_cluster::{ClaimedCluster, PublicCluster};
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::HubAccess;
use keyferry_hub::ports::CertificateSecrets;
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;
use keyferry_platform::target_connection::TargetAddress;

use self::error::{AuthorityProblem, Difference, TargetAuthorityError, TargetDifference};
pub(crate) use self::error::{FindError, ListError, MissingTargets};
use self::sources::{of_configuration, of_hub_or_accesses, of_objects_file};
use crate::configuration_source::ConfigurationSource;
use crate::wanted_objects::Wanted;

/// Keyferry's namespace and its callers' audience, if no configuration file sets others.
const DEFAULT_NAMESPACE: &str = "keyferry-system";
const DEFAULT_CALLER_AUDIENCE: &str = "keyferry.dev";

/// A listed target, with what its status says.
struct ListedTarget {
    cluster: TargetCluster,
    status: TargetClusterStatus,
}

/// The listed targets, and the place of the list.
pub(crate) struct ListedTargets {
    targets: Vec<ListedTarget>,
    list_description: String,
    missing: Option<MissingTargets>,
    hub: HubAccess,
    namespace: Namespace,
    caller_audience: String,
    /// The issuers of targets with a managed issuer, as far as they are known.
    managed_issuers: BTreeMap<ObjectName, String>,
}

impl ListedTargets {
    /// Reads the list: from a file that has the objects, else from the hub. A user who may not list
    /// TargetClusters gets the targets of the accesses of `namespace`: Keyferry writes their
    /// addresses and CAs into the statuses, and no role of a tenant may change a status.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn read(
        source: &ConfigurationSource,
        hub: &HubAccess,
        namespace: Option<&Namespace>,
    ) -> Result<Self, ListError> {
        let configuration = match source {
            ConfigurationSource::File(path) => Some(config_file::read_config_file(
                path,
                Overrides::of_a_reader(),
            )?),
            ConfigurationSource::Hub => None,
            // Without a current status, the defaults are used, as with the hub.
            ConfigurationSource::Objects(file) => file.read_configuration(Wanted::All).ok(),
        };
        let (listed, list_description) = match (source, &configuration) {
            (ConfigurationSource::Objects(file), _) => {
                (of_objects_file(file), source.describe_place())
            }
            (_, Some(configuration)) if configuration.server.objects == ObjectSource::File => {
                (of_configuration(configuration), source.describe_place())
            }
            _ => of_hub_or_accesses(hub, namespace).await?,
        };
        let server = configuration.map(|configuration| configuration.server);
        let own_namespace = match &server {
            Some(server) => server.cluster_resource_namespace.clone(),
            None => Namespace::new(DEFAULT_NAMESPACE)?,
        };
        let caller_audience = match &server {
            Some(server) => server.caller_audience.as_str().to_owned(),
            None => DEFAULT_CALLER_AUDIENCE.to_owned(),
        };
        Ok(Self {
            managed_issuers: managed_issuers(&listed.targets, server.as_ref()),
            targets: listed.targets,
            list_description,
            missing: listed.missing,
            hub: hub.clone(),
            namespace: own_namespace,
            caller_audience,
        })
    }

    /// Returns the listed target of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&TargetCluster> {
        self.clusters().find(|target| target.name.as_str() == name)
    }

    /// Returns the status of the listed target of this name; the default if it is not known.
    pub(crate) fn status(&self, name: &ObjectName) -> TargetClusterStatus {
        let mut targets = self.targets.iter();
        targets
            .find(|target| target.cluster.name == *name)
            .map(|target| target.status.clone())
            .unwrap_or_default()
    }

    /// Returns why targets may be missing in the list.
    pub(crate) fn missing(&self) -> Option<&MissingTargets> {
        self.missing.as_ref()
    }

    /// Whether the audience is that of a listed target, or may be that of one that is too large to
    /// be read.
    pub(crate) fn may_have_audience(&self, audience: &Audience) -> bool {
        self.with_audience(audience).is_some()
            || matches!(self.missing, Some(MissingTargets::TooLarge(_)))
    }

    fn clusters(&self) -> impl Iterator<Item = &TargetCluster> {
        self.targets.iter().map(|target| &target.cluster)
    }

    /// Returns the issuer that the tokens of a target with a managed issuer have. `None` for a
    /// target that trusts the hub's.
    pub(crate) fn managed_issuer(&self, target: &TargetCluster) -> Option<ManagedIssuer> {
        (target.issuer == TokenIssuer::Keyferry)
            .then(|| ManagedIssuer(self.managed_issuers.get(&target.name).cloned()))
    }

    /// Returns the listed target with this audience.
    pub(crate) fn with_audience(&self, audience: &Audience) -> Option<&TargetCluster> {
        self.clusters().find(|target| target.audience == *audience)
    }

    /// Whether this is the audience of Keyferry's own callers.
    pub(crate) fn is_callers(&self, audience: &Audience) -> bool {
        audience.as_str() == self.caller_audience
    }

    /// Describes where the list is.
    pub(crate) fn list_description(&self) -> &str {
        &self.list_description
    }

    /// Finds the listed target at this address, with the same CA, server name and proxy. A client
    /// of `address` then trusts no server but that target. Where several targets have the address,
    /// prefers the one with the audience.
    ///
    /// # Errors
    /// [`FindError`].
    pub(crate) async fn find(
        &self,
        address: &TargetAddress,
        audience: Option<&Audience>,
    ) -> Result<&TargetCluster, FindError> {
        let (mut differences, mut found) = (Vec::new(), None);
        for target in self
            .clusters()
            .filter(|target| is_same_url(&target.address, &address.url))
        {
            match self.compare(target, address).await {
                Ok(()) if audience.is_none_or(|audience| target.audience == *audience) => {
                    return Ok(target);
                }
                Ok(()) => found = found.or(Some(target)),
                Err(difference) => differences.push(TargetDifference {
                    target: target.name.clone(),
                    list_description: self.list_description.clone(),
                    difference,
                }),
            }
        }
        match found {
            Some(target) => Ok(target),
            None if differences.is_empty() => Err(FindError::OtherAddress {
                place: self.list_description.clone(),
                url: address.url.clone(),
            }),
            None => Err(FindError::Differs(differences)),
        }
    }

    async fn compare(
        &self,
        target: &TargetCluster,
        address: &TargetAddress,
    ) -> Result<(), Difference> {
        let ca_pem = self.ca_pem(target).await?;
        let claimed = ClaimedCluster {
            server: target.address.clone(),
            tls_server_name: address.tls_server_name.clone().unwrap_or_default(),
            insecure_skip_tls_verify: false,
            certificate_authority_data: address
                .ca_pem
                .as_ref()
                .map(|pem| STANDARD.encode(pem))
                .unwrap_or_default(),
            proxy_url: address.proxy_url.clone().unwrap_or_default(),
        };
        Ok(PublicCluster::of_target(target, ca_pem.as_deref()).is_what(&claimed)?)
    }

    /// Reads the CA certificates of a listed target, PEM.
    ///
    /// # Errors
    /// [`TargetAuthorityError`].
    pub(crate) async fn ca_pem(
        &self,
        target: &TargetCluster,
    ) -> Result<Option<String>, TargetAuthorityError> {
        let read = self.try_ca_pem(target).await;
        read.map_err(|problem| TargetAuthorityError {
            target: target.name.clone(),
            problem,
        })
    }

    async fn try_ca_pem(&self, target: &TargetCluster) -> Result<Option<String>, AuthorityProblem> {
        let pem = match &target.certificate {
            CertificateSource::System => return Ok(None),
            CertificateSource::Inline(pem) => pem.clone().into_bytes(),
            CertificateSource::TrustBundle(name) => {
                let client = self.hub.client().await?;
                let bundles = KubeCertificateSecrets::new(client, self.namespace.clone());
                bundles.trust_bundle(name).await?
            }
            CertificateSource::Secret(name) => {
                let client = self.hub.client().await?;
                let secrets = KubeCertificateSecrets::new(client, self.namespace.clone());
                let entry = secrets.certificate(name).await?;
                entry.pem.ok_or_else(|| AuthorityProblem::Empty {
                    namespace: self.namespace.clone(),
                    name: name.clone(),
                })?
            }
        };
        let bundle = CaBundle::from_pem(&pem, SystemClock::start().now().wall)?;
        Ok(Some(bundle.to_pem()))
    }
}

/// The issuer of a target with a managed issuer, if it is known.
pub(crate) struct ManagedIssuer(pub(crate) Option<String>);

/// Returns the issuers of the targets with a managed issuer: as their statuses state them, else as
/// the server's URL makes them.
fn managed_issuers(
    targets: &[ListedTarget],
    server: Option<&ServerConfiguration>,
) -> BTreeMap<ObjectName, String> {
    let managed = targets
        .iter()
        .filter(|target| target.cluster.issuer == TokenIssuer::Keyferry);
    let named = managed.filter_map(|target| {
        let name = &target.cluster.name;
        let by_url = || {
            let public_url = &server?.public_url;
            let issuer = managed_issuer::managed_issuer_url(public_url, name).ok()?;
            Some(issuer.as_str().to_owned())
        };
        let issuer = target.status.issuer.clone().or_else(by_url)?;
        Some((name.clone(), issuer))
    });
    named.collect()
}

/// Whether two addresses are the same URL. Parsing matters because Flux drops a port that is the
/// scheme's default.
fn is_same_url(listed: &str, written: &str) -> bool {
    let plain = |text: &str| {
        url::Url::parse(text)
            .ok()
            .map(|url| url.as_str().trim_end_matches('/').to_owned())
    };
    plain(listed).is_some_and(|listed| plain(written) == Some(listed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_as_urls() {
        assert!(is_same_url("https://t:443", "https://t/"));
        assert!(is_same_url("https://t:6443/a", "https://t:6443/a"));
        for other in [
            "https://t:6443",
            "https://u",
            "https://t/a",
            "http://t",
            "t",
            "https://t@u",
        ] {
            assert!(!is_same_url("https://t", other), "{other}");
        }
    }
}
