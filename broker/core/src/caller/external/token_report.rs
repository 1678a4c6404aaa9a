//! What the configured rules say to a token, for a person who looks at both.
//!
//! The signature is not checked, so this proves nothing about the caller.

use jiff::Timestamp;
use keyferry_api::config::{ClaimRule, ExternalIssuer, ExternalSystem, TokenUse, same_issuer};
use keyferry_api::foreign_text;
use keyferry_keys::id_token::IdTokenClaims;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify::ClaimsError;

use super::refused_claim::{Candidate, RefusedClaim, meets_rule};
use super::{check_registered, is_of_kind};

/// The longest text of a token in a report, in characters.
const MAX_TEXT_CHARACTERS: usize = 128;

/// The entry and the rule that accept a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedToken {
    /// The rule, as a path of the configuration.
    pub rule: String,
    /// The ServiceAccount for which the token stands.
    pub account: String,
    /// Why the server would refuse it now all the same, by the clock alone.
    pub untimely: Option<ClaimsError>,
}

/// Why no rule accepts a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnacceptedToken {
    /// What differs, from what.
    pub problem: String,
    /// What to do.
    pub fix: &'static str,
}

/// Says which rule accepts a token, or which one it misses by the fewest claims.
///
/// # Errors
/// [`UnacceptedToken`].
pub fn report_token(
    jwt: &UnverifiedJwt,
    issuers: &[ExternalIssuer],
    now: Timestamp,
) -> Result<AcceptedToken, UnacceptedToken> {
    let claims = IdTokenClaims::read(jwt).map_err(|error| {
        let fix = "give an id-token, which has iss, sub, aud, iat and exp";
        refused(error.to_string(), fix)
    })?;
    if jwt.kid().is_none() {
        return Err(refused(
            "token header has no kid, so the server does not know which key signs it".to_owned(),
            "make its issuer write one",
        ));
    }
    let entries = entries_of_issuer(&claims, issuers)?;
    let entries = entries_of_audience(&claims, &entries)?;
    let (mut candidates, mut untimely, mut unfit) = (Vec::new(), None, None);
    for candidate in entries {
        let checked = check_kind(&claims, candidate);
        match checked.and_then(|()| check_times(&claims, candidate, now)) {
            Ok(by_clock) => {
                untimely = by_clock;
                candidates.push(candidate);
            }
            Err(refused) => unfit = unfit.or(Some(refused)),
        }
    }
    match unfit {
        Some(refused) if candidates.is_empty() => Err(refused),
        _ => accepting_rule(&claims, &candidates, untimely),
    }
}

fn refused(problem: String, fix: &'static str) -> UnacceptedToken {
    UnacceptedToken { problem, fix }
}

fn one_line(text: &str) -> String {
    foreign_text::one_line(text, MAX_TEXT_CHARACTERS)
}

fn entries_of_issuer<'i>(
    claims: &IdTokenClaims,
    issuers: &'i [ExternalIssuer],
) -> Result<Vec<Candidate<'i>>, UnacceptedToken> {
    let issuer = &claims.registered().issuer;
    let of_issuer: Vec<_> = issuers
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.url.as_str() == issuer)
        .collect();
    if !of_issuer.is_empty() {
        return Ok(of_issuer);
    }
    let alike = issuers
        .iter()
        .position(|entry| same_issuer(entry.url.as_str(), issuer));
    let problem = match alike {
        Some(index) => format!(
            "its iss \"{}\" differs from externalIssuers[{index}].url in its spelling",
            one_line(issuer)
        ),
        None => format!("no entry has its iss \"{}\" as url", one_line(issuer)),
    };
    Err(refused(
        problem,
        "write the iss into url, byte for byte; a ServiceAccount of the hub needs no entry",
    ))
}

fn entries_of_audience<'i>(
    claims: &IdTokenClaims,
    entries: &[Candidate<'i>],
) -> Result<Vec<Candidate<'i>>, UnacceptedToken> {
    let audiences = &claims.registered().audiences;
    let is_only = |entry: &ExternalIssuer| matches!(audiences.as_slice(), [only] if only == entry.audience.as_str());
    let of_audience: Vec<_> = entries
        .iter()
        .filter(|(_, entry)| is_only(entry))
        .copied()
        .collect();
    let Some((index, entry)) = entries.first().filter(|_| of_audience.is_empty()) else {
        return Ok(of_audience);
    };
    let audiences: Vec<String> = audiences
        .iter()
        .take(4)
        .map(|text| format!("\"{}\"", one_line(text)))
        .collect();
    Err(refused(
        format!(
            "its aud is {}, and externalIssuers[{index}].audience is \"{}\"",
            audiences.join(", "),
            entry.audience
        ),
        "make the job ask for that audience alone, or write the token's into the entry",
    ))
}

/// Checks the lifetime, and returns what the clock alone has against the token: most tokens have
/// expired before a person looks at them.
fn check_times(
    claims: &IdTokenClaims,
    (index, entry): Candidate<'_>,
    now: Timestamp,
) -> Result<Option<ClaimsError>, UnacceptedToken> {
    let longest = Some(entry.max_token_lifetime);
    let (at_issue, untimely) = match check_registered(claims, entry, longest, now) {
        Err(
            error @ (ClaimsError::Expired | ClaimsError::NotYetValid | ClaimsError::IssuedInFuture),
        ) => {
            let issued_at = claims.registered().issued_at;
            let at_issue = check_registered(claims, entry, longest, issued_at);
            (at_issue, Some(error))
        }
        checked => (checked, None),
    };
    match at_issue {
        Ok(()) => Ok(untimely),
        Err(ClaimsError::LivesTooLong) => {
            let registered = claims.registered();
            let life = registered.expires_at.duration_since(registered.issued_at);
            Err(refused(
                format!(
                    "it lives {} s, and externalIssuers[{index}].maxTokenLifetime is {} s",
                    life.as_secs(),
                    entry.max_token_lifetime.as_secs()
                ),
                "raise maxTokenLifetime, or shorten the token's life at its system",
            ))
        }
        Err(error) => Err(refused(error.to_string(), "compare its iat, nbf and exp")),
    }
}

fn check_kind(
    claims: &IdTokenClaims,
    (index, entry): Candidate<'_>,
) -> Result<(), UnacceptedToken> {
    if !is_of_kind(claims, entry) {
        let problem = match entry.system {
            Some(ExternalSystem::Kubernetes) => format!(
                "it has no claim kubernetes.io, and externalIssuers[{index}].system is Kubernetes"
            ),
            _ => format!(
                "it is the token of a ServiceAccount, and externalIssuers[{index}].system is not \
                 Kubernetes"
            ),
        };
        return Err(refused(problem, "name the system that signs the token"));
    }
    if entry.token_use == TokenUse::Once && claims.registered().token_id.is_none() {
        return Err(refused(
            format!("it has no jti, and externalIssuers[{index}].tokenUse is Once"),
            "write tokenUse: UntilExpiry",
        ));
    }
    Ok(())
}

fn accepting_rule(
    claims: &IdTokenClaims,
    candidates: &[Candidate<'_>],
    untimely: Option<ClaimsError>,
) -> Result<AcceptedToken, UnacceptedToken> {
    let accepting = candidates.iter().find_map(|(index, entry)| {
        let meets = |rule: &ClaimRule| meets_rule(claims, rule, entry.system);
        Some((*index, *entry, entry.rules.iter().position(meets)?))
    });
    if let Some((index, entry, rule)) = accepting {
        return Ok(AcceptedToken {
            rule: format!("externalIssuers[{index}].rules[{rule}]"),
            account: entry.service_account.to_string(),
            untimely,
        });
    }
    let nearest = RefusedClaim::nearest(claims, candidates);
    let problem = nearest.map_or_else(String::new, |claim| {
        let token = claim.value.as_ref().map_or_else(
            || "the token has no such claim".to_owned(),
            |value| format!("the token has \"{value}\""),
        );
        let rule = candidates
            .iter()
            .find(|(index, _)| *index == claim.entry)
            .and_then(|(_, entry)| entry.rules.get(claim.rule)?.claims.get(&claim.name))
            .map_or_else(
                || "wants an event of members".to_owned(),
                |value| format!("wants \"{}\"", one_line(value)),
            );
        format!(
            "no rule accepts it; the nearest, {}, {rule} as {}, and {token}",
            claim.rule_path(),
            claim.name
        )
    });
    Err(refused(
        problem,
        "compare the rule with the job that may use it; every value is an exact text",
    ))
}

#[cfg(test)]
mod tests;
