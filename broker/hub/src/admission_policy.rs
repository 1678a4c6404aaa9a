//! Tracks whether an admission policy of the hub is active. Until that is known, nothing may rely
//! on the policy.

use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_core::admission_policy::{self, AdmissionPolicy};

/// The known state of an admission policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The policy has not been checked yet.
    Unknown,
    /// The policy is active.
    Active,
    /// The policy is not active, or this cannot be verified; says what is missing.
    Gap(String),
}

/// The admission policy is not known to be active.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotActive {
    /// The policy was found inactive, or its check failed; says what is missing.
    #[error("{0}")]
    Gap(String),
    /// The policy has not been checked yet.
    #[error("the admission policy {0} has not been checked yet")]
    Unchecked(&'static str),
}

/// Reads the state of an admission policy.
#[derive(Clone)]
pub struct AdmissionPolicyReader(AdmissionPolicy, Arc<ArcSwap<Standing>>);

/// Sets the state of an admission policy. Each policy has one writer.
pub struct AdmissionPolicyWriter(AdmissionPolicyReader);

impl AdmissionPolicyReader {
    /// Checks that the admission policy is active.
    ///
    /// # Errors
    /// [`NotActive`].
    pub fn require_active(&self) -> Result<(), NotActive> {
        match &**self.1.load() {
            Standing::Active => Ok(()),
            Standing::Gap(gap) => Err(NotActive::Gap(gap.clone())),
            Standing::Unknown => Err(NotActive::Unchecked(self.0.name())),
        }
    }

    /// Returns what is missing, if the policy was found inactive.
    pub fn missing_part(&self) -> Option<String> {
        match &**self.1.load() {
            Standing::Gap(gap) => Some(gap.clone()),
            Standing::Unknown | Standing::Active => None,
        }
    }
}

impl AdmissionPolicyWriter {
    /// Creates the writer for `keyferry-author`, not checked yet.
    pub fn for_author_policy() -> Self {
        Self::for_policy(admission_policy::AUTHOR_POLICY)
    }

    /// Creates the writer for `keyferry-pairing`, not checked yet.
    pub fn for_pairing_policy() -> Self {
        Self::for_policy(admission_policy::PAIRING_POLICY)
    }

    /// Creates the writer for `keyferry-labels`, not checked yet.
    pub fn for_labels_policy() -> Self {
        Self::for_policy(admission_policy::LABELS_POLICY)
    }

    /// Creates the writer for any policy, not checked yet.
    pub fn for_policy(admission_policy: AdmissionPolicy) -> Self {
        Self(AdmissionPolicyReader(
            admission_policy,
            Arc::new(ArcSwap::from_pointee(Standing::Unknown)),
        ))
    }

    /// Returns the admission policy of this writer.
    pub fn admission_policy(&self) -> &AdmissionPolicy {
        &self.0.0
    }

    /// Returns a reader.
    pub fn reader(&self) -> AdmissionPolicyReader {
        self.0.clone()
    }

    /// Stores a new state; returns whether it differs from the previous one.
    pub fn set_state(&self, found: Standing) -> bool {
        let changed = **self.0.1.load() != found;
        self.0.1.store(Arc::new(found));
        changed
    }
}
