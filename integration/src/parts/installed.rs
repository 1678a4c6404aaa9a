//! Our clients in languages whose runtime and libraries must be installed. Each has a folder in the
//! cache, which the ordinary client of its package registry fills once.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use aws_lc_rs::digest;
use tokio::process::Command;

use super::PartError;
use super::build::{cache_error, lock};

const MARKER: &str = "installed";

/// A client program that is not in Go or Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// Verifies tokens with Python libraries.
    PythonVerifiers,
    /// Verifies tokens with JavaScript libraries.
    JavaScriptVerifiers,
    /// Verifies tokens with Java libraries.
    JavaVerifiers,
    /// The Kubernetes client for Python.
    PythonKubernetes,
    /// The Kubernetes client for JavaScript.
    JavaScriptKubernetes,
    /// Sends requests made from an OpenAPI document, and compares the answers with it.
    Schemathesis,
    /// The script with the rules of accessibility, which a browser runs on a page.
    Axe,
    /// Scores pages in a browser of its own.
    Lighthouse,
    /// kubernetes-mcp-server, whose package contains its binary.
    McpServer,
}

/// A client that can be started.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
}

impl Client {
    /// Its folder below `clients`.
    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::PythonVerifiers => "verifiers/python",
            Self::JavaScriptVerifiers => "verifiers/javascript",
            Self::JavaVerifiers => "verifiers/java",
            Self::PythonKubernetes => "kubernetes/python",
            Self::JavaScriptKubernetes => "kubernetes/javascript",
            Self::Schemathesis => "schemathesis",
            Self::Axe => "axe",
            Self::Lighthouse => "lighthouse",
            Self::McpServer => "mcp-server",
        }
    }

    /// The folder below `integration` that contains it.
    pub(crate) fn folder(self) -> String {
        format!("clients/{}", self.directory())
    }

    /// The commands that fill the folder they run in, which contains a copy of the client's files.
    fn steps(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::PythonVerifiers | Self::PythonKubernetes | Self::Schemathesis => &[
                &["python3", "-m", "venv", "venv"],
                &[
                    "venv/bin/python",
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "-r",
                    "requirements.txt",
                ],
            ],
            Self::JavaScriptVerifiers
            | Self::JavaScriptKubernetes
            | Self::Axe
            | Self::Lighthouse
            | Self::McpServer => &[&["node", "--version"], &["npm", "ci", "--silent"]],
            Self::JavaVerifiers => &[
                &["javac", "-version"],
                // With -C, Maven fails on a wrong checksum.
                &[
                    "mvn",
                    "--quiet",
                    "--batch-mode",
                    "-C",
                    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies",
                    "-DoutputDirectory=jars",
                ],
                &[
                    "sh",
                    "-c",
                    "cd jars && sha256sum --strict --quiet -c ../jars.sha256 && test $(ls | wc -l) \
                     -eq $(wc -l <../jars.sha256)",
                ],
                &[
                    "javac",
                    "-nowarn",
                    "-cp",
                    "jars/*",
                    "-d",
                    "classes",
                    "Verify.java",
                ],
            ],
        }
    }

    fn installed(self, folder: &Path) -> Installed {
        let file = |name: &str| folder.join(name).display().to_string();
        let (program, arguments) = match self {
            Self::PythonVerifiers | Self::PythonKubernetes | Self::Schemathesis => (
                folder.join("venv/bin/python"),
                vec!["-W".to_owned(), "ignore".to_owned(), file("main.py")],
            ),
            Self::JavaScriptVerifiers | Self::JavaScriptKubernetes | Self::Lighthouse => {
                (PathBuf::from("node"), vec![file("main.mjs")])
            }
            // No program: the browser is given the text of this file.
            Self::Axe => (
                PathBuf::from("node"),
                vec![file("node_modules/axe-core/axe.min.js")],
            ),
            Self::McpServer => {
                let package = "kubernetes-mcp-server-linux-amd64";
                let program = format!("node_modules/{package}/bin/{package}");
                (folder.join(program), Vec::new())
            }
            Self::JavaVerifiers => (
                PathBuf::from("java"),
                vec![
                    "-cp".to_owned(),
                    format!("{}:{}", file("jars/*"), file("classes")),
                    "Verify".to_owned(),
                ],
            ),
        };
        Installed { program, arguments }
    }
}

/// Whether the folder of these files in the cache is complete.
pub(super) fn is_installed(source: &Path, cache: &Path, client: Client) -> bool {
    files(source).is_ok_and(|files| folder(cache, client, &files).join(MARKER).is_file())
}

fn folder(cache: &Path, client: Client, files: &[(String, Vec<u8>)]) -> PathBuf {
    cache.join(format!("{}-{}", client.directory(), key(files)))
}

/// Returns `<cache>/<directory>-<first 16 hex digits of sha256 of its files>`, and fills it if
/// necessary. A file `installed` marks a complete folder.
pub(super) async fn cached_or_installed(
    source: &Path,
    cache: &Path,
    client: Client,
) -> Result<Installed, PartError> {
    let files = files(source)?;
    let folder = folder(cache, client, &files);
    let (marker, installed) = (folder.join(MARKER), client.installed(&folder));
    if marker.is_file() {
        return Ok(installed);
    }
    std::fs::create_dir_all(&folder).map_err(|source| cache_error(&folder, source))?;
    let _lock = lock(folder.with_extension("lock")).await?;
    // Another test process may have filled it while this one waited for the lock.
    if marker.is_file() {
        return Ok(installed);
    }
    // Start from an empty folder, because a broken installation may have left files.
    std::fs::remove_dir_all(&folder).map_err(|source| cache_error(&folder, source))?;
    std::fs::create_dir_all(&folder).map_err(|source| cache_error(&folder, source))?;
    for (name, bytes) in &files {
        std::fs::write(folder.join(name), bytes).map_err(|source| cache_error(&folder, source))?;
    }
    eprintln!("installing {} once, less than a minute", client.directory());
    let started = Instant::now();
    for step in client.steps() {
        run(step, &folder, client).await?;
    }
    std::fs::write(&marker, "").map_err(|source| cache_error(&marker, source))?;
    eprintln!(
        "installed {} in {} s",
        client.directory(),
        started.elapsed().as_secs()
    );
    Ok(installed)
}

async fn run(step: &[&str], folder: &Path, client: Client) -> Result<(), PartError> {
    let unavailable = |why: String| PartError::Unavailable {
        part: client.directory(),
        version: "of this tree",
        why,
    };
    let Some((program, arguments)) = step.split_first() else {
        return Ok(());
    };
    // A relative path would be resolved from the directory where the tests run.
    let path = if program.contains('/') {
        folder.join(program)
    } else {
        PathBuf::from(program)
    };
    let output = Command::new(path)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output =
        output.map_err(|error| unavailable(format!("{program} did not start: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let last = said
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    Err(unavailable(format!("{} failed: {last}", step.join(" "))))
}

/// The files of the client, sorted by name.
fn files(source: &Path) -> Result<Vec<(String, Vec<u8>)>, PartError> {
    let wrong = |error| cache_error(source, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(source).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_file() {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            files.push((
                name,
                std::fs::read(&path).map_err(|source| cache_error(&path, source))?,
            ));
        }
    }
    files.sort();
    Ok(files)
}

fn key(files: &[(String, Vec<u8>)]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for (name, bytes) in files {
        context.update(name.as_bytes());
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    }
    context
        .finish()
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[tokio::test]
    async fn an_installed_one_is_found_and_a_changed_one_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let (source, cache) = (folder.path().join("source"), folder.path().join("cache"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("main.mjs"), "1").unwrap();
        let place = |key: String| cache.join(format!("verifiers/javascript-{key}"));
        let first = place(key(&files(&source).unwrap()));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::write(first.join("installed"), "").unwrap();
        let found = cached_or_installed(&source, &cache, Client::JavaScriptVerifiers)
            .await
            .unwrap();
        assert_eq!(
            found.arguments,
            [first.join("main.mjs").display().to_string()]
        );
        std::fs::write(source.join("main.mjs"), "2").unwrap();
        assert_ne!(place(key(&files(&source).unwrap())), first);
    }

    #[tokio::test]
    async fn what_does_not_run_is_told_with_its_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let step: &[&str] = &["sh", "-c", "echo first; echo last >&2; exit 1"];
        let error = run(step, folder.path(), Client::JavaVerifiers)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("no verifiers/java of this tree here: sh -c")
                && error.ends_with("failed: first"),
            "{error}"
        );
        let error = run(&["./nowhere"], folder.path(), Client::JavaVerifiers)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("./nowhere did not start"), "{error}");
    }
}
