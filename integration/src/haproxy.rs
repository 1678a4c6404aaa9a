//! Debian's HAProxy with a configuration of this tree. Where the machine has no HAProxy, its
//! packages are unpacked into the cache of parts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::process::Command;

use crate::parts::{PartError, Parts};
use crate::process::{Process, ProcessSpec, run_to_end};
use crate::runner::TestError;

/// HAProxy, and the libraries that a machine may lack.
const PACKAGES: [&str; 4] = [
    "haproxy",
    "liblua5.3-0",
    "libopentracing-c-wrapper0",
    "libopentracing1",
];
const INSTALLED: &str = "/usr/sbin/haproxy";
const DOWNLOADED_WITHIN: Duration = Duration::from_secs(120);
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Starts HAProxy with a configuration that listens on a port of 127.0.0.1.
///
/// # Errors
/// There is none, or it does not listen within 20 s.
pub async fn start_haproxy(
    parts: &Parts,
    folder: &Path,
    configuration: &str,
    port: u16,
) -> Result<Process, TestError> {
    let file = folder.join(format!("haproxy-{port}.cfg"));
    std::fs::write(&file, configuration)?;
    let (program, libraries) = find_program(parts.cache()).await?;
    let process = Process::spawn(&ProcessSpec {
        name: "haproxy".to_owned(),
        program,
        args: vec!["-db".into(), "-f".into(), file.clone().into_os_string()],
        env: libraries
            .map(|folder| ("LD_LIBRARY_PATH".to_owned(), folder.into_os_string()))
            .into_iter()
            .collect(),
        log: file.with_extension("log"),
    })
    .await?;
    let limit = Instant::now() + READY_WITHIN;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if Instant::now() > limit {
            return Err(format!("it does not listen: {}", process.logs_tail(20)).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(process)
}

/// The program, and the folder of its libraries if it is unpacked.
async fn find_program(cache: &Path) -> Result<(PathBuf, Option<PathBuf>), TestError> {
    if Path::new(INSTALLED).is_file() {
        return Ok((INSTALLED.into(), None));
    }
    let root = cache.join("debian-haproxy");
    if !root.exists() {
        unpack(&root)
            .await
            .map_err(|error| PartError::Unavailable {
                part: "haproxy",
                version: "of any version",
                why: format!("{error}; fix: install the package haproxy"),
            })?;
    }
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Ok((root.join("usr/sbin/haproxy"), Some(root.join(libraries))))
}

/// Unpacks instead of installing, because Debian's package starts a service.
async fn unpack(root: &Path) -> Result<(), TestError> {
    let folder = tempfile::tempdir_in(root.parent().unwrap_or(root))?;
    let download = || {
        let mut download = Command::new("apt-get");
        download.arg("download").args(PACKAGES);
        download.current_dir(folder.path());
        run_to_end(download, DOWNLOADED_WITHIN)
    };
    if download().await.is_err() {
        // A new machine has no list of packages.
        let mut update = Command::new("apt-get");
        update.args(["update", "-qq"]);
        run_to_end(update, DOWNLOADED_WITHIN).await?;
        download().await?;
    }
    let files = folder.path().join("files");
    for package in std::fs::read_dir(folder.path())? {
        let mut extract = Command::new("dpkg-deb");
        extract.arg("--extract").arg(package?.path()).arg(&files);
        run_to_end(extract, DOWNLOADED_WITHIN).await?;
    }
    // Another test process may have been faster.
    match std::fs::rename(&files, root) {
        Err(error) if !root.exists() => Err(error.into()),
        _ => Ok(()),
    }
}
