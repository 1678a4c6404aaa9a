//! A chart can hold only what lies in it, so it holds copies of the CRDs and of the admission policies. They
//! are the same bytes. `KEYFERRY_WRITE_COPIES=1` makes the copies.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The manifests of a folder by file name; none where there is no folder.
fn manifests(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    let files = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let named = files.map(|path| {
        (
            path.file_name().unwrap().to_string_lossy().into_owned(),
            std::fs::read_to_string(&path).unwrap(),
        )
    });
    named
        .filter(|(name, _)| name != "kustomization.yaml")
        .collect()
}

fn copies_are_the_same(original: &str, copy: &str) -> BTreeMap<String, String> {
    let (originals, folder) = (
        manifests(&repository().join(original)),
        repository().join("examples/helm/keyferry/files").join(copy),
    );
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        for name in manifests(&folder).keys() {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        for (name, text) in &originals {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let copies = manifests(&folder);
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&originals),
        names(&copies),
        "left: {original}; right: the chart's files/{copy}; KEYFERRY_WRITE_COPIES=1 copies them"
    );
    for (name, text) in &originals {
        assert!(
            copies.get(name) == Some(text),
            "{original}/{name} and its copy in the chart differ; KEYFERRY_WRITE_COPIES=1 copies it"
        );
    }
    originals
}

#[test]
fn the_chart_holds_the_crds() {
    assert!(copies_are_the_same("broker/crds", "crds").len() >= 3);
}

#[test]
fn the_chart_holds_the_admission_policies() {
    copies_are_the_same("examples/admission-policies", "admission-policies");
}

#[test]
fn keyferry_may_look_whether_each_admission_policy_stands() {
    let rights =
        std::fs::read_to_string(repository().join("examples/install/base/rbac.yaml")).unwrap();
    let roles: Vec<Value> = serde_saphyr::from_multiple(&rights).unwrap();
    let rules = roles
        .iter()
        .filter_map(|role| role["rules"].as_array())
        .flatten();
    let about = rules.filter(|rule| rule["apiGroups"][0] == "admissionregistration.k8s.io");
    let readable: BTreeSet<&str> = about
        .filter_map(|rule| rule["resourceNames"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert!(readable.contains("keyferry-pairing"), "{readable:?}");
    for (file, text) in manifests(&repository().join("examples/admission-policies")) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in documents.iter().filter(|document| {
            document["kind"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("ValidatingAdmission"))
        }) {
            let name = document["metadata"]["name"].as_str().unwrap();
            assert!(
                readable.contains(name),
                "{file}: rbac.yaml does not let Keyferry get {name}"
            );
        }
    }
}
