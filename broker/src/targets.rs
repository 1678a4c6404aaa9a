//! What is known of each target beside its spec: its CA certificates, or why it is not ready.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_core::config::{Generation, TargetCluster};
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;

/// What is known of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The spec that this was found out for.
    pub generation: Generation,
    /// What was found out.
    pub readiness: Readiness,
    /// Whether the Secret of its CA also holds a client certificate or key, which is ignored.
    pub client_certificate: bool,
}

/// Whether a target can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can; with its CA certificates as PEM, or none for the client's own roots.
    Ready(Option<Arc<str>>),
    /// It cannot.
    NotReady {
        /// The stable code.
        reason: Reason,
        /// What an authorised caller is told.
        message: String,
    },
}

/// Reads target states.
#[derive(Clone, Default)]
pub struct TargetReader(Arc<ArcSwap<HashMap<ObjectName, TargetState>>>);

/// Writes target states. There is one of it.
#[derive(Default)]
pub struct TargetWriter(TargetReader);

impl TargetReader {
    /// The readiness of `target` as it is specified now.
    pub fn readiness(&self, target: &TargetCluster) -> Readiness {
        match self.0.load().get(&target.name) {
            Some(state) if state.generation == target.generation => state.readiness.clone(),
            _ => Readiness::NotReady {
                reason: Reason::TargetNotReady,
                message: "its CA certificates have not been read yet".to_owned(),
            },
        }
    }

    /// The state of the target of this name, whatever spec it is for.
    pub fn last(&self, name: &ObjectName) -> Option<TargetState> {
        self.0.load().get(name).cloned()
    }
}

impl TargetWriter {
    /// The reading half.
    pub fn reader(&self) -> TargetReader {
        self.0.clone()
    }

    /// Replaces all states at once.
    pub fn replace(&self, states: HashMap<ObjectName, TargetState>) {
        self.0.0.store(Arc::new(states));
    }
}
