//! Checks whether Go accepts the numbers of a private RSA key, as `rsa.PrivateKey.Validate` does.
//! Private keys appear in a public key set only by a foreign mistake, and nothing else is computed
//! with them.

use super::rsa::RsaKey;

/// The longest number that is judged, in bytes: the work grows with the square of the length.
const MAX_BYTES: usize = 1024;

/// Whether Go accepts a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Taken,
    Refused(&'static str),
    /// Releases of Go differ, or the numbers are too long.
    Unsure,
}

/// The numbers of a private key besides the public ones, big-endian.
pub(super) struct PrivateNumbers<'a> {
    pub(super) d: &'a [u8],
    pub(super) p: &'a [u8],
    pub(super) q: &'a [u8],
    /// `dp`, `dq` and `qi`, where all three are given.
    pub(super) precomputed: Option<[&'a [u8]; 3]>,
}

/// Judges a private key by its numbers.
pub(super) fn judge(public: &RsaKey, private: &PrivateNumbers<'_>) -> Judgement {
    let lengths = [
        public.modulus.len(),
        private.d.len(),
        private.p.len(),
        private.q.len(),
    ];
    let further = private
        .precomputed
        .iter()
        .flatten()
        .map(|number| number.len());
    if lengths
        .into_iter()
        .chain(further)
        .any(|length| length > MAX_BYTES)
    {
        return Judgement::Unsure;
    }
    let [n, d, p, q] = [&public.modulus, private.d, private.p, private.q].map(Number::read);
    if p.product(&q) != n {
        return Judgement::Refused("crypto/rsa: p * q != n");
    }
    let (Some(p_less), Some(q_less)) = (p.decrement(), q.decrement()) else {
        return Judgement::Unsure;
    };
    // Go checks these too since 1.24.
    let exponent = u32::try_from(public.exponent)
        .ok()
        .filter(|e| *e > 1 && e % 2 == 1 && i32::try_from(*e).is_ok());
    let (Some(exponent), false, true) = (exponent, p.is_even() || q.is_even(), d.less(&n)) else {
        return Judgement::Unsure;
    };
    if [&p, &q].into_iter().any(|prime| prime.bits() < 3) {
        return Judgement::Unsure;
    }
    let power = d.product(&Number::from(exponent));
    if [&p_less, &q_less]
        .into_iter()
        .any(|order| power.remainder(order) != Number::from(1))
    {
        return Judgement::Refused("crypto/rsa: invalid exponents");
    }
    let apart = p.difference(&q).bits() + 100 > n.bits() / 2 && p != q;
    let long = d.bits() > n.bits() / 2;
    // Go raises q to p - 2 to find its inverse, which works for primes only. Primality is not
    // tested here.
    let fits = private.precomputed.is_none_or(|numbers| {
        let [dp, dq, qi] = numbers.map(Number::read);
        dp == d.remainder(&p_less)
            && dq == d.remainder(&q_less)
            && qi.less(&p)
            && qi.product(&q).remainder(&p) == Number::from(1)
    });
    if apart && long && fits {
        Judgement::Taken
    } else {
        Judgement::Unsure
    }
}

/// A natural number in little-endian digits of 32 bits, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Number(Vec<u32>);

impl From<u32> for Number {
    fn from(digit: u32) -> Self {
        Self(vec![digit]).trimmed()
    }
}

impl Number {
    fn read(bytes: &[u8]) -> Self {
        Self(
            bytes
                .rchunks(4)
                .map(|chunk| {
                    chunk
                        .iter()
                        .fold(0, |digit, byte| (digit << 8) | u32::from(*byte))
                })
                .collect(),
        )
        .trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn bits(&self) -> usize {
        self.0
            .last()
            .map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn is_even(&self) -> bool {
        self.0.first().is_none_or(|low| low % 2 == 0)
    }

    fn less(&self, other: &Self) -> bool {
        self.0.len() < other.0.len()
            || (self.0.len() == other.0.len() && self.0.iter().rev().lt(other.0.iter().rev()))
    }

    /// Subtracts one; `None` for zero.
    fn decrement(&self) -> Option<Self> {
        (!self.0.is_empty()).then(|| self.difference(&Self::from(1)))
    }

    /// Subtracts the smaller number from the larger one.
    fn difference(&self, other: &Self) -> Self {
        let (large, small) = if self.less(other) {
            (other, self)
        } else {
            (self, other)
        };
        let mut borrow = 0_i64;
        let digits = large
            .0
            .iter()
            .zip(small.0.iter().chain(std::iter::repeat(&0)))
            .map(|(a, b)| {
                let difference = i64::from(*a) - i64::from(*b) - borrow;
                borrow = i64::from(difference < 0);
                (difference & i64::from(u32::MAX)) as u32
            });
        Self(digits.collect()).trimmed()
    }

    fn product(&self, other: &Self) -> Self {
        let mut digits = vec![0_u32; self.0.len() + other.0.len()];
        for (place, a) in self.0.iter().enumerate() {
            let mut carry = 0_u64;
            for (digit, b) in digits
                .iter_mut()
                .skip(place)
                .zip(other.0.iter().chain(std::iter::repeat(&0)))
            {
                let sum = u64::from(*digit) + u64::from(*a) * u64::from(*b) + carry;
                *digit = sum as u32;
                carry = sum >> 32;
            }
        }
        Self(digits).trimmed()
    }

    /// Computes the remainder by long division, bit by bit.
    fn remainder(&self, modulus: &Self) -> Self {
        let mut rest = Self(Vec::new());
        for digit in self.0.iter().rev() {
            for bit in (0..32).rev() {
                let mut carry = (digit >> bit) & 1;
                for digit in &mut rest.0 {
                    let next = *digit >> 31;
                    *digit = (*digit << 1) | carry;
                    carry = next;
                }
                if carry > 0 {
                    rest.0.push(carry);
                }
                if !rest.less(modulus) {
                    rest = rest.difference(modulus);
                }
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: u128) -> Number {
        Number::read(&value.to_be_bytes())
    }

    #[test]
    fn arithmetic_is_that_of_numbers() {
        let samples = [
            0_u128,
            1,
            2,
            5,
            0xffff_ffff,
            0x1_0000_0000,
            0xffff_ffff_ffff_ffff,
            0xfedc_ba98_7654_3210,
        ];
        for a in samples {
            for b in samples {
                assert_eq!(number(a).product(&number(b)), number(a * b));
                assert_eq!(number(a).difference(&number(b)), number(a.abs_diff(b)));
                assert_eq!(number(a).less(&number(b)), a < b);
                if b > 0 {
                    assert_eq!(
                        number(a * 7 + 3).remainder(&number(b)),
                        number((a * 7 + 3) % b)
                    );
                }
            }
            assert_eq!(number(a).bits(), 128 - a.leading_zeros() as usize);
            assert_eq!(number(a).is_even(), a % 2 == 0);
        }
        assert_eq!(number(0).decrement(), None);
        assert_eq!(number(0x1_0000_0000).decrement(), Some(number(0xffff_ffff)));
    }
}
