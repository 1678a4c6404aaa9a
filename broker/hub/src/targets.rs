//! The state of each target besides its spec: its CA certificates, or why it is not ready.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_api::config::{Generation, TargetCluster};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_core::readiness::{NotReady, check_readiness};

/// The state of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The generation of the spec that this state belongs to.
    pub generation: Generation,
    /// Whether its CA certificates can be used.
    pub readiness: Readiness,
    /// Whether the Secret of its CA also holds a client certificate or key, which is ignored.
    pub client_certificate: bool,
}

/// Whether the CA certificates of a target can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Its CA certificates as PEM; `None` means the client's own roots.
    Ready(Option<Arc<str>>),
    /// They are missing or invalid, or were not read yet.
    NotReady {
        /// The stable code.
        reason: Reason,
        /// The explanation for an authorised caller.
        message: String,
    },
}

/// Reads target states.
#[derive(Clone, Default)]
pub struct TargetReader(Arc<ArcSwap<HashMap<ObjectName, TargetState>>>);

/// Writes target states. Each process has one writer.
#[derive(Default)]
pub struct TargetWriter(TargetReader);

impl TargetReader {
    /// Returns the CA certificates of `target`, as its current spec names them.
    pub fn readiness(&self, target: &TargetCluster) -> Readiness {
        match self.0.load().get(&target.name) {
            Some(state) if state.generation == target.generation => state.readiness.clone(),
            _ => Readiness::NotReady {
                reason: Reason::TargetNotReady,
                message: "its CA certificates have not been read yet".to_owned(),
            },
        }
    }

    /// Returns the CA certificates of `target` if tokens can be issued for it. `hub_issuer` is `None`
    /// as long as it is not known.
    ///
    /// # Errors
    /// [`NotReady`].
    pub fn ready_ca(
        &self,
        target: &TargetCluster,
        hub_issuer: Option<&Issuer>,
    ) -> Result<Option<Arc<str>>, NotReady> {
        check_readiness(target, hub_issuer)?;
        match self.readiness(target) {
            Readiness::Ready(ca_pem) => Ok(ca_pem),
            Readiness::NotReady { reason, message } => {
                Err(NotReady::Certificates { reason, message })
            }
        }
    }

    /// Returns the last state of the target of this name, for any generation of its spec.
    pub fn last_state(&self, name: &ObjectName) -> Option<TargetState> {
        self.0.load().get(name).cloned()
    }
}

impl TargetWriter {
    /// Returns a reader.
    pub fn reader(&self) -> TargetReader {
        self.0.clone()
    }

    /// Replaces all states at once.
    pub fn replace(&self, states: HashMap<ObjectName, TargetState>) {
        self.0.0.store(Arc::new(states));
    }
}
