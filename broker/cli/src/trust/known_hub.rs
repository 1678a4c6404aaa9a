//! What Keyferry's configuration or the hub says of a target, for values that no flag gives.

use std::collections::BTreeMap;

use keyferry_api::config::{Configuration, NamespaceRule, ObjectSource, TargetCluster};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::ClientError;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::objects_of_hub::{namespace_labels, target_status};
use keyferry_client::wanted_objects::Wanted;
use keyferry_hub::ports::HubError;

use super::TrustArgs;
use crate::args::objects_argument;
use crate::command_error::CommandError;
use crate::ui;

/// Keyferry's settings and objects, for values that no flag gives.
#[derive(Debug)]
pub(crate) struct KnownHub {
    pub(crate) configuration: Configuration,
    /// The target's status, if the objects are on the hub.
    pub(crate) status: Option<TargetClusterStatus>,
    /// Why the configuration may lack roles of the target.
    pub(crate) unread_roles: Option<String>,
    /// The labels of the hub's namespaces, or why they are unknown.
    pub(crate) namespaces: Result<BTreeMap<Namespace, BTreeMap<String, String>>, UnknownLabels>,
}

/// Why the labels of the hub's namespaces are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownLabels {
    /// The objects are in a configuration file.
    #[error("the hub is not read for objects of a file")]
    OfFile,
    /// The hub's objects are in a file.
    #[error("the hub is not read with -f")]
    OfObjectsFile,
    /// The hub cannot be read.
    #[error(transparent)]
    Hub(#[from] ClientError),
}

impl KnownHub {
    /// Whether the target is no Kubernetes cluster.
    pub(super) fn is_relying_party(&self, name: &str) -> bool {
        let mut targets = self.configuration.policy.targets.iter();
        targets.any(|(known, target)| known.as_str() == name && !target.is_cluster())
    }
}

/// Reads the settings and the TargetCluster, from the configuration or the hub. `None` if the flags
/// say everything.
///
/// # Errors
/// What cannot be read.
pub(super) async fn read(args: &TrustArgs) -> Result<Option<KnownHub>, CommandError> {
    let Some(target) = &args.target else {
        return Ok(None);
    };
    let flags_suffice = args.issuer.is_some()
        && args.audience.is_some()
        && args.prefix.is_some()
        && !args.allow.is_empty();
    if args.config.is_none() && args.filename.is_none() && flags_suffice {
        return Ok(None);
    }
    let name = ObjectName::new(target.as_str())
        .map_err(|error| CommandError::new(format!("the name of the TargetCluster {error}")))?;
    let source = objects_argument::source(args.config.as_ref(), args.filename.as_deref())?;
    let client = || args.hub.client();
    let read = source.read_configuration(client, Wanted::Cluster(&name));
    let (configuration, unread_roles) = match read.await {
        // A role is found only in the list, and the user may have the right to read just this one.
        Err(ClientError::HubCall {
            error: error @ HubError::Forbidden(_),
            ..
        }) => {
            let read = source.read_configuration(client, Wanted::Target(&name));
            (read.await?, Some(error.to_string()))
        }
        read => (read?, None),
    };
    if configuration.server.objects == ObjectSource::File {
        return Ok(Some(KnownHub {
            configuration,
            status: None,
            unread_roles: None,
            namespaces: Err(UnknownLabels::OfFile),
        }));
    }
    if let ConfigurationSource::Objects(file) = &source {
        return Ok(Some(KnownHub {
            configuration,
            status: Some(file.target_status(&name)),
            unread_roles: None,
            namespaces: Err(UnknownLabels::OfObjectsFile),
        }));
    }
    ui::note(&format!("hub: {}", args.hub.access().describe_hub().await?));
    let client = client().await?;
    let namespaces = if needs_labels(args, &name, &configuration) {
        namespace_labels(&client).await.map_err(UnknownLabels::from)
    } else {
        Ok(BTreeMap::new())
    };
    let status = Some(target_status(&client, &name).await?);
    Ok(Some(KnownHub {
        configuration,
        status,
        unread_roles,
        namespaces,
    }))
}

/// Whether `allow` of the target or of one of its roles selects namespaces by their labels, and no
/// flag replaces it. `--allow` is about the target itself.
fn needs_labels(args: &TrustArgs, name: &ObjectName, configuration: &Configuration) -> bool {
    let selects = |target: &TargetCluster| {
        let mut rules = target.allow.iter();
        rules.any(|rule| matches!(rule.namespaces, NamespaceRule::Selected(_)))
    };
    let mut targets = configuration.policy.targets.values();
    targets.any(|target| match &target.role {
        Some(role) => role.same_as == *name && selects(target),
        None => target.name == *name && args.allow.is_empty() && selects(target),
    })
}
