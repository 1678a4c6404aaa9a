//! Limits connections per source, in their handshake, and in all.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::metrics::ListenerMetrics;
use crate::rate::Rates;
use crate::shares::{Limits, Pool, PoolUsage, Sources};
use crate::source::Source;

/// Sources with at most this many connections may use the places that are reserved for small
/// sources.
const SMALL_SOURCE_CONNECTIONS: u32 = 8;
/// How many handshakes one source may begin in a second, after a burst of three times as many: each
/// costs a signature, and with a client certificate up to four verifications. A node whose Pods
/// share an address needs a few a second, because clients keep their connections.
const MAX_HANDSHAKES_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// How many requests of one source are read in a second, after a burst of [`REQUEST_BURST`]. A
/// request waits for a core behind all that arrived before it from any client, so one that sends as
/// fast as it can would delay all others. A workload needs a request in some minutes.
const MAX_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(500).unwrap();
/// One for each connection that a source may have by default.
const REQUEST_BURST: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// The longest pause of a connection, for clients that share the address of a flood. It is enough
/// for eight requests on each connection that a source may have by default.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(5);
/// All addresses of one /64 together have this many times as much, as with connections.
const NETWORK_FACTOR: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// Why a connection is not served. It is closed without a response, because a response would need
/// the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The source has reached its connection limit.
    Source,
    /// The source begins too many handshakes a second.
    HandshakeRate,
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
            Self::HandshakeRate => "handshake_rate",
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
    /// With `None`, sources are not counted, nothing is reserved, and handshakes and requests have no
    /// rate.
    pub(crate) per_source: Option<NonZeroU32>,
}

/// Admits the connections of one listener.
pub(crate) struct Gate {
    listener: &'static str,
    metrics: Arc<dyn ListenerMetrics>,
    counts: Mutex<ConnectionCounts>,
    rates: Option<GateRates>,
    started: tokio::time::Instant,
}

/// How often sources do what costs the server time.
struct GateRates {
    handshakes: SourceRates,
    requests: SourceRates,
}

/// Rates of sources, and of the /64 of each IPv6 address.
struct SourceRates {
    sources: Rates<Source>,
    networks: Rates<Source>,
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
        let sources = Sources::new(room.per_source.map(|most| {
            Limits::per_source(most.get(), room.connections, SMALL_SOURCE_CONNECTIONS)
        }));
        let (connections, handshakes) = (
            Pool::of(room.connections, &sources),
            Pool::of(room.handshakes, &sources),
        );
        Arc::new(Self {
            listener,
            metrics,
            counts: Mutex::new(ConnectionCounts {
                sources,
                connections,
                handshakes,
            }),
            rates: room.per_source.map(|_| GateRates::default()),
            started: tokio::time::Instant::now(),
        })
    }

    /// Admits a connection to its handshake.
    pub(crate) fn admit_connection(self: &Arc<Self>, source: Source) -> Result<Handshake, Refused> {
        let taken = self
            .lock_counts()
            .enter_handshake(source)
            .map_err(|refused| self.count_refusal(refused))?;
        let admitted = Admitted {
            gate: Arc::clone(self),
            source,
            open: false,
            taken,
        };
        // Counted last, so that a connection that is refused anyway uses up nothing.
        if let Some(rates) = &self.rates
            && !rates.handshakes.take_token(source, self.started.elapsed())
        {
            return Err(self.count_refusal(Refused::HandshakeRate));
        }
        Ok(Handshake(admitted))
    }

    /// Counts a request of a source, and returns for how long no further one may be served on its
    /// connection.
    pub(crate) fn count_request(&self, source: Source) -> Duration {
        let pause = self.rates.as_ref().map_or(Duration::ZERO, |rates| {
            rates
                .requests
                .wait_for_token(source, self.started.elapsed())
        });
        if !pause.is_zero() {
            self.metrics.connection_paused(self.listener);
        }
        pause
    }

    /// Counts a refusal in the metrics.
    pub(crate) fn count_refusal(&self, refused: Refused) -> Refused {
        self.metrics
            .connection_refused(self.listener, refused.as_str());
        refused
    }

    fn lock_counts(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock()
    }
}

impl Default for GateRates {
    fn default() -> Self {
        let network = |rate: NonZeroU32| rate.saturating_mul(NETWORK_FACTOR);
        let requests = |factor: fn(NonZeroU32) -> NonZeroU32| {
            Rates::with_burst(factor(MAX_REQUESTS_PER_SECOND), factor(REQUEST_BURST))
        };
        Self {
            handshakes: SourceRates {
                sources: Rates::new(MAX_HANDSHAKES_PER_SECOND),
                networks: Rates::new(network(MAX_HANDSHAKES_PER_SECOND)),
            },
            requests: SourceRates {
                sources: requests(|rate| rate),
                networks: requests(network),
            },
        }
    }
}

impl SourceRates {
    /// Takes a token of a source, and of its /64 for a single IPv6 address. Returns whether both had
    /// one. `now` is the monotonic time.
    fn take_token(&self, source: Source, now: Duration) -> bool {
        let network = network_of(source);
        // Checked first, so that a host with a whole /64 cannot fill memory with addresses.
        network.is_none_or(|network| self.networks.has_token(&network, now))
            && self.sources.take_token(source, now).is_ok()
            && network.is_none_or(|network| self.networks.take_token(network, now).is_ok())
    }

    /// Takes the next token of both, and returns how long until both have it, at most
    /// [`MAX_PAUSE`]. Only a source that began a handshake gets here, and these have a rate.
    fn wait_for_token(&self, source: Source, now: Duration) -> Duration {
        let wait = self.sources.take_within(source, now, MAX_PAUSE);
        if wait > MAX_PAUSE {
            // It took none. Its /64 gives none either, or one address would use up all of that.
            return MAX_PAUSE;
        }
        let of_network = network_of(source).map_or(Duration::ZERO, |network| {
            self.networks.take_within(network, now, MAX_PAUSE)
        });
        wait.max(of_network).min(MAX_PAUSE)
    }
}

/// The /64 of a single IPv6 address.
fn network_of(source: Source) -> Option<Source> {
    Some(source.network()).filter(|network| *network != source)
}

impl ConnectionCounts {
    fn enter_handshake(&mut self, source: Source) -> Result<PoolUsage, Refused> {
        if !self.sources.count_usage(source, 1) {
            return Err(Refused::Source);
        }
        self.handshakes
            .take_places(&mut self.sources, source, 1)
            .ok_or_else(|| {
                self.sources.undo_count(source, 1);
                Refused::Handshakes
            })
    }

    /// Exchanges a handshake place for one of an open connection.
    fn open_connection(&mut self, source: Source, handshake: PoolUsage) -> Option<PoolUsage> {
        let taken = self.connections.take_places(&mut self.sources, source, 1)?;
        self.handshakes
            .give_back(&mut self.sources, source, handshake);
        Some(taken)
    }

    fn leave_place(&mut self, source: Source, open: bool, taken: PoolUsage) {
        let pool = if open {
            &mut self.connections
        } else {
            &mut self.handshakes
        };
        pool.give_back(&mut self.sources, source, taken);
        self.sources.undo_count(source, 1);
    }
}

impl Handshake {
    /// Turns the connection into an open one after its handshake.
    pub(crate) fn into_open(self) -> Result<OpenConnection, Refused> {
        let Self(mut admitted) = self;
        let gate = Arc::clone(&admitted.gate);
        let taken = gate
            .lock_counts()
            .open_connection(admitted.source, admitted.taken);
        let taken = taken.ok_or_else(|| gate.count_refusal(Refused::Connections))?;
        (admitted.open, admitted.taken) = (true, taken);
        gate.metrics.connection_opened(gate.listener);
        Ok(OpenConnection(admitted))
    }
}

impl OpenConnection {
    /// Counts that Keyferry ended the connection, by reason.
    pub(crate) fn count_ended(&self, reason: &'static str) {
        self.0
            .gate
            .metrics
            .connection_ended(self.0.gate.listener, reason);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.gate
            .lock_counts()
            .leave_place(self.source, self.open, self.taken);
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
    use std::time::Duration;

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
        Source::of_address([192, 0, 2, last].into())
    }

    #[test]
    fn one_source_takes_its_share_and_no_more() {
        let gate = gate(100, 100, 2);
        let (handshake, open) = (
            gate.admit_connection(source(1)).ok().unwrap(),
            gate.admit_connection(source(1))
                .ok()
                .unwrap()
                .into_open()
                .ok()
                .unwrap(),
        );
        assert_eq!(
            gate.admit_connection(source(1)).err(),
            Some(Refused::Source),
            "a handshake and a connection are two"
        );
        assert!(gate.admit_connection(source(2)).is_ok());
        drop(handshake);
        assert!(gate.admit_connection(source(1)).is_ok());
        drop(open);
        assert!(
            gate.lock_counts().sources.len() == 0,
            "a source without connections is forgotten"
        );
    }

    #[test]
    fn unfinished_handshakes_take_no_place_of_a_connection() {
        let metrics = Arc::<CountedMetrics>::default();
        let gate = counted_gate(1, 2, 0, Arc::clone(&metrics));
        let half_open: Vec<_> = (1..=2)
            .map(|last| gate.admit_connection(source(last)).ok().unwrap())
            .collect();
        assert_eq!(
            gate.admit_connection(source(3)).err(),
            Some(Refused::Handshakes)
        );
        drop(half_open);
        let open = gate
            .admit_connection(source(3))
            .ok()
            .unwrap()
            .into_open()
            .ok()
            .unwrap();
        assert_eq!(
            gate.admit_connection(source(4))
                .ok()
                .unwrap()
                .into_open()
                .err(),
            Some(Refused::Connections)
        );
        drop(open);
        assert!(
            gate.admit_connection(source(4))
                .ok()
                .unwrap()
                .into_open()
                .is_ok()
        );
        for cause in ["handshakes_full", "connections_full"] {
            assert_eq!(
                metrics.count(&format!("api refused: {cause}")),
                1,
                "{cause}"
            );
        }
        assert_eq!(metrics.count("api open"), 0);
    }

    /// A client that connects, finishes the handshake and closes occupies nothing, but costs a
    /// signature each time.
    #[tokio::test(start_paused = true)]
    async fn a_source_begins_a_bounded_number_of_handshakes_a_second() {
        let metrics = Arc::<CountedMetrics>::default();
        let gate = counted_gate(4096, 1024, 256, Arc::clone(&metrics));
        let begin = |last| gate.admit_connection(source(last)).map(drop);
        let begun = |last| (0..1000).filter(|_| begin(last).is_ok()).count();
        assert_eq!(begun(1), 300, "the burst");
        assert_eq!(begin(1), Err(Refused::HandshakeRate));
        assert_eq!(begin(2), Ok(()), "another address is served");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(begun(1), 100);
        assert_eq!(metrics.count("api refused: handshake_rate"), 1601);
        assert_eq!(gate.lock_counts().sources.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_source_are_spread_over_time_and_another_source_waits_for_none() {
        let metrics = Arc::<CountedMetrics>::default();
        let gate = counted_gate(4096, 1024, 256, Arc::clone(&metrics));
        let waits: Vec<Duration> = (0..256 * 8)
            .map(|_| gate.count_request(source(1)))
            .collect();
        let within = |limit| waits.iter().filter(|wait| **wait <= limit).count();
        assert_eq!(
            (within(Duration::ZERO), within(Duration::from_secs(1))),
            (256, 756)
        );
        assert!(waits.is_sorted() && within(Duration::from_millis(3584)) == waits.len());
        assert_eq!(metrics.count("api paused"), 256 * 7);
        assert_eq!(gate.count_request(source(2)), Duration::ZERO);
        for _ in 0..10_000 {
            assert!(gate.count_request(source(1)) <= super::MAX_PAUSE);
        }
        tokio::time::advance(super::MAX_PAUSE + Duration::from_millis(512)).await;
        assert_eq!(gate.count_request(source(1)), Duration::ZERO, "it recovers");
        let uncounted = self::gate(4096, 1024, 0);
        assert!((0..10_000).all(|_| uncounted.count_request(source(1)).is_zero()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_use_up_the_requests_of_its_ipv6_network() {
        let gate = gate(4096, 1024, 256);
        let of = |host: u16| {
            Source::of_address(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
        };
        for _ in 0..50_000 {
            gate.count_request(of(1));
        }
        assert_eq!(gate.count_request(of(1)), super::MAX_PAUSE);
        let other = gate.count_request(of(2));
        assert!(
            other < Duration::from_millis(200),
            "what the first waits for counts too: {other:?}"
        );
        let waits = (3..1000).map(|host| (0..50).map(|_| gate.count_request(of(host))).max());
        assert!(
            waits.max().flatten() > Some(Duration::from_secs(4)),
            "all together have a rate"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_ipv6_network_begins_a_bounded_number_of_handshakes() {
        let gate = gate(4096, 1024, 256);
        let of = |host: u16| {
            Source::of_address(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
        };
        let begun = (0..10_000).filter(|host| gate.admit_connection(of(*host)).is_ok());
        assert_eq!(begun.count(), 2400);
    }

    #[test]
    fn without_a_bound_a_source_may_take_everything() {
        let gate = gate(3, 3, 0);
        let all: Vec<_> = (0..3)
            .map(|_| {
                gate.admit_connection(source(1))
                    .ok()
                    .unwrap()
                    .into_open()
                    .ok()
                    .unwrap()
            })
            .collect();
        assert_eq!((all.len(), gate.lock_counts().sources.len()), (3, 0));
    }

    /// Sixteen addresses at their limit fill the API listener, and eight fill the other one.
    #[test]
    fn a_few_addresses_that_hold_all_they_may_keep_nobody_else_out() {
        for (connections, addresses) in [(4096, 16), (2048, 8)] {
            let gate = gate(connections, 1024, 256);
            let open = |last| {
                gate.admit_connection(source(last))
                    .and_then(|handshake| handshake.into_open())
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
            .map(|last| gate.admit_connection(source(last)))
            .collect();
        assert!(held.iter().filter(|one| one.is_ok()).count() >= 768);
        assert!(gate.admit_connection(source(200)).is_ok());
    }

    #[test]
    fn an_ipv6_address_locks_out_no_neighbour_and_a_whole_network_not_everybody() {
        let gate = gate(4096, 4096, 256);
        let of = |host: u16| {
            Source::of_address(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
        };
        let mut held: Vec<_> = (0..257).map(|_| gate.admit_connection(of(1))).collect();
        assert_eq!(held.pop().unwrap().err(), Some(Refused::Source));
        assert!(
            gate.admit_connection(of(2)).is_ok(),
            "its neighbour in the /64 is served"
        );
        held.extend((2..3000).map(|host| gate.admit_connection(of(host))));
        assert_eq!(
            held.iter().filter(|one| one.is_ok()).count(),
            2048,
            "eight times 256"
        );
        assert!(gate.admit_connection(source(1)).is_ok());
    }
}
