//! The keys of one run and their public forms. The keys are random; no verdict depends on them.

use aws_lc_rs::encoding::{AsBigEndian as _, AsDer as _};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
    RsaKeyPair,
};
use aws_lc_rs::{error::Unspecified, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::node::Node;

/// Identifies a key of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyName {
    RsaA,
    RsaB,
    P256A,
    P256B,
    P384,
    P521,
    Ed25519,
}

impl KeyName {
    pub(crate) const ALL: [Self; 7] = [
        Self::RsaA,
        Self::RsaB,
        Self::P256A,
        Self::P256B,
        Self::P384,
        Self::P521,
        Self::Ed25519,
    ];

    /// The `kid` that it is published under.
    pub(crate) fn kid(self) -> &'static str {
        match self {
            Self::RsaA => "rsa-a",
            Self::RsaB => "rsa-b",
            Self::P256A => "p256-a",
            Self::P256B => "p256-b",
            Self::P384 => "p384",
            Self::P521 => "p521",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The algorithm that it would sign with.
    pub(crate) fn algorithm(self) -> &'static str {
        match self {
            Self::RsaA | Self::RsaB => "RS256",
            Self::P256A | Self::P256B => "ES256",
            Self::P384 => "ES384",
            Self::P521 => "ES512",
            Self::Ed25519 => "EdDSA",
        }
    }
}

/// The private keys.
#[derive(Debug)]
pub(crate) struct SigningKeys {
    rsa: [RsaKeyPair; 2],
    p256: [EcdsaKeyPair; 2],
    p384: EcdsaKeyPair,
    p521: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    authority_pem: String,
    /// Certificates of some keys, and one of a key of its own, in base64.
    certificates: Vec<String>,
    random: SystemRandom,
}

impl SigningKeys {
    pub(crate) fn generate() -> Result<Self, Unspecified> {
        let rsa = [
            RsaKeyPair::generate(KeySize::Rsa2048)?,
            RsaKeyPair::generate(KeySize::Rsa2048)?,
        ];
        let p256 = [
            ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)?,
            ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)?,
        ];
        let p384 = ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING)?;
        let ed25519 = Ed25519KeyPair::generate()?;
        let certificates = [
            certificate(p256[0].to_pkcs8v1()?.as_ref())?,
            certificate(p384.to_pkcs8v1()?.as_ref())?,
            certificate(rsa[0].as_der()?.as_ref())?,
            certificate(ed25519.to_pkcs8v1()?.as_ref())?,
            certificate(
                ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)?
                    .to_pkcs8v1()?
                    .as_ref(),
            )?,
        ];
        Ok(Self {
            rsa,
            p256,
            p384,
            p521: ecdsa(&signature::ECDSA_P521_SHA512_FIXED_SIGNING)?,
            ed25519,
            authority_pem: authority()?,
            certificates: certificates.into(),
            random: SystemRandom::new(),
        })
    }

    /// Certificates for `x5c`: of P-256 A, P-384, RSA A, Ed25519 and a stranger.
    pub(crate) fn certificates(&self) -> &[String] {
        &self.certificates
    }

    /// `d`, `p`, `q`, `dp`, `dq` and `qi` of an RSA key; `None` for others.
    pub(crate) fn private_rsa(&self, key: KeyName) -> Option<Vec<(&'static str, Node)>> {
        let pair = match key {
            KeyName::RsaA => &self.rsa[0],
            KeyName::RsaB => &self.rsa[1],
            _ => return None,
        };
        let document = pair.as_der().ok()?;
        // PKCS #8 contains a version, an algorithm and an octet string of RSAPrivateKey (RFC 8017),
        // which consists of a version, n, e and these.
        let (_, rest) = value(value(document.as_ref())?.0)?;
        let (_, rest) = value(rest)?;
        let mut rest = value(value(rest)?.0)?.0;
        let mut numbers = Vec::new();
        while let Some((number, after)) = value(rest) {
            numbers.push(Node::text(
                URL_SAFE_NO_PAD.encode(number.strip_prefix(&[0]).unwrap_or(number)),
            ));
            rest = after;
        }
        Some(
            ["d", "p", "q", "dp", "dq", "qi"]
                .into_iter()
                .zip(numbers.into_iter().skip(3))
                .collect(),
        )
    }

    /// A self-signed certificate.
    pub(crate) fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Signs under an algorithm's name (RFC 7518). If key and algorithm do not match, the key's own
    /// algorithm signs, so that the token claims an algorithm that it does not use.
    pub(crate) fn sign(&self, key: KeyName, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let signed = match key {
            _ if algorithm == "none" => Ok(Vec::new()),
            _ if algorithm.starts_with("HS") => Ok(self.mac(key, algorithm, message)),
            KeyName::RsaA => self.rsa(&self.rsa[0], algorithm, message),
            KeyName::RsaB => self.rsa(&self.rsa[1], algorithm, message),
            KeyName::P256A => self.ecdsa(&self.p256[0], message),
            KeyName::P256B => self.ecdsa(&self.p256[1], message),
            KeyName::P384 => self.ecdsa(&self.p384, message),
            KeyName::P521 => self.ecdsa(&self.p521, message),
            KeyName::Ed25519 => Ok(self.ed25519.sign(message).as_ref().to_vec()),
        };
        signed.unwrap_or_default()
    }

    /// The public key as a JWK (RFC 7517) without optional members.
    pub(crate) fn jwk(&self, key: KeyName) -> Node {
        match key {
            KeyName::RsaA => rsa_jwk(&self.rsa[0]),
            KeyName::RsaB => rsa_jwk(&self.rsa[1]),
            KeyName::P256A => ecdsa_jwk(&self.p256[0], "P-256"),
            KeyName::P256B => ecdsa_jwk(&self.p256[1], "P-256"),
            KeyName::P384 => ecdsa_jwk(&self.p384, "P-384"),
            KeyName::P521 => ecdsa_jwk(&self.p521, "P-521"),
            KeyName::Ed25519 => Node::map([
                ("kty", Node::text("OKP")),
                ("crv", Node::text("Ed25519")),
                (
                    "x",
                    Node::text(URL_SAFE_NO_PAD.encode(self.ed25519.public_key())),
                ),
            ]),
        }
    }

    /// The private member `d` of an EC key; `None` for others.
    pub(crate) fn private_scalar(&self, key: KeyName) -> Option<String> {
        let pair = match key {
            KeyName::P256A => &self.p256[0],
            KeyName::P256B => &self.p256[1],
            KeyName::P384 => &self.p384,
            KeyName::P521 => &self.p521,
            _ => return None,
        };
        let scalar = pair.private_key().as_be_bytes().ok()?;
        let bytes: &[u8] = (*scalar).as_ref();
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn rsa(
        &self,
        pair: &RsaKeyPair,
        algorithm: &str,
        message: &[u8],
    ) -> Result<Vec<u8>, Unspecified> {
        let encoding: &'static dyn RsaEncoding = match algorithm {
            "RS384" => &signature::RSA_PKCS1_SHA384,
            "RS512" => &signature::RSA_PKCS1_SHA512,
            "PS256" => &signature::RSA_PSS_SHA256,
            "PS384" => &signature::RSA_PSS_SHA384,
            "PS512" => &signature::RSA_PSS_SHA512,
            _ => &signature::RSA_PKCS1_SHA256,
        };
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(encoding, &self.random, message, &mut signature)?;
        Ok(signature)
    }

    fn ecdsa(&self, pair: &EcdsaKeyPair, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        Ok(pair.sign(&self.random, message)?.as_ref().to_vec())
    }

    /// The classic attack: uses the public key as the HMAC secret.
    fn mac(&self, key: KeyName, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let hash = match algorithm {
            "HS384" => hmac::HMAC_SHA384,
            "HS512" => hmac::HMAC_SHA512,
            _ => hmac::HMAC_SHA256,
        };
        let secret = self.jwk(key).json();
        hmac::sign(&hmac::Key::new(hash, secret.as_bytes()), message)
            .as_ref()
            .to_vec()
    }
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> Result<EcdsaKeyPair, Unspecified> {
    EcdsaKeyPair::generate(algorithm)
}

fn authority() -> Result<String, Unspecified> {
    let made = rcgen::generate_simple_self_signed(["authority.test".to_owned()])
        .map_err(|_| Unspecified)?;
    Ok(made.cert.pem())
}

/// A certificate for a PKCS #8 key, in base64.
fn certificate(pkcs8: &[u8]) -> Result<String, Unspecified> {
    let pair = rcgen::KeyPair::try_from(pkcs8).map_err(|_| Unspecified)?;
    let made = rcgen::CertificateParams::new(vec!["key.test".to_owned()])
        .and_then(|params| params.self_signed(&pair));
    Ok(STANDARD.encode(made.map_err(|_| Unspecified)?.der()))
}

fn rsa_jwk(pair: &RsaKeyPair) -> Node {
    let number = |bytes: &[u8]| Node::text(URL_SAFE_NO_PAD.encode(bytes));
    // RSAPublicKey of RFC 8017 is a sequence of two integers.
    let sequence = value(pair.public_key().as_ref()).unwrap_or_default().0;
    let (modulus, rest) = value(sequence).unwrap_or_default();
    let exponent = value(rest).unwrap_or_default().0;
    let bare = |integer: &[u8]| number(integer.strip_prefix(&[0]).unwrap_or(integer));
    Node::map([
        ("kty", Node::text("RSA")),
        ("n", bare(modulus)),
        ("e", bare(exponent)),
    ])
}

/// The content of the first DER value, and the bytes after it.
fn value(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.get(1..)?.split_first()?;
    // Below 0x80 it is the length itself, otherwise the number of length bytes that follow.
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (
            bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte)),
            rest,
        )
    };
    rest.split_at_checked(length)
}

fn ecdsa_jwk(pair: &EcdsaKeyPair, curve: &str) -> Node {
    // An uncompressed point, SEC 1: 4, then x and y of one length.
    let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
    let (x, y) = point.split_at(point.len() / 2);
    let number = |bytes: &[u8]| Node::text(URL_SAFE_NO_PAD.encode(bytes));
    Node::map([
        ("kty", Node::text("EC")),
        ("crv", Node::text(curve)),
        ("x", number(x)),
        ("y", number(y)),
    ])
}
