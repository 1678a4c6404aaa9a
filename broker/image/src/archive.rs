//! Writes an image as an archive of an OCI image layout (OCI Image Format Specification 1.1).
//! Nothing in it depends on the time, the user or the machine.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use aws_lc_rs::digest;
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value, json};

use crate::executable::Architecture;

/// The time of everything in the image.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// A `sha256:…` digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        let sum = digest::digest(&digest::SHA256, bytes);
        Self(
            sum.as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    fn hex(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[error("write the image: {0}")]
pub struct WriteError(#[from] io::Error);

/// A file of an image. It belongs to root.
#[derive(Debug, Clone)]
pub struct ImageFile {
    /// The path without the leading slash.
    pub path: String,
    /// The permissions, such as `0o755`.
    pub mode: u32,
    /// The content.
    pub content: Vec<u8>,
}

impl ImageFile {
    /// A file with this content.
    pub fn new(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.to_owned(),
            mode,
            content: content.into(),
        }
    }
}

/// How the image's process runs.
#[derive(Debug, Clone, Default)]
pub struct ImageConfig {
    /// `user:group`, as numbers.
    pub user: String,
    /// The program and the arguments that a Pod's `args` follow.
    pub entrypoint: Vec<String>,
    /// The arguments if a Pod names none.
    pub command: Vec<String>,
    /// The TCP ports on which it listens.
    pub ports: Vec<u16>,
    /// Its labels.
    pub labels: Vec<(String, String)>,
}

/// An image with one layer.
#[derive(Debug, Clone)]
pub struct Image {
    /// The machine of its program.
    pub architecture: Architecture,
    /// Its files. The parent folders are created.
    pub files: Vec<ImageFile>,
    /// Its process.
    pub config: ImageConfig,
}

impl Image {
    /// Writes the archive, which containerd, skopeo and crane read. Returns the digest of the
    /// manifest, which a registry shows and a Pod can pin.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, reference: &str, to: impl Write) -> Result<Digest, WriteError> {
        let layer = self.layer()?;
        let mut compressed = GzBuilder::new().write(Vec::new(), Compression::best());
        compressed.write_all(&layer)?;
        let compressed = compressed.finish()?;
        let config = self.config(&Digest::of(&layer)).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("application/vnd.oci.image.config.v1+json", &config),
            "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &compressed)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut entry = described("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["annotations"] = json!({
            // The first is read by containerd, the second by tools that follow the specification.
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference,
        });
        entry["platform"] = json!({ "architecture": self.architecture.name(), "os": "linux" });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        });
        let mut archive = tar::Builder::new(to);
        for folder in ["blobs/", "blobs/sha256/"] {
            append_folder(&mut archive, folder)?;
        }
        for blob in [&config, &manifest, &compressed] {
            let path = format!("blobs/sha256/{}", Digest::of(blob).hex());
            append(&mut archive, &path, 0o644, blob)?;
        }
        append(
            &mut archive,
            "index.json",
            0o644,
            index.to_string().as_bytes(),
        )?;
        let layout = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
        append(&mut archive, "oci-layout", 0o644, layout.as_bytes())?;
        archive.into_inner()?.flush()?;
        Ok(Digest::of(&manifest))
    }

    /// The layer as a tar file.
    fn layer(&self) -> Result<Vec<u8>, WriteError> {
        let mut layer = tar::Builder::new(Vec::new());
        for folder in self.folders() {
            append_folder(&mut layer, &folder)?;
        }
        for file in &self.files {
            append(&mut layer, &file.path, file.mode, &file.content)?;
        }
        Ok(layer.into_inner()?)
    }

    /// The folders above the files, each before those in it.
    fn folders(&self) -> BTreeSet<String> {
        let above = self
            .files
            .iter()
            .flat_map(|file| Path::new(&file.path).ancestors().skip(1));
        above
            .map(|folder| format!("{}/", folder.display()))
            .filter(|folder| folder != "/")
            .collect()
    }

    fn config(&self, layer: &Digest) -> Value {
        let ports = self.config.ports.iter();
        let ports: Map<String, Value> = ports
            .map(|port| (format!("{port}/tcp"), json!({})))
            .collect();
        let labels = self.config.labels.iter().cloned();
        let labels: Map<String, Value> = labels.map(|(name, value)| (name, value.into())).collect();
        json!({
            "created": CREATED,
            "architecture": self.architecture.name(),
            "os": "linux",
            "config": {
                "User": self.config.user,
                "ExposedPorts": ports,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": self.config.entrypoint,
                "Cmd": self.config.command,
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [layer.to_string()] },
        })
    }
}

fn described(media_type: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(blob).to_string(), "size": blob.len() })
}

fn append_folder<W: Write>(archive: &mut tar::Builder<W>, path: &str) -> io::Result<()> {
    let mut header = header(tar::EntryType::Directory, 0o755, 0);
    archive.append_data(&mut header, path, io::empty())
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, content.len() as u64);
    archive.append_data(&mut header, path, content)
}

/// A header without the time, owner and group of the machine that writes it.
fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::executable::tests::elf;
    use crate::{Labels, keyferry};

    fn image() -> Image {
        keyferry(elf(62, 1, ""), b"certificates".to_vec(), &Labels::default()).unwrap()
    }

    fn written(image: &Image) -> (Digest, Vec<u8>) {
        let mut archive = Vec::new();
        let digest = image.write("keyferry:1", &mut archive).unwrap();
        (digest, archive)
    }

    fn entries(archive: &[u8]) -> BTreeMap<String, (tar::Header, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, (entry.header().clone(), content))
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn the_same_inputs_give_the_same_bytes_and_others_another_digest() {
        let (first, archive) = written(&image());
        assert_eq!(written(&image()), (first.clone(), archive));
        let mut other = image();
        other.config.user = "0:0".to_owned();
        assert_ne!(written(&other).0, first);
    }

    #[test]
    fn every_blob_is_found_by_the_digest_that_names_it() {
        let (digest, archive) = written(&image());
        let files = entries(&archive);
        let blob = |named: &Value| {
            let digest = named["digest"].as_str().unwrap();
            let path = format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap());
            let (_, content) = &files[&path];
            assert_eq!(Digest::of(content).to_string(), digest);
            assert_eq!(named["size"], content.len());
            content.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"].1).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], digest.to_string());
        assert_eq!(
            entry["annotations"]["io.containerd.image.name"],
            "keyferry:1"
        );
        let manifest: Value = serde_json::from_slice(&blob(entry)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        let mut layer = Vec::new();
        let compressed = blob(&manifest["layers"][0]);
        GzDecoder::new(compressed.as_slice())
            .read_to_end(&mut layer)
            .unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            Digest::of(&layer).to_string()
        );
    }

    #[test]
    fn the_layer_belongs_to_root_and_has_no_time() {
        let layer = image().layer().unwrap();
        let files = entries(&layer);
        let modes: Vec<(&str, u32)> = files
            .iter()
            .map(|(path, (header, _))| (path.as_str(), header.mode().unwrap()))
            .collect();
        assert_eq!(
            modes,
            [
                ("etc/", 0o755),
                ("etc/group", 0o644),
                ("etc/passwd", 0o644),
                ("etc/ssl/", 0o755),
                ("etc/ssl/certs/", 0o755),
                ("etc/ssl/certs/ca-certificates.crt", 0o644),
                ("usr/", 0o755),
                ("usr/bin/", 0o755),
                ("usr/bin/keyferry", 0o755),
            ]
        );
        for (path, (header, _)) in &files {
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            assert_eq!((owner, header.mtime().unwrap()), ((0, 0), 0), "{path}");
        }
    }
}
