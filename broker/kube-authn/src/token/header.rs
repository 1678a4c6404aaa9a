//! Parses a compact JWS as go-jose v2 does, and returns the signed bytes.

use keyferry_go_formats::GoRelease;
use keyferry_go_formats::base64::{decode_raw_url, encode_raw_url};
use keyferry_go_formats::json::{Json, JsonFault};

use super::fault::TokenFault;
use crate::config::Undetermined;
use crate::keys::{Jwk, Key, KeyFault, read_chain};

/// A parsed JWS.
#[derive(Debug)]
pub struct Signed {
    /// `alg`; empty if the header has none.
    pub algorithm: String,
    /// `kid`; empty if the header has none.
    pub kid: String,
    /// Whether every critical header is understood; otherwise no signature is valid.
    pub critical_understood: bool,
    /// The signed bytes. Like go-jose, this encodes the parts again instead of using the token's
    /// own text.
    pub input: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

fn malformed_fault<T>(reason: impl Into<String>) -> Result<T, TokenFault> {
    Err(TokenFault::Malformed(reason.into(), true))
}

fn approximate_fault<T>(reason: impl Into<String>) -> Result<T, TokenFault> {
    Err(TokenFault::Malformed(reason.into(), false))
}

impl Signed {
    /// Parses a token of three parts, after removing all white space.
    pub(crate) fn parse(token: &str) -> Result<Self, TokenFault> {
        let token: String = token
            .chars()
            .filter(|character| !is_space(*character))
            .collect();
        let parts: Vec<&str> = token.split('.').collect();
        let [header, payload, signature] = parts.as_slice() else {
            return malformed_fault("go-jose/go-jose: compact JWS format must have three parts");
        };
        let decode = |part: &str| {
            decode_raw_url(part.as_bytes()).or_else(|fault| malformed_fault(fault.to_string()))
        };
        let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
        let fields = if header.is_empty() {
            Json::Null
        } else {
            parse_header(&header)?
        };
        let (algorithm, kid) = check_fields(&fields)?;
        let plain = fields.member("b64") == Some(&Json::Bool(false));
        let body = if plain {
            payload
        } else {
            encode_raw_url(&payload).into_bytes()
        };
        let input = [encode_raw_url(&header).as_bytes(), b".", &body].concat();
        Ok(Self {
            algorithm,
            kid,
            critical_understood: critical_understood(&fields),
            input,
            signature,
        })
    }
}

/// Matches Go's `unicode.IsSpace`.
fn is_space(character: char) -> bool {
    character.is_whitespace()
}

fn parse_header(bytes: &[u8]) -> Result<Json, TokenFault> {
    let value = match Json::parse_at_any_depth(bytes) {
        Ok(value) => value,
        Err(JsonFault::Syntax(reason)) => return malformed_fault(reason),
    };
    if !matches!(value, Json::Object(_) | Json::Null) {
        return malformed_fault(value.mismatch("jose.rawHeader"));
    }
    match find_duplicate(&value) {
        Some(name) => approximate_fault(format!("json: duplicate key '{name}' in object")),
        None => Ok(value),
    }
}

/// Returns the first duplicate name in one object, at any depth.
fn find_duplicate(value: &Json) -> Option<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in value.members() {
        if seen.contains(&name.as_str()) {
            return Some(name);
        }
        seen.push(name);
    }
    match value {
        Json::Object(members) => members.iter().find_map(|(_, value)| find_duplicate(value)),
        Json::List(items) => items.iter().find_map(find_duplicate),
        Json::Deep(deep) => deep.duplicate_name.as_deref(),
        _ => None,
    }
}

/// Checks every field as go-jose does, and returns `alg` and `kid`. A null field counts as absent.
fn check_fields(fields: &Json) -> Result<(String, String), TokenFault> {
    let (mut algorithm, mut kid) = (String::new(), String::new());
    for (name, value) in fields
        .members()
        .iter()
        .filter(|(_, value)| *value != Json::Null)
    {
        match name.as_str() {
            "alg" => algorithm = read_text(value, "algorithm")?,
            "kid" => kid = read_text(value, "key ID")?,
            "nonce" => drop(read_text(value, "nonce")?),
            "jwk" => check_embedded(value)?,
            "x5c" => check_chain(value)?,
            _ if has_huge_number(value) => {
                return approximate_fault("failed to unmarshal value: a number is out of range");
            }
            _ => {}
        }
    }
    Ok((algorithm, kid))
}

fn read_text(value: &Json, what: &str) -> Result<String, TokenFault> {
    value
        .to_text()
        .or_else(|reason| approximate_fault(format!("failed to unmarshal {what}: {reason}")))
}

fn check_embedded(value: &Json) -> Result<(), TokenFault> {
    // A token is parsed once for all releases of the target.
    match Jwk::read(value, &GoRelease::ALL) {
        Ok(Jwk {
            key: Key::Rsa(key), ..
        }) if key.exponent == 0 => {}
        Ok(Jwk {
            key: Key::Rsa(_) | Key::Ec(..) | Key::Edwards(_),
            ..
        }) => return Ok(()),
        Ok(_) => {}
        Err(KeyFault::Refused(reason)) => {
            return approximate_fault(format!("failed to unmarshal JWK: {reason}"));
        }
        Err(KeyFault::Undetermined(code, reason)) => {
            return Err(TokenFault::Undetermined(Undetermined::new(
                code,
                format!("in the token's header, {reason}"),
            )));
        }
    }
    malformed_fault("go-jose/go-jose: invalid embedded jwk, must be public key")
}

fn check_chain(value: &Json) -> Result<(), TokenFault> {
    let texts = value
        .to_texts()
        .or_else(|reason| approximate_fault(format!("failed to unmarshal x5c header: {reason}")))?;
    match read_chain(&texts, &GoRelease::ALL) {
        Ok(_) => Ok(()),
        Err(KeyFault::Refused(reason)) => {
            approximate_fault(format!("failed to unmarshal x5c header: {reason}"))
        }
        Err(KeyFault::Undetermined(code, reason)) => {
            Err(TokenFault::Undetermined(Undetermined::new(code, reason)))
        }
    }
}

fn has_huge_number(value: &Json) -> bool {
    match value {
        Json::Number(_) => value.is_huge_number(),
        Json::Deep(deep) => deep.has_huge_number,
        Json::List(items) => items.iter().any(has_huge_number),
        Json::Object(members) => members.iter().any(|(_, value)| has_huge_number(value)),
        _ => false,
    }
}

/// Whether `crit` lists no other header than `b64`, the only one that go-jose understands.
fn critical_understood(fields: &Json) -> bool {
    match fields.member("crit") {
        None | Some(Json::Null) => true,
        Some(value) => value
            .to_texts()
            .is_ok_and(|names| names.iter().all(|name| name == "b64")),
    }
}
