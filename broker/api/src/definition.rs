//! The CustomResourceDefinitions, printed from the types that the reader and the controller use.
//!
//! The files of `broker/crds` and `docs/reference/objects.md` are printed from here too, and tests
//! compare them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;

use crate::config::{TargetAccessObject, TargetClusterObject};
use crate::pairing::AudiencePairing;

/// What every printed definition begins with.
const MANIFEST_HEADER: &str =
    "# Generated from the types of broker/api; a change of this file is overwritten.\n";

/// The definitions of TargetCluster, TargetAccess and AudiencePairing.
///
/// ```
/// let plurals = keyferry_api::definition::all_definitions().map(|definition| definition.spec.names.plural);
/// assert_eq!(plurals, ["targetclusters", "targetaccesses", "audiencepairings"]);
/// ```
pub fn all_definitions() -> [CustomResourceDefinition; 3] {
    [
        define_resource::<TargetClusterObject>(),
        define_resource::<TargetAccessObject>(),
        audience_pairing(),
    ]
}

/// The definition of AudiencePairing, which an admission policy needs before the other two.
pub fn audience_pairing() -> CustomResourceDefinition {
    define_resource::<AudiencePairing>()
}

/// Prints a definition as a YAML manifest.
///
/// # Errors
/// The definition cannot be printed, which a test of each definition excludes.
pub fn print_manifest(
    definition: &CustomResourceDefinition,
) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(definition, options)?;
    // Bounds are floats in the type. A whole one is printed as Kubernetes' tools print it.
    let text: String = text
        .lines()
        .map(|line| match line.trim_start().split_once(": ") {
            Some(("minimum" | "maximum", _)) => line.strip_suffix(".0").unwrap_or(line),
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    Ok([MANIFEST_HEADER, &text].concat())
}

fn define_resource<T: CustomResourceExt>() -> CustomResourceDefinition {
    let mut definition = T::crd();
    let names = &mut definition.spec.names;
    names.list_kind = Some([&names.kind, "List"].concat());
    for version in &mut definition.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            simplify_schema(schema);
            name_object_fields(schema);
        }
    }
    definition
}

/// Removes what the derive adds and Keyferry's schemas do not have: the name of a Rust type, the
/// line breaks of comments, and `nullable`. Without `nullable` the apiserver drops a null, so an
/// optional field is either absent or has a value.
fn simplify_schema(schema: &mut JSONSchemaProps) {
    schema.title = None;
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
        .for_each(simplify_schema);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        simplify_schema(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        simplify_schema(values);
    }
}

/// Adds the fields that every object has. The apiserver knows them without, but tools that read
/// only the schema do not.
fn name_object_fields(schema: &mut JSONSchemaProps) {
    let fields = [
        ("apiVersion", "string"),
        ("kind", "string"),
        ("metadata", "object"),
    ];
    let fields = fields.map(|(name, type_)| {
        let schema = JSONSchemaProps {
            type_: Some(type_.to_owned()),
            ..JSONSchemaProps::default()
        };
        (name.to_owned(), schema)
    });
    schema.properties.get_or_insert_default().extend(fields);
}
