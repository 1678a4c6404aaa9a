//! Which RSA keys are too weak to trust, by their public numbers alone.

/// What is wrong with an RSA key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaFault {
    /// The modulus has too few or too many bits, or (in a key set) no whole number of bytes.
    #[error("has a modulus of {0} bits, where 2048 to 8192 are accepted")]
    Size(usize),
    /// The public exponent is not 65537 (in a key set), or even, below 3 or above 32 bits (in a
    /// certificate).
    #[error("has a public exponent that is not accepted")]
    Exponent,
    /// The modulus is divisible by a small prime.
    #[error("has a modulus with a small factor")]
    SmallFactor,
    /// The modulus has the fingerprint of CVE-2017-15361: its factors can be computed.
    #[error("was made by a broken generator (CVE-2017-15361)")]
    Roca,
}

/// 65537, big-endian.
pub(crate) const EXPONENT_F4: [u8; 3] = [1, 0, 1];

/// Checks a key of a key set: 2048 to 8192 bits in whole bytes, exponent 65537.
pub(crate) fn check_signing_key(modulus: &[u8], exponent: &[u8]) -> Result<(), RsaFault> {
    let bits = bit_length(modulus);
    if !(2048..=8192).contains(&bits) || !bits.is_multiple_of(8) {
        return Err(RsaFault::Size(bits));
    }
    if exponent != EXPONENT_F4 {
        return Err(RsaFault::Exponent);
    }
    check_modulus(modulus)
}

/// Checks a CA's key, whose parameters others chose long ago: 2048 to 8192 bits, odd exponent from
/// 3 up to 32 bits. Leading zero bytes are DER's.
pub(crate) fn check_authority_key(modulus: &[u8], exponent: &[u8]) -> Result<(), RsaFault> {
    let bits = bit_length(modulus);
    if !(2048..=8192).contains(&bits) {
        return Err(RsaFault::Size(bits));
    }
    let exponent = strip_zeros(exponent);
    let odd = exponent.last().is_some_and(|byte| byte % 2 == 1);
    if !odd || exponent == [1] || exponent.len() > 4 {
        return Err(RsaFault::Exponent);
    }
    check_modulus(modulus)
}

fn check_modulus(modulus: &[u8]) -> Result<(), RsaFault> {
    if (2..752)
        .filter(|number| is_prime(*number))
        .any(|prime| remainder_of(modulus, prime) == 0)
    {
        return Err(RsaFault::SmallFactor);
    }
    if ROCA_PRIMES
        .iter()
        .all(|prime| is_power_of_f4(remainder_of(modulus, *prime), *prime))
    {
        return Err(RsaFault::Roca);
    }
    Ok(())
}

/// Primes modulo which 65537 has few powers. A broken modulus is such a power modulo each of them.
/// For any other modulus the probability of that is below 2^-27 (Nemec and others, "The Return of
/// Coppersmith's Attack", 2017, section 3).
const ROCA_PRIMES: [u32; 17] = [
    11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157,
];

fn is_power_of_f4(residue: u32, prime: u32) -> bool {
    let mut power = 1;
    (0..prime).any(|_| {
        let found = power == residue;
        power = power * 65537 % prime;
        found
    })
}

fn remainder_of(number: &[u8], divisor: u32) -> u32 {
    number
        .iter()
        .fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % divisor)
}

fn is_prime(number: u32) -> bool {
    (2..number)
        .take_while(|divisor| divisor * divisor <= number)
        .all(|divisor| !number.is_multiple_of(divisor))
}

fn bit_length(modulus: &[u8]) -> usize {
    let modulus = strip_zeros(modulus);
    modulus
        .first()
        .map_or(0, |byte| modulus.len() * 8 - byte.leading_zeros() as usize)
}

fn strip_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}
