//! The distribution of one figure over many runs.

use super::chart::Bar;
use super::spread::Spread;

/// The figures of all runs, sorted.
pub struct Distribution(Vec<f64>);

impl Distribution {
    /// The titles of the columns of [`Self::cells`].
    pub const HEAD: [&'static str; 5] = ["min", "p50", "p90", "p99", "max"];

    /// The distribution of these figures, in any order.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self(sorted)
    }

    /// The smallest figure that at least this share of the runs does not exceed (nearest rank); NaN
    /// without runs.
    pub fn at(&self, share: f64) -> f64 {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        let figure = self.0.get(rank.saturating_sub(1));
        figure.copied().unwrap_or(f64::NAN)
    }

    /// The minimum, three percentiles and the maximum, as cells of a table.
    pub fn cells(&self, decimals: usize) -> impl Iterator<Item = String> {
        [0.0, 0.5, 0.9, 0.99, 1.0]
            .map(|share| format!("{:.decimals$}", self.at(share)))
            .into_iter()
    }

    /// The number of runs above a bound.
    pub fn count_above(&self, bound: f64) -> usize {
        self.0.iter().filter(|figure| **figure > bound).count()
    }

    /// The bar of a chart: the median, from the minimum to the maximum, with marks at the other
    /// percentiles.
    pub fn bar(&self, name: &'static str) -> Bar {
        Bar {
            name,
            spread: Spread {
                least: self.at(0.0),
                median: self.at(0.5),
                most: self.at(1.0),
            },
            marks: vec![self.at(0.9), self.at(0.99)],
            is_peer: false,
        }
    }
}
