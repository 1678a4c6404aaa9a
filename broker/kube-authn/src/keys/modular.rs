//! Computes one power modulo an odd number, of public values, in Montgomery form.

/// Computes `base` to the `exponent` modulo `modulus`, as long as the modulus. All numbers are
/// big-endian. Returns `None` if `base` is not below the modulus.
pub(super) fn modular_power(base: &[u8], exponent: u64, modulus: &[u8]) -> Option<Vec<u8>> {
    let length = modulus.len().div_ceil(8);
    let modulus_limbs = split_limbs(modulus, length);
    let base_limbs = split_limbs(base, length);
    let low = *modulus_limbs.first()?;
    if low % 2 == 0 || !is_less(&base_limbs, &modulus_limbs) {
        return None;
    }
    let form = Form {
        inverse: negative_inverse(low),
        modulus: modulus_limbs,
    };
    let mut one = vec![0; length];
    *one.first_mut()? = 1;
    let square = form.double_repeatedly(one.clone(), 2 * 64 * length);
    let base = form.multiply(&base_limbs, &square);
    let mut result = form.multiply(&one, &square);
    for bit in (0..64 - exponent.leading_zeros()).rev() {
        result = form.multiply(&result, &result);
        if (exponent >> bit) & 1 == 1 {
            result = form.multiply(&result, &base);
        }
    }
    let result = form.multiply(&result, &one);
    let bytes: Vec<u8> = result
        .iter()
        .rev()
        .flat_map(|limb| limb.to_be_bytes())
        .collect();
    let surplus = bytes.len() - modulus.len();
    bytes.get(surplus..).map(<[u8]>::to_vec)
}

struct Form {
    modulus: Vec<u64>,
    /// Minus the inverse of the modulus, modulo 2^64.
    inverse: u64,
}

impl Form {
    /// Computes `a * b / 2^(64 * length)` modulo the modulus.
    fn multiply(&self, a: &[u64], b: &[u64]) -> Vec<u64> {
        let length = self.modulus.len();
        let mut sum = vec![0_u64; length + 2];
        for a in a {
            add_product(&mut sum, *a, b);
            let factor = sum.first().copied().unwrap_or(0).wrapping_mul(self.inverse);
            add_product(&mut sum, factor, &self.modulus);
            sum.rotate_left(1);
            if let Some(top) = sum.last_mut() {
                *top = 0;
            }
        }
        self.reduce(&mut sum);
        sum.truncate(length);
        sum
    }

    /// Subtracts the modulus once, if the number is not below it.
    fn reduce(&self, number: &mut [u64]) {
        let length = self.modulus.len();
        let above = number.iter().skip(length).any(|limb| *limb != 0);
        if !above && is_less(number.get(..length).unwrap_or_default(), &self.modulus) {
            return;
        }
        let mut borrow = false;
        for (limb, other) in number
            .iter_mut()
            .zip(self.modulus.iter().copied().chain(std::iter::repeat(0)))
        {
            let (first, under) = limb.overflowing_sub(other);
            let (second, under_again) = first.overflowing_sub(u64::from(borrow));
            *limb = second;
            borrow = under || under_again;
        }
    }

    fn double_repeatedly(&self, mut number: Vec<u64>, times: usize) -> Vec<u64> {
        number.push(0);
        for _ in 0..times {
            let mut carry = 0;
            for limb in &mut number {
                let next = *limb >> 63;
                *limb = (*limb << 1) | carry;
                carry = next;
            }
            self.reduce(&mut number);
        }
        number.pop();
        number
    }
}

fn add_product(sum: &mut [u64], factor: u64, limbs: &[u64]) {
    let mut carry = 0_u128;
    for (limb, other) in sum
        .iter_mut()
        .zip(limbs.iter().copied().chain(std::iter::repeat(0)))
    {
        let total = u128::from(*limb) + u128::from(factor) * u128::from(other) + carry;
        *limb = total as u64;
        carry = total >> 64;
    }
}

fn negative_inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg()
}

/// Splits a big-endian number into little-endian limbs.
fn split_limbs(bytes: &[u8], length: usize) -> Vec<u64> {
    let mut out: Vec<u64> = bytes
        .rchunks(8)
        .map(|chunk| {
            chunk
                .iter()
                .fold(0, |limb, byte| (limb << 8) | u64::from(*byte))
        })
        .collect();
    out.resize(length.max(out.len()), 0);
    out
}

fn is_less(a: &[u64], b: &[u64]) -> bool {
    a.iter().rev().lt(b.iter().rev())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_small_and_long_numbers() {
        assert_eq!(
            modular_power(&[4], 13, &[0x01, 0xf1]).unwrap(),
            [0x01, 0xbd],
            "4^13 mod 497 = 445"
        );
        // By Fermat, a^(p-1) = 1 modulo the prime 2^61 - 1.
        let prime = (u64::pow(2, 61) - 1).to_be_bytes();
        assert_eq!(
            modular_power(&[7], u64::pow(2, 61) - 2, &prime).unwrap(),
            [0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert!(modular_power(&[2], 3, &[8]).is_none() && modular_power(&[9], 3, &[9]).is_none());
        // (2^64 + 1)^2 modulo 2^128 - 159 = 2^65 + 160.
        let modulus = (u128::MAX - 158).to_be_bytes();
        let base = ((1_u128 << 64) + 1).to_be_bytes();
        assert_eq!(
            modular_power(&base, 2, &modulus).unwrap(),
            ((1_u128 << 65) + 160).to_be_bytes()
        );
    }
}
