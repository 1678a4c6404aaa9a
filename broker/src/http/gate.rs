//! Admits connections: so many of one source, so many in a handshake, so many in all.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;
use crate::source::Source;

/// Why a connection is not served. It is closed without a word: an answer would need the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its source has as many connections as one may have.
    Source,
    /// As many connections as may be are in their handshake.
    Handshakes,
    /// As many connections as may be are open.
    Connections,
    /// The handshake failed or took too long.
    Handshake,
}

impl Refused {
    /// The value of the metric's label.
    fn as_str(self) -> &'static str {
        match self {
            Refused::Source => "address_limit",
            Refused::Handshakes => "handshakes_full",
            Refused::Connections => "connections_full",
            Refused::Handshake => "handshake_failed",
        }
    }
}

/// How many connections one listener admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Open ones.
    pub(super) connections: usize,
    /// Those in their handshake. They are no open ones yet, so that clients who never finish it keep nobody out who is connected.
    pub(super) handshakes: usize,
    /// Of one source, in both.
    pub(super) per_source: Option<NonZeroU32>,
}

/// Admits the connections of one listener.
pub(super) struct Gate {
    listener: &'static str,
    metrics: Metrics,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    per_source: Option<NonZeroU32>,
    sources: Mutex<HashMap<Source, u32>>,
}

/// The right to a handshake.
pub(super) struct Handshake {
    source: OneOfSource,
    _permit: OwnedSemaphorePermit,
}

/// The right to be an open connection.
pub(super) struct Place {
    source: OneOfSource,
    _permit: OwnedSemaphorePermit,
}

/// Counts for its source until it is dropped.
struct OneOfSource {
    gate: Arc<Gate>,
    source: Source,
}

impl Gate {
    pub(super) fn new(listener: &'static str, room: Room, metrics: Metrics) -> Arc<Gate> {
        Arc::new(Gate {
            listener,
            metrics,
            connections: Arc::new(Semaphore::new(room.connections)),
            handshakes: Arc::new(Semaphore::new(room.handshakes)),
            per_source: room.per_source,
            sources: Mutex::default(),
        })
    }

    /// Lets a connection begin its handshake.
    pub(super) fn enter(self: &Arc<Gate>, source: Source) -> Result<Handshake, Refused> {
        let source = self.count(source).ok_or_else(|| self.refuse(Refused::Source))?;
        let permit = Arc::clone(&self.handshakes).try_acquire_owned().map_err(|_| self.refuse(Refused::Handshakes))?;
        Ok(Handshake { source, _permit: permit })
    }

    /// Counts a refusal.
    pub(super) fn refuse(&self, refused: Refused) -> Refused {
        self.metrics.connection_refused(self.listener, refused.as_str());
        refused
    }

    fn count(self: &Arc<Gate>, source: Source) -> Option<OneOfSource> {
        if let Some(most) = self.per_source {
            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            let count = sources.entry(source).or_insert(0);
            // An entry without a connection is never left behind: the first one is always admitted.
            if *count >= most.get() {
                return None;
            }
            *count += 1;
        }
        Some(OneOfSource { gate: Arc::clone(self), source })
    }
}

impl Handshake {
    /// Makes the connection an open one, after its handshake.
    pub(super) fn done(self) -> Result<Place, Refused> {
        let gate = Arc::clone(&self.source.gate);
        let permit = Arc::clone(&gate.connections).try_acquire_owned().map_err(|_| gate.refuse(Refused::Connections))?;
        gate.metrics.connection_opened(gate.listener);
        Ok(Place { source: self.source, _permit: permit })
    }
}

impl Place {
    /// Counts that Keyferry ended the connection, and why.
    pub(super) fn ended(&self, reason: &'static str) {
        self.source.gate.metrics.connection_ended(self.source.gate.listener, reason);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.source.gate.metrics.connection_closed(self.source.gate.listener);
    }
}

impl Drop for OneOfSource {
    fn drop(&mut self) {
        if self.gate.per_source.is_none() {
            return;
        }
        let mut sources = self.gate.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let MapEntry::Occupied(mut entry) = sources.entry(self.source) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::{Gate, Refused, Room};
    use crate::metrics::Metrics;
    use crate::source::Source;

    fn gate(connections: usize, handshakes: usize, per_source: u32) -> Arc<Gate> {
        Gate::new("api", Room { connections, handshakes, per_source: NonZeroU32::new(per_source) }, Metrics::default())
    }

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn one_source_takes_its_share_and_no_more() {
        let gate = gate(100, 100, 2);
        let (handshake, open) = (gate.enter(source(1)).ok().unwrap(), gate.enter(source(1)).ok().unwrap().done().ok().unwrap());
        assert_eq!(gate.enter(source(1)).err(), Some(Refused::Source), "a handshake and a connection are two");
        assert!(gate.enter(source(2)).is_ok());
        drop(handshake);
        assert!(gate.enter(source(1)).is_ok());
        drop(open);
        assert!(gate.sources.lock().unwrap().is_empty(), "a source without connections is forgotten");
    }

    #[test]
    fn unfinished_handshakes_take_no_place_of_a_connection() {
        let gate = gate(1, 2, 0);
        let half_open: Vec<_> = (1..=2).map(|last| gate.enter(source(last)).ok().unwrap()).collect();
        assert_eq!(gate.enter(source(3)).err(), Some(Refused::Handshakes));
        drop(half_open);
        let open = gate.enter(source(3)).ok().unwrap().done().ok().unwrap();
        assert_eq!(gate.enter(source(4)).ok().unwrap().done().err(), Some(Refused::Connections));
        drop(open);
        assert!(gate.enter(source(4)).ok().unwrap().done().is_ok());
        let text = gate.metrics.exposition();
        for reason in ["handshakes_full", "connections_full"] {
            let sample = format!("keyferry_connections_refused_total{{listener=\"api\",cause=\"{reason}\"}} 1");
            assert!(text.contains(&sample), "{sample} in {text}");
        }
        assert!(text.contains("keyferry_connections_open{listener=\"api\"} 0"), "{text}");
    }

    #[test]
    fn without_a_bound_a_source_may_take_everything() {
        let gate = gate(3, 3, 0);
        let all: Vec<_> = (0..3).map(|_| gate.enter(source(1)).ok().unwrap().done().ok().unwrap()).collect();
        assert_eq!((all.len(), gate.sources.lock().unwrap().len()), (3, 0));
    }
}
