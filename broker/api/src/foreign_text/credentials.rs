//! Hides credentials in texts of others, by their form: private keys, signed tokens, passwords in
//! URLs, and what follows `Bearer`. A message of a target or of Git can repeat what it was sent.

use std::borrow::Cow;

use serde_json::Value;

/// What stands in place of a credential.
const HIDDEN: &str = "[hidden]";
/// How a JSON object begins in base64, and so a JSON Web Token.
const TOKEN_START: &str = "eyJ";
/// The shortest text after `Bearer` that is taken for a credential, and for a token in a URL.
const MIN_TOKEN_BYTES: usize = 16;

/// How many bytes to hide of what follows the start of a form.
type LengthOf = fn(&str) -> usize;

/// Returns the text without credentials of known forms.
///
/// ```
/// use keyferry_api::foreign_text::hide_credentials;
///
/// let said = "GET https://jane:word@git.example.com failed";
/// assert_eq!(hide_credentials(said), "GET https://[hidden]@git.example.com failed");
/// ```
#[must_use]
pub fn hide_credentials(text: &str) -> Cow<'_, str> {
    let forms: [(&str, LengthOf); 5] = [
        ("://", user_length),
        (TOKEN_START, token_length),
        ("earer ", opaque_length),
        ("EARER ", opaque_length),
        ("-----BEGIN ", key_length),
    ];
    let mut shown = Cow::Borrowed(text);
    for (start, length_of) in forms {
        if shown.contains(start) {
            shown = Cow::Owned(hide_after(&shown, start, length_of));
        }
    }
    shown
}

/// Hides credentials in every text of a document.
pub fn hide_credentials_in(document: &mut Value) {
    match document {
        Value::String(text) => {
            if let Cow::Owned(shown) = hide_credentials(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_credentials_in),
        Value::Object(members) => members.values_mut().for_each(hide_credentials_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Hides as many bytes as `length_of` says after each `start`.
fn hide_after(text: &str, start: &str, length_of: LengthOf) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(start) {
        shown.push_str(before);
        shown.push_str(start);
        // A key's ID, which is random, may have the letters of a token's start within.
        let is_within = start == TOKEN_START && before.ends_with(is_of_token);
        let length = if is_within { 0 } else { length_of(after) };
        let (hidden, visible) = after.split_at_checked(length).unwrap_or((after, ""));
        if !hidden.is_empty() {
            shown.push_str(HIDDEN);
        }
        rest = visible;
    }
    shown.push_str(rest);
    shown
}

/// The length of a user with a password, or of a token, before the host of a URL.
fn user_length(after: &str) -> usize {
    let ends = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<') || c.is_whitespace();
    let authority = after.split(ends).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    match user.contains(':') || user.len() >= MIN_TOKEN_BYTES {
        true => user.len(),
        false => 0,
    }
}

/// The length of the rest of a JSON Web Token, or of another JSON object in base64.
fn token_length(after: &str) -> usize {
    let ends = |c: char| !is_of_token(c) && !".~+/=".contains(c);
    let length = after.find(ends).unwrap_or(after.len());
    if length >= MIN_TOKEN_BYTES { length } else { 0 }
}

/// The length of an opaque token. A word without a digit is prose.
fn opaque_length(after: &str) -> usize {
    let token = after.get(..token_length(after)).unwrap_or_default();
    match token.contains(|c: char| c.is_ascii_digit()) {
        true => token.len(),
        false => 0,
    }
}

/// The length of a private key, with its label, up to its last line, or to the end of a text that
/// was cut.
fn key_length(after: &str) -> usize {
    let (label, _) = after.split_once("-----").unwrap_or((after, ""));
    match label.contains("PRIVATE KEY") {
        true => after.find("-----END ").unwrap_or(after.len()),
        false => 0,
    }
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_and_nothing_else_is() {
        let cases = [
            (
                "https://u:p@h/x and ssh://git@h",
                "https://[hidden]@h/x and ssh://git@h",
            ),
            ("https://ghp0123456789abcdef@h", "https://[hidden]@h"),
            ("mail a:b@c, https://h/@x:y", "mail a:b@c, https://h/@x:y"),
            ("token=eyJhbGciOiJSUzI1NiJ9.e30.c2ln!", "token=eyJ[hidden]!"),
            ("the header eyJhbG is short", "the header eyJhbG is short"),
            ("kid abeyJc0123456789012345", "kid abeyJc0123456789012345"),
            (
                "Authorization: Bearer abc-1234567890-DEF",
                "Authorization: Bearer [hidden]",
            ),
            (
                "use Bearer authentication, bearer tokens",
                "use Bearer authentication, bearer tokens",
            ),
            (
                "a -----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY----- b",
                "a -----BEGIN [hidden]-----END EC PRIVATE KEY----- b",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMHcCut", "-----BEGIN [hidden]"),
            (
                "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
                "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(hide_credentials(text), shown, "{text}");
            assert_eq!(hide_credentials(shown), shown, "hidden once");
        }
    }
}
