//! The demo's own hub and target as a fleet, with what the demo has just seen of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::condition::{Finding, conditions, format_seconds};
use keyferry_api::config::Overrides;
use keyferry_api::name::Namespace;
use keyferry_api::status::{ClusterStatus, ProbeCounts, TargetClusterStatus};
use keyferry_client::key_records::KeyRecordsClient;
use keyferry_core::access_status::{AccessReport, TargetIdentity};
use keyferry_core::self_subject_review::UserInfo;
use keyferry_fleet::audit_lines::{AuditLines, MAX_AUDIT_BYTES};
use keyferry_fleet::facts::Source;
use keyferry_fleet::keys_document::KeysDocument;
use keyferry_fleet::object_view::{AccessView, TargetView};
use keyferry_fleet::snapshot::Snapshot;
use keyferry_hub::client::HubAccess;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::{config_file, regular_file};
use serde_json::json;

use super::stage::Stage;
use crate::command_error::CommandError;
use crate::dashboard::current_facts::{JudgeFleet, ReadFleet};
use crate::keys;

/// Keyferry's namespace on the demo's hub.
const KEYFERRY_NAMESPACE: &str = "keyferry-system";
/// The default of `discovery.maxAge`, which the demo leaves as it is.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The generation of the demo's objects: a file's objects never change.
const GENERATION: i64 = 1;

/// Reads the files and the hub of a running demo.
pub(super) struct DemoReader {
    config: PathBuf,
    audit_log: PathBuf,
    hub: HubAccess,
    issuer: String,
    authority_pem: String,
    user: UserInfo,
    accepted_at: Timestamp,
}

impl DemoReader {
    /// `user` is the one that the target has just reported for the workload's token.
    pub(super) fn new(stage: &Stage, user: UserInfo) -> Self {
        Self {
            config: stage.file("config.yaml"),
            audit_log: stage.file("audit.jsonl"),
            hub: HubAccess {
                kubeconfig: Some(stage.file("hub.kubeconfig")),
                ..HubAccess::default()
            },
            issuer: stage.options.issuer().to_owned(),
            authority_pem: stage.target.ca_pem().to_owned(),
            user,
            accepted_at: SystemClock::start().now().wall,
        }
    }

    async fn read_snapshot(&self) -> Result<Snapshot, CommandError> {
        let now = SystemClock::start().now().wall;
        let configuration = config_file::read_config_file(&self.config, Overrides::of_a_reader())?;
        let mut snapshot = Snapshot::of_policy(&configuration.policy, "", now);
        snapshot.source = Source::Demo;
        self.add_observations(&mut snapshot);
        snapshot.audit = Some(read_audit_log(&self.audit_log)?);
        snapshot.keys = self.read_keys(now).await?;
        Ok(snapshot)
    }

    /// Writes what the demo saw into the statuses, in the words of the controller. A configuration
    /// file has no controller, so the objects have none.
    fn add_observations(&self, snapshot: &mut Snapshot) {
        for read in snapshot.targets.values_mut() {
            read.view = self.observed_target(&read.view);
        }
        for read in snapshot.accesses.values_mut() {
            read.view = self.observed_access(&read.view);
        }
    }

    fn observed_target(&self, written: &TargetView) -> TargetView {
        let ready = Finding::ok("declared: its spec and CA certificates are valid");
        let reachable = Finding::ok("the target answered the demo");
        let authenticates = Finding::ok("the target accepted the token that the demo exchanged");
        let findings = [
            ("Ready", &ready),
            ("TargetReachable", &reachable),
            ("TargetAuthenticates", &authenticates),
        ];
        let mut view = written.clone();
        view.metadata.generation = Some(GENERATION);
        view.spec.ca_bundle = Some(self.authority_pem.clone());
        view.status = Some(TargetClusterStatus {
            observed_generation: Some(GENERATION),
            conditions: conditions(&json!({}), GENERATION, self.accepted_at, &findings),
            accesses: Some(ProbeCounts {
                total: 1,
                accepted: 1,
                ..ProbeCounts::default()
            }),
            last_probe_time: Some(format_seconds(self.accepted_at)),
            issuer: Some(self.issuer.clone()),
            cluster_resource_namespace: Some(KEYFERRY_NAMESPACE.to_owned()),
            ..TargetClusterStatus::default()
        });
        view
    }

    fn observed_access(&self, written: &AccessView) -> AccessView {
        let report = AccessReport {
            authorized: Finding::ok("the demo exchanged a token for it"),
            delivered: Finding::ok("it delivers on request"),
            reachable: Some(Finding::ok("the target answered the demo")),
            authenticates: Some(Finding::ok("the target accepted its token")),
            silence: None,
            probed_at: Some(self.accepted_at),
            identity: Some(TargetIdentity {
                username: self.user.username.clone(),
                uid: String::new(),
                groups: self.user.groups.clone(),
            }),
            passes: false,
            deliveries: Vec::new(),
            left_over: Vec::new(),
            exposure_until: None,
            handled: None,
        };
        let cluster = Some(ClusterStatus::default());
        let status = report.status(&json!({}), GENERATION, self.accepted_at, cluster);
        let observed = AccessView::of(&json!({ "status": status }));
        let mut view = written.clone();
        view.metadata.generation = Some(GENERATION);
        view.status = observed.status;
        view
    }

    async fn read_keys(&self, now: Timestamp) -> Result<Option<KeysDocument>, CommandError> {
        let Ok(namespace) = Namespace::new(KEYFERRY_NAMESPACE) else {
            return Ok(None);
        };
        let client = KeyRecordsClient::connect(&self.hub, namespace).await?;
        let journal = client.read_journal().await?;
        let document = keys::journal_document(&journal, MAX_AGE, None, now);
        Ok(KeysDocument::read(document.to_string().as_bytes()).ok())
    }
}

impl ReadFleet for DemoReader {
    fn read_fleet(&self) -> BoxFuture<'_, Result<Arc<dyn JudgeFleet>, CommandError>> {
        Box::pin(async move {
            let snapshot = self.read_snapshot().await?;
            Ok(Arc::new(snapshot) as Arc<dyn JudgeFleet>)
        })
    }
}

fn read_audit_log(path: &Path) -> Result<AuditLines, CommandError> {
    let bytes = regular_file::read_regular_file(path, MAX_AUDIT_BYTES as u64)
        .map_err(|error| CommandError::new(format!("reading the demo's audit log: {error}")))?;
    Ok(AuditLines::read("the demo's audit log", &bytes))
}
