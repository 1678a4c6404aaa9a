//! The numbers of a key: points on their curve, RSA moduli and exponents, and their one spelling.

use base64::Engine;
use josekit::jwk::Jwk;
use serde_json::{Value, json};

use super::{changed, good, removed, rsa, why};
use crate::jwks::RejectReason;
use crate::jwks::rsa::{RsaFault, check_authority_key, check_signing_key};
use crate::jwt::{BASE64URL, SigningAlgorithm};
use crate::testing::key;

fn bytes(entry: &Value, member: &str) -> Vec<u8> {
    BASE64URL.decode(entry[member].as_str().unwrap()).unwrap()
}

fn with_bytes(entry: Value, member: &str, bytes: impl AsRef<[u8]>) -> Value {
    changed(entry, member, json!(BASE64URL.encode(bytes)))
}

#[test]
fn w11_to_w16_a_point_lies_on_its_curve() {
    for algorithm in [
        SigningAlgorithm::Es256,
        SigningAlgorithm::Es384,
        SigningAlgorithm::Es512,
    ] {
        let entry = key(algorithm).entry();
        let (x, y) = (bytes(&entry, "x"), bytes(&entry, "y"));
        let mut off = y.clone();
        *off.last_mut().unwrap() ^= 1;
        let zero = vec![0; y.len()];
        let ones = vec![0xff; y.len()];
        assert_eq!(
            why(&with_bytes(entry.clone(), "y", off)),
            RejectReason::Point
        );
        assert_eq!(
            why(&with_bytes(
                with_bytes(entry.clone(), "x", &zero),
                "y",
                &zero
            )),
            RejectReason::Point,
            "infinity"
        );
        assert_eq!(
            why(&with_bytes(entry.clone(), "y", &zero)),
            RejectReason::Point
        );
        assert_eq!(
            why(&with_bytes(entry.clone(), "x", ones)),
            RejectReason::Point,
            "not below the field's prime"
        );
        assert_eq!(
            why(&with_bytes(with_bytes(entry.clone(), "x", &y), "y", &x)),
            RejectReason::Point,
            "swapped"
        );
        for member in ["x", "y"] {
            let right = bytes(&entry, member);
            for wrong in [
                [&[0][..], &right].concat(),
                [&right[..], &[0]].concat(),
                right[1..].to_vec(),
                vec![],
            ] {
                assert_eq!(
                    why(&with_bytes(entry.clone(), member, wrong)),
                    RejectReason::Encoding(member)
                );
            }
            assert_eq!(
                why(&removed(entry.clone(), member)),
                RejectReason::Member(member)
            );
            assert_eq!(
                why(&changed(entry.clone(), member, json!(1))),
                RejectReason::Member(member)
            );
        }
        for curve in [
            json!("P-224"),
            json!("p-256"),
            json!("secp256k1"),
            json!("Ed25519"),
            json!(null),
            json!(""),
        ] {
            assert_eq!(
                why(&changed(entry.clone(), "crv", curve)),
                RejectReason::Curve
            );
        }
    }
    assert_eq!(
        why(&changed(removed(good(), "alg"), "crv", json!("P-384"))),
        RejectReason::Encoding("x")
    );
}

#[test]
fn numbers_have_one_spelling() {
    for (entry, member) in [(rsa(), "n"), (rsa(), "e"), (good(), "x")] {
        let text = entry[member].as_str().unwrap().to_owned();
        for wrong in [
            format!("{text}="),
            format!("{text}\n"),
            format!(" {text}"),
            text.replacen(&text[..1], "+", 1),
            "!".into(),
        ] {
            assert_eq!(
                why(&changed(entry.clone(), member, json!(wrong))),
                RejectReason::Encoding(member),
                "{wrong:?}"
            );
        }
    }
    let n = rsa()["n"].as_str().unwrap().to_owned();
    assert_eq!(
        n.len() % 4,
        2,
        "256 bytes leave one over, so the last character has four unused bits"
    );
    let respelt = format!(
        "{}{}",
        &n[..n.len() - 1],
        if n.ends_with('A') {
            'B'
        } else {
            char::from(n.as_bytes()[n.len() - 1] + 1)
        }
    );
    assert_eq!(
        why(&changed(rsa(), "n", json!(respelt))),
        RejectReason::Encoding("n")
    );
    let padded = [&[0][..], &bytes(&rsa(), "n")].concat();
    assert_eq!(
        why(&with_bytes(rsa(), "n", padded)),
        RejectReason::Encoding("n")
    );
    assert_eq!(
        why(&with_bytes(rsa(), "e", [0, 1, 0, 1])),
        RejectReason::Encoding("e")
    );
    assert_eq!(
        why(&with_bytes(rsa(), "n", [])),
        RejectReason::Encoding("n")
    );
}

#[test]
fn w11_to_w16_an_rsa_key_is_of_a_safe_size_and_make() {
    let n = bytes(&rsa(), "n");
    let fault = |entry: Value| match why(&entry) {
        RejectReason::Rsa(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        fault(with_bytes(rsa(), "n", &n[..128])),
        RsaFault::Size(1024)
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", [&[1][..], &n].concat())),
        RsaFault::Size(2049)
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", n.repeat(8))),
        RsaFault::Size(16_384)
    );
    for e in [
        &[1][..],
        &[2],
        &[3],
        &[1, 0, 0],
        &[1, 0, 0, 0, 0, 0],
        &[1, 0, 1, 0, 1],
    ] {
        assert_eq!(
            fault(with_bytes(rsa(), "e", e)),
            RsaFault::Exponent,
            "{e:?}"
        );
    }
    let mut even = n.clone();
    *even.last_mut().unwrap() &= 0xfe;
    assert_eq!(fault(with_bytes(rsa(), "n", even)), RsaFault::SmallFactor);
    assert_eq!(
        fault(with_bytes(rsa(), "n", times(&n[..255], 251))),
        RsaFault::SmallFactor
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", broken_generator())),
        RsaFault::Roca
    );
    let weak = Jwk::generate_rsa_key(1024)
        .unwrap()
        .to_public_key()
        .unwrap();
    let weak = changed(
        serde_json::to_value(weak.as_ref()).unwrap(),
        "kid",
        json!("k"),
    );
    assert_eq!(fault(weak), RsaFault::Size(1024));
}

#[test]
fn a_ca_may_have_an_older_exponent() {
    let n = bytes(&rsa(), "n");
    for e in [&[3][..], &[0, 1, 0, 1], &[17], &[0xff, 0xff, 0xff, 0xff]] {
        assert_eq!(
            check_authority_key(&[&[0][..], &n].concat(), e),
            Ok(()),
            "{e:?}"
        );
    }
    for e in [
        &[][..],
        &[0],
        &[1],
        &[0, 1],
        &[2],
        &[1, 0, 0],
        &[1, 0, 0, 0, 1],
    ] {
        assert_eq!(check_authority_key(&n, e), Err(RsaFault::Exponent), "{e:?}");
    }
    assert_eq!(
        check_authority_key(&n[..255], &[1, 0, 1]),
        Err(RsaFault::Size(8 * 255 - n[0].leading_zeros() as usize))
    );
    assert_eq!(check_authority_key(&[], &[1, 0, 1]), Err(RsaFault::Size(0)));
    assert_eq!(
        check_authority_key(&broken_generator(), &[1, 0, 1]),
        Err(RsaFault::Roca)
    );
}

#[test]
fn each_small_prime_alone_is_a_small_factor() {
    let primes: Vec<u32> = (2..752_u32)
        .filter(|number| (2..*number).all(|divisor| number % divisor != 0))
        .collect();
    let divides = |prime: u32, number: &[u8]| {
        let rest = number
            .iter()
            .fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime);
        rest == 0
    };
    for prime in &primes {
        let modulus = (1_u32..)
            .map(|end| times(&[&[0x55; 300][..], &end.to_be_bytes()].concat(), *prime))
            .find(|number| {
                let others = primes.iter().filter(|other| *other != prime);
                others.copied().all(|other| !divides(other, number))
            })
            .unwrap();
        assert_eq!(
            check_authority_key(&modulus, &[1, 0, 1]),
            Err(RsaFault::SmallFactor),
            "{prime}"
        );
    }
}

/// The primes of the fingerprint (Nemec and others 2017, section 3).
const FINGERPRINT_PRIMES: [u32; 17] = [
    11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157,
];

/// The modulus that a broken generator makes is a power of 65537 modulo each prime. One that is no
/// power modulo a single one of them is of another make.
#[test]
fn a_fingerprint_is_a_power_modulo_each_prime() {
    let verdict = |rest| check_signing_key(&modulus_with_rest(rest), &[1, 0, 1]);
    for exponent in [0, 1, 5] {
        assert_eq!(verdict(65537_u128.pow(exponent)), Err(RsaFault::Roca));
    }
    let product: u128 = FINGERPRINT_PRIMES.map(u128::from).iter().product();
    for prime in FINGERPRINT_PRIMES.map(u128::from) {
        let powers: Vec<u128> = std::iter::successors(Some(1), |power| Some(power * 65537 % prime))
            .take(160)
            .collect();
        // Odd, and the same as the power modulo all other primes.
        let rest = (2..)
            .step_by(2)
            .map(|factor: u128| 65537_u128.pow(5) + factor * (product / prime))
            .find(|rest| rest % prime != 0 && !powers.contains(&(rest % prime)))
            .unwrap();
        assert_eq!(verdict(rest), Ok(()), "{prime}");
    }
}

fn broken_generator() -> Vec<u8> {
    modulus_with_rest(1)
}

/// A modulus of 2048 bits without a small factor that leaves this rest modulo the product of the
/// primes.
fn modulus_with_rest(rest: u128) -> Vec<u8> {
    // The product has 100 bits: from this start its multiple comes to 2048, and ends in zeros.
    (0x1000_u32..0x1800)
        .map(|start| {
            let mut number = [&start.to_be_bytes()[2..], &[0; 242]].concat();
            for prime in FINGERPRINT_PRIMES {
                number = times(&number, prime);
            }
            let end = number.len() - 16;
            number[end..].copy_from_slice(&rest.to_be_bytes());
            number
        })
        .find(|number| {
            number.len() == 256
                && check_signing_key(number, &[1, 0, 1]) != Err(RsaFault::SmallFactor)
        })
        .unwrap()
}

fn times(number: &[u8], factor: u32) -> Vec<u8> {
    let mut carry = 0;
    let mut product: Vec<u8> = number
        .iter()
        .rev()
        .map(|byte| {
            carry += u32::from(*byte) * factor;
            let low = (carry & 0xff) as u8;
            carry >>= 8;
            low
        })
        .collect();
    while carry > 0 {
        product.push((carry & 0xff) as u8);
        carry >>= 8;
    }
    product.reverse();
    product
}
