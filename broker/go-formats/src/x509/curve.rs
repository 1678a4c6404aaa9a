//! Checks points of the NIST curves.

use std::sync::LazyLock;

use crate::natural::Natural;

/// A curve that Go's `x509` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P224,
    P256,
    P384,
    P521,
}

/// Why bytes are not a point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointFault {
    /// They do not start as an uncompressed point.
    NotUncompressed,
    /// They have another length.
    Length,
    /// A coordinate is not below the prime of the curve.
    Coordinate,
    /// The coordinates do not fulfil the equation of the curve.
    NotOnCurve,
}

struct Equation {
    prime: Natural,
    constant: Natural,
}

/// The primes and constants of SP 800-186, section 3.2.1.
static CURVE_EQUATIONS: LazyLock<[Equation; 4]> = LazyLock::new(|| {
    let numbers = [
        (
            "ffffffffffffffffffffffffffffffff000000000000000000000001",
            "b4050a850c04b3abf54132565044b0b7d7bfd8ba270b39432355ffb4",
        ),
        (
            "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
            "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
        ),
        (
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000\
             ffffffff",
            "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8ed\
             d3ec2aef",
        ),
        (
            "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
             ffffffffffffffffffffffffffffffffffffffffffff",
            "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652\
             c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
        ),
    ];
    numbers.map(|(prime, constant)| Equation {
        prime: Natural::from_hex(prime),
        constant: Natural::from_hex(constant),
    })
});

impl Curve {
    pub(super) fn from_object_identifier(numbers: &[u32]) -> Option<Self> {
        Some(match numbers {
            [1, 3, 132, 0, 33] => Self::P224,
            [1, 2, 840, 10_045, 3, 1, 7] => Self::P256,
            [1, 3, 132, 0, 34] => Self::P384,
            [1, 3, 132, 0, 35] => Self::P521,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::P224 => "P224",
            Self::P256 => "P256",
            Self::P384 => "P384",
            Self::P521 => "P521",
        }
    }

    /// The length of a coordinate in bytes.
    fn size(self) -> usize {
        match self {
            Self::P224 => 28,
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// Checks an uncompressed point: `y² = x³ - 3x + b`.
    pub(super) fn check_point(self, bytes: &[u8]) -> Result<(), PointFault> {
        let Some((4, coordinates)) = bytes.split_first() else {
            return Err(PointFault::NotUncompressed);
        };
        if coordinates.len() != 2 * self.size() {
            return Err(PointFault::Length);
        }
        let (x, y) = coordinates.split_at(self.size());
        let (x, y) = (Natural::read(x), Natural::read(y));
        let Some(Equation { prime, constant }) = CURVE_EQUATIONS.get(self as usize) else {
            return Err(PointFault::NotOnCurve);
        };
        if !x.less(prime) || !y.less(prime) {
            return Err(PointFault::Coordinate);
        }
        let square = x.product(&x).remainder(prime);
        let left = y.product(&y).sum(&x.product(&Natural::from(3)));
        let right = square.product(&x).sum(constant);
        if left.remainder(prime) == right.remainder(prime) {
            Ok(())
        } else {
            Err(PointFault::NotOnCurve)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4) | pair[1])
            .collect()
    }

    /// The base points of the curves.
    const POINTS: [(Curve, &str); 4] = [
        (
            Curve::P224,
            "b70e0cbd6bb4bf7f321390b94a03c1d356c21122343280d6115c1d21\
             bd376388b5f723fb4c22dfe6cd4375a05a07476444d5819985007e34",
        ),
        (
            Curve::P256,
            "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
             4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
        ),
        (
            Curve::P384,
            "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e38\
             72760ab73617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d\
             7a431d7c90ea0e5f",
        ),
        (
            Curve::P521,
            "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1d\
             c127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66011839296a789a3bc0045c8a5fb42c7d1bd998f54449\
             579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
        ),
    ];

    #[test]
    fn points_are_checked_on_each_curve() {
        for (curve, hex) in POINTS {
            let point = [vec![4], unhex(hex)].concat();
            assert_eq!(curve.check_point(&point), Ok(()), "{curve:?}");
            let mut changed = point.clone();
            let last = changed.len() - 1;
            changed[last] ^= 1;
            let fault = curve.check_point(&changed);
            assert_eq!(fault, Err(PointFault::NotOnCurve), "{curve:?}");
            changed[1..].fill(0xff);
            let fault = curve.check_point(&changed);
            assert_eq!(fault, Err(PointFault::Coordinate), "{curve:?}");
            let fault = curve.check_point(&point[..last]);
            assert_eq!(fault, Err(PointFault::Length), "{curve:?}");
        }
        let compressed = Curve::P256.check_point(&[2; 33]);
        assert_eq!(compressed, Err(PointFault::NotUncompressed));
        assert_eq!(
            Curve::P256.check_point(&[]),
            Err(PointFault::NotUncompressed)
        );
    }
}
