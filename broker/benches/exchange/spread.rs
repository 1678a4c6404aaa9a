//! Several rounds in three numbers.

/// The least, the middle and the most of some numbers.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The one in the middle, the upper one of two.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Nothing if there are no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            least: *sorted.first()?,
            median: *sorted.get(sorted.len() / 2)?,
            most: *sorted.last()?,
        })
    }
}
