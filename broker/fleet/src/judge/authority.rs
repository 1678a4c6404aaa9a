//! When CA certificates end.

use std::cell::RefCell;
use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError};

/// The ends of CA bundles. All accesses of a target state the same bundle, which is parsed once.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    ends: RefCell<HashMap<String, Option<Timestamp>>>,
}

impl Authorities {
    /// When the first certificate of a PEM text ends; `None` if the text cannot be read.
    pub(super) fn end_of_pem(&self, pem: &str, read_at: Timestamp) -> Option<Timestamp> {
        self.end_by_key(pem, || first_end(pem.as_bytes(), read_at))
    }

    /// As [`Authorities::end_of_pem`], for PEM in base64.
    pub(super) fn end_of_base64(&self, text: &str, read_at: Timestamp) -> Option<Timestamp> {
        self.end_by_key(text, || {
            let pem = STANDARD.decode(text.as_bytes()).ok()?;
            first_end(&pem, read_at)
        })
    }

    fn end_by_key(&self, key: &str, read: impl FnOnce() -> Option<Timestamp>) -> Option<Timestamp> {
        if let Some(known) = self.ends.borrow().get(key) {
            return *known;
        }
        let end = read();
        self.ends.borrow_mut().insert(key.to_owned(), end);
        end
    }
}

fn first_end(pem: &[u8], read_at: Timestamp) -> Option<Timestamp> {
    match CaBundle::from_pem(pem, read_at) {
        Ok(bundle) => Some(bundle.earliest_expiry()),
        Err(CaBundleError::Expired { at, .. }) => Some(at),
        Err(_) => None,
    }
}
