//! Decodes one JWK as go-jose v2 does.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    VerificationAlgorithm,
};
use keyferry_go_formats::GoRelease;
use keyferry_go_formats::base64::{decode_raw_url, decode_standard};
use keyferry_go_formats::json::Json;
use keyferry_go_formats::x509::PublicKey;

use super::private_rsa::{self, PrivateNumbers};
use super::rsa::RsaKey;
use crate::Code;
use crate::certificate::{Judgement, judge_certificate};

/// A key and its `kid`.
#[derive(Debug)]
pub(crate) struct Jwk {
    pub(crate) kid: String,
    pub(crate) key: Key,
}

/// A key by its kind.
#[derive(Debug)]
pub(crate) enum Key {
    Rsa(RsaKey),
    Ec(Curve, Vec<u8>),
    /// The bytes of an Ed25519 key. It verifies none of the algorithms that an apiserver accepts.
    Edwards(Vec<u8>),
    /// A symmetric key. It verifies none of them either.
    Symmetric,
    /// A private key, with its public half. It verifies nothing either.
    Private(Box<Self>),
}

/// A NIST elliptic curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

/// Why a JWK cannot be decoded.
#[derive(Debug)]
pub(crate) enum KeyFault {
    Refused(String),
    /// The code says whether it is about the key or a certificate.
    Undetermined(Code, String),
}

/// The certificates of a key.
pub(crate) struct Chain {
    leaf: Vec<u8>,
    /// The key of the first certificate, if Go knows its kind.
    key: Option<PublicKey>,
}

type Bytes = Option<Vec<u8>>;

impl Curve {
    /// The length of a coordinate in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn algorithm(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1,
            Self::P384 => &ECDSA_P384_SHA384_ASN1,
            Self::P521 => &ECDSA_P521_SHA512_ASN1,
        }
    }
}

fn refuse_key<T>(reason: impl Into<String>) -> Result<T, KeyFault> {
    Err(KeyFault::Refused(format!(
        "go-jose/go-jose: {}",
        reason.into()
    )))
}

impl Jwk {
    /// Decodes a JWK as builds with these releases of Go do. Names are case-sensitive here, and none
    /// may occur twice.
    pub(crate) fn read(value: &Json, releases: &[GoRelease]) -> Result<Self, KeyFault> {
        if !matches!(value, Json::Object(_) | Json::Null) {
            return Err(KeyFault::Refused(value.mismatch("jose.rawJSONWebKey")));
        }
        check_once(value)?;
        let fields = Fields(value);
        for name in ["use", "alg", "x5t", "x5t#S256"] {
            fields.read_text(name)?;
        }
        for name in ["dp", "dq", "qi"] {
            fields.read_bytes(name)?;
        }
        let kid = fields.read_text("kid")?;
        check_x5u(value)?;
        let chain = fields.read_certificates(releases)?;
        let certificate_key = chain.as_ref().and_then(|chain| chain.key.as_ref());
        let key = fields.read_key(certificate_key.is_some())?;
        if certificate_key.is_some_and(|from_certificate| !is_same(&key, from_certificate)) {
            return refuse_key("invalid JWK, public keys in key and x5c fields to not match");
        }
        check_thumbprints(&fields, chain.as_ref().map(|chain| &chain.leaf))?;
        Ok(Self { kid, key })
    }
}

/// go-jose's own JSON reader refuses a duplicate name in an object.
fn check_once(value: &Json) -> Result<(), KeyFault> {
    match find_duplicate(value) {
        Some(name) => Err(KeyFault::Refused(format!(
            "json: duplicate key '{name}' in object"
        ))),
        None => Ok(()),
    }
}

/// Returns the first duplicate name in an object, at the top level only.
fn find_duplicate(value: &Json) -> Option<&str> {
    let members = value.members();
    members
        .iter()
        .enumerate()
        .find(|(index, (name, _))| {
            members
                .iter()
                .take(*index)
                .any(|(earlier, _)| earlier == name)
        })
        .map(|(_, (name, _))| name.as_str())
}

/// go-jose decodes `x5u` into a struct. So a text, which the standard requires, makes the key
/// unreadable.
fn check_x5u(value: &Json) -> Result<(), KeyFault> {
    match value.member("x5u") {
        None | Some(Json::Null) => Ok(()),
        Some(Json::Object(_)) => Err(KeyFault::Undetermined(
            Code::UnusualKey,
            "a key has an object for x5u".to_owned(),
        )),
        Some(other) => Err(KeyFault::Refused(other.mismatch("url.URL"))),
    }
}

/// Whether a key equals the key of its certificate.
fn is_same(key: &Key, from_certificate: &PublicKey) -> bool {
    match (key, from_certificate) {
        (Key::Rsa(key), PublicKey::Rsa { modulus, exponent }) => {
            key.modulus == *modulus && key.exponent_bytes() == *exponent
        }
        (Key::Ec(_, point), PublicKey::Ec(other)) => point == other,
        (Key::Edwards(bytes), PublicKey::Ed25519(other)) => bytes == other,
        (Key::Private(public), _) => is_same(public, from_certificate),
        _ => false,
    }
}

fn check_thumbprints(fields: &Fields<'_>, leaf: Option<&Vec<u8>>) -> Result<(), KeyFault> {
    for (name, size, algorithm) in [
        ("x5t", 20, &SHA1_FOR_LEGACY_USE_ONLY),
        ("x5t#S256", 32, &SHA256),
    ] {
        let text = fields.read_text(name)?;
        let Ok(mut bytes) = decode_raw_url(text.as_bytes()) else {
            return refuse_key(format!("invalid JWK, {name} header has invalid encoding"));
        };
        if bytes.len() == 2 * size {
            match decode_hex(&bytes) {
                Some(decoded) => bytes = decoded,
                None => return refuse_key(format!("invalid JWK, unable to hex decode {name}")),
            }
        }
        if !bytes.is_empty() && bytes.len() != size {
            return refuse_key(format!("invalid JWK, {name} header is of incorrect size"));
        }
        if let Some(leaf) = leaf
            && !bytes.is_empty()
            && digest(algorithm, leaf).as_ref() != bytes
        {
            return refuse_key(format!(
                "invalid JWK, x5c thumbprint does not match {name} value"
            ));
        }
    }
    Ok(())
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    text.chunks(2)
        .map(|pair| Some((digit(pair.first()?)? * 16 + digit(pair.get(1)?)?) as u8))
        .collect()
}

struct Fields<'a>(&'a Json);

impl Fields<'_> {
    fn read_text(&self, name: &str) -> Result<String, KeyFault> {
        self.0
            .member(name)
            .map_or(Ok(String::new()), Json::to_text)
            .map_err(KeyFault::Refused)
    }

    /// Reads a base64url value. Absent and null give `None`; an empty text gives no bytes.
    fn read_bytes(&self, name: &str) -> Result<Bytes, KeyFault> {
        match self.0.member(name) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => {
                let text = value.to_text().map_err(KeyFault::Refused)?;
                decode_raw_url(text.as_bytes())
                    .map(Some)
                    .map_err(|fault| KeyFault::Refused(fault.to_string()))
            }
        }
    }

    fn read_certificates(&self, releases: &[GoRelease]) -> Result<Option<Chain>, KeyFault> {
        let texts = self
            .0
            .member("x5c")
            .map_or(Ok(Vec::new()), Json::to_texts)
            .map_err(KeyFault::Refused)?;
        read_chain(&texts, releases).map_err(|fault| match fault {
            KeyFault::Refused(reason) => KeyFault::Refused(format!(
                "go-jose/go-jose: failed to unmarshal x5c field: {reason}"
            )),
            unsure @ KeyFault::Undetermined(..) => unsure,
        })
    }

    fn private_rsa(&self, d: &[u8], [n, e, p, q]: [Vec<u8>; 4]) -> Result<Key, KeyFault> {
        let public = RsaKey::new(&n, &e);
        let (dp, dq, qi) = (
            self.read_bytes("dp")?,
            self.read_bytes("dq")?,
            self.read_bytes("qi")?,
        );
        let precomputed = match (&dp, &dq, &qi) {
            (Some(dp), Some(dq), Some(qi)) => Some([dp.as_slice(), dq, qi]),
            _ => None,
        };
        match private_rsa::judge_private_key(
            &public,
            &PrivateNumbers {
                d,
                p: &p,
                q: &q,
                precomputed,
            },
        ) {
            private_rsa::Judgement::Taken => Ok(Key::Private(Box::new(Key::Rsa(public)))),
            private_rsa::Judgement::Refused(reason) => Err(KeyFault::Refused(reason.to_owned())),
            private_rsa::Judgement::Unsure => Err(KeyFault::Undetermined(
                Code::UnusualKey,
                "a key is an unusual private RSA key".to_owned(),
            )),
        }
    }

    fn read_key(&self, has_certificate: bool) -> Result<Key, KeyFault> {
        let (k, x, y) = (
            self.read_bytes("k")?,
            self.read_bytes("x")?,
            self.read_bytes("y")?,
        );
        let (n, e, d) = (
            self.read_bytes("n")?,
            self.read_bytes("e")?,
            self.read_bytes("d")?,
        );
        let (p, q) = (self.read_bytes("p")?, self.read_bytes("q")?);
        let curve = self.read_text("crv")?;
        match (self.read_text("kty")?.as_str(), d) {
            ("EC", d) => ec_key(&curve, x, y, d),
            ("RSA", None) => match (n, e) {
                (Some(n), Some(e)) => Ok(Key::Rsa(RsaKey::new(&n, &e))),
                _ => refuse_key("invalid RSA key, missing n/e values"),
            },
            ("RSA", Some(_)) if n.is_none() || e.is_none() || p.is_none() || q.is_none() => {
                refuse_key("invalid RSA private key, missing values")
            }
            ("RSA", Some(d)) => self.private_rsa(&d, [n, e, p, q].map(Option::unwrap_or_default)),
            ("oct", _) if has_certificate => {
                refuse_key("invalid JWK, found 'oct' (symmetric) key with cert chain")
            }
            ("oct", _) if k.is_none() => refuse_key("invalid OCT (symmetric) key, missing k value"),
            ("oct", _) => Ok(Key::Symmetric),
            ("OKP", d) if curve == "Ed25519" && x.is_some() => {
                // Longer values are cut to 32 bytes, shorter ones padded with zeros.
                let public = Key::Edwards(
                    x.into_iter()
                        .flatten()
                        .chain(std::iter::repeat(0))
                        .take(32)
                        .collect(),
                );
                Ok(if d.is_some() {
                    Key::Private(Box::new(public))
                } else {
                    public
                })
            }
            ("OKP", _) => refuse_key(format!("unknown curve {curve}'")),
            (other, _) => refuse_key(format!("unknown json web key type '{other}'")),
        }
    }
}

/// Decodes an `x5c` chain. Every certificate in it must parse.
pub(crate) fn read_chain(
    texts: &[String],
    releases: &[GoRelease],
) -> Result<Option<Chain>, KeyFault> {
    let mut chain = None;
    for text in texts {
        let der = decode_standard(text.as_bytes())
            .map_err(|fault| KeyFault::Refused(fault.to_string()))?;
        match judge_certificate(&der, releases) {
            Judgement::Taken(key) => {
                chain.get_or_insert(Chain { leaf: der, key });
            }
            Judgement::Refused { message, .. } => return Err(KeyFault::Refused(message)),
            Judgement::Unsure { reason } => {
                let reason = format!("a certificate in x5c: {reason}");
                return Err(KeyFault::Undetermined(Code::UnusualCertificate, reason));
            }
        }
    }
    Ok(chain)
}

fn ec_key(curve: &str, x: Bytes, y: Bytes, d: Bytes) -> Result<Key, KeyFault> {
    let curve = match curve {
        "P-256" => Curve::P256,
        "P-384" => Curve::P384,
        "P-521" => Curve::P521,
        other => return refuse_key(format!("unsupported elliptic curve '{other}'")),
    };
    let (Some(x), Some(y)) = (x, y) else {
        return refuse_key("invalid EC key, missing x/y values");
    };
    for (name, coordinate) in [("x", &x), ("y", &y)] {
        if coordinate.len() != curve.size() {
            return refuse_key(format!("invalid EC public key, wrong length for {name}"));
        }
    }
    if d.as_ref().is_some_and(|d| d.len() != curve.size()) {
        return refuse_key("invalid EC private key, wrong length for d");
    }
    let point: Vec<u8> = std::iter::once(4).chain(x).chain(y).collect();
    if ParsedPublicKey::new(curve.algorithm(), &point).is_err() {
        return refuse_key("invalid EC key, X/Y are not on declared curve");
    }
    let public = Key::Ec(curve, point);
    Ok(if d.is_some() {
        Key::Private(Box::new(public))
    } else {
        public
    })
}
