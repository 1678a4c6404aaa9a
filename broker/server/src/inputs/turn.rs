//! How much of the server one credential for inputs can use: a leaked one must not stop the token
//! API, which the same process serves.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::ObjectName;
use keyferry_core::inputs::credential::InputCaller;
use parking_lot::Mutex;

use crate::rate::Rates;

/// Requests a second of a credential for one cluster or namespace. Each makes a whole list.
const READS: NonZeroU32 = NonZeroU32::new(5).unwrap();
/// Requests a second of an Admin credential, whose tools read many clusters one after the other.
const ADMIN_READS: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// Answers of one credential that are made or not read to their end.
const OF_CREDENTIAL: u32 = 4;
/// Such answers of all credentials: with the largest lists they take 58 MiB.
const OF_ALL: u32 = 64;

/// The turns of all credentials.
#[derive(Debug)]
pub(super) struct Turns {
    reads: Rates<ObjectName>,
    admin_reads: Rates<ObjectName>,
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: u32,
    by_credential: HashMap<ObjectName, u32>,
}

/// The right to make one answer and to keep it in memory. It ends on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    under_way: Arc<Mutex<UnderWay>>,
    credential: ObjectName,
}

/// The credential, or all together, ask for more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            reads: Rates::new(READS),
            admin_reads: Rates::new(ADMIN_READS),
            under_way: Arc::default(),
        }
    }

    /// Begins a request. `now` is the monotonic time.
    pub(super) fn begin(&self, caller: &InputCaller, now: Duration) -> Result<Turn, TooMany> {
        let rates = if caller.is_admin() {
            &self.admin_reads
        } else {
            &self.reads
        };
        let credential = caller.name().clone();
        rates.take(credential.clone(), now).map_err(|_| TooMany)?;
        let mut under_way = self.under_way.lock();
        let own = under_way.by_credential.get(&credential).copied();
        let own = own.unwrap_or_default();
        if own >= OF_CREDENTIAL || under_way.all >= OF_ALL {
            return Err(TooMany);
        }
        under_way.all += 1;
        under_way.by_credential.insert(credential.clone(), own + 1);
        Ok(Turn {
            under_way: Arc::clone(&self.under_way),
            credential,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        under_way.all = under_way.all.saturating_sub(1);
        match under_way.by_credential.get_mut(&self.credential) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(under_way.by_credential.remove(&self.credential)),
        }
    }
}
