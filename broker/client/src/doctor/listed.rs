//! The targets that platform admins have listed, as objects of the hub or in a configuration file.
//! Tenants write Secrets, ConfigMaps and Flux objects. So where these lead is compared with this
//! list before a token is issued or sent.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::{
    CertificateSource, ObjectSize, ObjectSource, Overrides, ReducedObject, ServerConfiguration,
    StoredTarget, TargetCluster, TokenIssuer,
};
use keyferry_api::managed_issuer;
use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_api::status::{ClusterStatus, TargetClusterStatus};
use keyferry_core::public_cluster::{ClaimedCluster, OtherCluster, PublicCluster};
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::{ClientError, HubAccess};
use keyferry_hub::ports::{CertificateSecrets, HubError, TrustBundleError};
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file::{self, ConfigFileError};
use keyferry_platform::target_connection::TargetAddress;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::configuration_source::{ConfigurationSource, Wanted};
use crate::doctor::plan::may_not_list;
use crate::doctor::start::hub_client;
use crate::object_view::TargetView;

const TARGET_CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
/// The most targets that are read.
const MAX_TARGETS: usize = 20_000;
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
    /// The user may not list them, nor does an access say what it leads to.
    #[error("listing the TargetClusters of the hub: {0}")]
    MissingRight(String),
    /// The call to the hub failed.
    #[error("listing the TargetClusters of the hub: {0}")]
    Hub(#[from] HubError),
    /// The hub has more targets than are read.
    #[error("listing the TargetClusters of the hub: there are more than {MAX_TARGETS}")]
    TooMany,
}

/// Why targets may be missing in the list, so that what is not in it is not known to be unlisted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingTargets {
    /// The message of the hub, if the user may list only the accesses of a namespace, whose
    /// statuses have the targets that they use.
    #[error("{}", may_not_list(.0))]
    NoRight(String),
    /// Objects that are too large to be read.
    #[error("{} too large to be read, and must be made smaller", joined_names(.0))]
    TooLarge(Vec<String>),
}

/// Names the first of some objects, for a sentence about all.
fn joined_names(names: &[String]) -> String {
    let first = names.first().map_or("an object", String::as_str);
    match names.len() {
        0 | 1 => format!("{first} is"),
        all => format!("{first} and {} more are", all - 1),
    }
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
#[error("it differs from TargetCluster {target} of {list_description}: {difference}")]
pub(crate) struct TargetDifference {
    /// The name of the listed target.
    pub(crate) target: ObjectName,
    /// Describes where the list is.
    pub(crate) list_description: String,
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
        let own_namespace = namespace;
        let configuration = match source {
            ConfigurationSource::File(path) => Some(config_file::read_config_file(
                path,
                Overrides::of_a_reader(),
            )?),
            ConfigurationSource::Hub => None,
            // Without a current status, the defaults are used, as with the hub.
            ConfigurationSource::Objects(file) => file.read_configuration(Wanted::All).ok(),
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
        let without_status = |cluster: TargetCluster| ListedTarget {
            cluster,
            status: TargetClusterStatus::default(),
        };
        let mut missing = None;
        let (targets, place) = match (source, &configuration) {
            (ConfigurationSource::Objects(file), _) => {
                let targets = file.targets().map(|cluster| ListedTarget {
                    status: file.target_status(&cluster.name),
                    cluster,
                });
                (targets.collect(), source.describe_place())
            }
            (_, Some(configuration)) if server.as_ref().is_some_and(in_file) => {
                let targets = configuration.policy.targets.values().cloned();
                (
                    targets.map(without_status).collect(),
                    source.describe_place(),
                )
            }
            _ => match (of_hub(hub).await, own_namespace) {
                (Err(ListError::Hub(HubError::Forbidden(right))), Some(own)) => {
                    let listed = of_accesses(hub, own)
                        .await
                        .map_err(|_| ListError::MissingRight(right.to_string()))?;
                    missing = Some(MissingTargets::NoRight(right.to_string()));
                    (listed.targets, format!("the TargetAccesses of {own}"))
                }
                (Err(ListError::Hub(HubError::Forbidden(right))), None) => {
                    return Err(ListError::MissingRight(right.to_string()));
                }
                (listed, _) => {
                    let listed = listed?;
                    missing = listed.missing;
                    (listed.targets, "the hub".to_owned())
                }
            },
        };
        let managed_issuers = targets
            .iter()
            .filter(|target| target.cluster.issuer == TokenIssuer::Keyferry)
            .filter_map(|target: &ListedTarget| {
                let name = &target.cluster.name;
                let named = || {
                    let public_url = &server.as_ref()?.public_url;
                    let issuer = managed_issuer::managed_issuer_url(public_url, name).ok()?;
                    Some(issuer.as_str().to_owned())
                };
                let issuer = target.status.issuer.clone().or_else(named)?;
                Some((name.clone(), issuer))
            })
            .collect();
        Ok(Self {
            managed_issuers,
            targets,
            list_description: place,
            missing,
            hub: hub.clone(),
            namespace,
            caller_audience: caller,
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

/// The issuer of a target with a managed issuer, if it is known.
pub(crate) struct ManagedIssuer(pub(crate) Option<String>);

/// What was read of a list.
#[derive(Default)]
struct ReadTargets {
    targets: Vec<ListedTarget>,
    missing: Option<MissingTargets>,
}

/// A TargetAccess, reduced to the target that its status names.
#[derive(Deserialize)]
struct AccessObject {
    metadata: AccessMetadata,
    spec: AccessSpec,
    status: AccessStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessMetadata {
    uid: String,
    creation_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessSpec {
    target_cluster_ref: TargetReference,
}

#[derive(Deserialize)]
struct TargetReference {
    name: String,
}

#[derive(Deserialize)]
struct AccessStatus {
    cluster: ClusterStatus,
}

/// Reads every valid TargetCluster of the hub. The list is empty if the hub does not have the kind.
async fn of_hub(hub: &HubAccess) -> Result<ReadTargets, ListError> {
    let read = list(hub, TARGET_CLUSTERS, "TargetCluster", |item| {
        Some(ListedTarget {
            cluster: StoredTarget::read_alone(&item)?,
            status: TargetView::of(&item).status.unwrap_or_default(),
        })
    });
    match read.await {
        Err(ListError::Hub(HubError::NotFound(_))) => Ok(ReadTargets::default()),
        read => read,
    }
}

/// Reads the targets of a namespace's accesses from their statuses.
async fn of_accesses(hub: &HubAccess, namespace: &Namespace) -> Result<ReadTargets, ListError> {
    let path = format!("/apis/keyferry.dev/v1alpha1/namespaces/{namespace}/targetaccesses");
    list(hub, &path, "TargetAccess", |item| of_access(&item)).await
}

/// Reads a list of Keyferry's objects, reduced to what Keyferry reads of them: others decide how
/// long the rest is.
async fn list(
    hub: &HubAccess,
    path: &str,
    kind: &str,
    target: impl Fn(Value) -> Option<ListedTarget>,
) -> Result<ReadTargets, ListError> {
    let client = hub_client(hub).await?;
    let keep = |object: ReducedObject| {
        let (size, name) = (object.size(), object.full_name());
        // The items of a list do not state their kind.
        let read = target(object.of_kind(kind).into_value()).map(Ok);
        match size {
            ObjectSize::Kept => read,
            // A spec below the limit is kept beside a status that is too large.
            ObjectSize::SpecTooLarge | ObjectSize::StatusTooLarge => {
                read.or_else(|| Some(Err(format!("{kind} {name}"))))
            }
        }
    };
    let what = "list of targets";
    let read = client.list_at_most(path, MAX_TARGETS, what, keep).await?;
    if !read.is_complete {
        return Err(ListError::TooMany);
    }
    let (mut targets, mut too_large) = (Vec::new(), Vec::new());
    for one in read.kept {
        match one {
            Ok(target) => targets.push(target),
            Err(name) => too_large.push(name),
        }
    }
    let missing = (!too_large.is_empty()).then_some(MissingTargets::TooLarge(too_large));
    Ok(ReadTargets { targets, missing })
}

/// Reads the target of an access from `status.cluster`, with the checks of a TargetCluster.
fn of_access(access: &Value) -> Option<ListedTarget> {
    let access = AccessObject::deserialize(access).ok()?;
    let cluster = access.status.cluster;
    let pem = cluster
        .certificate_authority_data
        .map(|data| String::from_utf8(STANDARD.decode(data).ok()?).ok());
    let pem = match pem {
        Some(pem) => Some(pem?),
        None => None,
    };
    let mut spec = json!({ "address": cluster.server?, "audience": cluster.audience? });
    let further = [
        ("caBundle", pem),
        ("tlsServerName", cluster.tls_server_name),
        ("proxyURL", cluster.proxy_url),
    ];
    for (member, value) in further {
        if let Some(value) = value {
            spec[member] = Value::String(value);
        }
    }
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": {
            "name": access.spec.target_cluster_ref.name, "uid": access.metadata.uid,
            "generation": 1, "resourceVersion": "1",
            "creationTimestamp": access.metadata.creation_timestamp,
        },
        "spec": spec,
    });
    Some(ListedTarget {
        cluster: StoredTarget::read_alone(&object)?,
        status: TargetClusterStatus::default(),
    })
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
    fn targets_that_are_too_large_to_be_read_are_counted() {
        let missing = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            MissingTargets::TooLarge(names).to_string()
        };
        assert_eq!(
            missing(&["TargetCluster a"]),
            "TargetCluster a is too large to be read, and must be made smaller"
        );
        assert_eq!(
            missing(&["TargetCluster a", "x", "y"]),
            "TargetCluster a and 2 more are too large to be read, and must be made smaller"
        );
    }

    #[test]
    fn an_access_says_which_target_it_leads_to() {
        let pem = keyferry_testing::Authority::new("t")
            .unwrap()
            .ca_pem()
            .to_owned();
        let access = json!({
            "metadata": { "name": "prod", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetClusterRef": { "name": "prod" } },
            "status": { "cluster": {
                "server": "https://t:6443", "audience": "t", "tls-server-name": "n",
                "certificate-authority-data": STANDARD.encode(&pem),
            } },
        });
        let read = of_access(&access).unwrap().cluster;
        assert_eq!(
            (read.name.as_str(), read.address.as_str()),
            ("prod", "https://t:6443")
        );
        assert_eq!(read.audience.as_str(), "t");
        assert_eq!(read.tls_server_name.as_deref(), Some("n"));
        assert!(matches!(read.certificate, CertificateSource::Inline(_)));
        for (pointer, wrong) in [
            ("/status/cluster/server", json!("http://t")),
            ("/status/cluster/server", json!(null)),
            ("/status/cluster/audience", json!(null)),
            ("/status/cluster/certificate-authority-data", json!("%")),
            ("/spec/targetClusterRef/name", json!("../a")),
        ] {
            let mut other = access.clone();
            *other.pointer_mut(pointer).unwrap() = wrong;
            assert!(of_access(&other).is_none(), "{pointer}");
        }
    }

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
