//! What to do about a refused token, where the token shows more than its reason code.

use super::*;

/// The advice about a token with this header and these changed claims.
fn advice(header: &str, changes: Value) -> (Code, String) {
    let hub = Hub::new();
    let token = hub.sign(header, &claims(changes));
    let rejection = rejection(ask(authenticator(), Minor::V1_36, &token, &hub.keys()));
    (rejection.code, rejection.fix.unwrap_or_default())
}

const HEADER: &str = r#"{"alg":"ES256","kid":"k"}"#;

#[test]
fn a_signature_that_no_key_verifies_shows_both_kids() {
    let (code, fix) = advice(r#"{"alg":"ES256","kid":"old"}"#, json!({}));
    assert_eq!(code, Code::SignatureInvalid);
    assert!(
        fix.contains(r#"the token's kid is "old", the key set has "k""#),
        "{fix}"
    );
    let hub = Hub::new();
    let mut other = hub.token(&claims(json!({})));
    other.truncate(other.len() - 4);
    let fix = rejection(ask(
        authenticator(),
        Minor::V1_36,
        &format!("{other}AAAA"),
        &hub.keys(),
    ))
    .fix;
    assert!(fix.unwrap().contains(r#"a key with the token's kid "k""#));
    let none = Keys::none().with_key_set(
        HUB,
        br#"{"issuer": "https://hub", "jwks_uri": "https://hub/keys"}"#,
    );
    let fix = rejection(ask(
        authenticator(),
        Minor::V1_36,
        &hub.token(&claims(json!({}))),
        &none,
    ))
    .fix;
    assert!(fix.unwrap().contains("the key set has no key"));
}

#[test]
fn a_foreign_kid_stays_on_one_line_and_is_cut() {
    let kid = format!("a\\nfix: run this{}", "x".repeat(500));
    let (_, fix) = advice(&format!(r#"{{"alg":"ES256","kid":"{kid}"}}"#), json!({}));
    assert!(!fix.contains('\n') && fix.len() < 500, "{fix}");
}

#[test]
fn a_token_for_microsoft_graph_is_named() {
    let (code, fix) = advice(r#"{"alg":"ES256","kid":"k2","nonce":"n"}"#, json!({}));
    assert_eq!(code, Code::SignatureInvalid);
    assert!(fix.contains("nonce") && fix.contains("id token"), "{fix}");
}

#[test]
fn an_access_token_sent_for_an_id_token_is_named() {
    for (header, changes, sign) in [
        (
            HEADER,
            json!({"aud": "account", "azp": "a", "typ": "Bearer"}),
            "its typ is \"Bearer\"",
        ),
        (
            HEADER,
            json!({"aud": null, "client_id": "a", "token_use": "access"}),
            "token_use",
        ),
        (
            r#"{"alg":"ES256","kid":"k","typ":"at+jwt"}"#,
            json!({"aud": "api"}),
            "typ of its header",
        ),
        (HEADER, json!({"aud": null}), "it has no aud"),
        (HEADER, json!({"aud": "api", "scp": "read"}), "it has scp"),
    ] {
        let (code, fix) = advice(header, changes);
        assert_eq!(code, Code::AudienceDiffers);
        assert!(
            fix.contains(sign) && fix.contains("send the id token"),
            "{fix}"
        );
        assert!(!fix.contains("TargetCluster"), "{fix}");
    }
    let (_, fix) = advice(
        HEADER,
        json!({"aud": "account", "azp": "a", "typ": "Bearer"}),
    );
    assert!(fix.contains("as azp says"), "{fix}");
    let other_key = r#"{"alg":"ES256","kid":"k2"}"#;
    let (code, fix) = advice(other_key, json!({"token_use": "access"}));
    assert_eq!(code, Code::SignatureInvalid);
    assert!(
        fix.contains("\"k2\"") && fix.contains("access token"),
        "{fix}"
    );
    let (code, fix) = advice(HEADER, json!({"sub": null, "token_use": "access"}));
    assert_eq!(code, Code::UsernameClaimMissing);
    assert!(fix.contains("access token"), "{fix}");
}

#[test]
fn a_plain_other_audience_has_advice_for_its_kind_of_token() {
    let (_, of_people) = advice(HEADER, json!({"aud": "b"}));
    assert!(
        of_people.contains("\"a\"") && !of_people.contains("TargetCluster"),
        "{of_people}"
    );
    // A ServiceAccount token keeps the fix of the reason code.
    let (code, of_hub) = advice(
        HEADER,
        json!({"aud": "b", "kubernetes.io": {"namespace": "n"}}),
    );
    assert_eq!((code, of_hub.as_str()), (Code::AudienceDiffers, ""));
    assert!(Code::AudienceDiffers.fix().contains("TargetCluster"));
}

#[test]
fn a_token_signed_with_a_secret_is_named() {
    let (code, fix) = advice(r#"{"alg":"HS512","kid":"k"}"#, json!({"typ": "Refresh"}));
    assert_eq!(code, Code::AlgorithmUnsupported);
    assert!(fix.contains("refresh tokens"), "{fix}");
}
