//! Writes a decoded token for a person.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;

use super::document::{ObjectDocument, SignatureReport, SignatureState, TokenDocument};
use super::span_text::{describe_relative, describe_seconds};
use crate::ui;

/// Writes what a token says, in columns, and below it what that is worth.
pub(super) fn of(document: &TokenDocument) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("signature", state_in_words(document)),
        ("alg", document.algorithm.to_owned()),
        ("kid", shown(document.key_id.as_ref())),
        ("iss", shown(document.issuer.as_ref())),
        ("sub", shown(document.subject.as_ref())),
        ("aud", audiences(document)),
        ("issued", time(document.issued_at, document.judged_at)),
    ];
    // Kubernetes always writes the same time as iat.
    if document.not_before != document.issued_at {
        rows.push(("valid from", time(document.not_before, document.judged_at)));
    }
    rows.push(("expires", expiry(document)));
    rows.push(("jti", shown(document.token_id.as_ref())));
    let objects = [
        ("account", document.service_account.as_ref()),
        ("pod", document.pod.as_ref()),
        ("node", document.node.as_ref()),
        ("secret", document.secret.as_ref()),
    ];
    rows.extend(
        objects
            .into_iter()
            .filter_map(|(name, object)| Some((name, object_in_words(object?)))),
    );
    if let Some(why) = &document.not_bound {
        rows.push((
            "account",
            format!("not read as a bound ServiceAccount token: {why}"),
        ));
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    format!("{}\n\n{}", ui::table(&rows), note(&document.signature))
}

fn state_in_words(document: &TokenDocument) -> String {
    let detail = document.signature.detail.as_deref().unwrap_or_default();
    match document.signature.state {
        SignatureState::NotChecked => "NOT CHECKED".to_owned(),
        SignatureState::Valid => "valid: the published key of this kid signed the token".to_owned(),
        SignatureState::KeyNotInSet => format!("NOT CHECKED: {detail}"),
        SignatureState::Invalid => format!("INVALID: {detail}"),
    }
}

/// Says what the reader may conclude, and what to do.
fn note(signature: &SignatureReport) -> String {
    let file = ui::plain(signature.key_set.as_deref().unwrap_or_default());
    match signature.state {
        SignatureState::NotChecked => {
            "the signature was not checked, so anyone may have written all of this\nfix: give the \
             issuer's published keys with --jwks FILE"
                .to_owned()
        }
        SignatureState::Valid => format!(
            "a key of {file} signed it; whether a target accepts it is another question: keyferry \
             verify, keyferry doctor"
        ),
        SignatureState::KeyNotInSet => {
            let kids: Vec<String> = signature
                .published_kids
                .iter()
                .map(ToString::to_string)
                .collect();
            format!(
                "{file} has no such key, so the signature was not checked, and anyone may have \
                 written all of this\nthe published kids are: {}\nfix: read the issuer's jwks_uri \
                 again; if the key is still missing, targets refuse the token",
                kids.join(", ")
            )
        }
        SignatureState::Invalid => format!(
            "no key of {file} signed this text; do not trust any of it\nfix: get a new token from \
             the issuer"
        ),
    }
}

fn shown(text: Option<&ForeignText>) -> String {
    text.map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn audiences(document: &TokenDocument) -> String {
    if document.audiences.is_empty() {
        return "none".to_owned();
    }
    let mut names: Vec<String> = document.audiences.iter().map(ToString::to_string).collect();
    if document.more_audiences > 0 {
        names.push(format!("and {} more", document.more_audiences));
    }
    names.join(", ")
}

fn time(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(
        || "not stated".to_owned(),
        |time| format!("{} ({time})", describe_relative(time, now)),
    )
}

fn expiry(document: &TokenDocument) -> String {
    let Some(end) = document.expires_at else {
        return "not stated: the token has no readable exp".to_owned();
    };
    let relative = describe_relative(end, document.judged_at);
    let life = document
        .issued_at
        .filter(|begin| *begin < end)
        .map(|begin| describe_seconds(end.as_second().abs_diff(begin.as_second())));
    let life = life.map_or_else(String::new, |life| format!(", lives {life}"));
    if document.expired == Some(true) {
        format!("EXPIRED {relative} ({end}{life})")
    } else {
        format!("{relative} ({end}{life})")
    }
}

fn object_in_words(object: &ObjectDocument) -> String {
    let name = match &object.namespace {
        Some(namespace) => format!("{namespace}/{}", object.name),
        None => object.name.clone(),
    };
    match &object.uid {
        Some(uid) => format!("{name}, UID {uid}"),
        None => format!("{name}, without a UID"),
    }
}
