//! `cargo test` in the root runs every member except the suites on real control planes.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

/// The quoted names of a list of the workspace's manifest.
fn list<'a>(manifest: &'a str, name: &str) -> BTreeSet<&'a str> {
    let (_, list) = manifest
        .split_once(&format!("\n{name} = ["))
        .expect("the manifest has the list");
    list.split(']')
        .next()
        .unwrap()
        .split('"')
        .skip(1)
        .step_by(2)
        .collect()
}

#[test]
fn only_the_suites_on_control_planes_are_left_out_of_cargo_test() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let manifest = std::fs::read_to_string(file).unwrap();
    let mut members = list(&manifest, "members");
    assert!(members.remove("integration"), "{members:?}");
    assert_eq!(
        members,
        list(&manifest, "default-members"),
        "left: members without integration; right: default-members"
    );
}
