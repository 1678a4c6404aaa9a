//! Where Keyferry's objects are: on the hub, or in its configuration file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Condition;
use keyferry_api::config::{Configuration, ObjectSource, Overrides, TokenIssuer};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::{TargetAccessStatus, TargetClusterStatus};
use keyferry_client::ClientError;
use keyferry_client::object_view::{AccessView, ObjectMetadata, TargetView};
use keyferry_client::objects_of_hub::{access_value, target_value};
use keyferry_hub::client::HubClient;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;
use serde::Deserialize;
use serde_json::{Value, json};

use super::token_signer::TokenSigner;
use crate::args::names::keyferry_namespace;
use crate::command_error::CommandError;
use crate::{onboarding, ui};

/// How often a status is read while it is waited for.
const STATUS_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long Keyferry may take to write the status of a changed TargetCluster.
const STATUS_PATIENCE: Duration = Duration::from_secs(60);
/// How long an object may be stalled by what this command has just changed elsewhere.
const STALLED_PATIENCE: Duration = Duration::from_secs(15);

/// Keyferry's namespace on the hub, and its configuration file if that file has the objects.
pub(super) struct KeyferryObjects {
    /// Keyferry's own namespace.
    pub(super) keyferry: Namespace,
    /// The configuration, if the user names its file and the objects are in it.
    file: Option<(PathBuf, Configuration)>,
}

impl KeyferryObjects {
    /// Finds out where the objects are. The namespace comes from the flag, the configuration, or
    /// the hub's RBAC.
    ///
    /// # Errors
    /// The configuration cannot be used, or the hub cannot be read.
    pub(super) async fn find(
        config: Option<&Path>,
        namespace: Option<&str>,
        client: &HubClient,
    ) -> Result<Self, CommandError> {
        let configuration = config
            .map(|path| config_file::read_config_file(path, Overrides::of_a_reader()))
            .transpose()?;
        let stated = match (namespace, &configuration) {
            (Some(namespace), _) => Some(keyferry_namespace(namespace)?),
            (None, Some(configuration)) => {
                Some(configuration.server.cluster_resource_namespace.clone())
            }
            (None, None) => None,
        };
        let keyferry = match stated {
            Some(namespace) => namespace,
            None => onboarding::keyferry_namespace::find(client).await?,
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

    /// What a role takes from a TargetCluster of the file, in the form of the hub's object.
    pub(super) fn target_in_file(&self, target: &ObjectName) -> Option<Value> {
        let (_, configuration) = self.file.as_ref()?;
        let target = configuration.policy.targets.get(target)?;
        let issuer = match target.issuer {
            TokenIssuer::Hub => "Hub",
            TokenIssuer::Keyferry => "Keyferry",
        };
        let seconds = |life: Duration| format!("{}s", life.as_secs());
        let mut spec = json!({
            "address": target.address, "audience": target.audience.as_str(), "issuer": issuer,
            "tokenLifetime": {
                "default": seconds(target.lifetime.default), "max": seconds(target.lifetime.max),
            },
        });
        for (field, text) in [
            ("tlsServerName", &target.tls_server_name),
            ("proxyURL", &target.proxy_url),
        ] {
            if let Some(text) = text {
                spec[field] = json!(text);
            }
        }
        Some(json!({ "metadata": { "name": target.name.as_str() }, "spec": spec }))
    }

    /// Returns the target whose file has the rules of this one: for a role, the one at whose cluster
    /// it is.
    ///
    /// # Errors
    /// The hub cannot be read.
    pub(super) async fn owner_of_file(
        &self,
        target: &ObjectName,
        client: &HubClient,
    ) -> Result<ObjectName, ClientError> {
        let base = match &self.file {
            Some((_, configuration)) => {
                let role = configuration.policy.targets.get(target);
                role.and_then(|it| Some(it.role.as_ref()?.same_as.clone()))
            }
            None => {
                let object = target_value(client, target).await?;
                let same_as = object.and_then(|it| TargetView::of(&it).spec.same_as);
                same_as.and_then(|base| ObjectName::new(base).ok())
            }
        };
        Ok(base.unwrap_or_else(|| target.clone()))
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

    /// Who signs the tokens of a TargetAccess of the file.
    pub(super) fn signer_in_file(&self, access: &AccessName) -> Option<TokenSigner> {
        let (_, configuration) = self.file.as_ref()?;
        let found = configuration.policy.accesses.get(access)?;
        let target = configuration.policy.targets.get(&found.target)?;
        Some(TokenSigner {
            account: found.service_account.to_string(),
            is_managed: target.issuer == TokenIssuer::Keyferry,
            is_of_certificates: target.client_certificates.is_some(),
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
    deadline: &Deadline,
) -> Result<TargetClusterStatus, CommandError> {
    let read = async || {
        let object = target_value(client, target).await?;
        let target = object.as_ref().map(TargetView::of);
        let status = target.as_ref().and_then(TargetView::current_status);
        Ok(match status {
            Some(status) if is_ready(&status.conditions) => Wait::Over(status.clone()),
            Some(status) => Wait::of(&status.conditions, String::new()),
            None => Wait::For("Keyferry has written no status about its current spec".to_owned()),
        })
    };
    let fix = "see whether Keyferry runs on this hub with objects: CustomResources, and read the \
               conditions: kubectl describe targetcluster";
    until_ready(
        &format!("TargetCluster {target}"),
        &deadline.at_most(STATUS_PATIENCE),
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
    deadline: &Deadline,
) -> Result<AccessView, CommandError> {
    let read = async || {
        let object = access_value(client, access).await?;
        let status = object.as_ref().and_then(current_status);
        Ok(match (status, object) {
            (Some(status), Some(object)) if is_ready(&status.conditions) => {
                Wait::Over(AccessView::of(&object))
            }
            (Some(status), _) => Wait::of(&status.conditions, status.summary.unwrap_or_default()),
            (None, _) => Wait::For("no status about its current spec yet".to_owned()),
        })
    };
    let fix = "read its conditions: kubectl describe targetaccess";
    until_ready(&format!("TargetAccess {access}"), deadline, fix, read).await
}

/// What a read of an object says about a wait.
enum Wait<T> {
    /// The object is Ready.
    Over(T),
    /// It is not Ready yet, and why.
    For(String),
    /// Nothing but a change by a person makes it Ready: the condition `Stalled`.
    Stalled {
        /// Reason and message of the condition.
        why: String,
        /// Whether the condition is only about the object's own spec, which is the current one.
        is_final: bool,
    },
}

impl<T> Wait<T> {
    /// Judges the conditions of an object that is not Ready. `summary` is what is waited for, if
    /// they do not say it.
    fn of(conditions: &[Condition], summary: String) -> Self {
        let stalled = conditions
            .iter()
            .find(|condition| condition.kind == "Stalled" && condition.status == "True");
        match stalled {
            Some(stalled) => Self::Stalled {
                why: format!("{}: {}", stalled.reason, stalled.message),
                is_final: FINAL_REASONS
                    .iter()
                    .any(|reason| reason.as_str() == stalled.reason),
            },
            None if summary.is_empty() => Self::For(not_ready(conditions).unwrap_or_default()),
            None => Self::For(summary),
        }
    }
}

/// Reasons of `Stalled` that depend on nothing but the object's spec: they end a wait at once. The
/// others may be about what this command has just written, and count once they have stayed.
const FINAL_REASONS: [Reason; 4] = [
    Reason::AudienceConflict,
    Reason::AudienceIsHubs,
    Reason::SpecInvalid,
    Reason::TargetSuspended,
];

/// The time at which a run stops waiting.
pub(super) struct Deadline {
    clock: Arc<SystemClock>,
    started: Duration,
    /// How long the run waits in all.
    pub(super) limit: Duration,
}

impl Deadline {
    /// Starts to wait for `patience`.
    pub(super) fn start(patience: Duration) -> Self {
        let clock = SystemClock::start();
        Self {
            started: clock.now().mono,
            clock: Arc::new(clock),
            limit: patience,
        }
    }

    /// The time that has passed.
    pub(super) fn passed(&self) -> Duration {
        self.clock.now().mono.saturating_sub(self.started)
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.passed() > self.limit
    }

    /// The same deadline, or an earlier one `limit` from now.
    fn at_most(&self, limit: Duration) -> Self {
        let left = self.limit.saturating_sub(self.passed());
        match limit < left {
            true => Self::start(limit),
            false => Self {
                clock: Arc::clone(&self.clock),
                started: self.started,
                limit: self.limit,
            },
        }
    }
}

/// Reads an object until it is Ready, and prints what it waits for. A hub that goes away meanwhile
/// does not end the wait: what was written stays, and only the time limit ends it.
async fn until_ready<T>(
    what: &str,
    deadline: &Deadline,
    fix: &'static str,
    read: impl AsyncFn() -> Result<Wait<T>, ClientError>,
) -> Result<T, CommandError> {
    let mut printed = String::new();
    let mut stalled_since: Option<Duration> = None;
    loop {
        let now = deadline.passed();
        let (why, fix) = match read().await {
            Ok(Wait::Over(object)) => return Ok(object),
            Ok(Wait::For(why)) => {
                stalled_since = None;
                (why, fix)
            }
            Ok(Wait::Stalled { why, is_final }) => {
                let since = *stalled_since.get_or_insert(now);
                if is_final || now.saturating_sub(since) >= STALLED_PATIENCE {
                    return Err(CommandError::with_fix(
                        format!("waiting for {what}: it is stalled: {why}"),
                        "remove the cause, then run this command again; keyferry explain REASON \
                         says what each reason means",
                    ));
                }
                (why, fix)
            }
            Err(ClientError::HubCall { error, .. }) if error.proves_unreachable() => (
                error.to_string(),
                "run this command again once the hub answers",
            ),
            Err(error) => return Err(error.into()),
        };
        if deadline.is_over() {
            let seconds = deadline.limit.as_secs();
            return Err(CommandError::with_fix(
                format!("waiting for {what}: it is not Ready after {seconds} s: {why}"),
                fix,
            ));
        }
        if why != printed {
            ui::note(&format!("waiting for {what}: {why}"));
            printed = why;
        }
        tokio::time::sleep(STATUS_POLL_INTERVAL).await;
    }
}

/// A TargetAccess, with its status as Keyferry writes it.
#[derive(Deserialize)]
struct JudgedAccess {
    metadata: ObjectMetadata,
    status: Option<TargetAccessStatus>,
}

/// Returns the status of a TargetAccess if it is about the current spec.
fn current_status(access: &Value) -> Option<TargetAccessStatus> {
    let access = JudgedAccess::deserialize(access).ok()?;
    let generation = access.metadata.generation?;
    let status = access.status?;
    (status.observed_generation == Some(generation)).then_some(status)
}

fn is_ready(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == "Ready" && condition.status == "True")
}

fn not_ready(conditions: &[Condition]) -> Option<String> {
    conditions
        .iter()
        .find(|condition| condition.kind == "Ready" && condition.status != "True")
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
}

#[cfg(test)]
mod tests {
    use keyferry_api::condition::Condition;
    use keyferry_api::status::TargetClusterStatus;
    use serde_json::json;

    use super::{Wait, current_status, not_ready};

    #[test]
    fn a_stalled_condition_ends_the_wait_with_its_cause() {
        let wait = |reason: &str| {
            let conditions: Vec<Condition> = serde_json::from_value(json!([
                {
                    "type": "Ready", "status": "False", "reason": reason, "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                },
                {
                    "type": "Stalled", "status": "True", "reason": reason, "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                },
            ]))
            .unwrap_or_default();
            match Wait::<()>::of(&conditions, "a summary".to_owned()) {
                Wait::Stalled { why, is_final } => Some((why, is_final)),
                _ => None,
            }
        };
        assert_eq!(
            wait("SpecInvalid"),
            Some(("SpecInvalid: m".to_owned(), true))
        );
        // The rule that allows it may have been written a moment ago.
        assert_eq!(
            wait("TargetNotGranted"),
            Some(("TargetNotGranted: m".to_owned(), false))
        );
    }

    #[test]
    fn a_status_about_an_earlier_spec_does_not_count() {
        let object = |generation: i64| {
            json!({
                "metadata": { "generation": generation },
                "status": { "observedGeneration": 2, "summary": "Ready" },
            })
        };
        let summary = |generation| current_status(&object(generation))?.summary;
        assert_eq!(summary(2).as_deref(), Some("Ready"));
        assert_eq!(summary(3), None);
        let unjudged = json!({ "metadata": { "generation": 1 } });
        assert_eq!(current_status(&unjudged), None);
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
