//! The files of the release: checksums, binary, krew manifest, chart, CRDs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::Value;
use tokio::process::Command;

use super::stage::{RELEASE, Stage, printed, repository, sha256};

const ARCHIVE: &str = "keyferry-linux-amd64.tar.gz";

/// The lines of SHA256SUMS: digests by file name.
pub(super) fn checksums(stage: &Stage) -> Result<BTreeMap<String, String>, TestError> {
    let lines = stage.text("SHA256SUMS")?;
    let mut sums = BTreeMap::new();
    for line in lines.lines() {
        let (sum, name) = line
            .split_once("  ")
            .ok_or("a line is not `DIGEST  NAME`")?;
        sums.insert(name.to_owned(), sum.to_owned());
    }
    Ok(sums)
}

pub(super) async fn checksums_cover_every_file(stage: Arc<Stage>) -> TestResult {
    let sums = checksums(&stage)?;
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(stage.path(RELEASE))? {
        files.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    // The list itself, what is made from it, and what is not published.
    for unlisted in [
        ".build-path",
        "SHA256SUMS",
        "SHA256SUMS.sigstore.json",
        "provenance.sigstore.json",
    ] {
        assert!(files.remove(unlisted), "{unlisted} is in {files:?}");
    }
    assert_eq!(
        files,
        sums.keys().cloned().collect(),
        "left: files; right: SHA256SUMS"
    );
    for expected in [
        ARCHIVE,
        &format!("keyferry-{}.tgz", stage.version),
        "RELEASE_NOTES.md",
        "keyferry-crds.yaml",
        "keyferry-image.cdx.json",
        "keyferry-image.tar",
        "keyferry.cdx.json",
        "keyferry.openvex.json",
        "krew.yaml",
        "provenance.json",
    ] {
        assert!(files.contains(expected), "{expected} is in {files:?}");
    }
    for (name, sum) in sums {
        assert_eq!(sha256(&stage.file(&name))?, sum, "{name}");
    }
    let notes = stage.text("RELEASE_NOTES.md")?;
    assert!(
        notes.starts_with("### ") && !notes.contains("\n## "),
        "the notes are one section: {notes}"
    );
    Ok(())
}

/// Whether an ELF file of 64 bits asks for an interpreter, which a static one does not.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?));
    elf.starts_with(b"\x7fELF\x02\x01").then_some(())?;
    let table = usize::try_from(u64_at(0x20)?).ok()?;
    let (size, count) = (u16_at(0x36)?, u16_at(0x38)?);
    for number in 0..usize::from(count) {
        let at = table + number * usize::from(size);
        let kind = u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

pub(super) async fn the_binary_is_static_and_names_its_commit(stage: Arc<Stage>) -> TestResult {
    let binary = stage.unpack(ARCHIVE, "static").await?.join("keyferry");
    let bytes = std::fs::read(&binary)?;
    assert_eq!(has_interpreter(&bytes), Some(false), "it is static");
    // The test itself is not, so the check can fail.
    let test = std::fs::read(std::env::current_exe()?)?;
    assert_eq!(has_interpreter(&test), Some(true));

    let source = stage.source().display().to_string();
    assert!(!contains(&bytes, &source), "it names the builder's folder");

    let mut long = Command::new(&binary);
    long.arg("--version").env_clear();
    assert_eq!(
        printed(long).await?,
        format!(
            "keyferry {}\ncommit: {}\nbuild: debug\nFIPS mode: off\n",
            stage.version, stage.commit
        )
    );
    let mut short = Command::new(&binary);
    short.arg("-V").env_clear();
    assert_eq!(
        printed(short).await?,
        format!("keyferry {}\n", stage.version)
    );
    Ok(())
}

pub(super) async fn krew_installs_the_archive(stage: Arc<Stage>) -> TestResult {
    let text = stage.text("krew.yaml")?;
    assert!(!text.contains("{{") && !text.contains('#'), "{text}");
    let manifest: Value = serde_saphyr::from_str(&text)?;
    assert_eq!(manifest["kind"], "Plugin");
    assert_eq!(manifest["spec"]["version"], format!("v{}", stage.version));
    let platforms = manifest["spec"]["platforms"]
        .as_array()
        .ok_or("it has no platforms")?;
    // arm64 of the template is not in this release.
    let [platform] = &platforms[..] else {
        return Err(format!("it has other platforms than one: {platforms:?}").into());
    };
    assert_eq!(
        platform["selector"]["matchLabels"],
        serde_json::json!({"os": "linux", "arch": "amd64"})
    );
    let uri = platform["uri"].as_str().ok_or("it has no uri")?;
    let name = uri.rsplit('/').next().unwrap_or_default();
    assert_eq!(name, ARCHIVE, "{uri}");
    assert_eq!(platform["sha256"], sha256(&stage.file(name))?);
    let folder = stage.unpack(name, "krew").await?;
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(&folder)? {
        found.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let files = platform["files"].as_array().ok_or("it has no files")?;
    let named: BTreeSet<String> = files
        .iter()
        .filter_map(|file| file["from"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(found, named, "left: the archive; right: what krew takes");
    assert!(
        platform["bin"]
            .as_str()
            .is_some_and(|bin| found.contains(bin))
    );
    Ok(())
}

pub(super) async fn the_chart_renders_as_its_folder(stage: Arc<Stage>) -> TestResult {
    let archive = stage.file(&format!("keyferry-{}.tgz", stage.version));
    let archive = archive.display().to_string();
    let folder = stage.source().join("examples/helm/keyferry");
    let values = [
        "--set=hubName=hub",
        "--set=publicURL=https://keyferry.example.com",
        "--set=crds.enabled=true",
    ];
    let lint = stage
        .part(Part::Helm, &[&["lint", &archive][..], &values].concat())
        .await?;
    assert!(
        lint.status.success(),
        "{}",
        String::from_utf8_lossy(&lint.stdout)
    );
    let mut rendered = Vec::new();
    for chart in [&archive, &folder.display().to_string()] {
        let template = ["template", "keyferry", chart, "-n=keyferry-system"];
        let output = stage
            .part(Part::Helm, &[&template[..], &values].concat())
            .await?;
        assert!(
            output.status.success(),
            "{chart}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        rendered.push(String::from_utf8(output.stdout)?);
    }
    assert!(rendered[0].contains("kind: Deployment"), "{}", rendered[0]);
    assert_eq!(rendered[0], rendered[1]);
    Ok(())
}

pub(super) async fn the_crds_are_those_of_the_repository(stage: Arc<Stage>) -> TestResult {
    let bundle: Vec<Value> = serde_saphyr::from_multiple(&stage.text("keyferry-crds.yaml")?)?;
    let mut shipped = Vec::new();
    for name in ["audiencepairings", "targetaccesses", "targetclusters"] {
        let text =
            std::fs::read_to_string(stage.source().join(format!("broker/crds/{name}.yaml")))?;
        let definition: Value = serde_saphyr::from_str(&text)?;
        shipped.push(definition);
    }
    let by_name = |mut all: Vec<Value>| {
        all.sort_by_key(|one| one["metadata"]["name"].as_str().map(str::to_owned));
        all
    };
    assert_eq!(by_name(bundle), by_name(shipped));
    let folder = std::fs::read_dir(repository().join("broker/crds"))?.count();
    assert_eq!(folder, 4, "three definitions and a kustomization");
    Ok(())
}

/// The image is an OCI layout with a binary of the same commit, and its labels name version and
/// commit. Its binary lacks the commands about a fleet, which the archive's has.
pub(super) async fn the_image_has_its_binary(stage: Arc<Stage>) -> TestResult {
    let binary = image_binary(&stage, "image").await?;
    let archived = stage.unpack(ARCHIVE, "archived").await?.join("keyferry");
    for (binary, about_a_fleet) in [(&binary, false), (&archived, true)] {
        let mut version = Command::new(binary);
        version.arg("--version").env_clear();
        let version = printed(version).await?;
        assert!(version.contains(&stage.commit), "{version}");
        let mut help = Command::new(binary);
        help.arg("--help").env_clear();
        let help = printed(help).await?;
        for command in ["who-can", "what-if", "rehearse", "fleet", "dashboard"] {
            let listed = help.contains(&format!("\n  {command} "));
            assert_eq!(listed, about_a_fleet, "{command}: {help}");
        }
        assert!(!help.contains("\n  demo "), "{help}");
    }
    Ok(())
}

/// Unpacks the image's one layer, after the checks of its layout, and returns its binary.
pub(super) async fn image_binary(stage: &Stage, into: &str) -> Result<PathBuf, TestError> {
    let layout = stage.path(into);
    std::fs::create_dir_all(&layout)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(stage.file("keyferry-image.tar"));
    unpack.arg("-C").arg(&layout);
    printed(unpack).await?;
    let blob = |digest: &Value| {
        let digest = digest.as_str().unwrap_or_default();
        let path = layout.join("blobs").join(digest.replace(':', "/"));
        assert_eq!(format!("sha256:{}", sha256(&path)?), digest);
        Ok::<_, TestError>(path)
    };
    let read = |path: &std::path::Path| -> Result<Value, TestError> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    };
    let index = read(&layout.join("index.json"))?;
    let manifest = read(&blob(&index["manifests"][0]["digest"])?)?;
    let config = read(&blob(&manifest["config"]["digest"])?)?;
    let label = |name: &str| {
        let label = format!("org.opencontainers.image.{name}");
        config["config"]["Labels"][label].clone()
    };
    assert_eq!(label("version"), stage.version);
    assert_eq!(label("revision"), stage.commit);
    assert_eq!(config["config"]["User"], "65532:65532");
    let [layer] = manifest["layers"].as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(format!("not one layer: {manifest}").into());
    };
    let tree = stage.path(&format!("{into}-tree"));
    std::fs::create_dir_all(&tree)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(blob(&layer["digest"])?);
    unpack.arg("-C").arg(&tree);
    printed(unpack).await?;
    Ok(tree.join("usr/bin/keyferry"))
}
