//! Exports the published documents as files, for a bucket or a plain web server where targets
//! cannot reach Keyferry.
//!
//! ```text
//! DIR/openid/v1/jwks
//! DIR/.well-known/openid-configuration
//! DIR/issuers/TARGET/openid/v1/jwks, …    the same of each managed issuer, if they are exported
//! DIR/manifest.json       what each file is to be served with, in the order in which to upload them
//! ```
//!
//! Each file is replaced atomically: first the keys, then the document that names them, and the
//! manifest last. A file that already has these bytes is not touched.

mod folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_api::issuer::{Issuer, PublicUrl};
use keyferry_api::name::ObjectName;
use keyferry_keys::discovery::{
    KEYS_PATH, KEYS_TYPE, METADATA_TYPE, cache_control, render_metadata,
};
use serde::{Deserialize, Serialize};

use self::folder::Folder;
use crate::managed_issuer::OwnDocuments;
use crate::publication::{Document, Published};

/// The file name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Why an export failed, wholly or in part.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The folder cannot be used.
    #[error("opening the folder {path}: {source}")]
    Open {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another export is writing to the folder.
    #[error("opening the folder {0}: another keyferry export is writing there")]
    Busy(PathBuf),
    /// A file, or a folder on the way to it, cannot be written.
    #[error("writing {path} in the export folder: {source}")]
    Write {
        /// The path in the folder.
        path: String,
        /// The error of the operating system. Symbolic links are not followed: one in the path
        /// gives "too many levels" or "not a directory".
        source: std::io::Error,
    },
    /// The folder's manifest cannot be parsed.
    #[error(
        "reading {MANIFEST_FILE} in the export folder: it is not the manifest of an export; give an \
         empty folder"
    )]
    Manifest,
    /// The folder contains the documents of another issuer.
    #[error(
        "the export folder holds the documents of issuer {there}, and the hub's issuer is {here}; \
         give another folder"
    )]
    OtherIssuer {
        /// The issuer in the folder.
        there: String,
        /// The issuer of the hub.
        here: String,
    },
}

/// The HTTP headers to serve the files with, for an upload script.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The issuer whose documents these are.
    pub issuer: String,
    /// The https origin at which readers find the files; `jwks_uri` contains it.
    #[serde(rename = "publicURL")]
    pub public_url: String,
    /// The files, in the order in which to upload them.
    pub files: Vec<ManifestFile>,
}

/// A file of the export.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestFile {
    /// The file's path below the folder and below the origin.
    pub path: String,
    /// `Content-Type`.
    pub content_type: String,
    /// `Cache-Control`. Without it, verifiers guess from `Last-Modified`, up to a day.
    pub cache_control: String,
    /// SHA-256 of the file's bytes, in hexadecimal digits.
    pub sha256: String,
    /// The managed issuer of this file; absent for the files of the hub's issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

/// Which documents are exported besides those of the hub's issuer, and at which path.
#[derive(Clone, Debug, Default)]
pub struct ExportScope {
    /// The path below the origin at which the folder is served, such as `/hubs/a`; empty for the
    /// origin itself. The files name it in `jwks_uri`.
    pub prefix: String,
    /// The managed issuers.
    pub managed: Vec<ManagedIssuerFiles>,
}

/// The documents of one managed issuer.
#[derive(Clone, Debug)]
pub struct ManagedIssuerFiles {
    /// The target that trusts the issuer.
    pub target: ObjectName,
    /// The `iss` of its tokens.
    pub issuer: Issuer,
    /// What Keyferry publishes for it.
    pub documents: Arc<OwnDocuments>,
}

/// A folder that is locked for exports by this process.
pub struct Export {
    folder: Folder,
}

impl Export {
    /// Opens and locks the folder, and creates it if needed.
    ///
    /// # Errors
    /// [`ExportError::Open`], [`ExportError::Busy`].
    pub fn open(path: &Path) -> Result<Self, ExportError> {
        Ok(Self {
            folder: Folder::open(path)?,
        })
    }

    /// Writes the published documents, and returns the paths whose bytes changed.
    ///
    /// # Errors
    /// [`ExportError`]; every file then contains either its old bytes or its new ones.
    pub fn write(
        &self,
        published: &Published,
        public_url: &PublicUrl,
        max_age: Duration,
        scope: &ExportScope,
    ) -> Result<Vec<String>, ExportError> {
        self.same_issuer(published.issuer.as_str())?;
        let cache_control = cache_control(max_age);
        let address = format!("{}{}", public_url.as_str(), scope.prefix);
        let metadata = match scope.prefix.is_empty() {
            true => published.metadata.clone(),
            false => Document::new(render_metadata(
                published.issuer.as_str(),
                &format!("{address}{KEYS_PATH}"),
                &published.keys,
            )),
        };
        // Keys first: a reader of the new document must find the keys that it refers to.
        let mut files = vec![
            (
                KEYS_PATH.to_owned(),
                KEYS_TYPE,
                published.jwks.clone(),
                None,
            ),
            (DISCOVERY_PATH.to_owned(), METADATA_TYPE, metadata, None),
        ];
        for ManagedIssuerFiles {
            target,
            issuer,
            documents,
        } in &scope.managed
        {
            let below = |path: &str| format!("/issuers/{target}{path}");
            for (path, kind, document) in [
                (KEYS_PATH, KEYS_TYPE, &documents.jwks),
                (DISCOVERY_PATH, METADATA_TYPE, &documents.metadata),
            ] {
                let issuer = Some(issuer.to_string());
                files.push((below(path), kind, document.clone(), issuer));
            }
        }
        let manifest = Manifest {
            issuer: published.issuer.to_string(),
            public_url: address,
            files: files
                .iter()
                .map(|(path, kind, document, issuer)| ManifestFile {
                    issuer: issuer.clone(),
                    ..manifest_entry(path, kind, &cache_control, document)
                })
                .collect(),
        };
        let mut manifest =
            serde_json::to_vec_pretty(&manifest).map_err(|_| ExportError::Manifest)?;
        manifest.push(b'\n');
        let documents = files
            .iter()
            .map(|(path, _, document, _)| (path.trim_start_matches('/'), document.bytes.as_ref()));
        let mut changed = Vec::new();
        for (path, bytes) in documents.chain([(MANIFEST_FILE, manifest.as_slice())]) {
            if self.folder.replace(path, bytes)? {
                changed.push(path.to_owned());
            }
        }
        Ok(changed)
    }

    /// Checks that the folder has the same issuer: targets of one issuer must never get the keys of
    /// another.
    fn same_issuer(&self, here: &str) -> Result<(), ExportError> {
        let Some(bytes) = self.folder.read(MANIFEST_FILE)? else {
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

fn manifest_entry(
    path: &str,
    content_type: &str,
    cache_control: &str,
    document: &Document,
) -> ManifestFile {
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
        issuer: None,
    }
}

#[cfg(test)]
mod tests;
