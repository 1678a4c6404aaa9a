//! Decodes the registered claims as go-oidc does: names in any case, the last one counts, wrong
//! types fail.

use keyferry_go_formats::json::{Json, folds_to};

use super::number::{DecodeFault, read_seconds};
use crate::Code;

/// The registered claims that the verification uses.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Registered {
    /// `aud`.
    pub audience: Vec<String>,
    /// Seconds since 1970; `None` if the claim is absent.
    pub expiry: Option<i64>,
    /// Seconds since 1970.
    pub not_before: Option<i64>,
}

/// Why the registered claims cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredFault {
    pub code: Code,
    pub message: String,
    /// Other messages that the apiserver may give, because it walks a map in random order.
    pub others: Vec<String>,
}

const CLAIM_FIELDS: [&str; 10] = [
    "iss",
    "sub",
    "aud",
    "exp",
    "iat",
    "nbf",
    "nonce",
    "at_hash",
    "_claim_names",
    "_claim_sources",
];

impl Registered {
    /// Decodes a payload that is an object.
    pub fn read(payload: &Json) -> Result<Self, RegisteredFault> {
        let mut reader = Reader::default();
        for (key, value) in payload.members() {
            let Some(field) = CLAIM_FIELDS.into_iter().find(|field| folds_to(key, field)) else {
                continue;
            };
            // A field with its own decoder ends the decoding at once; a plain wrong type is kept
            // until the end.
            reader.read_field(field, value).map_err(registered_fault)?;
        }
        match reader.mismatch {
            Some(mismatch) => Err(registered_fault(mismatch)),
            None => {
                check_sources(&reader.names, &reader.sources)?;
                Ok(reader.out)
            }
        }
    }
}

fn registered_fault(reason: DecodeFault) -> RegisteredFault {
    RegisteredFault {
        code: Code::ClaimsMalformed,
        message: format!("oidc: failed to unmarshal claims: {reason}"),
        others: Vec::new(),
    }
}

#[derive(Default)]
struct Reader {
    out: Registered,
    names: Vec<(String, String)>,
    sources: Vec<String>,
    mismatch: Option<DecodeFault>,
}

fn in_field(value: &Json, strukt: &str, field: &str, target: &str) -> DecodeFault {
    DecodeFault(format!(
        "json: cannot unmarshal {} into Go struct field {strukt}.{field} of type {target}",
        value.kind()
    ))
}

impl Reader {
    fn read_field(&mut self, field: &str, value: &Json) -> Result<(), DecodeFault> {
        match (field, value) {
            ("aud", _) => self.out.audience = read_audience(value)?,
            ("exp", _) => self.out.expiry = Some(read_time(value, field)?),
            ("iat", _) => drop(read_time(value, field)?),
            ("nbf", Json::Null) => self.out.not_before = None,
            ("nbf", _) => self.out.not_before = Some(read_time(value, field)?),
            ("_claim_names", _) => self.read_names(value),
            ("_claim_sources", _) => self.read_sources(value),
            (_, Json::Null | Json::Text(_)) => {}
            (_, other) => self.note_wrong(in_field(other, "idToken", field, "string")),
        }
        Ok(())
    }

    fn note_wrong(&mut self, reason: DecodeFault) {
        self.mismatch.get_or_insert(reason);
    }

    fn read_names(&mut self, value: &Json) {
        match value {
            Json::Null => self.names.clear(),
            Json::Object(members) => {
                for (name, source) in members {
                    let text = match source {
                        Json::Text(text) => text.clone(),
                        Json::Null => String::new(),
                        other => {
                            self.note_wrong(in_field(other, "idToken", "_claim_names", "string"));
                            continue;
                        }
                    };
                    self.names.retain(|(known, _)| known != name);
                    self.names.push((name.clone(), text));
                }
            }
            other => self.note_wrong(in_field(
                other,
                "idToken",
                "_claim_names",
                "map[string]string",
            )),
        }
    }

    fn read_sources(&mut self, value: &Json) {
        match value {
            Json::Null => self.sources.clear(),
            Json::Object(members) => {
                for (name, source) in members {
                    self.read_source(source);
                    self.sources.push(name.clone());
                }
            }
            other => self.note_wrong(in_field(
                other,
                "idToken",
                "_claim_sources",
                "map[string]oidc.claimSource",
            )),
        }
    }

    fn read_source(&mut self, source: &Json) {
        match source {
            Json::Null => {}
            Json::Object(members) => {
                for (key, value) in members {
                    let field = ["endpoint", "access_token"]
                        .into_iter()
                        .find(|field| folds_to(key, field));
                    if let (Some(field), false) =
                        (field, matches!(value, Json::Null | Json::Text(_)))
                    {
                        self.note_wrong(in_field(
                            value,
                            "claimSource",
                            &format!("_claim_sources.{field}"),
                            "string",
                        ));
                    }
                }
            }
            other => self.note_wrong(in_field(
                other,
                "idToken",
                "_claim_sources",
                "oidc.claimSource",
            )),
        }
    }
}

fn read_audience(value: &Json) -> Result<Vec<String>, DecodeFault> {
    match value {
        Json::Null => Ok(vec![String::new()]),
        Json::Text(text) => Ok(vec![text.clone()]),
        Json::List(items) => match items
            .iter()
            .find(|item| !matches!(item, Json::Null | Json::Text(_)))
        {
            Some(wrong) => Err(in_field(wrong, "idToken", "aud", "string")),
            None => Ok(value.to_texts().unwrap_or_default()),
        },
        other => Err(in_field(other, "idToken", "aud", "[]string")),
    }
}

fn read_time(value: &Json, field: &str) -> Result<i64, DecodeFault> {
    match value {
        Json::Bool(_) | Json::List(_) | Json::Object(_) => {
            Err(in_field(value, "idToken", field, "json.Number"))
        }
        other => read_seconds(other),
    }
}

/// Every name must have a source that exists, even if no mapping uses the claim.
fn check_sources(names: &[(String, String)], sources: &[String]) -> Result<(), RegisteredFault> {
    let mut messages: Vec<String> = Vec::new();
    for (_, source) in names {
        let message = if source.is_empty() {
            "oidc: failed to obtain source from claim name"
        } else if !sources.contains(source) {
            "oidc: source does not exist"
        } else {
            continue;
        };
        if !messages.iter().any(|known| known == message) {
            messages.push(message.to_owned());
        }
    }
    let mut messages = messages.into_iter();
    match messages.next() {
        None => Ok(()),
        Some(message) => Err(RegisteredFault {
            code: Code::ClaimSourceMissing,
            message,
            others: messages.collect(),
        }),
    }
}
