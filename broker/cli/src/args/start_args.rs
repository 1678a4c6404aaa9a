//! What `doctor`, `whoami` and `can-i` start from, and which right they ask about.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_client::doctor::plan::Plan;
use keyferry_client::doctor::resource_attributes::ResourceAttributes;
use keyferry_platform::regular_file;

use crate::args::names::{is_access_kind, with_slash};
use crate::args::target_args::TargetArgs;
use crate::command_error::CommandError;

/// The largest file that is read: a token, a CA bundle or a configuration is smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What to start from: `KIND/NAME` or `KIND/NAMESPACE/NAME`, or an access as `NAME` or
/// `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartArg {
    pub(super) kind: StartKind,
    /// The namespace, if it is part of the text.
    pub(super) namespace: Option<Namespace>,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartKind {
    Access,
    Target,
    Secret,
    ConfigMap,
    Kustomization,
    HelmRelease,
}

/// Why a text does not name what to start from.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// It has too many parts.
    #[error(
        "write the name of a TargetAccess, as NAME or NAMESPACE/NAME, or targetaccess/NAME, \
         targetcluster/NAME, secret/NAME, configmap/NAME, kustomization/NAME or helmrelease/NAME"
    )]
    Form,
    /// The namespace is not valid.
    #[error("the namespace {0}")]
    Namespace(NameError),
    /// The name is not valid.
    #[error("the name {0}")]
    Name(#[from] NameError),
}

impl FromStr for StartArg {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        let text = with_slash(text);
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts.as_slice() {
            [name] => (StartKind::Access, None, *name),
            [first, name] => match StartKind::named(first) {
                Some(kind) => (kind, None, *name),
                None => (StartKind::Access, Some(*first), *name),
            },
            [kind, namespace, name] => {
                let kind = StartKind::named(kind).ok_or(StartError::Form)?;
                (kind, Some(*namespace), *name)
            }
            _ => return Err(StartError::Form),
        };
        ObjectName::new(name)?;
        Ok(Self {
            kind,
            namespace: namespace
                .map(Namespace::new)
                .transpose()
                .map_err(StartError::Namespace)?,
            name: name.to_owned(),
        })
    }
}

impl StartKind {
    /// Reads a kind as kubectl does: singular, plural or short name, in any case, and with or
    /// without the group.
    fn named(word: &str) -> Option<Self> {
        if is_access_kind(word) {
            return Some(Self::Access);
        }
        let lower = word.to_ascii_lowercase();
        Some(match lower.split('.').next().unwrap_or_default() {
            "target" | "targetcluster" | "targetclusters" | "tgt" => Self::Target,
            "secret" | "secrets" => Self::Secret,
            "configmap" | "configmaps" | "cm" => Self::ConfigMap,
            "kustomization" | "kustomizations" | "ks" => Self::Kustomization,
            "helmrelease" | "helmreleases" | "hr" => Self::HelmRelease,
            _ => return None,
        })
    }
}

// What `doctor` and `whoami` start from. Not a doc comment, which clap would print.
/// The flags that say which object or target to start from.
#[derive(Args)]
pub(crate) struct StartArgs {
    /// What to start from: a TargetAccess as NAME or NAMESPACE/NAME, or KIND/NAME [default: the
    /// flags alone]
    ///
    /// KIND is targetaccess, targetcluster, secret, configmap, kustomization or helmrelease, or a
    /// short name of these.
    #[arg(value_name = "KIND/NAME")]
    start: Option<StartArg>,
    /// Namespace on the hub [default: that of the hub's context]
    ///
    /// The namespace of the starting object.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses as `kubectl get targetclusters,targetaccesses -A
    /// -o yaml` prints them, instead of the hub's own or --config.
    #[arg(short, long, visible_alias = "objects", value_name = "PATH")]
    filename: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

impl StartArgs {
    /// Builds the plan of what to ask.
    pub(crate) async fn plan(&self) -> Result<Plan, CommandError> {
        let (start, namespace) = (self.start.as_ref(), self.namespace.as_deref());
        self.target
            .plan(start, namespace, self.filename.as_deref())
            .await
    }
}

/// Reads a file, at most 1 MiB.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, CommandError> {
    regular_file::read_regular_file(path, MAX_FILE_BYTES)
        .map_err(|error| CommandError::new(format!("reading {}: {error}", path.display())))
}

/// Parses `VERB/RESOURCE[.GROUP]` into the attributes of a review.
pub(crate) fn need(
    text: &str,
    namespace: Option<&str>,
) -> Result<ResourceAttributes, CommandError> {
    let (verb, resource) = text
        .split_once('/')
        .ok_or_else(|| CommandError::new(format!("reading {text:?}: write VERB/RESOURCE")))?;
    Ok(attributes(verb, resource, namespace))
}

/// Parses the attributes of a review as `kubectl auth can-i` does:
/// `RESOURCE[.GROUP][/SUBRESOURCE]`.
pub(crate) fn attributes(
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    ResourceAttributes {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        group: group.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{StartArg, StartKind, attributes, need};

    #[test]
    fn a_start_is_a_kind_and_a_name() {
        for good in [
            "access/a",
            "secret/b",
            "ks/c",
            "helmrelease/d",
            "targetaccess/a",
            "tga/a",
            "targetclusters/a",
            "tgt/a",
            "cm/a",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for good in [
            "TargetAccess/a",
            "targetaccesses.keyferry.dev/a",
            "configmap/a",
            "HelmRelease/d",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "secret/",
            "/a",
            "secret/a/b/c",
            "pod/a/b",
            "secret/A b",
            "A/b",
        ] {
            assert!(bad.parse::<StartArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_access_is_named_as_in_every_command() {
        let parsed = |text: &str| text.parse::<StartArg>().unwrap();
        let named = |text: &str| {
            let start = parsed(text);
            let namespace = start.namespace.map(|namespace| namespace.to_string());
            (start.kind, namespace, start.name)
        };
        let prod = |namespace: Option<&str>| {
            let namespace = namespace.map(str::to_owned);
            (StartKind::Access, namespace, "prod".to_owned())
        };
        assert_eq!(named("prod"), prod(None));
        assert_eq!(named("targetaccess/prod"), prod(None));
        for text in [
            "tenant-a/prod",
            "tenant-a:prod",
            "targetaccess/tenant-a/prod",
            "tga/tenant-a/prod",
        ] {
            assert_eq!(named(text), prod(Some("tenant-a")), "{text}");
        }
        let secret = named("secret/tenant-a/prod");
        assert_eq!(
            (secret.0, secret.1.as_deref()),
            (StartKind::Secret, Some("tenant-a"))
        );
    }

    #[test]
    fn resources_are_read_as_kubectl_does() {
        let scale = attributes("patch", "deployments.apps/scale", Some("n"));
        assert_eq!(
            (scale.resource.as_str(), scale.group.as_str()),
            ("deployments", "apps")
        );
        assert_eq!(
            (scale.subresource.as_str(), scale.namespace.as_str()),
            ("scale", "n")
        );
        assert_eq!(need("get/pods", None).unwrap().verb, "get");
        assert!(need("get", None).is_err());
    }
}
