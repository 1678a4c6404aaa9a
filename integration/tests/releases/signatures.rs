//! The signatures of the release, verified with the real cosign as docs/development/releasing.md
//! says.

use std::path::Path;
use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};

use super::stage::Stage;

/// Whether cosign accepts the file by a bundle of the release; what it says.
async fn verify(
    stage: &Stage,
    command: &[&str],
    bundle: &str,
    key: &str,
    file: &Path,
) -> Result<(bool, String), TestError> {
    let bundle = stage.file(bundle).display().to_string();
    let file = file.display().to_string();
    let rest = [
        "--key",
        key,
        "--bundle",
        &bundle,
        "--insecure-ignore-tlog",
        &file,
    ];
    let output = stage.part(Part::Cosign, &[command, &rest].concat()).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.success(), said))
}

/// A copy of a file in which one byte is another.
fn with_a_changed_byte(stage: &Stage, name: &str) -> Result<std::path::PathBuf, TestError> {
    let mut bytes = std::fs::read(stage.file(name))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let copy = stage.path(&format!("changed-{name}"));
    std::fs::write(&copy, bytes)?;
    Ok(copy)
}

/// Asserts that cosign takes the file, and neither a changed one nor another key.
async fn only_the_file_and_the_key(
    stage: &Stage,
    command: &[&str],
    bundle: &str,
    name: &str,
) -> TestResult {
    let (good, said) = verify(stage, command, bundle, "cosign.pub", &stage.file(name)).await?;
    assert!(good, "{name}: {said}");
    let changed = with_a_changed_byte(stage, name)?;
    let (good, said) = verify(stage, command, bundle, "cosign.pub", &changed).await?;
    assert!(!good, "a changed {name} is accepted: {said}");
    let other = format!("other-{name}");
    let prefix = format!("--output-key-prefix={other}");
    let made = stage
        .part(Part::Cosign, &["generate-key-pair", &prefix])
        .await?;
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let key = format!("{other}.pub");
    let (good, said) = verify(stage, command, bundle, &key, &stage.file(name)).await?;
    assert!(!good, "{name} is accepted by another key: {said}");
    Ok(())
}

pub(super) async fn a_changed_byte_is_refused(stage: Arc<Stage>) -> TestResult {
    only_the_file_and_the_key(
        &stage,
        &["verify-blob"],
        "SHA256SUMS.sigstore.json",
        "SHA256SUMS",
    )
    .await
}

pub(super) async fn the_provenance_is_signed_for_the_archive(stage: Arc<Stage>) -> TestResult {
    only_the_file_and_the_key(
        &stage,
        &["verify-blob-attestation", "--type=slsaprovenance1"],
        "provenance.sigstore.json",
        "keyferry-linux-amd64.tar.gz",
    )
    .await
}
