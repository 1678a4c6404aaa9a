//! The metrics of the listeners: open, refused and ended connections, and the expiry of their
//! certificates.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Labels, result};

/// Counters and gauges by listener: `api`, `discovery` or `health`.
#[derive(Clone)]
pub(super) struct Connections {
    open: Family<Labels, Gauge<i64, AtomicI64>>,
    refused: Family<Labels, Counter<u64, AtomicU64>>,
    ended: Family<Labels, Counter<u64, AtomicU64>>,
    reloads: Family<Labels, Counter<u64, AtomicU64>>,
    not_after: Family<Labels, Gauge<i64, AtomicI64>>,
    authority_reloads: Family<Labels, Counter<u64, AtomicU64>>,
    authority_not_after: Family<Labels, Gauge<i64, AtomicI64>>,
}

impl Connections {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let open = Family::default();
        registry.register(
            "connections_open",
            "Connections that are open, by listener",
            open.clone(),
        );
        let refused = Family::default();
        registry.register(
            "connections_refused",
            "Connections that were not served, by listener and cause",
            refused.clone(),
        );
        let ended = Family::default();
        registry.register(
            "connections_ended",
            "Connections that Keyferry closed, by listener and reason",
            ended.clone(),
        );
        let reloads = Family::default();
        registry.register(
            "serving_certificate_reloads",
            "Reloads of a changed serving certificate, by listener and result",
            reloads.clone(),
        );
        let not_after = Family::default();
        registry.register(
            "serving_certificate_not_after_timestamp_seconds",
            "When the serving certificate in use expires, by listener",
            not_after.clone(),
        );
        let authority_reloads = Family::default();
        registry.register(
            "caller_authority_reloads",
            "Reloads of a changed CA of callers' client certificates, by result",
            authority_reloads.clone(),
        );
        // A family, so that a server without such a CA has no sample.
        let authority_not_after = Family::default();
        registry.register(
            "caller_authority_not_after_timestamp_seconds",
            "When the first CA of callers' client certificates in use expires",
            authority_not_after.clone(),
        );
        Self {
            open,
            refused,
            ended,
            reloads,
            not_after,
            authority_reloads,
            authority_not_after,
        }
    }

    pub(super) fn refused(&self, listener: &'static str, cause: &'static str) {
        self.refused
            .get_or_create(&vec![("listener", listener), ("cause", cause)])
            .inc();
    }

    pub(super) fn ended(&self, listener: &'static str, cause: &'static str) {
        self.ended
            .get_or_create(&vec![("listener", listener), ("cause", cause)])
            .inc();
    }

    pub(super) fn opened(&self, listener: &'static str) {
        self.open.get_or_create(&vec![("listener", listener)]).inc();
    }

    pub(super) fn closed(&self, listener: &'static str) {
        self.open.get_or_create(&vec![("listener", listener)]).dec();
    }

    pub(super) fn reloaded(&self, listener: &'static str, good: bool) {
        self.reloads
            .get_or_create(&vec![("listener", listener), ("result", result(good))])
            .inc();
    }

    pub(super) fn authority_reloaded(&self, good: bool) {
        self.authority_reloads
            .get_or_create(&vec![("result", result(good))])
            .inc();
    }

    pub(super) fn authority(&self, not_after: i64) {
        self.authority_not_after
            .get_or_create(&vec![("listener", "api")])
            .set(not_after);
    }

    pub(super) fn certificate(&self, listener: &'static str, not_after: i64) {
        self.not_after
            .get_or_create(&vec![("listener", listener)])
            .set(not_after);
    }
}
