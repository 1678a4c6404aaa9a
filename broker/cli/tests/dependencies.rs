//! Every dependency of the workspace has its reason in
//! docs/development/decisions/0002-dependencies.md, and no reason is for one that is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path),
    )
    .unwrap()
}

#[test]
fn each_dependency_is_named_with_its_reason() {
    let manifest = read("Cargo.toml");
    let (_, table) = manifest
        .split_once("[workspace.dependencies]\n")
        .expect("the workspace names its dependencies");
    let table = table.split("\n[").next().unwrap();
    let declared: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .collect();
    assert!(declared.len() > 30, "the manifest was read: {declared:?}");

    let record = read("docs/development/decisions/0002-dependencies.md");
    // The first column of the table: one or more names in backticks.
    let rows = record
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let named: BTreeSet<&str> = rows
        .flat_map(|(names, _)| {
            names
                .split('`')
                .filter(|name| !name.is_empty() && *name != ", ")
        })
        .collect();
    assert_eq!(
        declared, named,
        "left: Cargo.toml; right: docs/development/decisions/0002-dependencies.md"
    );
}

#[test]
fn members_take_their_dependencies_from_the_workspace() {
    for member in [
        "broker/api",
        "broker/cel-kubernetes",
        "broker/cli",
        "broker/client",
        "broker/controller",
        "broker/counts",
        "broker/core",
        "broker/fleet",
        "broker/fuzz",
        "broker/go-formats",
        "broker/image",
        "broker/hub",
        "broker/issuer",
        "broker/keys",
        "broker/kube-authn",
        "broker/kube-rbac",
        "broker/listener",
        "broker/pages",
        "broker/platform",
        "broker/server",
        "broker/simulation",
        "broker/testing",
        "broker/threads",
        "integration",
    ] {
        let manifest = read(&format!("{member}/Cargo.toml"));
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.ends_with("dependencies]")
                && line.contains(" = ")
                && !line.starts_with('#')
            {
                assert!(
                    line.contains("workspace"),
                    "{member}/Cargo.toml declares {line} by itself"
                );
            }
        }
    }
}
