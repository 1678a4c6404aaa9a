//! The table of docs/concepts/deliveries.md on what a shape can carry is what the code decides by.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;

use keyferry_api::config::DeliveryType;
use keyferry_core::delivery::Field;

/// A row for each field, a column for each shape.
fn table() -> String {
    let names: Vec<String> = DeliveryType::ALL
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    let mut table = format!(
        "| of the TargetCluster | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for field in Field::ALL {
        let cell = |(_, delivery): &(&str, DeliveryType)| {
            if field.is_carried_by(*delivery) {
                "yes"
            } else {
                "no"
            }
        };
        let cells: Vec<&str> = DeliveryType::ALL.iter().map(cell).collect();
        table.push_str(&format!("| {} | {} |\n", field.as_str(), cells.join(" | ")));
    }
    table
}

fn document() -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/deliveries.md"),
    )
    .unwrap()
}

#[test]
fn the_document_says_what_the_code_decides() {
    let document = document();
    let (_, after) = document.split_once("<!-- expressibility").unwrap();
    let (_, after) = after.split_once("-->\n").unwrap();
    let (written, _) = after.split_once("<!-- end -->").unwrap();
    assert!(
        written.trim() == table().trim(),
        "write this between the marks of docs/concepts/deliveries.md:\n{}",
        table()
    );
}

#[test]
fn every_shape_is_described() {
    let document = document();
    for (name, _) in DeliveryType::ALL {
        let in_a_row = document.lines().any(|line| {
            line.starts_with("| `") && line.contains(&format!("`{name}`")) && line.contains(" | ")
        });
        assert!(in_a_row, "{name}");
    }
}
