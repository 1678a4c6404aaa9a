//! Not evaluated yet.

use super::super::value::Val;
use super::Called;

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cel) struct Url;

pub(super) fn call(_overload: &str, _args: &[Val]) -> Option<Called> {
    None
}
