//! Where Keyferry's objects are: on the hub, or in its configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_api::config::{Configuration, ObjectSource, Overrides, TokenIssuer};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::{TargetAccessStatus, TargetClusterStatus};
use keyferry_client::ClientError;
use keyferry_client::objects_of_hub::{access_value, target_statuses, target_value};
use keyferry_hub::client::HubClient;
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::config_file;
use serde_json::Value;

use keyferry_terminal::command_error::CommandError;
use keyferry_terminal::names::keyferry_namespace;
use keyferry_terminal::ui;

/// How often a status is read while it is waited for.
const EVERY: Duration = Duration::from_secs(1);
/// How long Keyferry may take to write the status of a changed TargetCluster.
const STATUS_PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of the shipped installation.
const DEFAULT_NAMESPACE: &str = "keyferry-system";

/// Keyferry's namespace on the hub, and its configuration file if that file has the objects.
pub(super) struct KeyferryObjects {
    /// Keyferry's own namespace.
    pub(super) keyferry: Namespace,
    /// The configuration, if the user names its file and the objects are in it.
    file: Option<(PathBuf, Configuration)>,
}

impl KeyferryObjects {
    /// Finds out where the objects are. The namespace comes from the flag, the configuration, or a
    /// TargetCluster's status.
    ///
    /// # Errors
    /// The configuration cannot be used, or the hub cannot be read.
    pub(super) async fn find(
        config: Option<&Path>,
        namespace: Option<&str>,
        client: &HubClient,
    ) -> Result<Self, CommandError> {
        let configuration = config
            .map(|path| config_file::read(path, Overrides::of_a_reader()))
            .transpose()?;
        let stated = match (namespace, &configuration) {
            (Some(namespace), _) => Some(keyferry_namespace(namespace)?),
            (None, Some(configuration)) => {
                Some(configuration.server.cluster_resource_namespace.clone())
            }
            (None, None) => target_statuses(client)
                .await?
                .into_iter()
                .find_map(|status| Namespace::new(status.cluster_resource_namespace?).ok()),
        };
        let keyferry = match stated {
            Some(namespace) => namespace,
            None => keyferry_namespace(DEFAULT_NAMESPACE)?,
        };
        let file = config
            .map(Path::to_owned)
            .zip(configuration)
            .filter(|(_, configuration)| configuration.server.objects == ObjectSource::File);
        Ok(Self { keyferry, file })
    }

    /// The file that holds the objects, if they are not on the hub.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// Whether the file has this TargetCluster.
    pub(super) fn file_has_target(&self, target: &ObjectName) -> bool {
        self.file
            .as_ref()
            .is_some_and(|(_, configuration)| configuration.policy.targets.contains_key(target))
    }

    /// Whether the target must trust the hub's issuer and the file does not state it.
    pub(super) fn lacks_issuer_of(&self, target: &ObjectName) -> bool {
        self.file.as_ref().is_some_and(|(_, configuration)| {
            configuration.server.hub_issuer.is_none()
                && configuration
                    .policy
                    .targets
                    .get(target)
                    .is_some_and(|target| target.issuer == TokenIssuer::Hub)
        })
    }

    /// Whether the file has this TargetAccess.
    pub(super) fn file_has_access(&self, access: &AccessName) -> bool {
        self.file
            .as_ref()
            .is_some_and(|(_, configuration)| configuration.policy.accesses.contains_key(access))
    }
}

/// Waits until a TargetCluster is Ready with its current spec, and returns its status.
///
/// # Errors
/// It is not Ready in time.
pub(super) async fn ready_target(
    client: &HubClient,
    target: &ObjectName,
) -> Result<TargetClusterStatus, CommandError> {
    let read = async || {
        let object = target_value(client, target).await?;
        let status: Option<TargetClusterStatus> = object.as_ref().and_then(current);
        Ok(match status {
            Some(status) if is_ready(&status.conditions) => Wait::Over(status),
            Some(status) => Wait::For(not_ready(&status.conditions).unwrap_or_default()),
            None => Wait::For("Keyferry has written no status about its current spec".to_owned()),
        })
    };
    let fix = "see whether Keyferry runs on this hub with objects: CustomResources, and read the \
               conditions: kubectl describe targetcluster";
    until_ready(
        &format!("TargetCluster {target}"),
        STATUS_PATIENCE,
        fix,
        read,
    )
    .await
}

/// Waits until a TargetAccess is Ready, and returns the object.
///
/// # Errors
/// It is not Ready in time.
pub(super) async fn ready_access(
    client: &HubClient,
    access: &AccessName,
    patience: Duration,
) -> Result<Value, CommandError> {
    let read = async || {
        let object = access_value(client, access).await?;
        let status: Option<TargetAccessStatus> = object.as_ref().and_then(current);
        Ok(match (status, object) {
            (Some(status), Some(object)) if is_ready(&status.conditions) => Wait::Over(object),
            (Some(status), _) => Wait::For(status.summary.unwrap_or_default()),
            (None, _) => Wait::For("no status about its current spec yet".to_owned()),
        })
    };
    let fix = "read its conditions: kubectl describe targetaccess";
    until_ready(&format!("TargetAccess {access}"), patience, fix, read).await
}

/// What a read of an object says about a wait.
enum Wait<T> {
    /// The object is Ready.
    Over(T),
    /// It is not Ready yet, and why.
    For(String),
}

/// Reads an object until it is Ready, and prints what it waits for. A hub that goes away meanwhile
/// does not end the wait: what was written stays, and only the time limit ends it.
async fn until_ready<T>(
    what: &str,
    patience: Duration,
    fix: &'static str,
    read: impl AsyncFn() -> Result<Wait<T>, ClientError>,
) -> Result<T, CommandError> {
    let clock = SystemClock::start();
    let started = clock.now().mono;
    let mut printed = String::new();
    loop {
        let (why, fix) = match read().await {
            Ok(Wait::Over(object)) => return Ok(object),
            Ok(Wait::For(why)) => (why, fix),
            Err(ClientError::HubCall { error, .. }) if error.proves_unreachable() => (
                error.to_string(),
                "run this command again once the hub answers",
            ),
            Err(error) => return Err(error.into()),
        };
        if clock.now().mono.saturating_sub(started) > patience {
            let seconds = patience.as_secs();
            return Err(CommandError::with_fix(
                format!("waiting for {what}: it is not Ready after {seconds} s: {why}"),
                fix,
            ));
        }
        if why != printed {
            ui::note(&format!("waiting for {what}: {why}"));
            printed = why;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns the status if it is about the current spec.
fn current<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    let status = object.get("status")?;
    let judged = status.get("observedGeneration")?.as_i64()?;
    let generation = object.pointer("/metadata/generation")?.as_i64()?;
    if judged != generation {
        return None;
    }
    serde_json::from_value(status.clone()).ok()
}

fn is_ready(conditions: &[keyferry_api::condition::Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == "Ready" && condition.status == "True")
}

fn not_ready(conditions: &[keyferry_api::condition::Condition]) -> Option<String> {
    conditions
        .iter()
        .find(|condition| condition.kind == "Ready" && condition.status != "True")
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
}

#[cfg(test)]
mod tests {
    use keyferry_api::status::TargetClusterStatus;
    use serde_json::json;

    use super::{current, not_ready};

    #[test]
    fn a_status_about_an_earlier_spec_does_not_count() {
        let object = |generation: i64| {
            json!({
                "metadata": { "generation": generation },
                "status": { "observedGeneration": 2, "usernamePrefix": "hub:" },
            })
        };
        let prefix = |generation| {
            current::<TargetClusterStatus>(&object(generation))
                .and_then(|status| status.username_prefix)
        };
        assert_eq!(prefix(2).as_deref(), Some("hub:"));
        assert_eq!(prefix(3), None);
        assert_eq!(
            current::<TargetClusterStatus>(&json!({ "metadata": { "generation": 1 } })),
            None
        );
    }

    #[test]
    fn the_reason_of_a_target_that_is_not_ready_is_repeated() {
        let status: Option<TargetClusterStatus> = serde_json::from_value(json!({
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "AudienceConflict",
                "message": "another has it", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }))
        .ok();
        let why = status.and_then(|status| not_ready(&status.conditions));
        assert_eq!(why.as_deref(), Some("AudienceConflict: another has it"));
        assert_eq!(not_ready(&[]), None);
    }
}
