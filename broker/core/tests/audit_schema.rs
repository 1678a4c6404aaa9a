//! The published schema of the audit record is what the types print. `KEYFERRY_WRITE_COPIES=1`
//! writes it.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use keyferry_core::audit::record_schema;

#[test]
fn the_schema_of_the_audit_record_is_what_the_types_print() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/keyferry-audit.schema.json");
    let printed = format!("{:#}\n", record_schema());
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(&file, &printed).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).is_ok_and(|text| text == printed),
        "{} is not what the types of broker/core print; KEYFERRY_WRITE_COPIES=1 writes it",
        file.display()
    );
}

#[test]
fn every_member_is_described() {
    let schema = record_schema();
    let members = schema["properties"].as_object().unwrap();
    assert!(members.len() > 25, "{} members", members.len());
    for (name, member) in members {
        assert!(member["description"].is_string(), "{name}");
        assert!(!member.to_string().contains("null"), "{name}: {member}");
    }
}
