//! Whether an admission policy of the hub is in force. Until that is known, nothing may rest on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_core::fence::{self, Fence};

/// What is known of a fence.
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
pub struct FenceReader(Fence, Arc<ArcSwap<Standing>>);

/// Writes it. There is one of it for each fence.
pub struct FenceWriter(FenceReader);

impl FenceReader {
    /// Whether the fence holds.
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

impl FenceWriter {
    /// Of `keyferry-author`, which nobody has looked at.
    pub fn author() -> Self {
        Self::of(fence::AUTHOR)
    }

    /// Of `keyferry-pairing`, which nobody has looked at.
    pub fn pairing() -> Self {
        Self::of(fence::PAIRING)
    }

    /// Of `keyferry-labels`, which nobody has looked at.
    pub fn labels() -> Self {
        Self::of(fence::LABELS)
    }

    /// Of any policy, which nobody has looked at.
    pub fn of(fence: Fence) -> Self {
        Self(FenceReader(
            fence,
            Arc::new(ArcSwap::from_pointee(Standing::Unknown)),
        ))
    }

    /// What it is about.
    pub fn fence(&self) -> &Fence {
        &self.0.0
    }

    /// The reading half.
    pub fn reader(&self) -> FenceReader {
        self.0.clone()
    }

    /// Takes in what was found; whether it is something else than before.
    pub fn set(&self, found: Standing) -> bool {
        let changed = **self.0.1.load() != found;
        self.0.1.store(Arc::new(found));
        changed
    }
}
