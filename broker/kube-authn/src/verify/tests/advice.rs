//! What to do about a refused token, where the token shows more than its reason code.

use insta::assert_snapshot;

use super::*;

/// The advice about a token with this header and these changed claims.
fn advice(header: &str, changes: Value) -> (Code, String) {
    let hub = Hub::new();
    let token = hub.sign(header, &claims(changes));
    let rejection = rejection(ask(authenticator(), Minor::V1_36, &token, &hub.keys()));
    (rejection.code, rejection.fix.unwrap_or_default())
}

const HEADER: &str = r#"{"alg":"ES256","kid":"k"}"#;

/// Each row is a token, by its header and what differs from the claims of a good one.
#[test]
fn a_refused_token_has_advice_for_its_kind() {
    let rows = [
        (r#"{"alg":"ES256","kid":"old"}"#, json!({})),
        // A token for Microsoft Graph.
        (r#"{"alg":"ES256","kid":"k2","nonce":"n"}"#, json!({})),
        (r#"{"alg":"HS512","kid":"k"}"#, json!({"typ": "Refresh"})),
        // Access tokens, sent for id tokens.
        (
            HEADER,
            json!({"aud": "account", "azp": "a", "typ": "Bearer"}),
        ),
        (
            HEADER,
            json!({"aud": null, "client_id": "a", "token_use": "access"}),
        ),
        (
            r#"{"alg":"ES256","kid":"k","typ":"at+jwt"}"#,
            json!({"aud": "api"}),
        ),
        (HEADER, json!({"aud": null})),
        (HEADER, json!({"aud": "api", "scp": "read"})),
        (
            r#"{"alg":"ES256","kid":"k2"}"#,
            json!({"token_use": "access"}),
        ),
        (HEADER, json!({"sub": null, "token_use": "access"})),
        // An id token for another audience.
        (HEADER, json!({"aud": "b"})),
        // A ServiceAccount token keeps the fix of the reason code.
        (
            HEADER,
            json!({"aud": "b", "kubernetes.io": {"namespace": "n"}}),
        ),
    ];
    let shown = rows.map(|(header, changes)| {
        let (code, fix) = advice(header, changes.clone());
        format!("{header} {changes}\n  {code}\n  fix: {fix}\n")
    });
    assert_snapshot!("advice", shown.join("\n"));
    assert!(Code::AudienceDiffers.fix().contains("TargetCluster"));
}

#[test]
fn a_signature_that_no_key_verifies_shows_what_the_key_set_has() {
    let hub = Hub::new();
    let token = hub.token(&claims(json!({})));
    let (cut, _) = token.split_at(token.len() - 4);
    let discovery = br#"{"issuer": "https://hub", "jwks_uri": "https://hub/keys"}"#;
    let no_keys = Keys::none().with_key_set(HUB, discovery);
    let shown = [(format!("{cut}AAAA"), hub.keys()), (token, no_keys)].map(|(token, keys)| {
        let rejection = rejection(ask(authenticator(), Minor::V1_36, &token, &keys));
        rejection.fix.unwrap_or_default()
    });
    assert_snapshot!("a-signature-that-no-key-verifies", shown.join("\n\n"));
}

#[test]
fn a_foreign_kid_stays_on_one_line_and_is_cut() {
    let kid = format!("a\\nfix: run this{}", "x".repeat(500));
    let (_, fix) = advice(&format!(r#"{{"alg":"ES256","kid":"{kid}"}}"#), json!({}));
    assert!(!fix.contains('\n') && fix.len() < 500, "{fix}");
}
