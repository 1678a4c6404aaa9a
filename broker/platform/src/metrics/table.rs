//! The macro and the types of a table of metrics. A metric's name, labels and help stand in one
//! place: it is registered from there, and docs/reference/api.md is printed from there.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::MappedRwLockReadGuard;
use prometheus_client::encoding::{EncodeLabelValue, EncodeMetric};
use prometheus_client::metrics::counter::Counter as PrometheusCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as PrometheusGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

/// What all names begin with.
pub(super) const PREFIX: &str = "keyferry";

/// What a metric is called, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name, as a scrape shows it.
    pub name: String,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, without a full stop.
    pub help: &'static str,
}

/// A number that only grows.
pub(super) type Counter = PrometheusCounter<u64, AtomicU64>;
/// A number that is set.
pub(super) type Gauge = PrometheusGauge<i64, AtomicI64>;
/// Counters, one for each combination of labels.
pub(super) type Counters = Series<Counter, &'static str>;
/// Gauges, one for each combination of labels, which are from fixed sets.
pub(super) type Gauges = Series<Gauge, &'static str>;
/// Gauges, one for each combination of labels, which others choose.
pub(super) type NamedGauges = Series<Gauge, String>;

type Labels<V> = Vec<(&'static str, V)>;

/// Metrics of one name that differ in their labels. A clone updates the same ones.
#[derive(Clone)]
pub(super) struct Series<M, V> {
    labels: &'static [&'static str],
    family: Family<Labels<V>, M>,
}

impl<M, V: Clone + Eq + Hash> Series<M, V> {
    /// Returns the metric with these values of the labels, in the order of the table.
    pub(super) fn of<const N: usize>(&self, values: [V; N]) -> MappedRwLockReadGuard<'_, M> {
        self.family.get_or_create(&self.labelled(values))
    }

    /// Removes the metric with these values of the labels.
    pub(super) fn remove<const N: usize>(&self, values: [V; N]) {
        self.family.remove(&self.labelled(values));
    }

    fn labelled<const N: usize>(&self, values: [V; N]) -> Labels<V> {
        debug_assert_eq!(
            self.labels.len(),
            N,
            "a value for each of {:?}",
            self.labels
        );
        self.labels.iter().copied().zip(values).collect()
    }
}

/// A type of metrics that can be in the table.
pub(super) trait TableMetric {
    /// Creates the metric and registers it.
    fn register(
        registry: &mut Registry,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self;

    /// The name with what an exposition adds to it.
    fn exposed_name(name: &str) -> String;
}

/// A metric that is created without arguments.
pub(super) trait NewMetric:
    EncodeMetric + TypedMetric + Debug + Send + Sync + 'static
{
    /// Creates the metric.
    fn create() -> Self;
}

impl NewMetric for Counter {
    fn create() -> Self {
        Self::default()
    }
}

impl NewMetric for Gauge {
    fn create() -> Self {
        Self::default()
    }
}

impl NewMetric for Histogram {
    /// Buckets from a hub on the same machine up to a call that waits first and then ends at its
    /// deadline of 5 s.
    fn create() -> Self {
        Self::new([
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ])
    }
}

fn exposed_name(name: &str, kind: MetricType) -> String {
    let suffix = match kind {
        MetricType::Counter => "_total",
        _ => "",
    };
    format!("{PREFIX}_{name}{suffix}")
}

impl<M, V> TableMetric for Series<M, V>
where
    M: NewMetric,
    V: EncodeLabelValue + Clone + Debug + Eq + Hash + Send + Sync + 'static,
{
    fn register(
        registry: &mut Registry,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        let family: Family<Labels<V>, M> = Family::new_with_constructor(M::create as fn() -> M);
        registry.register(name, help, family.clone());
        Self { labels, family }
    }

    fn exposed_name(name: &str) -> String {
        exposed_name(name, M::TYPE)
    }
}

impl TableMetric for Gauge {
    fn register(
        registry: &mut Registry,
        name: &'static str,
        _: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        let gauge = Self::default();
        registry.register(name, help, gauge.clone());
        gauge
    }

    fn exposed_name(name: &str) -> String {
        exposed_name(name, Self::TYPE)
    }
}

/// Defines a struct of metrics: `field: type = "name" ["label"…] "help",`.
macro_rules! metrics {
    ($(#[$meta:meta])* $table:ident {
        $($field:ident: $type:ty = $name:literal [$($label:literal),*] $help:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub(in crate::metrics) struct $table {
            $(pub(in crate::metrics) $field: $type),*
        }

        impl $table {
            /// Creates the metrics and registers them.
            pub(in crate::metrics) fn register(registry: &mut prometheus_client::registry::Registry) -> Self {
                use crate::metrics::table::TableMetric;
                Self {
                    $($field: <$type>::register(registry, $name, &[$($label),*], $help)),*
                }
            }

            /// Describes the metrics.
            pub(in crate::metrics) fn describe() -> Vec<crate::metrics::table::MetricDescription> {
                use crate::metrics::table::TableMetric;
                vec![$(crate::metrics::table::MetricDescription {
                    name: <$type>::exposed_name($name),
                    labels: &[$($label),*],
                    help: $help,
                }),*]
            }
        }
    };
}

pub(super) use metrics;
