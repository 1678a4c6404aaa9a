//! cosign as a process: a pair of keys, and signatures by it in a registry.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::parts::{Part, Parts};
use crate::runner::TestError;

/// A pair of keys of cosign.
#[derive(Debug)]
pub struct CosignKey {
    program: PathBuf,
    folder: PathBuf,
    /// The CA of the registry.
    authority: PathBuf,
    public: String,
}

impl CosignKey {
    /// Generates a pair of keys with its files in `<folder>/<name>`. It signs in registries whose
    /// certificate is of the CA in this file.
    ///
    /// # Errors
    /// The part is missing, or cosign failed.
    pub async fn generate(
        parts: &Parts,
        folder: &Path,
        name: &str,
        authority: &Path,
    ) -> Result<Self, TestError> {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let mut key = Self {
            program: parts.locate(Part::Cosign).await?,
            folder,
            authority: authority.to_owned(),
            public: String::new(),
        };
        key.run(["generate-key-pair"]).await?;
        key.public = std::fs::read_to_string(key.folder.join("cosign.pub"))?;
        Ok(key)
    }

    /// The public key, in PEM.
    pub fn public_key(&self) -> &str {
        &self.public
    }

    /// Signs an artifact, named by `<registry>/<repository>@<digest>` or with a tag.
    ///
    /// # Errors
    /// cosign failed.
    pub async fn sign(&self, artifact: &str) -> Result<(), TestError> {
        // Without the transparency log, which is a public service, and in the form that
        // source-controller looks for first: a tag beside the artifact's.
        let args = [
            "sign",
            "--yes",
            "--key=cosign.key",
            "--tlog-upload=false",
            "--use-signing-config=false",
            "--new-bundle-format=false",
            artifact,
        ];
        self.run(args).await
    }

    async fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Result<(), TestError> {
        let output = Command::new(&self.program)
            .args(args)
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("COSIGN_PASSWORD", "")
            .env("SSL_CERT_FILE", &self.authority)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("cosign failed: {said}").into())
    }
}
