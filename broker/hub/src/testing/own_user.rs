//! What the hub says of Keyferry itself.

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::ports::{HubError, HubFacts};

/// The user name under which the hub of tests knows Keyferry.
pub const OWN_USER: &str = "system:serviceaccount:keyferry-system:keyferry";

/// Answers as the hub does when Keyferry asks who it is.
#[derive(Default)]
pub struct OwnUser(Mutex<Option<fn() -> HubError>>);

impl OwnUser {
    /// Refuses the question like this from now on.
    pub fn refuse(&self, refusal: Option<fn() -> HubError>) {
        *self.0.lock() = refusal;
    }
}

impl HubFacts for OwnUser {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        let refusal = *self.0.lock();
        Box::pin(async move {
            match refusal {
                Some(refusal) => Err(refusal()),
                None => Ok(OWN_USER.to_owned()),
            }
        })
    }
}
