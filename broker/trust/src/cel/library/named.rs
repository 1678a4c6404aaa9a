//! Not evaluated yet.

use super::super::value::Val;
use super::{Called, Context};

/// A value of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct FormatName;

pub(super) fn call(_overload: &str, _args: &[Val], _context: &Context<'_>) -> Option<Called> {
    None
}

impl FormatName {
    /// The length of the format's expression, which its cost goes by.
    pub(in crate::cel) fn pattern_size(self) -> u64 {
        0
    }
}
