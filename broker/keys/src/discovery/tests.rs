#![allow(clippy::unwrap_used)]

use proptest::prelude::{any, prop, proptest};
use serde_json::{Value, json};

use super::{DiscoveryError, MAX_DISCOVERY_BYTES, ProviderMetadata, render_metadata};
use crate::json::JsonError;
use crate::jwt::SigningAlgorithm::{Es256, Es384, Rs256};
use crate::testing::{key, set};

const ISSUER: &str = "https://hub.example.com";

fn read(text: &str) -> Result<ProviderMetadata, DiscoveryError> {
    ProviderMetadata::from_upstream(text.as_bytes(), ISSUER)
}

fn with(member: &str, value: Value) -> Result<ProviderMetadata, DiscoveryError> {
    let mut document = json!({
        "issuer": ISSUER,
        "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    });
    document[member] = value;
    read(&document.to_string())
}

#[test]
fn a_hubs_document_is_read() {
    let metadata = with("unknown", json!({"a": [1]})).unwrap();
    assert_eq!(metadata.issuer(), ISSUER);
    assert_eq!(metadata.signing_algorithms(), [Rs256]);
    let metadata = with(
        "id_token_signing_alg_values_supported",
        json!(["RS256", "ML-DSA-44", "ES256", "none", "RS256"]),
    )
    .unwrap();
    assert_eq!(metadata.signing_algorithms(), [Es256, Rs256]);
}

#[test]
fn d1_to_d5_the_issuer_is_equal_byte_for_byte() {
    for issuer in [
        "https://hub.example.com/",
        "https://HUB.example.com",
        "https://hub.example.com:443",
        "http://hub.example.com",
        "https://other.example.com",
        "https://hub.example.com ",
        "",
    ] {
        assert_eq!(
            with("issuer", json!(issuer)),
            Err(DiscoveryError::IssuerMismatch),
            "{issuer}"
        );
    }
    for value in [json!(null), json!([ISSUER]), json!(1)] {
        assert_eq!(with("issuer", value), Err(DiscoveryError::Member("issuer")));
    }
    assert_eq!(read("{}"), Err(DiscoveryError::Member("issuer")));
}

#[test]
fn d1_to_d5_a_jwks_uri_is_never_looked_at() {
    let good = with("unknown", json!(1)).unwrap();
    for uri in [
        "http://a",
        "https://169.254.169.254/",
        "file:///etc/passwd",
        "keys",
        "",
    ] {
        assert_eq!(with("jwks_uri", json!(uri)), Ok(good.clone()), "{uri}");
    }
    assert_eq!(with("jwks_uri", json!("x".repeat(8192))), Ok(good));
}

#[test]
fn a_document_that_is_no_strict_json_is_refused() {
    let duplicate = format!(r#"{{"issuer":"{ISSUER}","issuer":"{ISSUER}"}}"#);
    assert!(matches!(
        read(&duplicate),
        Err(DiscoveryError::Json(JsonError::DuplicateMember { .. }))
    ));
    assert!(matches!(
        read("<html></html>"),
        Err(DiscoveryError::Json(JsonError::Syntax { .. }))
    ));
    assert!(matches!(read(""), Err(DiscoveryError::Json(_))));
    let large = format!(
        r#"{{"issuer":"{ISSUER}"}}{}"#,
        " ".repeat(MAX_DISCOVERY_BYTES)
    );
    assert!(matches!(
        read(&large),
        Err(DiscoveryError::Json(JsonError::TooLarge { .. }))
    ));
    for value in [json!("RS256"), json!([1]), json!(null)] {
        let member = "id_token_signing_alg_values_supported";
        assert_eq!(with(member, value), Err(DiscoveryError::Member(member)));
    }
}

#[test]
fn ours_is_this_text() {
    let keys = set([key(Rs256).entry(), key(Es384).entry(), key(Es256).entry()]);
    let document = render_metadata(ISSUER, "https://keys.example.com/openid/v1/jwks", &keys);
    let expected = concat!(
        r#"{"issuer":"https://hub.example.com","authorization_endpoint":"urn:keyferry:no-authorization-endpoint","#,
        r#""jwks_uri":"https://keys.example.com/openid/v1/jwks","response_types_supported":["id_token"],"#,
        r#""subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","ES384","RS256"],"#,
        r#""claims_supported":["aud","exp","iat","iss","jti","kubernetes.io","nbf","sub"]}"#,
    );
    assert_eq!(std::str::from_utf8(&document).unwrap(), expected);
    assert!(document.len() < 1024);
    assert!(
        url::Url::parse(super::NO_AUTHORIZATION_ENDPOINT).is_ok(),
        "strict clients read it as a URL"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = ProviderMetadata::from_upstream(&bytes, ISSUER);
    }

    #[test]
    fn what_we_write_we_read(issuer in ".{0,64}", uri in ".{0,64}") {
        let document = render_metadata(&issuer, &uri, &key(Es256).set());
        let metadata = ProviderMetadata::from_upstream(&document, &issuer).unwrap();
        assert_eq!(metadata.signing_algorithms(), [Es256]);
        let value: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(value["jwks_uri"], json!(uri));
    }
}
