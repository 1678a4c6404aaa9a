//! The `keyferry` binary, and the programs that read what it prints.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::{Distribution, Part, PartError, Parts};
use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::process::Command;

use super::form::Form;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    binary: KeyferryBinary,
    parts: Parts,
    folder: TempDir,
    authority: PathBuf,
    files: AtomicUsize,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        String::new()
    }
}

/// Whether a distribution accepts a text.
#[derive(Debug)]
pub(crate) enum Reading {
    /// It does; what it understood, as JSON.
    Accepted(Vec<u8>),
    /// It does not; its own words.
    Refused(String),
}

impl Reading {
    /// What it understood.
    ///
    /// # Errors
    /// It refused the text.
    pub(crate) fn accepted<T: DeserializeOwned>(self) -> Result<T, TestError> {
        match self {
            Self::Accepted(printed) => Ok(serde_json::from_slice(&printed)?),
            Self::Refused(words) => Err(format!("it is refused: {words}").into()),
        }
    }

    /// Asserts that it refused the text, in words that contain this.
    pub(crate) fn refused_for(self, part: &str) -> Result<(), TestError> {
        match self {
            Self::Refused(words) if words.contains(part) => Ok(()),
            other => Err(format!("it is not refused for {part}: {other:?}").into()),
        }
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let parts = Parts::from_environment();
        for distribution in Distribution::ALL {
            match parts.locate(Part::Distribution(distribution)).await {
                Err(missing @ PartError::Unavailable { .. }) => {
                    return Err(NotStarted::Missing(missing.to_string()));
                }
                located => located.map_err(NotStarted::failed)?,
            };
        }
        let binary = KeyferryBinary::build().await.map_err(NotStarted::failed)?;
        Self::build(binary, parts).map_err(NotStarted::failed)
    }

    fn build(binary: KeyferryBinary, parts: Parts) -> Result<Self, TestError> {
        let folder = tempfile::tempdir()?;
        let ca = TestCa::create("discovery", folder.path())?;
        let authority = folder.path().join("discovery.pem");
        std::fs::write(&authority, ca.cert_pem())?;
        Ok(Self {
            binary,
            parts,
            folder,
            authority,
            files: AtomicUsize::new(0),
        })
    }

    /// What `keyferry trust --format FORMAT --kubernetes MINOR` prints. The entry has a
    /// certificate, so that the file has text of several lines.
    pub(crate) async fn form(&self, format: &str, minor: &str) -> Result<Form, TestError> {
        Ok(Form::new(&self.printed(format, minor).await?))
    }

    /// The AuthenticationConfiguration that every form contains or goes with.
    pub(crate) async fn plain_file(&self, minor: &str) -> Result<String, TestError> {
        self.printed("authn", minor).await
    }

    async fn printed(&self, format: &str, minor: &str) -> Result<String, TestError> {
        let authority = self.authority.display();
        let line = [
            "trust",
            "prod",
            "--issuer=https://hub.example.com",
            "--discovery-url=https://keyferry.example.com/.well-known/openid-configuration",
            &format!("--discovery-ca={authority}"),
            "--audience=https://prod",
            "--prefix=hub:",
            "--allow=tenant-a/reconciler",
            "--allow=tenant-b/ci",
            &format!("--format={format}"),
            &format!("--kubernetes={minor}"),
        ];
        let output = self.binary.run(&line, &[]).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("keyferry trust --format={format}: {said}").into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a distribution's program on a text.
    pub(crate) async fn read(
        &self,
        distribution: Distribution,
        arguments: &[&str],
        text: &str,
    ) -> Result<Reading, TestError> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("{number}.yaml"));
        std::fs::write(&path, text)?;
        let program = self.parts.locate(Part::Distribution(distribution)).await?;
        let run = Command::new(program)
            .args(arguments)
            .arg(&path)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, run).await??;
        Ok(if output.status.success() {
            Reading::Accepted(output.stdout)
        } else {
            Reading::Refused(String::from_utf8_lossy(&output.stderr).into_owned())
        })
    }
}
