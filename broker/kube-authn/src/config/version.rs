//! Finds the API version of a file, and checks that the target's release supports it.

use keyferry_go_formats::json::{Json, folds_to};
use keyferry_go_formats::quote::quote;

use super::other_kind::{self, OtherKind};
use super::{LoadFault, Refusal, Undetermined};
use crate::{Code, Minor};

/// A version of `apiserver.config.k8s.io` that has the kind AuthenticationConfiguration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiVersion {
    /// v1alpha1, the oldest version.
    V1Alpha1,
    /// v1beta1, the version to use before 1.34.
    V1Beta1,
    /// v1, from 1.34.
    V1,
}

const CONFIG_GROUP: &str = "apiserver.config.k8s.io";
const CONFIG_KIND: &str = "AuthenticationConfiguration";
/// The type into which the codec reads these two, as Go prints it.
const GO_TYPE: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The kind of a file that the target's release knows.
pub(super) enum FileKind {
    /// An AuthenticationConfiguration.
    Authentication(ApiVersion),
    /// Another kind of the apiserver's configuration.
    Other(OtherKind),
}

impl ApiVersion {
    /// Returns the version as `apiVersion` has it after the slash. It is also the name of the Go
    /// package.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
            Self::V1 => "v1",
        }
    }
}

/// Reads `apiVersion` and `kind` as the apiserver's codec does before it knows the type: the case
/// of the names does not matter.
pub(super) fn find_version(value: &Json, file: &[u8], minor: Minor) -> Result<FileKind, LoadFault> {
    if !matches!(value, Json::Object(_) | Json::Null) {
        let reason = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value \
             of type {GO_TYPE}",
            value.kind()
        );
        return Err(Refusal::exact(Code::KindMissing, reason).into());
    }
    let (mut kind, mut version, mut mismatch) = (String::new(), String::new(), None);
    for (key, member) in value.members() {
        let (field, name) = if folds_to(key, "kind") {
            (&mut kind, "kind")
        } else if folds_to(key, "apiVersion") {
            (&mut version, "apiVersion")
        } else {
            continue;
        };
        match member {
            Json::Null => {}
            Json::Text(text) => field.clone_from(text),
            other => {
                mismatch.get_or_insert_with(|| {
                    format!(
                        "couldn't get version/kind; json parse error: json: cannot unmarshal {} \
                         into Go struct field .{name} of type string",
                        other.kind()
                    )
                });
            }
        }
    }
    if let Some(message) = mismatch {
        return Err(Refusal::exact(Code::WrongFieldType, message).into());
    }
    judge_version(&kind, &version, file, minor)
}

fn judge_version(
    kind: &str,
    api_version: &str,
    file: &[u8],
    minor: Minor,
) -> Result<FileKind, LoadFault> {
    let (group, version) = match api_version.split_once('/') {
        _ if api_version == "/" => ("", ""),
        None => ("", api_version),
        Some((_, version)) if version.contains('/') => {
            return Err(Refusal::exact(
                Code::ApiVersionMalformed,
                format!("unexpected GroupVersion string: {api_version}"),
            )
            .into());
        }
        Some(parts) => parts,
    };
    let file = String::from_utf8_lossy(file);
    if kind.is_empty() {
        return Err(Refusal::exact(
            Code::KindMissing,
            format!("Object 'Kind' is missing in '{file}'"),
        )
        .into());
    }
    if version.is_empty() {
        return Err(Refusal::exact(
            Code::ApiVersionMissing,
            format!("Object 'apiVersion' is missing in '{file}'"),
        )
        .into());
    }
    if group == CONFIG_GROUP && version == "__internal" {
        return Err(Undetermined::new(
            Code::UnusualYaml,
            "the internal version is no version to write files in",
        )
        .into());
    }
    let known = [ApiVersion::V1Alpha1, ApiVersion::V1Beta1, ApiVersion::V1]
        .into_iter()
        .find(|known| known.name() == version);
    match known {
        Some(known)
            if group == CONFIG_GROUP
                && kind == CONFIG_KIND
                && (known != ApiVersion::V1 || minor >= Minor::V1_34) =>
        {
            Ok(FileKind::Authentication(known))
        }
        _ => {
            if let Some(other) = other_kind::find_kind(api_version, kind, minor) {
                return Ok(FileKind::Other(other));
            }
            // The line number in the scheme's name changes with every patch release.
            let message = format!(
                "no kind {} is registered for version {} in \
                 scheme \"pkg/kubeapiserver/options/authentication.go\"",
                quote(kind),
                quote(api_version)
            );
            Err(Refusal::near(Code::KindNotRegistered, message).into())
        }
    }
}
