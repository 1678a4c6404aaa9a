#![allow(clippy::unwrap_used)]

use base64::Engine;
use proptest::prelude::{any, prop, proptest};
use serde_json::json;

use super::{
    BASE64URL, JwtError, MAX_JWT_BYTES, REFUSED_HEADER_MEMBERS, SigningAlgorithm, UnverifiedJwt,
};
use crate::json::JsonError;

const HEADER: &str = r#"{"alg":"ES256","kid":"k"}"#;
const CLAIMS: &str = r#"{"sub":"a"}"#;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL.encode(bytes)
}

fn fault(compact: &str) -> JwtError {
    UnverifiedJwt::parse(compact).unwrap_err()
}

fn fault_of_header(header: impl AsRef<[u8]>) -> JwtError {
    fault(&format!("{}.{}.AAAA", encode(header), encode(CLAIMS)))
}

fn fault_of_claims(claims: impl AsRef<[u8]>) -> JwtError {
    fault(&format!("{}.{}.AAAA", encode(HEADER), encode(claims)))
}

fn plain() -> String {
    format!("{}.{}.AAAA", encode(HEADER), encode(CLAIMS))
}

#[test]
fn a_plain_token_comes_apart() {
    let token = plain();
    let jwt = UnverifiedJwt::parse(&token).unwrap();
    assert_eq!(jwt.algorithm(), SigningAlgorithm::Es256);
    assert_eq!(jwt.kid(), Some("k"));
    assert_eq!(jwt.claims().get("sub"), Some(&json!("a")));
    assert_eq!(jwt.encoded_signature(), "AAAA");
    assert_eq!(jwt.encoded_signature(), "AAAA");
    assert_eq!(
        format!("{}.AAAA", std::str::from_utf8(jwt.signing_input()).unwrap()),
        token
    );
    assert_eq!(format!("{jwt:?}"), "UnverifiedJwt { algorithm: Es256, .. }");
    for typ in ["JWT", "jwt", "Jwt"] {
        let header = json!({"alg": "RS256", "typ": typ}).to_string();
        let jwt =
            UnverifiedJwt::parse(&format!("{}.{}.AAAA", encode(header), encode(CLAIMS))).unwrap();
        assert_eq!(jwt.kid(), None);
    }
}

#[test]
fn j1_to_j5_only_the_algorithms_of_kube_apiserver() {
    for alg in [
        "none",
        "NONE",
        "None",
        "nOnE",
        "HS256",
        "HS384",
        "HS512",
        "EdDSA",
        "ES256K",
        "ML-DSA-65",
        "rs256",
        "RS256\0",
        "",
    ] {
        let header = json!({"alg": alg, "kid": "k"}).to_string();
        assert_eq!(
            fault_of_header(&header),
            JwtError::AlgorithmRefused,
            "{alg}"
        );
        let unsigned = format!("{}.{}.", encode(&header), encode(CLAIMS));
        assert_eq!(fault(&unsigned), JwtError::AlgorithmRefused, "{alg}");
    }
    for header in [
        r#"{"alg":["RS256"]}"#,
        r#"{"alg":256}"#,
        r#"{"alg":null}"#,
        r#"{"alg":{"a":1}}"#,
    ] {
        assert_eq!(
            fault_of_header(header),
            JwtError::AlgorithmRefused,
            "{header}"
        );
    }
    assert_eq!(
        fault_of_header(r#"{"kid":"k"}"#),
        JwtError::AlgorithmMissing
    );
    assert_eq!(
        fault_of_header(r#"{"Alg":"RS256"}"#),
        JwtError::AlgorithmMissing
    );
}

#[test]
fn j6_to_j17_no_header_that_chooses_a_key_or_changes_the_meaning() {
    let values = [
        json!(null),
        json!([]),
        json!(["exp"]),
        json!(["alg"]),
        json!(["b64"]),
        json!("DEF"),
        json!(false),
        json!({"kty": "RSA"}),
    ];
    for member in REFUSED_HEADER_MEMBERS {
        for value in &values {
            let mut header = json!({"alg": "RS256", "kid": "k"});
            header[member] = value.clone();
            assert_eq!(
                fault_of_header(header.to_string()),
                JwtError::HeaderMemberRefused(member)
            );
        }
    }
}

#[test]
fn j12_j13_a_kid_is_a_bounded_text() {
    for kid in ["../../dev/null", "' OR 1=1 --", "$(id)", "\u{202e}k", "k\n"] {
        let header = json!({"alg": "RS256", "kid": kid}).to_string();
        let jwt =
            UnverifiedJwt::parse(&format!("{}.{}.AAAA", encode(header), encode(CLAIMS))).unwrap();
        assert_eq!(jwt.kid(), Some(kid), "a kid is only ever compared");
    }
    assert_eq!(
        fault_of_header(r#"{"alg":"RS256","kid":""}"#),
        JwtError::KidEmpty
    );
    for kid in ["1", "null", "[\"k\"]", "true"] {
        assert_eq!(
            fault_of_header(format!(r#"{{"alg":"RS256","kid":{kid}}}"#)),
            JwtError::KidNotText
        );
    }
    assert_eq!(
        fault_of_header(json!({"alg": "RS256", "kid": "k".repeat(1025)}).to_string()),
        JwtError::KidTooLong
    );
    let longest = json!({"alg": "RS256", "kid": "k".repeat(1024)}).to_string();
    assert!(UnverifiedJwt::parse(&format!("{}.{}.AAAA", encode(longest), encode(CLAIMS))).is_ok());
    let mebibyte = json!({"alg": "RS256", "kid": "k".repeat(1 << 20)}).to_string();
    assert!(matches!(fault_of_header(mebibyte), JwtError::TooLong(_)));
}

#[test]
fn j18_to_j22_two_dots_and_no_other_serialisation() {
    assert_eq!(fault(""), JwtError::Empty);
    for (compact, dots) in [
        ("a", 0),
        ("a.b", 1),
        ("a.b.c.d", 3),
        ("a.b.c.d.e", 4),
        ("....", 4),
    ] {
        assert_eq!(fault(compact), JwtError::DotCount(dots), "{compact}");
    }
    let jwe_header =
        encode(r#"{"alg":"PBES2-HS256+A128KW","enc":"A128GCM","p2c":2147483648,"zip":"DEF"}"#);
    assert_eq!(
        fault(&format!("{jwe_header}.a.b.c.d")),
        JwtError::DotCount(4)
    );
    assert_eq!(fault(&format!("{}.", plain())), JwtError::DotCount(3));
    assert_eq!(fault(&format!(".{}", plain())), JwtError::DotCount(3));
    assert_eq!(
        fault(r#"{"payload":"e30","signatures":[]}"#),
        JwtError::DotCount(0)
    );
    let detached = format!("{}..AAAA", encode(HEADER));
    assert!(matches!(
        fault(&detached),
        JwtError::Claims(JsonError::Syntax { .. })
    ));
    assert!(matches!(
        fault("..AAAA"),
        JwtError::Header(JsonError::Syntax { .. })
    ));
    assert_eq!(
        fault(&format!("{}.{}.", encode(HEADER), encode(CLAIMS))),
        JwtError::SignatureMissing
    );
    let dots = ".".repeat(MAX_JWT_BYTES);
    assert_eq!(fault(&dots), JwtError::DotCount(MAX_JWT_BYTES));
    assert_eq!(
        fault(&format!("{dots}.")),
        JwtError::TooLong(MAX_JWT_BYTES + 1)
    );
}

#[test]
fn j23_to_j27_every_segment_has_one_spelling() {
    let errors = [
        JwtError::HeaderEncoding,
        JwtError::ClaimsEncoding,
        JwtError::SignatureEncoding,
    ];
    let token = plain();
    for (index, error) in errors.into_iter().enumerate() {
        let change = |edit: &dyn Fn(&str) -> String| {
            let mut segments: Vec<String> = token.split('.').map(str::to_owned).collect();
            segments[index] = edit(&segments[index]);
            segments.join(".")
        };
        for junk in [
            "=", "==", "+", "/", " ", "\n", "\r\n", "\t", "\0", "?", "%3D", "\u{e9}", "\u{200b}",
        ] {
            assert_eq!(
                fault(&change(&|segment| format!("{segment}{junk}"))),
                error,
                "{junk:?} after"
            );
            assert_eq!(
                fault(&change(&|segment| format!("{junk}{segment}"))),
                error,
                "{junk:?} before"
            );
            let middle = |segment: &str| format!("{}{junk}{}", &segment[..2], &segment[2..]);
            assert_eq!(fault(&change(&middle)), error, "{junk:?} inside");
        }
    }
    // One and two bytes left over: the last character has four and two unused bits.
    for (unused, used) in [
        ("AB", "AA"),
        ("AP", "AA"),
        ("AAB", "AAA"),
        ("AAD", "AAA"),
        ("A", "AA"),
    ] {
        let (input, _) = token.rsplit_once('.').unwrap();
        assert_eq!(
            fault(&format!("{input}.{unused}")),
            JwtError::SignatureEncoding,
            "{unused}"
        );
        assert!(UnverifiedJwt::parse(&format!("{input}.{used}")).is_ok());
    }
    let header = encode(r#"{"alg":"ES256", "kid":"k"}"#);
    assert!(header.ends_with('0'), "two bytes are left over: {header}");
    let respelt = format!("{}1", &header[..header.len() - 1]);
    assert_eq!(
        fault(&format!("{respelt}.{}.AAAA", encode(CLAIMS))),
        JwtError::HeaderEncoding
    );
}

#[test]
fn j28_to_j34_the_json_is_strict() {
    let duplicate = |error| matches!(error, JwtError::Claims(JsonError::DuplicateMember { .. }));
    for claims in [
        r#"{"sub":"a","sub":"b"}"#,
        r#"{"sub":"a","\u0073ub":"b"}"#,
        r#"{"aud":["a"],"aud":["b"]}"#,
        r#"{"exp":1,"exp":2}"#,
        r#"{"kubernetes.io":{"namespace":"a","namespace":"b"}}"#,
    ] {
        assert!(duplicate(fault_of_claims(claims)), "{claims}");
    }
    let header = r#"{"alg":"ES256","alg":"ES256"}"#;
    assert!(matches!(
        fault_of_header(header),
        JwtError::Header(JsonError::DuplicateMember { .. })
    ));
    assert_eq!(
        fault_of_claims("\u{feff}{}"),
        JwtError::Claims(JsonError::ByteOrderMark)
    );
    assert_eq!(
        fault_of_header("\u{feff}{}"),
        JwtError::Header(JsonError::ByteOrderMark)
    );
    assert_eq!(
        fault_of_claims(b"{\"sub\":\"\xff\"}"),
        JwtError::Claims(JsonError::NotUtf8)
    );
    assert!(matches!(
        fault_of_claims(r#"{"sub":"\ud800"}"#),
        JwtError::Claims(JsonError::Syntax { .. })
    ));
    assert_eq!(
        fault_of_claims(format!("{{\"a\":{}", "[".repeat(5000))),
        JwtError::Claims(JsonError::TooDeep(32))
    );
    assert_eq!(
        fault_of_claims("{}{}"),
        JwtError::Claims(JsonError::TrailingBytes)
    );
    assert_eq!(
        fault_of_claims("[]"),
        JwtError::Claims(JsonError::NotAnObject)
    );
    let nested = plain();
    assert!(matches!(
        fault_of_claims(nested),
        JwtError::Claims(JsonError::Syntax { .. })
    ));
}

#[test]
fn j70_to_j72_a_token_for_another_purpose_is_refused() {
    for typ in [
        "at+jwt",
        "application/at+jwt",
        "dpop+jwt",
        "logout+jwt",
        "JWT ",
        "",
        "JOSE",
    ] {
        assert_eq!(
            fault_of_header(json!({"alg": "RS256", "typ": typ}).to_string()),
            JwtError::TypeRefused,
            "{typ}"
        );
    }
    for typ in ["1", "null", "[\"JWT\"]"] {
        assert_eq!(
            fault_of_header(format!(r#"{{"alg":"RS256","typ":{typ}}}"#)),
            JwtError::TypeRefused
        );
    }
}

#[test]
fn h1_a_token_of_8193_bytes_is_not_looked_at() {
    // 52 characters before the signature, so that the longest one is a whole number of base64
    // groups.
    let fill = |length: usize| {
        let start = format!("{}.{}.", encode(HEADER), encode(r#"{"sub":"a" }"#));
        assert_eq!(start.len(), 52);
        format!("{start}{}", "A".repeat(length - start.len()))
    };
    assert!(UnverifiedJwt::parse(&fill(MAX_JWT_BYTES)).is_ok());
    assert_eq!(fault(&fill(8193)), JwtError::TooLong(8193));
}

#[test]
fn an_error_repeats_nothing_of_the_token() {
    let secret = "c2VjcmV0LXBhcnQ";
    for token in [
        format!("{secret}.{secret}.{secret}"),
        format!("{}.{secret}.{secret}", encode(HEADER)),
        secret.to_owned(),
    ] {
        let error = fault(&token);
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains(secret) && !shown.contains("secret-part"),
            "{shown}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_taken_apart_or_refused(text in ".{0,512}") {
        let _ = UnverifiedJwt::parse(&text);
    }

    #[test]
    fn any_segments_are_taken_apart_or_refused(
        header in prop::collection::vec(any::<u8>(), 0..64),
        claims in prop::collection::vec(any::<u8>(), 0..64),
        signature in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let _ = UnverifiedJwt::parse(&format!("{}.{}.{}", encode(&header), encode(&claims), encode(&signature)));
        let _ = UnverifiedJwt::parse(&format!("{}.{}.{}", encode(HEADER), encode(&claims), encode(&signature)));
    }
}
