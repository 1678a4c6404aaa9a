//! `gaps.yaml`: who read a snapshot, when, and what was not readable.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::Namespace;
use serde::{Deserialize, Serialize};

use crate::gap::{ACCESSES, AUDIT_LOG, Gap, GapCause, KEY_JOURNAL, TARGETS};
use crate::lenient::{or_default, readable_items};
use crate::snapshot::Snapshot;

/// The version of the file.
const SCHEMA: &str = "keyferry.dev/snapshot/v1";
/// The largest file, in bytes.
const MAX_GAPS_BYTES: usize = 1024 * 1024;
/// The most gaps that are read.
const MAX_GAPS: usize = 1_000;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GapsFile {
    /// When the lists were read.
    pub read_at: Option<Timestamp>,
    /// The user that read them.
    pub user: Option<ForeignText>,
    /// The only namespace that was read.
    pub tenant: Option<Namespace>,
    /// What was not readable.
    pub gaps: Vec<Gap>,
}

/// Why the file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GapsFileError {
    /// It is too large.
    #[error(
        "is larger than {MAX_GAPS_BYTES} bytes or has more than {MAX_GAPS} gaps, and was not read"
    )]
    TooLarge,
    /// It is not YAML.
    #[error("is not YAML, and was not read")]
    Unreadable,
    /// It is of another version.
    #[error("is of another version than {SCHEMA}, and was not read")]
    OtherVersion,
}

/// The file as written. What it says of fixes is not read: the reader has its own.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct GapsView {
    #[serde(deserialize_with = "or_default")]
    schema: String,
    #[serde(deserialize_with = "or_default")]
    read_at: Option<Timestamp>,
    #[serde(deserialize_with = "or_default")]
    user: Option<ForeignText>,
    #[serde(deserialize_with = "or_default")]
    tenant: Option<String>,
    #[serde(deserialize_with = "readable_items")]
    gaps: Vec<GapView>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct GapView {
    resource: String,
    #[serde(default, deserialize_with = "or_default")]
    namespace: Option<String>,
    cause: String,
    #[serde(default, deserialize_with = "or_default")]
    message: ForeignText,
}

const CAUSES: [(&str, GapCause); 4] = [
    ("Refused", GapCause::Refused),
    ("Absent", GapCause::Absent),
    ("Cut", GapCause::Cut),
    ("Failed", GapCause::Failed),
];

impl GapsFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`GapsFileError`].
    pub fn read(bytes: &[u8]) -> Result<Self, GapsFileError> {
        if bytes.len() > MAX_GAPS_BYTES {
            return Err(GapsFileError::TooLarge);
        }
        let view: GapsView =
            serde_saphyr::from_slice(bytes).map_err(|_| GapsFileError::Unreadable)?;
        if view.schema != SCHEMA {
            return Err(GapsFileError::OtherVersion);
        }
        // A gap that is not read would make its list look whole.
        if view.gaps.len() > MAX_GAPS {
            return Err(GapsFileError::TooLarge);
        }
        let tenant = view.tenant.map(Namespace::new).transpose();
        Ok(Self {
            read_at: view.read_at,
            user: view.user,
            tenant: tenant.map_err(|_| GapsFileError::Unreadable)?,
            gaps: view.gaps.iter().map(GapView::gap).collect(),
        })
    }

    /// Returns the document of a snapshot, as JSON.
    pub fn document_of(snapshot: &Snapshot) -> serde_json::Value {
        let gap = |gap: &Gap| GapView {
            resource: gap.resource.clone(),
            namespace: gap.namespace.as_ref().map(ToString::to_string),
            cause: CAUSES
                .iter()
                .find(|(_, cause)| *cause == gap.cause)
                .map_or_else(String::new, |(name, _)| (*name).to_owned()),
            message: gap.message.clone(),
        };
        serde_json::json!(GapsView {
            schema: SCHEMA.to_owned(),
            read_at: Some(snapshot.read_at),
            user: snapshot.user.clone(),
            tenant: snapshot.tenant.as_ref().map(ToString::to_string),
            gaps: snapshot.gaps.iter().map(gap).collect(),
        })
    }
}

impl GapView {
    /// A cause of a later version counts as a failure.
    fn gap(&self) -> Gap {
        let cause = CAUSES
            .iter()
            .find(|(name, _)| *name == self.cause)
            .map_or(GapCause::Failed, |(_, cause)| *cause);
        let namespace = self
            .namespace
            .as_deref()
            .and_then(|namespace| Namespace::new(namespace).ok());
        let message = self.message.to_string();
        match self.resource.as_str() {
            TARGETS => Gap::of_targets(cause, &message),
            ACCESSES => Gap::of_accesses(cause, namespace, &message),
            KEY_JOURNAL => Gap::of_keys(cause, &message),
            AUDIT_LOG => Gap::of_audit(cause, &message),
            other => Gap {
                resource: ForeignText::new(other).to_string(),
                namespace,
                target: None,
                cause,
                message: self.message.clone(),
                hides: "not known to this version".to_owned(),
                fix: "read the snapshot with the version that wrote it".to_owned(),
            },
        }
    }
}
