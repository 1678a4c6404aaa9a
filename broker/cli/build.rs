//! Gives the program the commit that it is built from, for `keyferry --version`.
//!
//! `KEYFERRY_COMMIT` names the commit where there is no checkout, for example in a build of the
//! image. Without it, a release build reads the commit from git. Every other build says `unknown`:
//! otherwise each commit would compile this package and all its tests again.
#![allow(
    clippy::print_stdout,
    reason = "Cargo reads what a build script prints"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "KEYFERRY_COMMIT";
const UNKNOWN: &str = "unknown";

/// What the binary is built from. A change of other files does not change the binary.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "broker", "examples"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let named = std::env::var(VARIABLE).unwrap_or_default();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = if !named.is_empty() {
        if named != UNKNOWN && !is_object_id(&named) {
            println!(
                "cargo::error=the variable {VARIABLE} is {named:?}, which is no commit. fix: set \
                 it to the output of `git rev-parse HEAD`"
            );
        }
        named
    } else if is_release {
        commit_of_checkout().unwrap_or_else(|| UNKNOWN.to_owned())
    } else {
        UNKNOWN.to_owned()
    };
    println!("cargo::rustc-env=KEYFERRY_BUILD_COMMIT={commit}");
}

/// Whether the text is a full object id of git: SHA-1 or SHA-256 in lower case.
fn is_object_id(text: &str) -> bool {
    [40, 64].contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The commit that is checked out, with `-dirty` if a tracked file of [`SOURCES`] differs from it.
/// `None` without git, and without a checkout of this repository.
fn commit_of_checkout() -> Option<String> {
    // Without this, sources that lie in the checkout of another repository would get its commit.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["rev-parse", "HEAD"])?;
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    watch(&top);
    let mut status = vec!["-C", top.to_str()?, "status", "--porcelain", "-uno", "--"];
    status.extend(SOURCES);
    let is_dirty = !git(&status)?.is_empty();
    is_object_id(&commit).then(|| format!("{commit}{}", if is_dirty { "-dirty" } else { "" }))
}

/// Runs this script again when the sources change, or when another commit is checked out.
fn watch(top: &Path) {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", top.join(source).display());
    }
    let head = git(&["symbolic-ref", "-q", "HEAD"]);
    for file in ["HEAD", "logs/HEAD"].into_iter().chain(head.as_deref()) {
        // Cargo would take a file that does not exist as one that always changes.
        if let Some(path) = git(&["rev-parse", "--git-path", file]).map(PathBuf::from)
            && path.exists()
        {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// What git prints in the package's folder. `None` if it fails, or does not exist.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
