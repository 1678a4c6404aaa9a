//! Answers requests for fleet inputs: verifies the credential, checks that it is for the path, and
//! makes or finds the collection.
//!
//! The credential is verified before anything about the path is looked up, so a request without one
//! learns nothing, not even by the time of its answer. A client certificate is verified by the same
//! code as that of a caller of tokens, before this module sees it.

mod turn;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::Moment;
use keyferry_api::name::{ClusterDns, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use keyferry_core::inputs::collection::Collection;
use keyferry_core::inputs::credential::{InputCaller, InputPath};
use keyferry_core::inputs::documents;
use keyferry_core::inputs::error::InputsError;
use keyferry_core::inputs::presented::PresentedCredential;
use keyferry_core::request_id::RequestId;
use keyferry_hub::input_components::InputComponents;
use keyferry_hub::input_credentials::CredentialReader;
use keyferry_hub::live::LiveObjects;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::fleet_index::{FleetIndexReader, IndexedPolicy};
use keyferry_platform::metrics::Metrics;
use turn::ReadLimits;

use crate::broker::{Refusal, RefusedInputCertificate};

pub(crate) use turn::ReadPermit;

/// The route's name in audit records.
pub(crate) const ROUTE_NAME: &str = "inputs";

/// How long after the watches were complete the policy is certainly made of all their objects. An
/// earlier answer could lack accesses, which a reader would take for removed ones.
const POLICY_SETTLES: Duration = Duration::from_secs(1);

/// One collection of the inputs API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputResource {
    /// A cluster's names.
    Cluster(ClusterDns),
    /// The accesses to a cluster.
    Accesses(ClusterDns),
    /// The platform components of a cluster.
    PlatformComponents(ClusterDns),
    /// The targets of a namespace.
    Targets(Namespace),
}

impl InputResource {
    fn path(&self) -> InputPath {
        match self {
            Self::Cluster(dns) | Self::Accesses(dns) | Self::PlatformComponents(dns) => {
                InputPath::Cluster(dns.clone())
            }
            Self::Targets(namespace) => InputPath::Namespace(namespace.clone()),
        }
    }
}

/// The dependencies of [`Inputs`].
pub struct InputsParts {
    /// The active policy and its index.
    pub fleet: FleetIndexReader,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The inputs of platform components.
    pub components: Arc<InputComponents>,
    /// Verifies credentials.
    pub credentials: CredentialReader,
    /// The hub's name, which begins every user at the targets.
    pub hub_name: String,
    /// How many requests a second a credential may send.
    pub requests_per_second: Option<NonZeroU32>,
    /// How long the hub's objects count while the hub does not answer.
    pub max_stale: Duration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The audit log, which has a record of every answer.
    pub audit: Arc<dyn AuditSink>,
    /// Counts requests by decision and reason.
    pub metrics: Metrics,
}

/// What a request shows to read inputs.
#[derive(Debug)]
pub(crate) enum ShownCredential {
    /// Nothing that is a credential.
    Nothing,
    /// A token. It is not verified yet.
    Token(PresentedCredential),
    /// A client certificate, which was verified.
    Certificate(InputCaller),
    /// A client certificate that identifies no reader.
    RefusedCertificate(RefusedInputCertificate),
    /// A client certificate and `Authorization`, of which neither was checked: if one were ignored,
    /// a machine could read as another than its other proof says.
    Both,
}

/// Serves fleet inputs.
pub struct Inputs {
    parts: InputsParts,
    /// When the policy is made of all objects of the hub.
    settled_at: Duration,
    read_limits: ReadLimits,
}

/// A collection, and the right to keep it in memory until it is sent.
#[derive(Debug)]
pub(crate) struct InputsAnswer {
    pub(crate) collection: Collection,
    pub(crate) permit: ReadPermit,
}

/// Why a request for fleet inputs gets none.
#[derive(Debug)]
pub(crate) enum InputsRefusal {
    /// No valid credential. Its source counts towards the limits of unknown callers.
    Credential,
    /// A valid credential that asks for more than it may.
    TooMany,
    /// A client certificate that identifies no reader.
    Certificate(RefusedInputCertificate),
    /// Two credentials.
    Ambiguous,
    /// A valid credential that is not for this path, or a path that names nothing.
    NotFound,
    /// The caller may read it, and it cannot be sent.
    NotAvailable(InputsError),
    /// The audit record could not be written.
    Unrecorded,
}

impl Inputs {
    /// Creates the service. The watches of the hub's objects must be complete.
    pub fn new(parts: InputsParts) -> Self {
        let settled_at = parts.clock.now().mono + POLICY_SETTLES;
        let turns = ReadLimits::new(parts.requests_per_second);
        Self {
            parts,
            settled_at,
            read_limits: turns,
        }
    }

    /// Returns the collection for a request. `resource` is `None` if the path names none.
    pub(crate) async fn answer_request(
        self: Arc<Self>,
        shown: ShownCredential,
        resource: Option<InputResource>,
        request_id: RequestId,
    ) -> Result<InputsAnswer, InputsRefusal> {
        let now = self.parts.clock.now();
        let caller = self.verify_caller(shown, now)?;
        let permit = self.read_limits.begin_read(&caller, now.mono);
        let permit = permit.map_err(|_| InputsRefusal::TooMany)?;
        let mut record = AuditRecord {
            time: now.wall,
            request_id,
            route: ROUTE_NAME,
            input_credential: Some(caller.name().clone()),
            input_certificate: caller.certificate().cloned(),
            ..AuditRecord::default()
        };
        // A long list takes some milliseconds, in which this thread serves no token.
        let this = Arc::clone(&self);
        let reading = tokio::task::spawn_blocking(move || {
            let outcome = this.read_collection(&caller, resource.as_ref(), now, &mut record);
            (outcome, record)
        });
        let (outcome, mut record) = match reading.await {
            Ok(read) => read,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The server is ending.
                Err(_) => return Err(InputsRefusal::NotAvailable(InputsError::Unread)),
            },
        };
        let (decision, reason) = match &outcome {
            Ok(_) => ("granted", Reason::Ready),
            Err(InputsRefusal::NotAvailable(error)) => ("failed", error.reason()),
            Err(_) => ("denied", Reason::InputsNotGranted),
        };
        record.set_decision(decision, reason);
        let recorded = self.parts.audit.record(&record).await;
        self.parts.metrics.count_request(decision, reason);
        match recorded {
            Ok(()) => outcome.map(|collection| InputsAnswer { collection, permit }),
            // A refusal stays one: to withhold it would not be any safer.
            Err(_) => Err(outcome.err().unwrap_or(InputsRefusal::Unrecorded)),
        }
    }

    fn verify_caller(
        &self,
        shown: ShownCredential,
        now: Moment,
    ) -> Result<InputCaller, InputsRefusal> {
        let unread = || InputsRefusal::NotAvailable(InputsError::Unread);
        let live = self.parts.live.is_current(self.parts.max_stale, now);
        if !live || now.mono < self.settled_at || !self.parts.credentials.is_read() {
            return Err(unread());
        }
        match shown {
            ShownCredential::Token(presented) => self
                .parts
                .credentials
                .verify(&presented, now.wall)
                .map_err(|_| unread())?
                .ok_or(InputsRefusal::Credential),
            ShownCredential::Certificate(caller) => Ok(caller),
            ShownCredential::RefusedCertificate(refused) => {
                Err(InputsRefusal::Certificate(refused))
            }
            ShownCredential::Both => Err(InputsRefusal::Ambiguous),
            ShownCredential::Nothing => Err(InputsRefusal::Credential),
        }
    }

    fn read_collection(
        &self,
        caller: &InputCaller,
        resource: Option<&InputResource>,
        now: Moment,
        record: &mut AuditRecord,
    ) -> Result<Collection, InputsRefusal> {
        let resource = resource
            .filter(|resource| caller.may_read(&resource.path()))
            .ok_or(InputsRefusal::NotFound)?;
        let fleet = self.parts.fleet.current();
        let read = match resource {
            InputResource::Targets(namespace) => documents::target_inputs(
                &fleet.policy,
                &*self.parts.live,
                &self.parts.hub_name,
                namespace,
            ),
            InputResource::Cluster(dns)
            | InputResource::Accesses(dns)
            | InputResource::PlatformComponents(dns) => {
                let target = fleet
                    .index
                    .target(dns)
                    .map_err(InputsRefusal::NotAvailable)?
                    .ok_or(InputsRefusal::NotFound)?;
                record.target = Some(target.clone());
                self.of_target(&fleet, resource, target, now)
                    .ok_or(InputsRefusal::NotFound)?
            }
        };
        read.map_err(InputsRefusal::NotAvailable)
    }

    fn of_target(
        &self,
        fleet: &IndexedPolicy,
        resource: &InputResource,
        name: &ObjectName,
        now: Moment,
    ) -> Option<Result<Collection, InputsError>> {
        let target = fleet.policy.targets.get(name)?;
        Some(match resource {
            InputResource::Cluster(_) => documents::cluster_inputs(name, target.identity.as_ref()?),
            InputResource::Accesses(_) => documents::access_inputs(
                &fleet.policy,
                &fleet.index,
                &*self.parts.live,
                &self.parts.hub_name,
                target,
            ),
            InputResource::PlatformComponents(_) => {
                self.parts
                    .components
                    .inputs_of_target(name, self.parts.max_stale, now)
            }
            InputResource::Targets(_) => return None,
        })
    }
}

impl From<InputsError> for Refusal {
    fn from(error: InputsError) -> Self {
        Self {
            reason: error.reason(),
            detail: Some(error.to_string()),
            retry_after: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
