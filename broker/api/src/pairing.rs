//! `AudiencePairing`: the object in which an admission policy reads which ServiceAccounts may have
//! a token for which audience.

use std::collections::{BTreeMap, BTreeSet};

use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::service_account::ServiceAccount;

/// What an AudiencePairing holds beside its metadata. The leader writes the one object, named
/// `keyferry`, from the TargetClusters and TargetAccesses: with one object, a TokenRequest costs
/// one lookup.
#[derive(Clone, Debug, Default, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "keyferry.dev",
    version = "v1alpha1",
    kind = "AudiencePairing",
    plural = "audiencepairings",
    category = "keyferry",
    no_spec,
    doc = "The pairs of ServiceAccount and audience that policy allows at this moment.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == 'keyferry'")
        .message("there is one AudiencePairing, and its name is keyferry"),
    attr = r#"x_kube(crates(kube_core = "kube_core"))"#,
    crates(kube = "kube_derive", kube_core = "kube_core")
)]
pub struct AudiencePairs {
    /// By audience, the ServiceAccounts that may have a token for it, each as namespace/name. An
    /// audience that is not listed is none of Keyferry's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "pairs_schema")]
    pub pairs: BTreeMap<String, BTreeSet<String>>,
}

/// Not derived, because the list of one audience is replaced as a whole.
fn pairs_schema(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": generator.subschema_for::<ServiceAccount>(),
        },
    })
}
