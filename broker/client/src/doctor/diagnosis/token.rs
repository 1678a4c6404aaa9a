//! The hops that the token itself shows: its source, its issuer, its claims, and the clocks.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::reason::Reason;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::token::{Form, Registered, Signed, Token};

use super::{Evidence, Finding, Hop, Status, TokenEvidence};

/// The leeway in seconds that a target gives `nbf`; it gives `exp` none.
const NOT_BEFORE_LEEWAY: i64 = 60;
/// A skew in seconds that an HTTP date and a slow response do not explain.
const NOTABLE_SKEW: i64 = 5;

/// The token, parsed once for all hops.
pub(super) struct ParsedToken {
    pub(super) token: Option<Token>,
    pub(super) registered: Option<Registered>,
}

impl ParsedToken {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let token = match &evidence.token_evidence {
            TokenEvidence::Token(bytes) => Token::read(bytes).ok(),
            TokenEvidence::None
            | TokenEvidence::Failed(_)
            | TokenEvidence::Unknown(_)
            | TokenEvidence::NotAToken(_) => None,
        };
        let registered = token
            .as_ref()
            .and_then(|token| Registered::read(&token.payload).ok());
        Self { token, registered }
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.token.as_ref()?.issuer.as_deref().ok()
    }

    pub(super) fn subject(&self) -> Option<&str> {
        self.token.as_ref()?.subject()
    }

    pub(super) fn signed(&self) -> Option<&Signed> {
        match &self.token.as_ref()?.form {
            Form::Signed(Ok(signed)) => Some(signed),
            Form::Signed(Err(_)) | Form::Imagined => None,
        }
    }
}

pub(super) fn start(evidence: &Evidence) -> Finding {
    if let Some(problem) = &evidence.start_problem {
        return Finding::of_problem(Hop::Start, Status::Broken, problem);
    }
    match (&evidence.start_unknown, &evidence.start_warning) {
        (Some(why), _) => Finding::open(Hop::Start, why),
        (None, Some(warning)) => Finding::of_problem(Hop::Start, Status::Warning, warning),
        (None, None) => Finding::well_finding(Hop::Start, &evidence.start),
    }
}

pub(super) fn token(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    match &evidence.token_evidence {
        TokenEvidence::None => {
            Finding::open(Hop::Token, "there is no token; add --target-token-file")
        }
        TokenEvidence::Failed(problem) => Finding::of_problem(Hop::Token, Status::Broken, problem),
        TokenEvidence::Unknown(why) => Finding::open(Hop::Token, why),
        TokenEvidence::NotAToken(what) => Finding::not_asked(Hop::Token, what),
        TokenEvidence::Token(_) => match (seen.issuer(), seen.signed()) {
            (Some(_), Some(_)) => Finding::well_finding(Hop::Token, "the token is a signed JWT"),
            _ => Finding::broken_finding(
                Hop::Token,
                Code::TokenUnreadable,
                "the token is not a signed JWT with an issuer",
            ),
        },
    }
}

pub(super) fn issuer(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let Some(issuer) = seen.issuer() else {
        return Finding::open(Hop::Issuer, "there is no token with an issuer");
    };
    if !issuer.starts_with("https://") {
        return Finding::broken_finding(
            Hop::Issuer,
            Code::UrlNotHttps,
            format!("{issuer:?} is not https, so no target can trust it"),
        );
    }
    match &evidence.issuer {
        Some(expected) if expected != issuer => Finding::broken_finding(
            Hop::Issuer,
            Code::IssuerDiffers,
            format!("the token's iss is {issuer:?}; expected {expected:?}"),
        ),
        _ => Finding::well_finding(Hop::Issuer, issuer),
    }
}

pub(super) fn claims(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    if seen.token.is_none() {
        return Finding::open(Hop::Claims, "there is no token");
    }
    let Some(claims) = &seen.registered else {
        return Finding::broken_finding(
            Hop::Claims,
            Code::ClaimsMalformed,
            "a registered claim has the wrong type",
        );
    };
    let expected = &evidence.audiences;
    if !expected.is_empty()
        && !claims
            .audience
            .iter()
            .any(|audience| expected.contains(audience))
    {
        let detail = format!(
            "the token's aud is {:?}; expected one of {expected:?}",
            claims.audience
        );
        return Finding::broken_finding(Hop::Claims, Code::AudienceDiffers, detail);
    }
    let by_target = evidence.target.skew.is_some();
    let (here, there) = (
        fault_at(claims, evidence.now),
        fault_at(claims, evidence.target_time()),
    );
    match (here, there) {
        // The target's clock decides. If the token is out of time by that clock only, the clock is
        // the broken hop.
        (Some((code, detail)), Some(_)) => Finding::broken_finding(Hop::Claims, code, detail),
        (Some((code, detail)), None) if by_target => Finding::warning(
            Hop::Claims,
            code,
            format!("{detail} by the local clock, but not by the target's"),
        ),
        _ => {
            let several = if claims.audience.len() > 1 {
                ", for several audiences"
            } else {
                ""
            };
            Finding::well_finding(
                Hop::Claims,
                format!("the token is valid now{several}; aud {:?}", claims.audience),
            )
        }
    }
}

pub(super) fn clock(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let Some(skew) = evidence.target.skew else {
        return Finding::open(Hop::Clock, "the target's time is unknown");
    };
    let seconds = skew.as_secs();
    let detail = format!("the target's clock differs from the local one by {seconds:+} s");
    let out_of_time = seen.registered.as_ref().is_some_and(|claims| {
        fault_at(claims, evidence.now).is_none()
            && fault_at(claims, evidence.target_time()).is_some()
    });
    if out_of_time {
        return Finding::broken_finding(
            Hop::Clock,
            Reason::ClockSkew,
            format!("{detail}, so the token is not valid at the target now"),
        );
    }
    if skew.abs() > SignedDuration::from_secs(NOTABLE_SKEW) {
        return Finding::warning(Hop::Clock, Reason::ClockSkew, detail);
    }
    Finding::well_finding(Hop::Clock, detail)
}

fn fault_at(claims: &Registered, now: Timestamp) -> Option<(Code, String)> {
    let second = now.as_second();
    match (claims.expiry, claims.not_before) {
        (None, _) => Some((Code::TokenExpired, "the token has no exp".to_owned())),
        (Some(expiry), _) if expiry < second => Some((
            Code::TokenExpired,
            format!("the token expired {} s ago", second.saturating_sub(expiry)),
        )),
        (_, Some(before)) if before > second.saturating_add(NOT_BEFORE_LEEWAY) => Some((
            Code::TokenNotYetValid,
            format!(
                "the token becomes valid in {} s",
                before.saturating_sub(second)
            ),
        )),
        _ => None,
    }
}
