//! An OCI registry on loopback, over TLS, and artifacts as Flux reads them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest;
use http::header;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::http_client::trusting;
use crate::parts::{Part, Parts};
use crate::pki::TestCa;
use crate::ports::free_port;
use crate::process::{Process, ProcessSpec};
use crate::readiness::wait_until_ready;
use crate::runner::TestError;

const READY_WITHIN: Duration = Duration::from_secs(60);
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media types of `flux push artifact`.
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
/// The media types of a signature of cosign 3.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A running registry, to which any client may write. Dropping it ends it.
#[derive(Debug)]
pub struct OciRegistry {
    process: Process,
    host: String,
    http: reqwest::Client,
    folder: PathBuf,
}

impl OciRegistry {
    /// Starts an empty registry with its files in `<folder>/registry` and a certificate of this CA.
    ///
    /// # Errors
    /// The part is missing, or the registry does not become ready.
    pub async fn start(parts: &Parts, folder: &Path, ca: &TestCa) -> Result<Self, TestError> {
        let folder = folder.join("registry");
        std::fs::create_dir_all(folder.join("storage"))?;
        let certificate = ca.serving("registry", &[])?;
        let host = format!("{}:{}", Ipv4Addr::LOCALHOST, free_port()?);
        let configuration = json!({
            "version": "0.1",
            "log": { "level": "warn" },
            "storage": { "filesystem": { "rootdirectory": folder.join("storage") } },
            "http": {
                "addr": host,
                "tls": { "certificate": certificate.cert_path, "key": certificate.key_path },
            },
        });
        // JSON is YAML.
        let file = folder.join("config.yml");
        std::fs::write(&file, configuration.to_string())?;
        let mut process = Process::spawn(&ProcessSpec {
            name: "registry".to_owned(),
            program: parts.locate(Part::Registry).await?,
            args: vec!["serve".into(), file.into()],
            // Without this, it sends traces to a collector that does not exist.
            env: vec![("OTEL_TRACES_EXPORTER".to_owned(), "none".into())],
            log: folder.join("registry.log"),
        })
        .await?;
        let http = trusting(ca.cert_pem())?;
        let url = format!("https://{host}/v2/");
        wait_until_ready("registry", &mut process, &http, &url, READY_WITHIN).await?;
        Ok(Self {
            process,
            host,
            http,
            folder,
        })
    }

    /// Its address, as it begins the name of an artifact: `127.0.0.1:<port>`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The end of its log.
    pub fn log(&self, lines: usize) -> String {
        self.process.logs_tail(lines)
    }

    /// Pushes files (path, text) as an artifact of Flux without a tag; returns its digest.
    ///
    /// # Errors
    /// The registry refuses it.
    pub async fn push(
        &self,
        repository: &str,
        files: &[(String, String)],
    ) -> Result<String, TestError> {
        let layer = self.archive(files).await?;
        // The content of a config is not read.
        let config = json!({ "rootfs": { "type": "layers", "diff_ids": [] } }).to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config.as_bytes()),
            "layers": [descriptor(CONTENT, &layer)],
            "annotations": { "org.opencontainers.image.revision": sha256(&layer) },
        });
        self.upload(repository, config.into_bytes()).await?;
        self.upload(repository, layer).await?;
        let manifest = manifest.to_string();
        let digest = sha256(manifest.as_bytes());
        self.put_manifest(repository, &digest, MANIFEST, &manifest)
            .await?;
        Ok(digest)
    }

    /// Attaches a bundle of Sigstore as the only referrer of the artifact of this digest.
    ///
    /// # Errors
    /// There is no such artifact.
    pub async fn attach(
        &self,
        repository: &str,
        digest: &str,
        bundle: String,
    ) -> Result<(), TestError> {
        let artifact = self.manifest(repository, digest).await?;
        let bundle = bundle.into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": BUNDLE,
            "config": descriptor(EMPTY, b"{}"),
            "layers": [descriptor(BUNDLE, &bundle)],
            "subject": descriptor(MANIFEST, artifact.as_bytes()),
        });
        self.upload(repository, b"{}".to_vec()).await?;
        self.upload(repository, bundle).await?;
        let manifest = manifest.to_string();
        let name = sha256(manifest.as_bytes());
        self.put_manifest(repository, &name, MANIFEST, &manifest)
            .await?;
        // The registry has no API for referrers, so clients read the tag that the distribution
        // specification names instead.
        let mut referrer = descriptor(MANIFEST, manifest.as_bytes());
        referrer["artifactType"] = BUNDLE.into();
        let index =
            json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [referrer] }).to_string();
        self.put_manifest(repository, &digest.replace(':', "-"), INDEX, &index)
            .await
    }

    /// Moves the tag `to` to the artifact that another tag or a digest names.
    ///
    /// # Errors
    /// There is no such artifact.
    pub async fn tag(&self, repository: &str, from: &str, to: &str) -> Result<(), TestError> {
        let manifest = self.manifest(repository, from).await?;
        self.put_manifest(repository, to, MANIFEST, &manifest).await
    }

    async fn manifest(&self, repository: &str, name: &str) -> Result<String, TestError> {
        let answer = self
            .http
            .get(self.url(repository, &format!("manifests/{name}")))
            .header(header::ACCEPT, MANIFEST)
            .send()
            .await?
            .error_for_status()?;
        Ok(answer.text().await?)
    }

    async fn put_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        manifest: &str,
    ) -> Result<(), TestError> {
        self.http
            .put(self.url(repository, &format!("manifests/{tag}")))
            .header(header::CONTENT_TYPE, media_type)
            .body(manifest.to_owned())
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

    /// Uploads a blob in the two requests of the distribution specification.
    async fn upload(&self, repository: &str, blob: Vec<u8>) -> Result<(), TestError> {
        let answer = self
            .http
            .post(self.url(repository, "blobs/uploads/"))
            .send()
            .await?
            .error_for_status()?;
        let location = answer
            .headers()
            .get(header::LOCATION)
            .ok_or("the registry says no place for an upload")?
            .to_str()?;
        let mut place = answer.url().join(location)?;
        place
            .query_pairs_mut()
            .append_pair("digest", &sha256(&blob));
        self.http
            .put(place)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .body(blob)
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

    fn url(&self, repository: &str, rest: &str) -> String {
        format!("https://{}/v2/{repository}/{rest}", self.host)
    }

    /// The files as a tar archive, the same bytes for the same files.
    async fn archive(&self, files: &[(String, String)]) -> Result<Vec<u8>, TestError> {
        let tree = tempfile::tempdir_in(&self.folder)?;
        for (path, text) in files {
            let file = tree.path().join(path);
            std::fs::create_dir_all(file.parent().ok_or("a file of an artifact has no folder")?)?;
            std::fs::write(file, text)?;
        }
        let output = Command::new("tar")
            .args([
                "--create",
                "--gzip",
                "--file=-",
                "--sort=name",
                "--mtime=@0",
            ])
            .args(["--owner=0", "--group=0", "--numeric-owner", "."])
            .current_dir(tree.path())
            .output()
            .await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("tar of an artifact: {said}").into());
        }
        Ok(output.stdout)
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": sha256(bytes), "size": bytes.len() })
}

fn sha256(bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    let hex: String = sum
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
