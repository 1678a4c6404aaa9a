//! A chart can hold only what lies in it, so it holds copies of the CRDs and of the admission policies. They
//! are the same bytes. `KEYFERRY_WRITE_COPIES=1` makes the copies.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use keyferry_core::target_address::METADATA_ADDRESSES;
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

/// All manifests below a folder, the chart's templates included.
fn manifests_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(manifests_below(&path));
        } else if path.extension().is_some_and(|end| end == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn network_policies_except_the_metadata_services_that_the_process_refuses() {
    let mut rules = 0;
    for (path, text) in manifests_below(&repository().join("examples")) {
        for line in text.lines() {
            let Some((_, block)) = line.split_once("- ipBlock: ") else {
                continue;
            };
            let block: Value = serde_saphyr::from_str(block).unwrap();
            let everything = block["cidr"].as_str().unwrap();
            let link_local = match everything {
                "0.0.0.0/0" => "169.254.0.0/16",
                "::/0" => "fe80::/10",
                _ => continue,
            };
            rules += 1;
            let named = |network: &str| {
                let excepted = block["except"].as_array().into_iter().flatten();
                excepted.into_iter().any(|one| one == network)
            };
            assert!(named(link_local), "{}: {line}", path.display());
            for address in METADATA_ADDRESSES {
                let (family, length) = match address {
                    IpAddr::V4(_) => ("0.0.0.0/0", 32),
                    IpAddr::V6(_) => ("::/0", 128),
                };
                assert!(
                    family != everything || named(&format!("{address}/{length}")),
                    "{} does not except {address}: {line}",
                    path.display()
                );
            }
        }
        assert!(
            !text.contains("cidr: 0.0.0.0/0") || text.contains("- ipBlock: { cidr: 0.0.0.0/0"),
            "{}: write an ipBlock in one line, so that this test reads it",
            path.display()
        );
    }
    assert_eq!(rules, 10, "five policies for both families of addresses");
}
