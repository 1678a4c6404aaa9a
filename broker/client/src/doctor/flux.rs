//! Reads Flux objects: which target their `spec.kubeConfig` leads to, and with which identity.

use std::collections::BTreeMap;

use keyferry_api::audience::{Audience, AudienceError};
use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::delivery::OtherFluxCredential;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::Code;
use keyferry_platform::target_connection::TargetAddress;
use serde::Deserialize;
use serde_json::Value;

use crate::checked_mint::issuer_of;
use crate::doctor::authority_text::{AuthorityTextError, certificates};
use crate::doctor::diagnosis::{FluxReady, Problem, TokenEvidence};
use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::inventory::Inventory;
use crate::doctor::kubeconfig_secret::{SecretRef, read_secret};
use crate::doctor::plan::{Plan, TokenOrder, problem};
use crate::lenient::{Lenient, or_default, readable_items};
use crate::stated_condition::StatedCondition;

/// Part of the `Ready` message of a controller without the feature gate. The condition's reason is
/// that of every failed reconciliation, so only the message names the cause. It affects nothing but
/// the reported problem.
const GATE_OFF: &str = "ObjectLevelWorkloadIdentity feature gate is not enabled";

/// A Flux kind that applies objects at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FluxKind {
    /// `kustomize.toolkit.fluxcd.io/v1`.
    Kustomization,
    /// `helm.toolkit.fluxcd.io/v2`.
    HelmRelease,
}

impl FluxKind {
    /// The API group, its version and the resource.
    fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Kustomization => ("kustomize.toolkit.fluxcd.io", "v1", "kustomizations"),
            Self::HelmRelease => ("helm.toolkit.fluxcd.io", "v2", "helmreleases"),
        }
    }

    /// The resource as a Role names it, such as `kustomizations.kustomize.toolkit.fluxcd.io`.
    pub(crate) fn qualified_resource(self) -> String {
        let (group, _, plural) = self.resource();
        format!("{plural}.{group}")
    }

    /// The kind.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Kustomization => "Kustomization",
            Self::HelmRelease => "HelmRelease",
        }
    }

    /// The path of the list of a namespace.
    pub(crate) fn list_path(self, namespace: &Namespace) -> String {
        let (group, version, plural) = self.resource();
        format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
    }

    fn path(self, namespace: &Namespace, name: &str) -> String {
        format!("{}/{name}", self.list_path(namespace))
    }
}

/// A Kustomization or HelmRelease, reduced to what is read of it.
#[derive(Deserialize)]
pub(crate) struct FluxObject {
    /// `None` if it cannot be read.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) spec: Option<Spec>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) status: FluxStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct FluxStatus {
    #[serde(deserialize_with = "readable_items")]
    pub(crate) conditions: Vec<StatedCondition>,
    #[serde(deserialize_with = "or_default")]
    inventory: Inventory,
}

/// A ConfigMap, reduced to its data.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    #[serde(deserialize_with = "or_default")]
    data: BTreeMap<String, String>,
}

/// A ServiceAccount, reduced to its annotations.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnnotatedAccount {
    #[serde(deserialize_with = "or_default")]
    metadata: AnnotatedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnnotatedMetadata {
    #[serde(deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) kube_config: Option<KubeConfig>,
    #[serde(default)]
    service_account_name: String,
    /// Whether Flux leaves the object alone.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) suspend: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KubeConfig {
    pub(crate) secret_ref: Option<Reference>,
    pub(crate) config_map_ref: Option<Reference>,
}

#[derive(Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    key: Option<String>,
}

/// Builds a plan from a Flux object.
pub async fn from_flux(hub: &HubAccess, kind: FluxKind, namespace: &Namespace, name: &str) -> Plan {
    let lower = if kind == FluxKind::Kustomization {
        "kustomization"
    } else {
        "helmrelease"
    };
    let mut plan = Plan::named(format!("{lower}/{name} in {namespace}"));
    plan.namespace = Some(namespace.clone());
    let client = match hub.client().await {
        Ok(client) => client,
        Err(error) => {
            return Plan {
                problem: Some(problem(Code::StartUnread, error.to_string())),
                ..plan
            };
        }
    };
    plan.issuer = issuer_of(&client).await;
    let object: FluxObject = match client
        .get_object(&kind.path(namespace, name), "object of Flux")
        .await
    {
        Ok(object) => object,
        Err(error) => {
            plan.note_unread(&format!("{lower}/{name}"), &error);
            return plan;
        }
    };
    let Some(spec) = object.spec else {
        return Plan {
            problem: Some(problem(Code::StartUnread, "its spec cannot be read")),
            ..plan
        };
    };
    if let Err(fault) = note_impersonation(&client, &spec, namespace, &mut plan).await {
        return Plan {
            problem: Some(fault),
            ..plan
        };
    }
    plan.inventory = object.status.inventory.objects();
    plan.flux = object.status.ready();
    follow_kube_config(&client, spec.kube_config, namespace, &mut plan).await;
    plan
}

/// Notes the user that Flux impersonates at the target, if the object names one.
///
/// # Errors
/// What is wrong with its name.
async fn note_impersonation(
    client: &HubClient,
    spec: &Spec,
    namespace: &Namespace,
    plan: &mut Plan,
) -> Result<(), Problem> {
    if spec.service_account_name.is_empty() {
        return Ok(());
    }
    let account = ObjectName::new(spec.service_account_name.as_str()).map_err(|_| {
        problem(
            Code::FluxReferenceUnusable,
            "spec.serviceAccountName is not the name of a ServiceAccount",
        )
    })?;
    plan.impersonate = Some(ImpersonatedUser::service_account(
        namespace.as_str(),
        account.as_str(),
    ));
    plan.flux_account_missing = missing_account(client, namespace, &account).await;
    Ok(())
}

/// Reads the Secret or the ConfigMap that leads to the target.
async fn follow_kube_config(
    client: &HubClient,
    kube_config: Option<KubeConfig>,
    namespace: &Namespace,
    plan: &mut Plan,
) {
    let unusable = |detail| Some(problem(Code::FluxReferenceUnusable, detail));
    match kube_config {
        None => {
            plan.problem = unusable("it has no spec.kubeConfig: it applies on the hub itself");
        }
        Some(KubeConfig {
            secret_ref: Some(reference),
            ..
        }) => {
            let secret = SecretRef {
                name: &reference.name,
                key: reference.key.as_deref(),
                key_field: "spec.kubeConfig.secretRef.key",
            };
            read_secret(client, namespace, &secret, plan).await;
            soften_credential(plan);
        }
        Some(KubeConfig {
            config_map_ref: Some(reference),
            ..
        }) => {
            read_config_map(client, namespace, &reference.name, plan).await;
            let flux = plan.flux.as_ref();
            if flux.is_some_and(|ready| ready.message.contains(GATE_OFF)) {
                plan.problem = Some(problem(
                    Code::FluxGateOff,
                    "the object's Ready condition says that the feature gate is not enabled",
                ));
            }
        }
        Some(_) => {
            plan.problem = unusable("spec.kubeConfig has neither secretRef nor configMapRef");
        }
    }
}

/// Names the ServiceAccount if the hub has none of this name. `None` also if the user may not read
/// it: then it is unknown.
async fn missing_account(
    client: &HubClient,
    namespace: &Namespace,
    account: &ObjectName,
) -> Option<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    let object: Result<Value, HubError> = client.get_object(&path, "ServiceAccount").await;
    matches!(object, Err(HubError::NotFound(_))).then(|| format!("{namespace}/{account}"))
}

impl FluxStatus {
    /// Returns the condition `Ready`.
    fn ready(&self) -> Option<FluxReady> {
        let ready = StatedCondition::find(&self.conditions, "Ready")?;
        let message = [ready.reason.as_str(), ready.message.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
        Some(FluxReady {
            status: ready.status.clone(),
            message,
        })
    }
}

/// Makes a warning of a credential that controllers usually refuse, if Flux works with it all the
/// same: some of its flags allow more.
fn soften_credential(plan: &mut Plan) {
    let works = plan
        .flux
        .as_ref()
        .is_some_and(|ready| ready.status == "True");
    let unusual = matches!(plan.token_evidence, TokenEvidence::NotAToken(_));
    if works && unusual {
        plan.warning = plan.problem.take().or(plan.warning.take());
    }
}

pub(crate) async fn read_config_map(
    client: &HubClient,
    namespace: &Namespace,
    name: &str,
    plan: &mut Plan,
) {
    let unusable = |detail: String| {
        Some(problem(
            Code::FluxReferenceUnusable,
            format!("configmap/{name}: {detail}"),
        ))
    };
    // A tenant can write this name: in a path, it could lead to another namespace.
    let Ok(map_name) = ObjectName::new(name) else {
        plan.problem = unusable("it is not the name of a ConfigMap".to_owned());
        return;
    };
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{map_name}");
    let Lenient(map): Lenient<ConfigMap> = match client.get_object(&path, "ConfigMap").await {
        Ok(map) => map,
        Err(error) => {
            plan.note_unread(&format!("configmap/{name}"), &error);
            return;
        }
    };
    match Identity::read(&map.data) {
        Err(error) => {
            plan.problem = unusable(error.to_string()).map(|problem| match error.fix() {
                Some(fix) => problem.with_fix(fix),
                None => problem,
            });
        }
        Ok(identity) => {
            plan.target = Some(TargetAddress {
                url: identity.url,
                ca_pem: identity.ca_pem,
                ..TargetAddress::default()
            });
            plan.target_is_tenants = true;
            plan.audiences = vec![identity.audience.to_string()];
            if let Some(account) = &identity.account {
                plan.warning = other_credential(client, namespace, account).await;
            }
            // Without a ServiceAccount, Flux uses the controller's own identity, which only the
            // controller has.
            plan.to_issue = identity.account.map(|name| TokenOrder {
                account: ServiceAccount {
                    namespace: namespace.clone(),
                    name,
                },
                audience: identity.audience,
            });
        }
    }
}

/// Warns of annotations with which Flux 2.10 and newer get another credential for the
/// ServiceAccount than the token that is tested here.
async fn other_credential(
    client: &HubClient,
    namespace: &Namespace,
    account: &ObjectName,
) -> Option<Problem> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    let read = client.get_object::<Lenient<AnnotatedAccount>>(&path, "ServiceAccount");
    // The issuance of the token reports an absent or forbidden ServiceAccount.
    let Lenient(AnnotatedAccount { metadata }) = read.await.ok()?;
    let annotation = |key: &str| metadata.annotations.get(key).map(String::as_str);
    OtherFluxCredential::of(annotation)
        .map(|other| problem(Reason::FluxCredentialDiffers, other.to_string()))
}

/// Builds a plan from a ConfigMap of Flux's generic provider.
pub async fn from_config_map(hub: &HubAccess, namespace: &Namespace, name: &str) -> Plan {
    let mut plan = Plan::named(format!("configmap/{name} in {namespace}"));
    plan.namespace = Some(namespace.clone());
    match hub.client().await {
        Ok(client) => {
            plan.issuer = issuer_of(&client).await;
            read_config_map(&client, namespace, name, &mut plan).await;
        }
        Err(error) => plan.problem = Some(problem(Code::StartUnread, error.to_string())),
    }
    plan
}

/// The target and identity that the generic provider reads from a ConfigMap.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    url: String,
    ca_pem: Option<Vec<u8>>,
    audience: Audience,
    account: Option<ObjectName>,
}

/// Why a ConfigMap does not name a target and one audience.
#[derive(Debug, thiserror::Error)]
enum ConfigMapError {
    #[error("its provider is {0:?}, not generic")]
    Provider(String),
    #[error("it has no address")]
    NoAddress,
    #[error("its address {0:?} is not a URL")]
    NotUrl(String),
    #[error("its address {0:?} is not https")]
    NotHttps(String),
    #[error("its address {0:?} has a path, which Flux drops: it would call the host without it")]
    AddressPath(String),
    #[error("the audience {0:?} holds a bullet or a comma: one per line is wanted")]
    SeveralOnALine(String),
    #[error("the audience {audience:?} {error}")]
    Audience {
        audience: String,
        error: AudienceError,
    },
    #[error(
        "its audiences names none: a TokenRequest without an audience asks for a credential of \
         the hub itself, which would be sent to its address"
    )]
    NoAudience,
    #[error(
        "its audiences names {0}: the holder of a token for several can use it at each of them"
    )]
    SeveralAudiences(usize),
    #[error("its serviceAccountName {0}")]
    ServiceAccount(#[from] NameError),
    #[error("its ca.crt {0}")]
    Authority(#[from] AuthorityTextError),
}

impl ConfigMapError {
    /// What to do about it, if it is not the fix of every ConfigMap.
    fn fix(&self) -> Option<&'static str> {
        matches!(self, Self::Authority(_)).then_some(
            "write the PEM text of the CA itself into ca.crt of the ConfigMap, without base64",
        )
    }
}

impl Identity {
    fn read(data: &BTreeMap<String, String>) -> Result<Self, ConfigMapError> {
        let text = |key: &str| {
            let text = data.get(key).map(String::as_str);
            text.filter(|text| !text.is_empty())
        };
        match text("provider") {
            Some("generic") => {}
            other => {
                return Err(ConfigMapError::Provider(
                    other.unwrap_or_default().to_owned(),
                ));
            }
        }
        let address = text("address").ok_or(ConfigMapError::NoAddress)?;
        let with_scheme = if address.starts_with("http") {
            address.to_owned()
        } else {
            format!("https://{address}")
        };
        let url = url::Url::parse(&with_scheme)
            .map_err(|_| ConfigMapError::NotUrl(address.to_owned()))?;
        if url.scheme() != "https" {
            return Err(ConfigMapError::NotHttps(address.to_owned()));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(ConfigMapError::AddressPath(address.to_owned()));
        }
        // One audience per line: a bullet or a comma would become part of the audience.
        let lines = text("audiences").map(|text| {
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect()
        });
        let audiences: Vec<String> = lines.unwrap_or_else(|| vec![address.to_owned()]);
        if let Some(odd) = audiences
            .iter()
            .find(|one| one.starts_with("- ") || one.contains(','))
        {
            return Err(ConfigMapError::SeveralOnALine(odd.clone()));
        }
        let audience = match audiences.as_slice() {
            [one] => Audience::new(one.as_str()).map_err(|error| ConfigMapError::Audience {
                audience: one.clone(),
                error,
            })?,
            [] => return Err(ConfigMapError::NoAudience),
            many => return Err(ConfigMapError::SeveralAudiences(many.len())),
        };
        let account = text("serviceAccountName")
            .map(ObjectName::new)
            .transpose()?;
        let ca_pem = text("ca.crt").map(|pem| pem.as_bytes().to_vec());
        if let Some(pem) = &ca_pem {
            certificates(pem)?;
        }
        Ok(Self {
            url: url.origin().ascii_serialization(),
            ca_pem,
            audience,
            account,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::{FluxObject, Identity};

    #[test]
    fn an_odd_status_hides_no_spec() {
        let conditions = json!([7, { "type": "Ready", "status": "False", "message": "m" }]);
        let object = json!({
            "spec": { "kubeConfig": { "configMapRef": { "name": "a" } } },
            "status": { "inventory": 7, "conditions": conditions },
        });
        let object: FluxObject = serde_json::from_value(object).unwrap();
        assert!(object.spec.is_some());
        assert_eq!(object.status.ready().unwrap().message, "m");
        assert_eq!(object.status.inventory.objects(), None);
        for spec in [json!(null), json!({ "kubeConfig": { "secretRef": {} } })] {
            let object = json!({ "spec": spec, "status": null });
            let object: FluxObject = serde_json::from_value(object).unwrap();
            assert!(object.spec.is_none() && object.status.ready().is_none());
        }
    }

    #[test]
    fn a_config_map_is_read_as_flux_does() {
        let read = |data: &serde_json::Value| {
            let map: super::ConfigMap = serde_json::from_value(json!({ "data": data })).unwrap();
            Identity::read(&map.data)
        };
        let good = json!({ "provider": "generic", "address": "t.example.com:6443", "audiences": " a \n\n", "serviceAccountName": "s" });
        let identity = read(&good).unwrap();
        assert_eq!(
            (identity.url.as_str(), identity.audience.as_str()),
            ("https://t.example.com:6443", "a")
        );
        let default = read(&json!({ "provider": "generic", "address": "https://t" })).unwrap();
        assert_eq!(
            (default.audience.as_str(), default.account),
            ("https://t", None)
        );
        for (key, value) in [
            ("provider", "aws"),
            ("address", "http://t"),
            ("address", "https://t/k8s/clusters/c-1"),
            ("audiences", "- a"),
            ("audiences", "a,b"),
            // Exactly one audience is allowed: none would mean the hub's own, and several would
            // make the token valid elsewhere too.
            ("audiences", "\n"),
            ("audiences", " \n \n"),
            ("audiences", "a\nb"),
            ("audiences", "a b"),
            (
                "serviceAccountName",
                "../../kube-system/serviceaccounts/admin",
            ),
            ("serviceAccountName", "admin/token?x="),
        ] {
            let mut data = good.clone();
            data[key] = json!(value);
            assert!(read(&data).is_err(), "{key}: {value}");
        }
    }
}
