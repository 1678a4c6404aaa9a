//! The files of broker/crds and the schema of the configuration file are what the types print.
//! `KEYFERRY_WRITE_COPIES=1` writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;

use keyferry_api::{config, definition};
use serde_json::Value;

/// The fields that had a default in the schema from the beginning.
const WITH_DEFAULT: [&str; 7] = [
    "targetclusters spec.deletionPolicy",
    "targetclusters spec.issuer",
    "targetclusters spec.suspend",
    "targetaccesses spec.deletionPolicy",
    "targetaccesses spec.deliveries[].argoCD.form",
    "targetaccesses spec.probe",
    "targetaccesses spec.suspend",
];

#[test]
fn the_files_are_what_the_types_print() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
    for definition in definition::all_definitions() {
        let file = folder.join(format!("{}.yaml", definition.spec.names.plural));
        assert_printed(&file, &definition::print_manifest(&definition).unwrap());
    }
}

#[test]
fn the_schema_of_the_configuration_file_is_what_the_types_print() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/keyferry-config.schema.json");
    assert_printed(&file, &format!("{:#}\n", config::file_schema()));
}

/// Compares a file with what is printed today, or writes it.
fn assert_printed(file: &Path, printed: &str) {
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(file, printed).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).is_ok_and(|text| text == printed),
        "{} is not what the types of broker/api print; KEYFERRY_WRITE_COPIES=1 writes it",
        file.display()
    );
}

/// The hub puts a default into every object that it returns, also into those for servers of the
/// version before, which refuse a field that they do not know. So no further field has one.
#[test]
fn no_new_field_has_a_default_in_the_schema() {
    let mut found = Vec::new();
    for definition in definition::all_definitions() {
        let plural = &definition.spec.names.plural;
        for version in &definition.spec.versions {
            let schema = serde_json::to_value(&version.schema).unwrap();
            let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
            let mut fields = Vec::new();
            with_default("spec", spec, &mut fields);
            found.extend(fields.into_iter().map(|field| format!("{plural} {field}")));
        }
    }
    assert_eq!(found, WITH_DEFAULT);
}

fn with_default(path: &str, schema: &Value, found: &mut Vec<String>) {
    if schema.get("default").is_some() {
        found.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        with_default(&format!("{path}.{name}"), field, found);
    }
    for (below, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[below].is_object() {
            with_default(&format!("{path}{suffix}"), &schema[below], found);
        }
    }
}
