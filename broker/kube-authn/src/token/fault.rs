//! Why go-jose does not parse a token.

use crate::config::Undetermined;

/// Why go-jose does not parse a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFault {
    /// go-jose's message, and whether it is exact.
    Malformed(String, bool),
    /// The result of go-jose's parser cannot be decided here.
    Undetermined(Undetermined),
}
