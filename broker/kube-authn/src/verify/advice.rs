//! What to do about a refused token, where the token itself shows more than its reason code: it is
//! not the kind of token that a target takes, or its key is not the published one.

use keyferry_go_formats::base64::decode_raw_url;
use keyferry_go_formats::json::Json;
use keyferry_go_formats::quote::quote;

use super::Rejection;
use crate::Code;
use crate::keys::KeySet;
use crate::token::{Form, Signed, Token};

/// The most `kid`s that are listed.
const MAX_KIDS: usize = 8;
/// The longest text of a token or a key set that is repeated, in characters.
const MAX_TEXT: usize = 80;

/// Returns what to do about this rejection, if the token shows more than the reason code.
pub(super) fn for_rejection(
    rejection: &Rejection,
    token: &Token,
    keys: Option<&KeySet>,
    audiences: &[String],
) -> Option<String> {
    let signed = match &token.form {
        Form::Signed(Ok(signed)) => signed,
        _ => return None,
    };
    let header = read_header(signed);
    match rejection.code {
        Code::SignatureInvalid => {
            let fix = of_signature(signed, &header, keys)?;
            // An access token may be for nobody but its issuer, so its keys need not help.
            Some(match sign_of_access_token(&header, &token.payload) {
                Some(sign) => format!(
                    "{fix}; besides, this looks like an access token, because {sign}: a target \
                     takes the id token"
                ),
                None => fix,
            })
        }
        Code::AudienceDiffers => of_audience(&header, &token.payload, audiences),
        Code::UsernameClaimMissing | Code::UsernameExpressionFailed => {
            let sign = sign_of_access_token(&header, &token.payload)?;
            Some(format!(
                "this looks like an access token, because {sign}: send the id token, or map a \
                 claim that the token has"
            ))
        }
        Code::AlgorithmUnsupported if signed.algorithm.starts_with("HS") => Some(format!(
            "{} signs with a secret that only the issuer has, as it does for refresh tokens: send \
             the id token, and have the issuer sign it with RS256 or ES256",
            signed.algorithm
        )),
        _ => None,
    }
}

fn of_signature(signed: &Signed, header: &Json, keys: Option<&KeySet>) -> Option<String> {
    if header.member("nonce").is_some() {
        return Some(
            "the token's header has a nonce, as in access tokens for Microsoft Graph, which \
             nobody but Graph can verify: send an id token, or request an access token for an API \
             of your own"
                .to_owned(),
        );
    }
    let keys = keys?;
    let kid = &signed.kid;
    let kids: Vec<&str> = keys.kids().collect();
    if kids.is_empty() {
        return Some(
            "the key set has no key: give the document of the issuer's jwks_uri".to_owned(),
        );
    }
    let published = match kids.as_slice() {
        [""] => "one key without a kid".to_owned(),
        kids => quote_list(kids),
    };
    Some(if kid.is_empty() {
        format!(
            "the token names no kid, and none of the published keys signed it: {published}; \
             compare the key set with the issuer of the token"
        )
    } else if kids.contains(&kid.as_str()) {
        format!(
            "the key set has a key with the token's kid {}, but another key signed the token, or \
             it was changed afterwards: compare the key set with the issuer of the token",
            quote_foreign(kid)
        )
    } else {
        format!(
            "the token's kid is {}, the key set has {published}: publish that key, or use the key \
             set of the issuer that signed the token; a target keeps an old key set until its \
             cache expires or its file changes",
            quote_foreign(kid)
        )
    })
}

fn of_audience(header: &Json, payload: &Json, audiences: &[String]) -> Option<String> {
    let wanted: Vec<&str> = audiences.iter().map(String::as_str).collect();
    let wanted = quote_list(&wanted);
    if let Some(sign) = sign_of_access_token(header, payload) {
        let client = ["azp", "client_id"]
            .into_iter()
            .find(|name| {
                member_text(payload, name)
                    .is_some_and(|client| audiences.iter().any(|one| one == client))
            })
            .map_or_else(String::new, |name| {
                format!("; the client is the right one, as {name} says")
            });
        return Some(format!(
            "this looks like an access token, because {sign}{client}: send the id token, or have \
             the issuer write {wanted} into aud, in Keycloak with an audience mapper"
        ));
    }
    // A ServiceAccount token is the hub's, and its audience is that of the TargetCluster.
    if payload.member("kubernetes.io").is_some() {
        return None;
    }
    Some(format!(
        "request a token for {wanted}, or write the token's aud into issuer.audiences, if only \
         this target accepts tokens with it"
    ))
}

/// Says by what a token shows that it is an access token.
fn sign_of_access_token(header: &Json, payload: &Json) -> Option<String> {
    if let Some(found) = one_of(payload, "typ", &["Bearer", "Refresh", "Offline"]) {
        return Some(format!("its typ is {}", quote_foreign(found)));
    }
    if let Some(found) = one_of(payload, "token_use", &["access"]) {
        return Some(format!("its token_use is {}", quote_foreign(found)));
    }
    if let Some(found) = one_of(header, "typ", &["at+jwt", "application/at+jwt"]) {
        return Some(format!("the typ of its header is {}", quote_foreign(found)));
    }
    if payload.member("aud").is_none() {
        return Some("it has no aud".to_owned());
    }
    ["scp", "scope"]
        .into_iter()
        .find(|name| payload.member(name).is_some())
        .map(|name| format!("it has {name}"))
}

/// Returns a member that is one of these texts, in any case.
fn one_of<'a>(object: &'a Json, name: &str, wanted: &[&str]) -> Option<&'a str> {
    member_text(object, name)
        .filter(|found| wanted.iter().any(|one| found.eq_ignore_ascii_case(one)))
}

fn member_text<'a>(object: &'a Json, name: &str) -> Option<&'a str> {
    match object.member(name) {
        Some(Json::Text(text)) => Some(text),
        _ => None,
    }
}

/// Quotes a foreign text on one line, cut if it is too long.
fn quote_foreign(text: &str) -> String {
    if text.chars().count() <= MAX_TEXT {
        return quote(text);
    }
    let cut: String = text.chars().take(MAX_TEXT).collect();
    format!("{} …", quote(&cut))
}

fn quote_list(texts: &[&str]) -> String {
    let mut shown: Vec<String> = texts
        .iter()
        .take(MAX_KIDS)
        .map(|one| quote_foreign(one))
        .collect();
    let left = texts.len().saturating_sub(MAX_KIDS);
    if left > 0 {
        shown.push(format!("{left} more"));
    }
    shown.join(", ")
}

/// Returns the header, read again from the signed bytes.
fn read_header(signed: &Signed) -> Json {
    signed
        .input
        .split(|byte| *byte == b'.')
        .next()
        .and_then(|header| decode_raw_url(header).ok())
        .and_then(|header| Json::parse(&header).ok())
        .unwrap_or(Json::Null)
}
