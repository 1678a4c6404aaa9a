//! Summarises several rounds in three numbers.

/// The minimum, the median and the maximum of some numbers.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The minimum.
    pub least: f64,
    /// The median; with an even count, the upper of the two.
    pub median: f64,
    /// The maximum.
    pub most: f64,
}

impl Spread {
    /// The spread of these numbers; `None` if there are none.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            least: *sorted.first()?,
            median: *sorted.get(sorted.len() / 2)?,
            most: *sorted.last()?,
        })
    }

    /// The spread of the ratios of a subject's figures to its peer's, round by round. A round that
    /// lacks one of them does not count.
    pub fn of_ratios<'a, T: 'a>(
        own: impl IntoIterator<Item = &'a T>,
        peer: impl IntoIterator<Item = &'a T>,
        figure: impl Fn(&T) -> Option<f64>,
    ) -> Option<Self> {
        let rounds = own.into_iter().zip(peer);
        Self::of(rounds.filter_map(|(own, peer)| Some(figure(own)? / figure(peer)?)))
    }
}
