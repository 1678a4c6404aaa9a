//! `audit` of a ServerConfiguration: the file of the audit log, and when it is rotated.

use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Check;

const MAX_SIZE_MIB: u32 = 10_240;
const MAX_BACKUPS: u32 = 1_000;
const DEFAULT_BACKUPS: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// The file that audit records are appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFile {
    /// Where it is.
    pub path: PathBuf,
    /// When Keyferry rotates it. None: never.
    pub rotation: Option<AuditRotation>,
}

/// When the file is rotated, as kube-apiserver's `--audit-log-maxsize` and `--audit-log-maxbackup`
/// say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRotation {
    /// The largest size of a file, in bytes.
    pub max_size: u64,
    /// How many rotated files are kept; `.1` is the newest.
    pub max_backups: NonZeroU32,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AuditSpec {
    /// The file that audit records are appended to. Without it, standard output.
    file: Option<PathBuf>,
    /// The size in MiB at which the file is rotated. Without it, never. Needs audit.file.
    #[schemars(range(min = 1, max = MAX_SIZE_MIB))]
    max_size: Option<u32>,
    /// How many rotated files are kept. Needs audit.maxSize.
    #[schemars(range(min = 1, max = MAX_BACKUPS), extend("default" = DEFAULT_BACKUPS.get()))]
    max_backups: Option<u32>,
}

/// Reads the file, and notes mistakes. `Some(None)` is standard output.
pub(super) fn read_audit_file(spec: AuditSpec, check: &mut Check<'_>) -> Option<Option<AuditFile>> {
    let max_size = read_number(check, "audit.maxSize", spec.max_size, MAX_SIZE_MIB);
    let max_backups = read_number(check, "audit.maxBackups", spec.max_backups, MAX_BACKUPS);
    let (max_size, max_backups) = (max_size?, max_backups?);
    let Some(path) = spec.file else {
        if max_size.is_some() || max_backups.is_some() {
            check.wrong(
                "audit",
                "has maxSize or maxBackups, but no file",
                "write audit.file too; the kubelet rotates standard output",
            );
            return None;
        }
        return Some(None);
    };
    if max_size.is_none() && max_backups.is_some() {
        check.wrong(
            "audit.maxBackups",
            "is there without audit.maxSize, so no file is rotated",
            "write audit.maxSize too, in MiB",
        );
        return None;
    }
    let rotation = max_size.map(|mebibytes| AuditRotation {
        max_size: u64::from(mebibytes.get()) << 20,
        max_backups: max_backups.unwrap_or(DEFAULT_BACKUPS),
    });
    Some(Some(AuditFile { path, rotation }))
}

/// Reads a number from 1 to `max`. `Some(None)` if there is none.
fn read_number(
    check: &mut Check<'_>,
    field: &str,
    number: Option<u32>,
    max: u32,
) -> Option<Option<NonZeroU32>> {
    let Some(number) = number else {
        return Some(None);
    };
    let valid = NonZeroU32::new(number).filter(|number| number.get() <= max);
    if valid.is_none() {
        check.wrong(
            field,
            format!("{number} is out of range"),
            format!("write a number from 1 to {max}"),
        );
    }
    valid.map(Some)
}
