//! What `doctor`, `whoami` and `can-i` start from, and which right they ask about.

use std::path::PathBuf;

use clap::Args;
use keyferry_client::doctor::plan::Plan;
use keyferry_client::doctor::resource_attributes::ResourceAttributes;

use crate::args::start_arg::StartArg;
use crate::args::target_args::TargetArgs;
use crate::command_error::CommandError;

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
    use super::{attributes, need};

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
