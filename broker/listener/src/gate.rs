//! Limits connections per source, in their handshake, and in all.

use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::metrics::ListenerMetrics;
use crate::shares::{Limits, Pool, PoolUsage, Sources};
use crate::source::Source;

/// Sources with at most this many connections may use the places that are reserved for small
/// sources.
const FEW: u32 = 8;

/// Why a connection is not served. It is closed without a response, because a response would need
/// the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The source has reached its connection limit.
    Source,
    /// The limit of concurrent handshakes is reached.
    Handshakes,
    /// The limit of open connections is reached.
    Connections,
    /// The handshake failed or took too long.
    Handshake,
}

impl Refused {
    /// The value of the metric's label.
    fn as_str(self) -> &'static str {
        match self {
            Self::Source => "address_limit",
            Self::Handshakes => "handshakes_full",
            Self::Connections => "connections_full",
            Self::Handshake => "handshake_failed",
        }
    }
}

/// Connection limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Open connections.
    pub(crate) connections: u32,
    /// Connections in their handshake. They are counted apart from open ones, so that clients that
    /// never finish the handshake cannot take the places of connected ones.
    pub(crate) handshakes: u32,
    /// Connections of one source, open or in their handshake. The /64 of an IPv6 address has a
    /// limit too. A quarter of each of the two pools is reserved for sources with few connections.
    /// With `None`, sources are not counted and nothing is reserved.
    pub(crate) per_source: Option<NonZeroU32>,
}

/// Admits the connections of one listener.
pub(crate) struct Gate {
    listener: &'static str,
    metrics: Arc<dyn ListenerMetrics>,
    places: Mutex<ConnectionCounts>,
}

struct ConnectionCounts {
    sources: Sources,
    connections: Pool,
    handshakes: Pool,
}

/// The right to perform a handshake.
pub(crate) struct Handshake(Admitted);

/// The right to be an open connection.
pub(crate) struct OpenConnection(Admitted);

/// A connection that counts for its source until it is dropped.
struct Admitted {
    gate: Arc<Gate>,
    source: Source,
    open: bool,
    taken: PoolUsage,
}

impl Gate {
    pub(crate) fn new(
        listener: &'static str,
        room: ConnectionLimits,
        metrics: Arc<dyn ListenerMetrics>,
    ) -> Arc<Self> {
        let sources = Sources::new(
            room.per_source
                .map(|most| Limits::of(most.get(), room.connections, FEW)),
        );
        let (connections, handshakes) = (
            Pool::of(room.connections, &sources),
            Pool::of(room.handshakes, &sources),
        );
        Arc::new(Self {
            listener,
            metrics,
            places: Mutex::new(ConnectionCounts {
                sources,
                connections,
                handshakes,
            }),
        })
    }

    /// Admits a connection to its handshake.
    pub(crate) fn enter(self: &Arc<Self>, source: Source) -> Result<Handshake, Refused> {
        let taken = self
            .places()
            .enter(source)
            .map_err(|refused| self.refuse(refused))?;
        Ok(Handshake(Admitted {
            gate: Arc::clone(self),
            source,
            open: false,
            taken,
        }))
    }

    /// Counts a refusal in the metrics.
    pub(crate) fn refuse(&self, refused: Refused) -> Refused {
        self.metrics
            .connection_refused(self.listener, refused.as_str());
        refused
    }

    fn places(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.places.lock()
    }
}

impl ConnectionCounts {
    fn enter(&mut self, source: Source) -> Result<PoolUsage, Refused> {
        if !self.sources.count(source, 1) {
            return Err(Refused::Source);
        }
        self.handshakes
            .take(&mut self.sources, source, 1)
            .ok_or_else(|| {
                self.sources.uncount(source, 1);
                Refused::Handshakes
            })
    }

    /// Exchanges a handshake place for one of an open connection.
    fn open(&mut self, source: Source, handshake: PoolUsage) -> Option<PoolUsage> {
        let taken = self.connections.take(&mut self.sources, source, 1)?;
        self.handshakes
            .give_back(&mut self.sources, source, handshake);
        Some(taken)
    }

    fn leave(&mut self, source: Source, open: bool, taken: PoolUsage) {
        let pool = if open {
            &mut self.connections
        } else {
            &mut self.handshakes
        };
        pool.give_back(&mut self.sources, source, taken);
        self.sources.uncount(source, 1);
    }
}

impl Handshake {
    /// Turns the connection into an open one after its handshake.
    pub(crate) fn done(self) -> Result<OpenConnection, Refused> {
        let Self(mut admitted) = self;
        let gate = Arc::clone(&admitted.gate);
        let taken = gate.places().open(admitted.source, admitted.taken);
        let taken = taken.ok_or_else(|| gate.refuse(Refused::Connections))?;
        (admitted.open, admitted.taken) = (true, taken);
        gate.metrics.connection_opened(gate.listener);
        Ok(OpenConnection(admitted))
    }
}

impl OpenConnection {
    /// Counts that Keyferry ended the connection, by reason.
    pub(crate) fn ended(&self, reason: &'static str) {
        self.0
            .gate
            .metrics
            .connection_ended(self.0.gate.listener, reason);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.gate.places().leave(self.source, self.open, self.taken);
        if self.open {
            self.gate.metrics.connection_closed(self.gate.listener);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::{ConnectionLimits, Gate, Refused};
    use crate::listener::tests::CountedMetrics;
    use crate::source::Source;

    fn gate(connections: u32, handshakes: u32, per_source: u32) -> Arc<Gate> {
        counted_gate(connections, handshakes, per_source, Arc::default())
    }

    fn counted_gate(
        connections: u32,
        handshakes: u32,
        per_source: u32,
        metrics: Arc<CountedMetrics>,
    ) -> Arc<Gate> {
        Gate::new(
            "api",
            ConnectionLimits {
                connections,
                handshakes,
                per_source: NonZeroU32::new(per_source),
            },
            metrics,
        )
    }

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn one_source_takes_its_share_and_no_more() {
        let gate = gate(100, 100, 2);
        let (handshake, open) = (
            gate.enter(source(1)).ok().unwrap(),
            gate.enter(source(1)).ok().unwrap().done().ok().unwrap(),
        );
        assert_eq!(
            gate.enter(source(1)).err(),
            Some(Refused::Source),
            "a handshake and a connection are two"
        );
        assert!(gate.enter(source(2)).is_ok());
        drop(handshake);
        assert!(gate.enter(source(1)).is_ok());
        drop(open);
        assert!(
            gate.places().sources.len() == 0,
            "a source without connections is forgotten"
        );
    }

    #[test]
    fn unfinished_handshakes_take_no_place_of_a_connection() {
        let metrics = Arc::<CountedMetrics>::default();
        let gate = counted_gate(1, 2, 0, Arc::clone(&metrics));
        let half_open: Vec<_> = (1..=2)
            .map(|last| gate.enter(source(last)).ok().unwrap())
            .collect();
        assert_eq!(gate.enter(source(3)).err(), Some(Refused::Handshakes));
        drop(half_open);
        let open = gate.enter(source(3)).ok().unwrap().done().ok().unwrap();
        assert_eq!(
            gate.enter(source(4)).ok().unwrap().done().err(),
            Some(Refused::Connections)
        );
        drop(open);
        assert!(gate.enter(source(4)).ok().unwrap().done().is_ok());
        for cause in ["handshakes_full", "connections_full"] {
            assert_eq!(
                metrics.count(&format!("api refused: {cause}")),
                1,
                "{cause}"
            );
        }
        assert_eq!(metrics.count("api open"), 0);
    }

    #[test]
    fn without_a_bound_a_source_may_take_everything() {
        let gate = gate(3, 3, 0);
        let all: Vec<_> = (0..3)
            .map(|_| gate.enter(source(1)).ok().unwrap().done().ok().unwrap())
            .collect();
        assert_eq!((all.len(), gate.places().sources.len()), (3, 0));
    }

    /// Sixteen addresses at their limit fill the API listener, and eight fill the other one.
    #[test]
    fn a_few_addresses_that_hold_all_they_may_keep_nobody_else_out() {
        for (connections, addresses) in [(4096, 16), (2048, 8)] {
            let gate = gate(connections, 1024, 256);
            let open = |last| {
                gate.enter(source(last))
                    .and_then(|handshake| handshake.done())
            };
            let held: Vec<_> = (0..addresses)
                .flat_map(|last| (0..256).map(move |_| last))
                .map(open)
                .collect();
            assert!(held.iter().filter(|one| one.is_ok()).count() >= connections as usize * 3 / 4);
            assert!(open(200).is_ok(), "{connections} connections");
        }
    }

    #[test]
    fn half_open_connections_of_a_few_addresses_keep_nobody_else_out() {
        let gate = gate(4096, 1024, 256);
        let held: Vec<_> = (0..8)
            .flat_map(|last| (0..256).map(move |_| last))
            .map(|last| gate.enter(source(last)))
            .collect();
        assert!(held.iter().filter(|one| one.is_ok()).count() >= 768);
        assert!(gate.enter(source(200)).is_ok());
    }

    #[test]
    fn an_ipv6_address_locks_out_no_neighbour_and_a_whole_network_not_everybody() {
        let gate = gate(4096, 4096, 256);
        let of = |host: u16| {
            Source::of(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
        };
        let mut held: Vec<_> = (0..257).map(|_| gate.enter(of(1))).collect();
        assert_eq!(held.pop().unwrap().err(), Some(Refused::Source));
        assert!(
            gate.enter(of(2)).is_ok(),
            "its neighbour in the /64 is served"
        );
        held.extend((2..3000).map(|host| gate.enter(of(host))));
        assert_eq!(
            held.iter().filter(|one| one.is_ok()).count(),
            2048,
            "eight times 256"
        );
        assert!(gate.enter(source(1)).is_ok());
    }
}
