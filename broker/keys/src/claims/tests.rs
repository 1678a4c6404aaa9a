#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{ClaimsFormError, ServiceAccountClaims};
use crate::testing::{NOW, claims};

fn read(claims: &Value) -> Result<ServiceAccountClaims, ClaimsFormError> {
    ServiceAccountClaims::from_members(claims.as_object().unwrap())
}

fn with(pointer: &str, value: Value) -> Result<ServiceAccountClaims, ClaimsFormError> {
    let mut claims = claims();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    claims.pointer_mut(parent).unwrap()[member] = value;
    read(&claims)
}

fn without(pointer: &str) -> Result<ServiceAccountClaims, ClaimsFormError> {
    let mut claims = claims();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    claims
        .pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove(member)
        .unwrap();
    read(&claims)
}

#[test]
fn a_bound_token_reads_as_kubernetes_wrote_it() {
    let read = read(&claims()).unwrap();
    assert_eq!(read.registered.issuer, "https://hub.example.com");
    assert_eq!(read.registered.audiences, ["keyferry.dev"]);
    assert_eq!(
        read.registered.expires_at,
        Timestamp::from_second(NOW + 3600).unwrap()
    );
    assert_eq!(
        read.registered.issued_at,
        Timestamp::from_second(NOW).unwrap()
    );
    assert_eq!(
        read.registered.not_before,
        Some(Timestamp::from_second(NOW).unwrap())
    );
    assert_eq!(
        read.registered.token_id.as_deref(),
        Some("6f2ee0f7-1ab9-4d7a-8f4e-0e2f1b1f0c55")
    );
    assert_eq!(
        read.identity.account.username(),
        "system:serviceaccount:tenant-a:reconciler"
    );
    assert_eq!(
        read.identity.uid.as_str(),
        "c7a1f2e0-3f6d-4b57-8a67-2a9d1b8e4d33"
    );
    assert_eq!(read.pod.unwrap().name.as_str(), "reconciler-7d9c");
    assert_eq!(read.node.unwrap().name.as_str(), "worker-1");
    assert_eq!(read.secret, None);
}

#[test]
fn what_kubernetes_may_leave_out_may_be_absent() {
    for pointer in [
        "/nbf",
        "/jti",
        "/kubernetes.io/pod",
        "/kubernetes.io/node",
        "/kubernetes.io/node/uid",
    ] {
        assert!(without(pointer).is_ok(), "{pointer}");
    }
    assert_eq!(
        with("/aud", json!("keyferry.dev"))
            .unwrap()
            .registered
            .audiences,
        ["keyferry.dev"]
    );
}

#[test]
fn what_must_be_there_is_named() {
    let cases = [
        ("/iss", "iss"),
        ("/sub", "sub"),
        ("/aud", "aud"),
        ("/exp", "exp"),
        ("/iat", "iat"),
        ("/kubernetes.io", "kubernetes.io"),
        ("/kubernetes.io/namespace", "kubernetes.io.namespace"),
        (
            "/kubernetes.io/serviceaccount",
            "kubernetes.io.serviceaccount",
        ),
        (
            "/kubernetes.io/serviceaccount/name",
            "kubernetes.io.serviceaccount.name",
        ),
        (
            "/kubernetes.io/serviceaccount/uid",
            "kubernetes.io.serviceaccount.uid",
        ),
        ("/kubernetes.io/pod/name", "kubernetes.io.pod"),
    ];
    for (pointer, claim) in cases {
        assert_eq!(without(pointer), Err(ClaimsFormError::Missing(claim)));
    }
}

#[test]
fn j35_to_j43_a_time_is_a_whole_number_of_seconds() {
    let wrong = [
        json!("1790003600"),
        json!(null),
        json!(1_790_003_600.9),
        json!(1_790_003_600.0),
        json!(-1),
        json!(1e300),
        json!(9_223_372_036_854_775_808_u64),
        json!(u64::MAX),
        json!(i64::MAX),
        json!(true),
        json!([NOW]),
        json!({}),
    ];
    for claim in ["exp", "iat", "nbf"] {
        for value in &wrong {
            assert_eq!(
                with(&format!("/{claim}"), value.clone()),
                Err(ClaimsFormError::NotATime(claim)),
                "{claim} {value}"
            );
        }
    }
}

#[test]
fn j45_to_j58_texts_are_texts() {
    let no_texts = [
        json!(null),
        json!(1),
        json!(["https://hub.example.com"]),
        json!({}),
        json!(""),
        json!("a".repeat(10_000)),
    ];
    for (pointer, claim) in [
        ("/iss", "iss"),
        ("/sub", "sub"),
        ("/jti", "jti"),
        ("/kubernetes.io/namespace", "kubernetes.io.namespace"),
        (
            "/kubernetes.io/serviceaccount/name",
            "kubernetes.io.serviceaccount.name",
        ),
        (
            "/kubernetes.io/serviceaccount/uid",
            "kubernetes.io.serviceaccount.uid",
        ),
        ("/kubernetes.io/pod/uid", "kubernetes.io.pod"),
    ] {
        for value in &no_texts {
            assert_eq!(
                with(pointer, value.clone()),
                Err(ClaimsFormError::WrongForm(claim)),
                "{pointer} {value}"
            );
        }
    }
    for value in [
        json!([]),
        json!({}),
        json!(null),
        json!(""),
        json!([""]),
        json!(["a", 1]),
        json!([["a"]]),
        json!([null]),
    ] {
        assert_eq!(
            with("/aud", value.clone()),
            Err(ClaimsFormError::WrongForm("aud")),
            "{value}"
        );
    }
    for value in [json!(null), json!([]), json!("a"), json!(1)] {
        for pointer in [
            "/kubernetes.io",
            "/kubernetes.io/serviceaccount",
            "/kubernetes.io/pod",
            "/kubernetes.io/node",
        ] {
            assert!(
                matches!(
                    with(pointer, value.clone()),
                    Err(ClaimsFormError::WrongForm(_))
                ),
                "{pointer} {value}"
            );
        }
    }
}

#[test]
fn j55_to_j58_sub_says_what_kubernetes_io_says() {
    for subject in [
        "system:serviceaccount:other:reconciler",
        "system:serviceaccount:tenant-a:other",
        "system:serviceaccount:tenant-a:reconciler ",
        " system:serviceaccount:tenant-a:reconciler",
        "system:serviceaccount:tenant-a:reconciler\0",
        "System:serviceaccount:tenant-a:reconciler",
        "system:serviceaccount:tenant-a",
        "reconciler",
        "system:node:worker-1",
    ] {
        assert_eq!(
            with("/sub", json!(subject)),
            Err(ClaimsFormError::SubjectDisagrees),
            "{subject:?}"
        );
    }
    // Both claims agree, but neither is a valid name in Kubernetes.
    for (namespace, name, claim) in [
        ("tenant-a:x", "reconciler", "kubernetes.io.namespace"),
        ("Tenant-A", "reconciler", "kubernetes.io.namespace"),
        ("tenant.a", "reconciler", "kubernetes.io.namespace"),
        ("tenant-a", "a:b", "kubernetes.io.serviceaccount.name"),
        ("tenant-a", "../x", "kubernetes.io.serviceaccount.name"),
    ] {
        let mut claims = claims();
        claims["sub"] = json!(format!("system:serviceaccount:{namespace}:{name}"));
        claims["kubernetes.io"]["namespace"] = json!(namespace);
        claims["kubernetes.io"]["serviceaccount"]["name"] = json!(name);
        assert_eq!(read(&claims), Err(ClaimsFormError::WrongForm(claim)));
    }
}

#[test]
fn j73_a_legacy_token_is_no_bound_one() {
    let legacy = json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": "tenant-a",
        "kubernetes.io/serviceaccount/secret.name": "reconciler-token",
        "kubernetes.io/serviceaccount/service-account.name": "reconciler",
        "kubernetes.io/serviceaccount/service-account.uid": "c7a1f2e0",
        "sub": "system:serviceaccount:tenant-a:reconciler",
    });
    assert_eq!(
        read(&legacy),
        Err(ClaimsFormError::Missing("kubernetes.io"))
    );
    assert_eq!(
        ServiceAccountClaims::from_members(&Map::new()),
        Err(ClaimsFormError::Missing("kubernetes.io"))
    );
}
