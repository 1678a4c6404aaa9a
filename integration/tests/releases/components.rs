//! What the release says about itself: SBOM, OpenVEX, provenance.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use serde_json::Value;
use tokio::process::Command;

use super::artifacts::{checksums, image_binary};
use super::stage::{Stage, printed, sha256};

/// A crate: name and version.
type Crate = (String, String);

/// The libraries that the compiler made for both binaries. Macros and build scripts run on the
/// builder, and are in another folder.
fn compiled_libraries(stage: &Stage) -> Result<BTreeSet<String>, TestError> {
    let folder = "target/x86_64-unknown-linux-gnu/debug/deps";
    let mut libraries = BTreeSet::new();
    for entry in std::fs::read_dir(stage.source().join(folder))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let library = name
            .strip_prefix("lib")
            .and_then(|name| name.strip_suffix(".rlib"))
            .and_then(|name| name.rsplit_once('-'));
        if let Some((library, _)) = library {
            libraries.insert(library.to_owned());
        }
    }
    Ok(libraries)
}

/// The name of each crate's library, which may differ from the crate's.
async fn library_names(stage: &Stage) -> Result<BTreeMap<Crate, String>, TestError> {
    let mut metadata = Command::new("cargo");
    metadata
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .arg("--filter-platform=x86_64-unknown-linux-gnu")
        .current_dir(stage.source());
    let metadata: Value = serde_json::from_str(&printed(metadata).await?)?;
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    let mut names = BTreeMap::new();
    for package in packages {
        let targets = package["targets"].as_array().ok_or("no targets")?;
        let is_library = |target: &&Value| {
            let mut kinds = target["kind"].as_array().into_iter().flatten();
            kinds.any(|kind| kind == "lib" || kind == "rlib")
        };
        if let Some(library) = targets.iter().find(is_library) {
            names.insert(
                (text(&package["name"]), text(&package["version"])),
                text(&library["name"]).replace('-', "_"),
            );
        }
    }
    Ok(names)
}

/// The crates of the SBOM.
fn listed(sbom: &Value) -> Result<BTreeMap<Crate, &Value>, TestError> {
    let components = sbom["components"].as_array().ok_or("no components")?;
    Ok(components
        .iter()
        .map(|one| ((text(&one["name"]), text(&one["version"])), one))
        .collect())
}

/// The checksums of Cargo.lock. The workspace's own crates have none.
fn locked(stage: &Stage) -> Result<BTreeMap<Crate, Option<String>>, TestError> {
    let lock = std::fs::read_to_string(stage.source().join("Cargo.lock"))?;
    let field = |package: &str, name: &str| {
        let lines = package.lines();
        lines
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))
            .find_map(|value| value.strip_suffix('"').map(str::to_owned))
    };
    lock.split("[[package]]\n")
        .skip(1)
        .map(|package| {
            let name = field(package, "name").ok_or("a package of Cargo.lock has no name")?;
            let version = field(package, "version").ok_or("it has no version")?;
            Ok(((name, version), field(package, "checksum")))
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The SBOM of each binary, and that binary.
async fn sboms(stage: &Stage, into: &str) -> Result<[(Value, PathBuf); 2], TestError> {
    let archived = stage.unpack("keyferry-linux-amd64.tar.gz", into).await?;
    let image = image_binary(stage, &format!("{into}-image")).await?;
    Ok([
        (stage.json("keyferry.cdx.json")?, archived.join("keyferry")),
        (stage.json("keyferry-image.cdx.json")?, image),
    ])
}

pub(super) async fn each_sbom_lists_the_crates_of_its_binary(stage: Arc<Stage>) -> TestResult {
    let names = library_names(&stage).await?;
    let locked = locked(&stage)?;
    let mut counted = Vec::new();
    let mut libraries = BTreeSet::from(["keyferry".to_owned()]);
    for (sbom, binary) in sboms(&stage, "sbom").await? {
        assert_eq!(sbom["bomFormat"], "CycloneDX");
        let about = &sbom["metadata"]["component"];
        assert_eq!(about["version"], stage.version);
        assert_eq!(about["hashes"][0]["content"], sha256(&binary)?);
        let listed = listed(&sbom)?;
        counted.push(listed.len());
        for (one, component) in &listed {
            let name = names
                .get(one)
                .ok_or_else(|| format!("{one:?} is no library"))?;
            libraries.insert(name.clone());
            let checksum = locked
                .get(one)
                .ok_or_else(|| format!("Cargo.lock has no {one:?}"))?;
            if let Some(checksum) = checksum {
                let stated = text(&component["hashes"][0]["content"]);
                assert_eq!(stated, *checksum, "{one:?}");
            }
        }
        let has = |name: &str| listed.keys().any(|(one, _)| one == name);
        let of_the_archive = counted.len() == 1;
        assert_eq!(has("keyferry-reach"), of_the_archive);
        assert!(!has("keyferry-testing"), "the demo is in no binary");
    }
    assert!(counted[0] > counted[1] && counted[1] > 150, "{counted:?}");
    let compiled = compiled_libraries(&stage)?;
    assert_eq!(libraries, compiled, "left: the SBOMs; right: the compiler");
    for name in ["keyferry.cdx.json", "keyferry-image.cdx.json"] {
        let temporary = std::env::temp_dir().display().to_string();
        let all = stage.text(name)?;
        assert!(!all.contains(&temporary), "it names a builder's folder");
    }
    Ok(())
}

pub(super) async fn vex_statements_are_about_both_binaries(stage: Arc<Stage>) -> TestResult {
    let vex = stage.json("keyferry.openvex.json")?;
    assert_eq!(vex["@context"], "https://openvex.dev/ns/v0.2.0");
    for field in ["@id", "author", "timestamp"] {
        assert!(vex[field].is_string(), "{field}");
    }
    assert_eq!(vex["version"], 1);
    let sboms = sboms(&stage, "vex").await?;
    let statements = vex["statements"].as_array().ok_or("no statements")?;
    assert!(!statements.is_empty());
    for statement in statements {
        assert!(statement["vulnerability"]["name"].is_string());
        assert_eq!(statement["status"], "not_affected", "{statement}");
        assert_eq!(statement["justification"], "component_not_present");
        let products = statement["products"].as_array().ok_or("no products")?;
        assert_eq!(products.len(), sboms.len(), "{statement}");
        for (product, (sbom, binary)) in products.iter().zip(&sboms) {
            assert_eq!(product["hashes"]["sha-256"], sha256(binary)?);
            let component = text(&product["subcomponents"][0]["@id"]);
            let name = component.strip_prefix("pkg:cargo/").ok_or("not a crate")?;
            let listed = listed(sbom)?;
            assert!(
                !listed.keys().any(|(one, _)| one == name),
                "{name} is in the binary"
            );
        }
    }
    Ok(())
}

pub(super) async fn provenance_names_files_and_commit(stage: Arc<Stage>) -> TestResult {
    let statement = stage.json("provenance.json")?;
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let subjects = statement["subject"].as_array().ok_or("no subjects")?;
    let subjects: BTreeMap<String, String> = subjects
        .iter()
        .map(|one| (text(&one["name"]), text(&one["digest"]["sha256"])))
        .collect();
    let mut files = checksums(&stage)?;
    assert!(files.remove("provenance.json").is_some());
    assert_eq!(subjects, files, "left: subjects; right: SHA256SUMS");
    // The builder is named by a section that says what it promises.
    let builder = text(&statement["predicate"]["runDetails"]["builder"]["id"]);
    let (page, section) = builder.split_once('#').ok_or("no section")?;
    assert_eq!(
        (page, section),
        (
            "https://github.com/keyferry/keyferry/blob/main/docs/development/releasing.md",
            "builder-a-maintainers-machine"
        )
    );
    let page = stage.source().join("docs/development/releasing.md");
    let page = std::fs::read_to_string(page)?;
    assert!(page.contains("\n## Builder: a maintainer's machine\n"));
    let build = &statement["predicate"]["buildDefinition"];
    assert_eq!(build["externalParameters"]["commit"], stage.commit);
    assert_eq!(build["externalParameters"]["profile"], "dev");
    assert_eq!(
        build["resolvedDependencies"][0]["digest"]["gitCommit"],
        stage.commit
    );
    assert_eq!(
        build["resolvedDependencies"][1]["digest"]["sha256"],
        sha256(&stage.source().join("Cargo.lock"))?
    );
    Ok(())
}
