//! The published documents as files, for a bucket or a plain web server where targets cannot reach
//! Keyferry.
//!
//! ```text
//! DIR/openid/v1/jwks
//! DIR/.well-known/openid-configuration
//! DIR/manifest.json       what each file is to be served with, in the order in which to upload them
//! ```
//!
//! Each file is replaced in one step, the keys before the document that names them, the manifest
//! last. A file that already holds these bytes is left alone.

mod folder;

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_core::issuer::PublicUrl;
use serde::{Deserialize, Serialize};

use self::folder::Folder;
use crate::http::discovery::{KEYS_PATH, KEYS_TYPE, METADATA_PATH, METADATA_TYPE, cache_control};
use crate::publication::{Document, Published};

/// The name of the manifest.
pub const MANIFEST: &str = "manifest.json";

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The folder cannot be used.
    #[error("opening the folder {path}: {source}")]
    Open {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another export writes there.
    #[error("opening the folder {0}: another keyferry export is writing there")]
    Busy(PathBuf),
    /// A file, or a folder on the way to it, cannot be written.
    #[error("writing {path} in the export folder: {source}")]
    Write {
        /// The path in the folder.
        path: String,
        /// What the system says. A symbolic link on the way is "too many levels" or "not a
        /// directory": none is followed.
        source: std::io::Error,
    },
    /// The folder's manifest is none.
    #[error(
        "reading {MANIFEST} in the export folder: it is not the manifest of an export; give an \
         empty folder"
    )]
    Manifest,
    /// The folder holds the documents of another issuer.
    #[error(
        "the export folder holds the documents of issuer {there}, and the hub's issuer is {here}; \
         give another folder"
    )]
    OtherIssuer {
        /// What the folder holds.
        there: String,
        /// What was read.
        here: String,
    },
}

/// What the files are to be served with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The issuer whose documents these are.
    pub issuer: String,
    /// `https` origin under which they must be reached: `jwks_uri` names it.
    #[serde(rename = "publicURL")]
    pub public_url: String,
    /// In the order in which to upload them.
    pub files: Vec<ManifestFile>,
}

/// One file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestFile {
    /// Its path below the folder and below the origin.
    pub path: String,
    /// `Content-Type`.
    pub content_type: String,
    /// `Cache-Control`. Without it, verifiers guess from `Last-Modified`, up to a day.
    pub cache_control: String,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// A folder that this process alone exports to.
pub struct Export {
    folder: Folder,
}

impl Export {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// [`ExportError::Open`], [`ExportError::Busy`].
    pub fn open(path: &Path) -> Result<Self, ExportError> {
        Ok(Self {
            folder: Folder::open(path)?,
        })
    }

    /// Writes what is published, and gives back the paths whose bytes changed.
    ///
    /// # Errors
    /// [`ExportError`]; every file then holds either its bytes of before or its new ones.
    pub fn write(
        &self,
        published: &Published,
        public_url: &PublicUrl,
        max_age: Duration,
    ) -> Result<Vec<String>, ExportError> {
        self.same_issuer(published.issuer.as_str())?;
        let cache_control = cache_control(max_age);
        // A reader of the new document must find the keys that it was made for.
        let files = [
            (KEYS_PATH, KEYS_TYPE, &published.jwks),
            (METADATA_PATH, METADATA_TYPE, &published.metadata),
        ];
        let manifest = Manifest {
            issuer: published.issuer.to_string(),
            public_url: public_url.to_string(),
            files: files
                .iter()
                .map(|(path, kind, document)| entry(path, kind, &cache_control, document))
                .collect(),
        };
        let mut manifest =
            serde_json::to_vec_pretty(&manifest).map_err(|_| ExportError::Manifest)?;
        manifest.push(b'\n');
        let documents = files
            .iter()
            .map(|(path, _, document)| (path.trim_start_matches('/'), document.bytes.as_ref()));
        let mut changed = Vec::new();
        for (path, bytes) in documents.chain([(MANIFEST, manifest.as_slice())]) {
            if self.folder.replace(path, bytes)? {
                changed.push(path.to_owned());
            }
        }
        Ok(changed)
    }

    /// Targets of one issuer must never be given the keys of another.
    fn same_issuer(&self, here: &str) -> Result<(), ExportError> {
        let Some(bytes) = self.folder.read(MANIFEST)? else {
            return Ok(());
        };
        let there: Manifest = serde_json::from_slice(&bytes).map_err(|_| ExportError::Manifest)?;
        if there.issuer == here {
            Ok(())
        } else {
            Err(ExportError::OtherIssuer {
                there: there.issuer,
                here: here.to_owned(),
            })
        }
    }
}

fn entry(path: &str, content_type: &str, cache_control: &str, document: &Document) -> ManifestFile {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &document.bytes);
    ManifestFile {
        path: path.trim_start_matches('/').to_owned(),
        content_type: content_type.to_owned(),
        cache_control: cache_control.to_owned(),
        sha256: digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
