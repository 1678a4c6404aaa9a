//! The registered claims against the authenticator, and all claims as expressions see them.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{End, Rejection, Stage};
use crate::config::Undetermined;
use crate::go::json::Json;
use crate::go::quote::quote_list;
use crate::go::time;
use crate::token::{Numbers, Registered, to_claims};
use crate::validate::Authenticator;
use crate::{Code, Minor};

/// Seconds that `nbf` may be ahead. `exp` gets nothing.
const NBF_LEEWAY: i64 = 60;

/// The claims of a token, for mappings by name and for expressions.
pub(super) struct ClaimsView<'a> {
    pub(super) payload: &'a Json,
    pub(super) map: Map<String, Value>,
}

impl<'a> ClaimsView<'a> {
    pub(super) fn new(payload: &'a Json, minor: Minor, authenticator: &Authenticator) -> Result<Self, End> {
        if !authenticator.evaluates_claims() {
            return Ok(Self { payload, map: Map::new() });
        }
        let numbers = if minor <= Minor::V1_33 { Numbers::Kept } else { Numbers::Doubles };
        match to_claims(payload, numbers) {
            Some(map) => Ok(Self { payload, map }),
            None if minor <= Minor::V1_33 => {
                let message = "oidc: could not convert claims to unstructured: error decoding number from json";
                Err(End::Rejected(Rejection::new(Stage::Claims, Code::ClaimsNotConvertible, message).near()))
            }
            None => {
                Err(Undetermined::new(Code::ClaimsNotConvertible, "a claim holds a number beyond 1e308, which fails only where it is used")
                    .into())
            }
        }
    }
}

/// `expected` is the audience, or all of them, as the apiserver prints them.
pub(super) fn audience_differs(expected: &str, got: &[String]) -> End {
    let message = format!("oidc: verify token: oidc: expected audience {expected} got {}", quote_list(got));
    End::Rejected(Rejection::new(Stage::Audience, Code::AudienceDiffers, message))
}

/// Go keeps times as seconds since year 1, and adds that distance without looking whether it fits.
fn absolute(seconds: i64) -> i64 {
    seconds.wrapping_sub(time::ZERO)
}

pub(super) fn check_times(registered: &Registered, now: Timestamp) -> Result<(), End> {
    let (seconds, nanoseconds) = (now.as_second(), now.subsec_nanosecond());
    // `subsec_nanosecond` counts towards zero before 1970; Go counts up.
    let (seconds, late) = if nanoseconds < 0 { (seconds - 1, true) } else { (seconds, nanoseconds > 0) };
    let expiry = registered.expiry.unwrap_or(time::ZERO);
    let (expiry_at, now_at) = (absolute(expiry), absolute(seconds));
    if expiry_at < now_at || (expiry_at == now_at && late) {
        let printed = time::print(expiry);
        let message =
            format!("oidc: verify token: oidc: token is expired (Token Expiry: {})", printed.as_deref().unwrap_or("out of range"));
        let rejection = Rejection::new(Stage::Expiry, Code::TokenExpired, message);
        return Err(End::Rejected(if printed.is_some() { rejection } else { rejection.near() }));
    }
    let Some(not_before) = registered.not_before else { return Ok(()) };
    if now_at + NBF_LEEWAY < absolute(not_before) {
        let (now, printed) = (time::print(seconds), time::print(not_before));
        let message = format!(
            "oidc: verify token: oidc: current time {} before the nbf (not before) time: {}",
            now.as_deref().unwrap_or("out of range"),
            printed.as_deref().unwrap_or("out of range")
        );
        return Err(End::Rejected(Rejection::new(Stage::NotBefore, Code::TokenNotYetValid, message).near()));
    }
    Ok(())
}
