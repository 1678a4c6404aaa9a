//! Computes with natural numbers of any length. Nothing here is secret, and nothing takes constant
//! time.

/// A natural number in little-endian digits of 32 bits, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Natural(Vec<u32>);

impl From<u32> for Natural {
    fn from(digit: u32) -> Self {
        Self(vec![digit]).trimmed()
    }
}

impl Natural {
    /// Reads big-endian bytes.
    pub fn read(bytes: &[u8]) -> Self {
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

    /// The number of bits, without leading zeros.
    pub fn bits(&self) -> usize {
        self.0
            .last()
            .map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    /// Whether it is divisible by two.
    pub fn is_even(&self) -> bool {
        self.0.first().is_none_or(|low| low % 2 == 0)
    }

    /// Whether it is less than the other number.
    pub fn less(&self, other: &Self) -> bool {
        self.0.len() < other.0.len()
            || (self.0.len() == other.0.len() && self.0.iter().rev().lt(other.0.iter().rev()))
    }

    /// Subtracts one; `None` for zero.
    pub fn decrement(&self) -> Option<Self> {
        (!self.0.is_empty()).then(|| self.difference(&Self::from(1)))
    }

    /// Subtracts the smaller number from the larger one.
    pub fn difference(&self, other: &Self) -> Self {
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

    /// Reads a hexadecimal number; anything that is no digit is skipped.
    pub fn from_hex(text: &str) -> Self {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        let bytes: Vec<u8> = digits
            .rchunks(2)
            .rev()
            .map(|pair| pair.iter().fold(0, |byte, digit| (byte << 4) | digit))
            .collect();
        Self::read(&bytes)
    }

    /// Adds two numbers.
    pub fn sum(&self, other: &Self) -> Self {
        let length = self.0.len().max(other.0.len()) + 1;
        let mut carry = 0_u64;
        let digits = self
            .0
            .iter()
            .chain(std::iter::repeat(&0))
            .zip(other.0.iter().chain(std::iter::repeat(&0)))
            .take(length)
            .map(|(a, b)| {
                carry += u64::from(*a) + u64::from(*b);
                let digit = carry as u32;
                carry >>= 32;
                digit
            });
        Self(digits.collect()).trimmed()
    }

    /// Multiplies two numbers.
    pub fn product(&self, other: &Self) -> Self {
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
    pub fn remainder(&self, modulus: &Self) -> Self {
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

    fn number(value: u128) -> Natural {
        Natural::read(&value.to_be_bytes())
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
                assert_eq!(number(a).sum(&number(b)), number(a + b));
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
        assert_eq!(Natural::from_hex("1 0000 0001"), number(0x1_0000_0001));
        assert_eq!(number(0).decrement(), None);
        assert_eq!(number(0x1_0000_0000).decrement(), Some(number(0xffff_ffff)));
    }
}
