//! Distributed groups claims: how far the apiserver gets without the network.

use keyferry_go_formats::json::{Json, folds_to};
use keyferry_go_formats::quote::quote;

use super::{End, Rejection, Stage};
use crate::Code;
use crate::config::Undetermined;

/// Checks whether the groups claim is distributed. Names are case-sensitive here.
pub(super) fn check_distributed(payload: &Json, claim: &str) -> Result<(), End> {
    if payload.member(claim).is_some() {
        return Ok(());
    }
    let Some(names) = payload.member("_claim_names") else {
        return Ok(());
    };
    let mut source = None;
    for (name, value) in names.members() {
        let text = value.to_text().map_err(|reason| {
            reject_token(&format!(
                "oidc: error parsing distributed claim names: {reason}"
            ))
        })?;
        if name == claim {
            source = Some(text);
        }
    }
    let Some(sources) = payload.member("_claim_sources") else {
        return Err(reject_token("oidc: no claim sources"));
    };
    check_sources(sources)?;
    let Some(source) = source else { return Ok(()) };
    let Some(place) = sources.member(&source) else {
        return Err(reject_token(&format!(
            "id token _claim_names contained a source {source} missing in _claims_sources"
        )));
    };
    let endpoint = place
        .members()
        .iter()
        .rev()
        .find_map(|(name, value)| match value {
            Json::Text(text) if folds_to(name, "endpoint") => Some(text.as_str()),
            _ => None,
        });
    match endpoint {
        None | Some("") => Ok(()),
        Some(endpoint) => {
            let reason = format!(
                "the target would fetch the claim {} from {}",
                quote(claim),
                quote(endpoint)
            );
            Err(Undetermined::new(Code::NeedsNetwork, reason).into())
        }
    }
}

fn check_sources(sources: &Json) -> Result<(), End> {
    let fields = ["endpoint", "access_token", "JWT"];
    for (_, source) in sources.members() {
        let wrong = source.members().iter().find(|(name, value)| {
            !matches!(value, Json::Null | Json::Text(_))
                && fields.iter().any(|field| folds_to(name, field))
        });
        if let Some((_, value)) = wrong {
            return Err(reject_token(&format!(
                "oidc: could not parse claim sources: {}",
                value.mismatch("string")
            )));
        }
    }
    Ok(())
}

fn reject_token(reason: &str) -> End {
    let message = format!("oidc: could not expand distributed claims: {reason}");
    End::Rejected(
        Rejection::new(
            Stage::DistributedClaims,
            Code::DistributedClaimsMalformed,
            message,
        )
        .near(),
    )
}
