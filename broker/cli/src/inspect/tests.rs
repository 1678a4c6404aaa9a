#![allow(clippy::unwrap_used)]

use clap::Parser;
use insta::assert_snapshot;
use keyferry_keys::jwt::SigningAlgorithm;
use keyferry_keys::testing::{NOW, claims, key};
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: InspectArgs,
}

fn signed(claims: &Value) -> String {
    key(SigningAlgorithm::Es256).token(claims)
}

/// Creates a file with this content, deleted when the returned value is dropped.
fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

/// Decodes a file with this content 25 minutes after the issuance of [`claims`].
fn inspect(content: &[u8], key_set: Option<&str>) -> Result<(TokenDocument, String), String> {
    let token = file(content);
    let keys = key_set.map(|text| file(text.as_bytes()));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    let at = Timestamp::from_second(NOW + 1500).unwrap().to_string();
    let mut line = vec!["inspect".to_owned(), path(&token), "--at".to_owned(), at];
    if let Some(keys) = &keys {
        line.extend(["--jwks".to_owned(), path(keys)]);
    }
    let named = |text: String| {
        let text = text.replace(&path(&token), "TOKEN_FILE");
        keys.iter()
            .fold(text, |text, keys| text.replace(&path(keys), "KEYS_FILE"))
    };
    let args = Line::try_parse_from(line).unwrap().args;
    match decoded(&args) {
        Ok(document) => {
            let text = named(text::of(&document));
            Ok((document, text))
        }
        Err(error) => Err(named(format!(
            "{error}\nfix: {}",
            error.fix.as_deref().unwrap_or("none")
        ))),
    }
}

#[test]
fn a_bound_token_is_decoded() {
    let (document, text) = inspect(signed(&claims()).as_bytes(), None).unwrap();
    assert_eq!(exit_code(&document.signature.state), 0);
    assert_snapshot!("a-bound-token", text);
    assert_snapshot!("a-bound-token-as-json", ui::json(&document).unwrap());
}

#[test]
fn what_a_claim_says_stays_on_its_line_and_odd_claims_hide_no_others() {
    let long: Vec<String> = (0..60).map(|number| format!("a{number}")).collect();
    for (case, changes) in [
        ("expired", json!({ "exp": NOW + 60 })),
        (
            "without-times",
            json!({ "exp": null, "iat": "soon", "nbf": [] }),
        ),
        (
            "with-fractions",
            json!({ "exp": 1_790_003_600.75, "iat": 1e300 }),
        ),
        (
            "of-no-account",
            json!({ "kubernetes.io": null, "sub": "repo:example/app" }),
        ),
        (
            "of-another-account",
            json!({ "sub": "system:serviceaccount:kube-system:admin" }),
        ),
        (
            "of-a-hostile-issuer",
            json!({ "iss": "x\nsignature  valid\u{1b}[2J", "sub": "\u{202e}evil", "jti": 7, "aud": ["a\nb", 3] }),
        ),
        ("for-many", json!({ "aud": long })),
    ] {
        let mut claims = claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let (_, text) = inspect(signed(&claims).as_bytes(), None).unwrap();
        assert_snapshot!(format!("a-token-{case}"), text);
    }
}

#[test]
fn the_signature_is_checked_with_published_keys() {
    let key_set = |algorithm| json!({ "keys": [key(algorithm).entry()] }).to_string();
    let own = key_set(SigningAlgorithm::Es256);
    let token = signed(&claims());
    let (input, _) = token.rsplit_once('.').unwrap();
    let other = signed(&json!({ "iss": "https://other" }));
    let forged = format!("{input}.{}", other.rsplit_once('.').unwrap().1);
    for (case, token, key_set, code) in [
        ("valid", &token, &own, 0),
        ("forged", &forged, &own, 1),
        ("unpublished", &token, &key_set(SigningAlgorithm::Rs256), 1),
    ] {
        let (document, text) = inspect(token.as_bytes(), Some(key_set)).unwrap();
        assert_eq!(exit_code(&document.signature.state), code, "{text}");
        assert_snapshot!(format!("a-signature-that-is-{case}"), text);
    }
}

#[test]
fn a_token_is_read_alone_or_from_an_exec_credential() {
    let token = signed(&claims());
    let credential = |member: Value| {
        json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": member })
            .to_string()
    };
    for content in [
        token.clone(),
        format!("\n{token}\r\n"),
        credential(json!({ "token": token })),
        format!(" {}\n", credential(json!({ "token": token }))),
    ] {
        let (document, _) = inspect(content.as_bytes(), None).unwrap();
        assert_eq!(document.key_id.unwrap().to_string(), "ES256");
    }
}

#[test]
fn what_holds_no_token_is_refused_and_not_repeated() {
    let token = signed(&claims());
    let secret = "hunter2-hunter2";
    let parts: Vec<&str> = token.split('.').collect();
    let with_header = |header: &str| {
        use base64::Engine;
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
        format!("{header}.{}.{}", parts[1], parts[2])
    };
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("white space", b" \r\n\t".to_vec()),
        ("an opaque token", secret.as_bytes().to_vec()),
        ("bytes", vec![0xff, 0xfe, b'.', b'.']),
        ("two parts", format!("{}.{}", parts[0], parts[1]).into()),
        ("five parts", format!("{token}.{secret}.x").into()),
        ("no signature", format!("{}.{}.", parts[0], parts[1]).into()),
        ("alg none", with_header(r#"{"alg":"none"}"#).into()),
        (
            "alg HS256",
            with_header(r#"{"alg":"HS256","kid":"a"}"#).into(),
        ),
        (
            "a critical member",
            with_header(r#"{"alg":"ES256","crit":["b64"]}"#).into(),
        ),
        (
            "claims that are no object",
            format!("{}.WzFd.{}", parts[0], parts[2]).into(),
        ),
        ("a word before it", format!("Bearer {token}").into()),
        ("two tokens", format!("{token}\n{token}").into()),
        ("more than a token may have", vec![b'a'; 9000]),
        ("more than a file may have", vec![b'a'; 70_000]),
        (
            "another kind",
            json!({ "kind": "Secret", "data": { "token": secret } })
                .to_string()
                .into(),
        ),
        (
            "a certificate",
            json!({ "kind": "ExecCredential", "status": { "clientKeyData": secret } })
                .to_string()
                .into(),
        ),
        (
            "a token that is no text",
            json!({ "kind": "ExecCredential", "status": { "token": [secret] } })
                .to_string()
                .into(),
        ),
        (
            "JSON that is cut",
            br#"{"kind": "ExecCredential", "status": {"token": "hunter2-hu"#.to_vec(),
        ),
        (
            "a member twice",
            br#"{"kind": "ExecCredential", "kind": "Secret"}"#.to_vec(),
        ),
    ];
    let refusals: Vec<String> = rows
        .iter()
        .map(|(case, content)| {
            let refusal = inspect(content, None).map(drop).unwrap_err();
            assert!(!refusal.contains("hunter2"), "{refusal}");
            assert!(
                parts.iter().all(|part| !refusal.contains(part)),
                "{refusal}"
            );
            format!("{case}: {refusal}")
        })
        .collect();
    assert_snapshot!("what-holds-no-token", refusals.join("\n"));
}

#[test]
fn keys_that_cannot_be_read_are_a_mistake() {
    let token = signed(&claims());
    let refusals: Vec<String> = [
        "",
        "{}",
        r#"{"keys":[]}"#,
        r#"{"keys":[{"kty":"oct","k":"AQ"}]}"#,
    ]
    .iter()
    .map(|key_set| {
        inspect(token.as_bytes(), Some(key_set))
            .map(drop)
            .unwrap_err()
    })
    .collect();
    assert_snapshot!("keys-that-cannot-be-read", refusals.join("\n"));
}

#[test]
fn no_part_of_a_token_is_printed() {
    let token = signed(&claims());
    let (document, text) = inspect(token.as_bytes(), None).unwrap();
    let json = ui::json(&document).unwrap();
    for part in token.split('.') {
        assert!(!text.contains(part) && !json.contains(part), "{text}{json}");
    }
    let line = ["inspect", token.as_str()];
    let args = Line::try_parse_from(line).unwrap().args;
    let refused = decoded(&args).unwrap_err();
    assert!(!format!("{refused}").contains(&token), "{refused}");
    let more = Line::try_parse_from(["inspect", "a", token.as_str()]);
    let refused = decoded(&more.unwrap().args).unwrap_err();
    assert!(!format!("{refused}").contains(&token), "{refused}");
}
