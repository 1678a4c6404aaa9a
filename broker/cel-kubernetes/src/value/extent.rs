//! How large and how deep a value is, so that no walk over one takes too long or recurses too deep.

use super::Val;

/// The most parts of a value. A value may contain another many times, so that it can have far more
/// parts than the expression has steps.
const MAX_PARTS: u64 = 1_000_000;

/// The deepest value.
const MAX_DEPTH: u32 = 300;

/// The parts of a list or a map, and how deep they nest. Never too small; a map whose entries were
/// replaced or removed can have less.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    parts: u64,
    depth: u32,
}

impl Extent {
    pub(crate) fn of<'v>(values: impl IntoIterator<Item = &'v Val>) -> Self {
        let mut extent = Self::default();
        for value in values {
            extent.add(value);
        }
        extent
    }

    /// Adds a part.
    pub(crate) fn add(&mut self, value: &Val) {
        let inner = value.extent();
        self.parts = self.parts.saturating_add(inner.parts).saturating_add(1);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }

    pub(crate) fn parts(self) -> u64 {
        self.parts
    }

    pub(crate) fn is_too_large(self) -> bool {
        self.parts > MAX_PARTS || self.depth > MAX_DEPTH
    }
}

impl Val {
    pub(crate) fn extent(&self) -> Extent {
        match self {
            Self::List(list) => list.extent(),
            Self::Map(map) => map.extent(),
            Self::Optional(Some(inner)) => Extent::of([&**inner]),
            _ => Extent::default(),
        }
    }
}
