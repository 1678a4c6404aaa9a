//! Checks whether Go accepts the numbers of a private RSA key, as `rsa.PrivateKey.Validate` does.
//! Private keys appear in a public key set only by a foreign mistake, and nothing else is computed
//! with them.

use keyferry_go_formats::natural::Natural;

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
pub(super) fn judge_private_key(public: &RsaKey, private: &PrivateNumbers<'_>) -> Judgement {
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
    let [n, d, p, q] = [&public.modulus, private.d, private.p, private.q].map(Natural::read);
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
    let power = d.product(&Natural::from(exponent));
    if [&p_less, &q_less]
        .into_iter()
        .any(|order| power.remainder(order) != Natural::from(1))
    {
        return Judgement::Refused("crypto/rsa: invalid exponents");
    }
    let apart = p.difference(&q).bits() + 100 > n.bits() / 2 && p != q;
    let long = d.bits() > n.bits() / 2;
    // Go raises q to p - 2 to find its inverse, which works for primes only. Primality is not
    // tested here.
    let fits = private.precomputed.is_none_or(|numbers| {
        let [dp, dq, qi] = numbers.map(Natural::read);
        dp == d.remainder(&p_less)
            && dq == d.remainder(&q_less)
            && qi.less(&p)
            && qi.product(&q).remainder(&p) == Natural::from(1)
    });
    if apart && long && fits {
        Judgement::Taken
    } else {
        Judgement::Unsure
    }
}
