//! Checks the registered claims against the authenticator, and prepares all claims for expressions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_cel_kubernetes::{ClaimError, Expression, Input};
use keyferry_go_formats::json::Json;
use keyferry_go_formats::quote::{quote, quote_list};
use keyferry_go_formats::time;
use serde_json::{Map, Value};

use super::{End, Rejection, Stage};
use crate::config::Undetermined;
use crate::token::{ClaimFault, Numbers, Registered, to_claim};
use crate::validate::Authenticator;
use crate::{Code, Minor};

/// The seconds that `nbf` may lie ahead. `exp` has no leeway.
const NBF_LEEWAY: i64 = 60;

/// The claims of a token, for mappings by name and for expressions.
pub(super) struct ClaimsView<'a> {
    pub(super) payload: &'a Json,
    map: Map<String, Value>,
    /// Claims whose use in an expression fails, with the apiserver's message.
    failing: BTreeMap<String, ClaimError>,
    /// Claims that nest too deep for an expression to be evaluated on them here.
    deep: BTreeSet<String>,
}

impl<'a> ClaimsView<'a> {
    pub(super) fn new(
        payload: &'a Json,
        minor: Minor,
        authenticator: &Authenticator,
    ) -> Result<Self, End> {
        let mut view = Self {
            payload,
            map: Map::new(),
            failing: BTreeMap::new(),
            deep: BTreeSet::new(),
        };
        if !authenticator.evaluates_claims() {
            return Ok(view);
        }
        let numbers = if minor <= Minor::V1_33 {
            Numbers::Kept
        } else {
            Numbers::Doubles
        };
        for (name, value) in payload.members() {
            // If a name occurs twice, the last member counts.
            view.map.remove(name);
            view.failing.remove(name);
            view.deep.remove(name);
            match to_claim(value, numbers) {
                Ok(value) => drop(view.map.insert(name.clone(), value)),
                Err(ClaimFault::TooDeep) => drop(view.deep.insert(name.clone())),
                Err(ClaimFault::HugeNumber(digits)) => {
                    let reason = format!(
                        "json: cannot unmarshal number {digits} into Go value of type float64"
                    );
                    view.failing.insert(
                        name.clone(),
                        ClaimError::Failed(format!(
                            "claim {} failed to unmarshal: {reason}",
                            quote(name)
                        )),
                    );
                }
            }
        }
        if minor >= Minor::V1_34 {
            // From 1.34 on, the apiserver decodes a claim only when an expression uses it.
            let deep = std::mem::take(&mut view.deep).into_iter();
            view.failing
                .extend(deep.map(|name| (name, ClaimError::TooDeep)));
        }
        if minor <= Minor::V1_33 && !view.failing.is_empty() {
            // Up to 1.33, the apiserver converts all claims before any expression runs.
            let message =
                "oidc: could not convert claims to unstructured: error decoding number from json";
            return Err(End::Rejected(
                Rejection::new(Stage::Claims, Code::ClaimsNotConvertible, message).near(),
            ));
        }
        Ok(view)
    }

    /// Returns the input of an expression, or why the result cannot be decided here.
    pub(super) fn input(&self, expression: &Expression) -> Result<Input<'_>, Undetermined> {
        match self
            .deep
            .iter()
            .find(|name| expression.may_use("claims", name))
        {
            None => Ok(Input::PartialClaims {
                claims: &self.map,
                failing: &self.failing,
            }),
            Some(name) => {
                let reason = format!(
                    "{}: the claim {} nests too deep to be evaluated here",
                    expression.text(),
                    quote(name)
                );
                Err(Undetermined::new(Code::TooDeep, reason))
            }
        }
    }
}

/// Rejects the audience. `expected` is the one audience, or all of them, as the apiserver prints
/// them.
pub(super) fn audience_differs(expected: &str, got: &[String]) -> End {
    let message = format!(
        "oidc: verify token: oidc: expected audience {expected} got {}",
        quote_list(got)
    );
    End::Rejected(Rejection::new(
        Stage::Audience,
        Code::AudienceDiffers,
        message,
    ))
}

/// Converts to Go's internal time, in seconds since year 1. Go's addition wraps around on overflow,
/// so this one does too.
fn go_seconds(seconds: i64) -> i64 {
    seconds.wrapping_sub(time::ZERO)
}

pub(super) fn check_times(registered: &Registered, now: Timestamp) -> Result<(), End> {
    let (seconds, nanoseconds) = (now.as_second(), now.subsec_nanosecond());
    // `subsec_nanosecond` counts towards zero before 1970; Go counts up.
    let (seconds, late) = if nanoseconds < 0 {
        (seconds - 1, true)
    } else {
        (seconds, nanoseconds > 0)
    };
    let expiry = registered.expiry.unwrap_or(time::ZERO);
    let (expiry_at, now_at) = (go_seconds(expiry), go_seconds(seconds));
    if expiry_at < now_at || (expiry_at == now_at && late) {
        let printed = time::print(expiry);
        let message = format!(
            "oidc: verify token: oidc: token is expired (Token Expiry: {})",
            printed.as_deref().unwrap_or("out of range")
        );
        let rejection = Rejection::new(Stage::Expiry, Code::TokenExpired, message);
        return Err(End::Rejected(if printed.is_some() {
            rejection
        } else {
            rejection.near()
        }));
    }
    let Some(not_before) = registered.not_before else {
        return Ok(());
    };
    if now_at + NBF_LEEWAY < go_seconds(not_before) {
        let (now, printed) = (time::print(seconds), time::print(not_before));
        let message = format!(
            "oidc: verify token: oidc: current time {} before the nbf (not before) time: {}",
            now.as_deref().unwrap_or("out of range"),
            printed.as_deref().unwrap_or("out of range")
        );
        return Err(End::Rejected(
            Rejection::new(Stage::NotBefore, Code::TokenNotYetValid, message).near(),
        ));
    }
    Ok(())
}
