//! Tests what `.ci/sign` refuses: two builds that differ, what is no second build, and lists that
//! are not of the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};

use super::refusals::assert_refused;
use super::stage::{RELEASE, SECOND, Stage, sha256};

const ARCHIVE: &str = "keyferry-linux-amd64.tar.gz";

/// Copies of the two releases, without signatures.
struct Copies {
    release: PathBuf,
    second: PathBuf,
}

impl Copies {
    fn change_both(&self, change: impl Fn(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
        change(&self.release)?;
        change(&self.second)
    }

    /// Changes a file of both, and `SHA256SUMS` with it.
    fn rewrite_listed_file(&self, name: &str, from: &str, to: &str) -> TestResult {
        for folder in [&self.release, &self.second] {
            let file = folder.join(name);
            let before = sha256(&file)?;
            replace_text(&file, from, to)?;
            replace_text(&folder.join("SHA256SUMS"), &before, &sha256(&file)?)?;
        }
        Ok(())
    }
}

fn replace_text(file: &Path, from: &str, to: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    assert!(text.contains(from), "{} has {from:?}", file.display());
    std::fs::write(file, text.replacen(from, to, 1))
}

/// A copy of a release, without its signatures. No change of the copy changes the release.
fn copy_release(stage: &Stage, from: &str, into: &str) -> Result<PathBuf, TestError> {
    let folder = stage.path(into);
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(stage.path(from))? {
        let name = entry?.file_name();
        if !name.to_string_lossy().ends_with(".sigstore.json") {
            std::fs::copy(stage.path(from).join(&name), folder.join(&name))?;
        }
    }
    Ok(folder)
}

/// What is done to the copies, and what the refusal names.
type Row = (fn(&Copies) -> TestResult, &'static [&'static str]);

const ROWS: &[Row] = &[
    (
        |copies| {
            let mut bytes = std::fs::read(copies.second.join(ARCHIVE))?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            Ok(std::fs::write(copies.second.join(ARCHIVE), bytes)?)
        },
        &["differ", ARCHIVE],
    ),
    (
        |copies| Ok(std::fs::remove_file(copies.second.join("krew.yaml"))?),
        &["differ", "krew.yaml"],
    ),
    (
        |copies| Ok(std::fs::write(copies.release.join("added"), "")?),
        &["differ", "added"],
    ),
    (
        |copies| {
            std::fs::remove_dir_all(&copies.second)?;
            Ok(std::os::unix::fs::symlink(&copies.release, &copies.second)?)
        },
        &["the same folder"],
    ),
    (
        |copies| {
            let path = copies.release.join(".build-path");
            std::fs::copy(path, copies.second.join(".build-path"))?;
            Ok(())
        },
        &["both releases were built in", "/source"],
    ),
    (
        |copies| Ok(std::fs::remove_file(copies.second.join(".build-path"))?),
        &["has no file .build-path"],
    ),
    (
        |copies| {
            let key = "../../cosign.key";
            Ok(copies
                .change_both(|folder| std::os::unix::fs::symlink(key, folder.join("linked")))?)
        },
        &["linked, which is no plain file"],
    ),
    (
        |copies| Ok(copies.change_both(|folder| std::fs::write(folder.join("a\nb"), ""))?),
        &["a\\nb", "no plain file with a plain name"],
    ),
    (
        |copies| Ok(copies.change_both(|folder| std::fs::write(folder.join("added"), ""))?),
        &["SHA256SUMS does not list"],
    ),
    (
        |copies| copies.rewrite_listed_file("provenance.json", "\"krew.yaml\"", "\"other.yaml\""),
        &["provenance.json is not about"],
    ),
    (
        |copies| copies.rewrite_listed_file("provenance.json", "\"dev\"", "\"release\""),
        &["the profile release"],
    ),
    (
        |copies| Ok(std::fs::write(copies.release.join("x.sigstore.json"), "")?),
        &["is signed already", "x.sigstore.json"],
    ),
];

/// Each change alone is refused, and without it the copies are signed.
pub(super) async fn only_equal_builds_of_two_paths_are_signed(stage: Arc<Stage>) -> TestResult {
    for (number, (change, parts)) in ROWS.iter().enumerate() {
        let folder = format!("signing-{number}");
        let [release, second] = [RELEASE, SECOND].map(|name| format!("{folder}/{name}"));
        let copies = Copies {
            release: copy_release(&stage, RELEASE, &release)?,
            second: copy_release(&stage, SECOND, &second)?,
        };
        change(&copies)?;
        assert_refused(stage.sign_command(&second, &release), parts).await?;
        for bundle in ["SHA256SUMS.sigstore.json", "provenance.sigstore.json"] {
            assert!(!copies.release.join(bundle).exists(), "{parts:?}: {bundle}");
        }
        std::fs::remove_dir_all(stage.path(&folder))?;
    }
    copy_release(&stage, RELEASE, "unsigned")?;
    let mut of_a_debug_build = stage.sign_command(SECOND, "unsigned");
    of_a_debug_build.env_remove("KEYFERRY_RELEASE_PROFILE");
    let parts = ["the profile dev"];
    // The second is not signed, so that it can be compared.
    assert_refused(of_a_debug_build, &parts).await?;
    let without_a_second = stage.sign_command("", "unsigned");
    assert_refused(without_a_second, &["--second has no value"]).await
}
