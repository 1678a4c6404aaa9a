//! How much of the server one credential for inputs can use: a leaked one must not stop the token
//! API, which the same process serves.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::ObjectName;
use keyferry_core::inputs::credential::InputCaller;
use keyferry_listener::Rates;
use parking_lot::Mutex;

/// How many times the requests of another credential an Admin one may send: its tools read many
/// clusters one after the other.
const ADMIN_SHARE: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Answers of one credential that are made or not read to their end.
const MAX_CONCURRENT_PER_CREDENTIAL: u32 = 4;
/// Such answers of all credentials: with the largest lists they take 58 MiB.
const MAX_CONCURRENT: u32 = 64;

/// The turns of all credentials.
#[derive(Debug)]
pub(super) struct ReadLimits {
    rates: Option<CredentialRates>,
    under_way: Arc<Mutex<UnderWay>>,
}

/// Requests a second of each credential.
#[derive(Debug)]
struct CredentialRates {
    reads: Rates<ObjectName>,
    admin_reads: Rates<ObjectName>,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: u32,
    by_credential: HashMap<ObjectName, u32>,
}

/// The right to make one answer and to keep it in memory. It ends on drop.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    under_way: Arc<Mutex<UnderWay>>,
    credential: ObjectName,
}

/// The credential, or all together, ask for more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl ReadLimits {
    /// Creates the turns. Without a rate, only answers under way are limited.
    pub(super) fn new(per_second: Option<NonZeroU32>) -> Self {
        let rates = per_second.map(|per_second| CredentialRates {
            reads: Rates::new(per_second),
            admin_reads: Rates::new(per_second.saturating_mul(ADMIN_SHARE)),
        });
        Self {
            rates,
            under_way: Arc::default(),
        }
    }

    /// Begins a request. `now` is the monotonic time.
    pub(super) fn begin_read(
        &self,
        caller: &InputCaller,
        now: Duration,
    ) -> Result<ReadPermit, TooMany> {
        let credential = caller.name().clone();
        if let Some(rates) = &self.rates {
            let rates = if caller.is_admin() {
                &rates.admin_reads
            } else {
                &rates.reads
            };
            rates
                .take_token(credential.clone(), now)
                .map_err(|_| TooMany)?;
        }
        let mut under_way = self.under_way.lock();
        let own = under_way.by_credential.get(&credential).copied();
        let own = own.unwrap_or_default();
        if own >= MAX_CONCURRENT_PER_CREDENTIAL || under_way.all >= MAX_CONCURRENT {
            return Err(TooMany);
        }
        under_way.all += 1;
        under_way.by_credential.insert(credential.clone(), own + 1);
        Ok(ReadPermit {
            under_way: Arc::clone(&self.under_way),
            credential,
        })
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        under_way.all = under_way.all.saturating_sub(1);
        match under_way.by_credential.get_mut(&self.credential) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(under_way.by_credential.remove(&self.credential)),
        }
    }
}
