//! A small generator of pseudo-random numbers, so that a seed always gives the same cases.

/// SplitMix64 (Steele, Lea and Flood, 2014): every seed is good, and a new stream costs nothing.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The random stream of one case of one run.
    pub fn of(seed: u64, case: u64) -> Self {
        let mut random = Self(seed ^ case.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next_number();
        random
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.next_number() % end).unwrap_or_default()
    }

    /// True with this chance in percent.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// A random element; the slice must not be empty.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &'a [&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A random element by value; the slice must not be empty.
    pub fn pick_copied<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_a_stream() {
        let draw = |seed, case| {
            let mut random = Random::of(seed, case);
            (random.next_number(), random.below(10), random.percent(50))
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }
}
