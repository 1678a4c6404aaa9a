//! Whether an admission policy of the hub is in force. Until that is known, nothing may rest on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_core::admission_policy::{self, AdmissionPolicy};

/// What is known of an admission policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not been looked at yet.
    Unknown,
    /// It holds.
    InForce,
    /// It does not, or it cannot be told that it does.
    Gap(String),
}

/// Reads it.
#[derive(Clone)]
pub struct AdmissionPolicyReader(AdmissionPolicy, Arc<ArcSwap<Standing>>);

/// Writes it. There is one of it for each admission policy.
pub struct AdmissionPolicyWriter(AdmissionPolicyReader);

impl AdmissionPolicyReader {
    /// Whether the admission policy holds.
    ///
    /// # Errors
    /// What is missing, or that it has not been looked at.
    pub fn checked(&self) -> Result<(), String> {
        match &**self.1.load() {
            Standing::InForce => Ok(()),
            Standing::Gap(gap) => Err(gap.clone()),
            Standing::Unknown => Err(format!(
                "the admission policy {} has not been looked at yet",
                self.0.name()
            )),
        }
    }

    /// What is missing, where that was seen.
    pub fn gap(&self) -> Option<String> {
        match &**self.1.load() {
            Standing::Gap(gap) => Some(gap.clone()),
            Standing::Unknown | Standing::InForce => None,
        }
    }
}

impl AdmissionPolicyWriter {
    /// Of `keyferry-author`, which nobody has looked at.
    pub fn author() -> Self {
        Self::of(admission_policy::AUTHOR)
    }

    /// Of `keyferry-pairing`, which nobody has looked at.
    pub fn pairing() -> Self {
        Self::of(admission_policy::PAIRING)
    }

    /// Of `keyferry-labels`, which nobody has looked at.
    pub fn labels() -> Self {
        Self::of(admission_policy::LABELS)
    }

    /// Of any policy, which nobody has looked at.
    pub fn of(admission_policy: AdmissionPolicy) -> Self {
        Self(AdmissionPolicyReader(
            admission_policy,
            Arc::new(ArcSwap::from_pointee(Standing::Unknown)),
        ))
    }

    /// What it is about.
    pub fn admission_policy(&self) -> &AdmissionPolicy {
        &self.0.0
    }

    /// The reading half.
    pub fn reader(&self) -> AdmissionPolicyReader {
        self.0.clone()
    }

    /// Takes in what was found; whether it is something else than before.
    pub fn set(&self, found: Standing) -> bool {
        let changed = **self.0.1.load() != found;
        self.0.1.store(Arc::new(found));
        changed
    }
}
