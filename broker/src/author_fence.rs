//! Whether the hub's admission policy checks the authors of accesses. Until that is known, it does not.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Reads it.
#[derive(Clone)]
pub struct AuthorFenceReader(Arc<ArcSwap<Result<(), String>>>);

/// Writes it. There is one of it.
pub struct AuthorFenceWriter(AuthorFenceReader);

impl AuthorFenceReader {
    /// Whether authors are checked.
    ///
    /// # Errors
    /// What is missing.
    pub fn checked(&self) -> Result<(), String> {
        self.0.load().as_ref().clone()
    }
}

impl Default for AuthorFenceWriter {
    fn default() -> AuthorFenceWriter {
        let unknown = Err("the admission policy keyferry-author has not been looked at yet".to_owned());
        AuthorFenceWriter(AuthorFenceReader(Arc::new(ArcSwap::from_pointee(unknown))))
    }
}

impl AuthorFenceWriter {
    /// The reading half.
    pub fn reader(&self) -> AuthorFenceReader {
        self.0.clone()
    }

    /// Takes in what was found; whether it is something else than before.
    pub fn set(&self, found: Result<(), String>) -> bool {
        let changed = **self.0.0.load() != found;
        self.0.0.store(Arc::new(found));
        changed
    }
}
