//! The targets that platform admins have listed, as objects of the hub or in a configuration file.
//! Tenants write Secrets, ConfigMaps and Flux objects. So where these lead is compared with this
//! list before a token is issued or sent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::{
    CertificateSource, ObjectSource, Overrides, ServerConfiguration, StoredTarget, TargetCluster,
};
use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_core::public_cluster::{ClaimedCluster, OtherCluster, PublicCluster};
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::{ClientError, HubAccess};
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::config_file::{self, ConfigFileError};
use keyferry_hub::ports::{CertificateSecrets, HubError, TrustBundleError};
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError};
use serde_json::Value;

use crate::TargetAddress;
use crate::start::hub_client;
use keyferry_client::configuration_source::{ConfigurationSource, Wanted};

const TARGET_CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
/// Objects per page of a list. Each may have 64 KiB of certificates, and the client reads at most 3
/// MiB.
const PAGE: usize = 30;
/// The most targets that are read.
const MAX_TARGETS: usize = 20_000;
/// Keyferry's namespace and its callers' audience, if no configuration file sets others.
const DEFAULT_NAMESPACE: &str = "keyferry-system";
const DEFAULT_CALLER_AUDIENCE: &str = "keyferry.dev";

/// The listed targets, and the place of the list.
pub(crate) struct ListedTargets {
    targets: Vec<TargetCluster>,
    place: String,
    hub: HubAccess,
    namespace: Namespace,
    caller_audience: String,
}

/// Why the listed targets cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] ConfigFileError),
    /// The namespace of Keyferry is not valid.
    #[error(transparent)]
    Namespace(#[from] NameError),
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The call to the hub failed.
    #[error("listing the TargetClusters of the hub: {0}")]
    Hub(#[from] HubError),
    /// The hub has more targets than are read.
    #[error("listing the TargetClusters of the hub: there are more than {MAX_TARGETS}")]
    TooMany,
}

/// Why no listed target is the one at an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// No listed target has the address.
    #[error("no TargetCluster of {place} has the address {url:?}")]
    OtherAddress {
        /// Describes where the list is.
        place: String,
        /// The address.
        url: String,
    },
    /// Listed targets have the address, but differ in other ways.
    #[error("{}", joined(.0))]
    Differs(Vec<TargetDifference>),
}

/// How an address differs from a listed target.
#[derive(Debug, thiserror::Error)]
#[error("it differs from TargetCluster {target} of {place}: {difference}")]
pub(crate) struct TargetDifference {
    /// The name of the listed target.
    pub(crate) target: ObjectName,
    /// Describes where the list is.
    pub(crate) place: String,
    /// The difference.
    pub(crate) difference: Difference,
}

/// A difference from a listed target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    /// It is unknown, because the target's CA certificates are.
    #[error(transparent)]
    Unknown(#[from] TargetAuthorityError),
    /// A member of the address differs.
    #[error(transparent)]
    Cluster(#[from] OtherCluster),
}

/// The CA certificates of a listed target cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the CA certificates of TargetCluster {target} could not be read: {problem}")]
pub(crate) struct TargetAuthorityError {
    /// The name of the target.
    pub(crate) target: ObjectName,
    /// The problem with its certificates.
    pub(crate) problem: AuthorityProblem,
}

/// Why CA certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityProblem {
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The Secret cannot be read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The ClusterTrustBundle cannot be read.
    #[error(transparent)]
    TrustBundle(#[from] TrustBundleError),
    /// The Secret has no certificates.
    #[error("Secret {namespace}/{name} has no ca.crt")]
    Empty {
        /// The namespace of the Secret.
        namespace: Namespace,
        /// The name of the Secret.
        name: ObjectName,
    },
    /// The certificates are not valid.
    #[error(transparent)]
    Bundle(#[from] CaBundleError),
}

fn joined(differences: &[TargetDifference]) -> String {
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl ListedTargets {
    /// Reads the list: from a file that has the objects, else from the hub.
    ///
    /// # Errors
    /// [`ListError`].
    pub(crate) async fn read(
        source: &ConfigurationSource,
        hub: &HubAccess,
    ) -> Result<Self, ListError> {
        let configuration = match source {
            ConfigurationSource::File(path) => {
                Some(config_file::read(path, Overrides::of_a_reader())?)
            }
            ConfigurationSource::Hub => None,
            // Without a current status, the defaults are used, as with the hub.
            ConfigurationSource::Objects(file) => file.configuration(Wanted::All).ok(),
        };
        let server = configuration
            .as_ref()
            .map(|configuration| &configuration.server);
        let namespace = server.map(|server| server.cluster_resource_namespace.clone());
        let namespace = namespace.map_or_else(|| Namespace::new(DEFAULT_NAMESPACE), Ok)?;
        let caller = server
            .map_or(DEFAULT_CALLER_AUDIENCE, |server| {
                server.caller_audience.as_str()
            })
            .to_owned();
        let in_file = |server: &&ServerConfiguration| server.objects == ObjectSource::File;
        let (targets, place) = match (source, &configuration) {
            (ConfigurationSource::Objects(file), _) => (file.targets().collect(), source.place()),
            (_, Some(configuration)) if server.as_ref().is_some_and(in_file) => (
                configuration.policy.targets.values().cloned().collect(),
                source.place(),
            ),
            _ => (of_hub(hub).await?, "the hub".to_owned()),
        };
        Ok(Self {
            targets,
            place,
            hub: hub.clone(),
            namespace,
            caller_audience: caller,
        })
    }

    /// Returns the listed target of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&TargetCluster> {
        self.targets
            .iter()
            .find(|target| target.name.as_str() == name)
    }

    /// Returns the listed target with this audience.
    pub(crate) fn with_audience(&self, audience: &Audience) -> Option<&TargetCluster> {
        self.targets
            .iter()
            .find(|target| target.audience == *audience)
    }

    /// Whether this is the audience of Keyferry's own callers.
    pub(crate) fn is_callers(&self, audience: &Audience) -> bool {
        audience.as_str() == self.caller_audience
    }

    /// Describes where the list is.
    pub(crate) fn place(&self) -> &str {
        &self.place
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
            .targets
            .iter()
            .filter(|target| is_same_url(&target.address, &address.url))
        {
            match self.compare(target, address).await {
                Ok(()) if audience.is_none_or(|audience| target.audience == *audience) => {
                    return Ok(target);
                }
                Ok(()) => found = found.or(Some(target)),
                Err(difference) => differences.push(TargetDifference {
                    target: target.name.clone(),
                    place: self.place.clone(),
                    difference,
                }),
            }
        }
        match found {
            Some(target) => Ok(target),
            None if differences.is_empty() => Err(FindError::OtherAddress {
                place: self.place.clone(),
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
        Ok(PublicCluster::of(target, ca_pem.as_deref()).is_what(&claimed)?)
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
                let client = hub_client(&self.hub).await?;
                let bundles = KubeCertificateSecrets::new(client, self.namespace.clone());
                bundles.trust_bundle(name).await?
            }
            CertificateSource::Secret(name) => {
                let client = hub_client(&self.hub).await?;
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

/// Reads every valid TargetCluster of the hub. The list is empty if the hub does not have the kind.
async fn of_hub(hub: &HubAccess) -> Result<Vec<TargetCluster>, ListError> {
    let client = hub_client(hub).await?;
    let (mut targets, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("{TARGET_CLUSTERS}?limit={PAGE}{next}");
        let list: Value = match client.get_object(&path, "list of TargetClusters").await {
            Ok(list) => list,
            Err(HubError::NotFound(_)) => return Ok(targets),
            Err(error) => return Err(error.into()),
        };
        // The items of a list do not state their kind.
        let items = list["items"].as_array().into_iter().flatten().map(|item| {
            let mut item = item.clone();
            item["apiVersion"] = "keyferry.dev/v1alpha1".into();
            item["kind"] = "TargetCluster".into();
            item
        });
        targets.extend(items.filter_map(|item| StoredTarget::read_alone(&item)));
        match next_page(&list) {
            None => return Ok(targets),
            Some(_) if targets.len() > MAX_TARGETS => return Err(ListError::TooMany),
            Some(query) => next = query,
        }
    }
}

/// Returns what the URL of a list's next page has after its limit; `None` after the last page.
pub(crate) fn next_page(list: &Value) -> Option<String> {
    let token = list
        .pointer("/metadata/continue")
        .and_then(Value::as_str)
        .filter(|token| !token.is_empty())?;
    let encoded: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
    Some(format!("&continue={encoded}"))
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
mod tests {
    use super::is_same_url;

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
