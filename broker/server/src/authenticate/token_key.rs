//! The key of a credential in caches.

/// The cache key of a token or a certificate: a keyed hash, so that no cache contains the token.
pub type TokenKey = [u8; 32];
