//! docs/reference/objects.md is what the command prints, the table of
//! docs/reference/configuration.md is what the types print, and every field has a description.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;

use keyferry_api::config::file_schema;
use keyferry_api::json_schema::{FieldRow, member_rows};

fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .arg("crds")
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_document_is_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/objects.md");
    let printed = printed(&["--markdown"]);
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(path, printed).unwrap();
        return;
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == printed,
        "run: KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test reference"
    );
}

#[test]
fn the_stream_holds_the_files_as_they_are() {
    let stream = printed(&[]);
    for name in ["targetclusters", "targetaccesses", "audiencepairings"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crds/{name}.yaml"));
        assert!(
            stream.contains(std::fs::read_to_string(path).unwrap().trim_end()),
            "{name}"
        );
    }
    assert_eq!(stream.split("---\n").count(), 3);
}

#[test]
fn every_field_of_a_spec_is_described() {
    let text = printed(&["--markdown"]);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `spec") || line.starts_with("| `pairs"))
        .collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for row in rows {
        let meaning = row
            .split(" | ")
            .nth(2)
            .unwrap_or_default()
            .trim_end_matches('|')
            .trim();
        assert!(meaning.len() > 10, "{row}");
    }
}

/// The fields of the ServerConfiguration, which is the first kind of the schema.
fn server_fields() -> Vec<FieldRow> {
    let schema = file_schema();
    let mut fields = member_rows(&schema["allOf"][0]["then"]);
    // The text above the table says what these are.
    fields.retain(|field| {
        let section = field.path.split('.').next().unwrap_or_default();
        !["apiVersion", "kind", "metadata"].contains(&section)
    });
    fields
}

#[test]
fn the_table_of_the_configuration_is_what_the_types_print() {
    const BEGIN: &str = "<!-- printed: the fields of ServerConfiguration; \
        KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test reference -->\n";
    const END: &str = "<!-- printed: end -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let rows: String = server_fields().iter().map(table_row).collect();
    let table = format!("| field | type | default | meaning |\n|---|---|---|---|\n{rows}");
    let wanted = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(path, wanted).unwrap();
        return;
    }
    assert!(
        page == wanted,
        "run: KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test reference"
    );
}

fn table_row(field: &FieldRow) -> String {
    let default = match &field.default {
        _ if field.is_required => "required".to_owned(),
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    let separator = if default.is_empty() { "" } else { " " };
    format!(
        "| `{}` | {} |{separator}{default} | {} |\n",
        field.path, field.type_name, field.meaning
    )
}

#[test]
fn every_field_of_the_configuration_is_described() {
    let fields = server_fields();
    assert!(fields.len() > 60, "{} fields", fields.len());
    for field in fields {
        assert!(field.meaning.len() > 10, "{field:?}");
    }
}
