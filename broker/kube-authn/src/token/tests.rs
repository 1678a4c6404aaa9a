#![allow(clippy::unwrap_used, clippy::expect_used)]

use keyferry_go_formats::base64::encode_raw_url;

use super::*;

fn token(header: &str, payload: &str) -> String {
    format!(
        "{}.{}.{}",
        encode_raw_url(header.as_bytes()),
        encode_raw_url(payload.as_bytes()),
        encode_raw_url(b"signature")
    )
}

fn glance(text: &str) -> Result<String, Code> {
    Token::read(text.as_bytes()).unwrap().issuer
}

#[test]
fn the_glance_at_the_issuer() {
    let iss = |payload: &str| glance(&token("{}", payload));
    assert_eq!(iss("{\"iss\":\"a\"}"), Ok("a".to_owned()));
    assert_eq!(iss("{\"iss\":\"a\",\"ISS\":\"b\"}"), Ok("b".to_owned()));
    assert_eq!(
        iss("{\"iss\":\"a\",\"i\u{17f}s\":\"b\"}"),
        Ok("b".to_owned())
    );
    assert_eq!(iss("{\"iss\":\"a\",\"Iss\":null}"), Ok("a".to_owned()));
    assert_eq!(
        iss("{\"iss\":\"accounts.google.com\"}"),
        Ok("https://accounts.google.com".to_owned())
    );
    assert_eq!(iss("{}"), Ok(String::new()));
    for (payload, code) in [
        ("{\"iss\":5}", Code::PayloadNotJson),
        ("[]", Code::PayloadNotJson),
        ("{", Code::PayloadNotJson),
    ] {
        assert_eq!(iss(payload), Err(code), "{payload}");
    }
    for (text, code) in [
        (" {\"payload\":\"x\"}", Code::NotCompact),
        ("", Code::NotThreeParts),
        ("a.b", Code::NotThreeParts),
        ("a.b.c.d", Code::NotThreeParts),
        ("a.!.c", Code::PayloadNotBase64),
        ("a.YQ==.c", Code::PayloadNotBase64),
    ] {
        assert_eq!(glance(text), Err(code), "{text}");
    }
}

fn parse(text: &str) -> Result<(String, String, bool), String> {
    match Signed::parse(text) {
        Ok(signed) => Ok((signed.algorithm, signed.kid, signed.critical_understood)),
        Err(TokenFault::Malformed(reason, _)) => Err(reason),
        Err(TokenFault::Undetermined(undetermined)) => panic!("{undetermined}"),
    }
}

#[test]
fn headers_that_go_jose_takes() {
    let header = |header: &str| parse(&token(header, "{}"));
    let plain =
        |algorithm: &str, kid: &str, critical| Ok((algorithm.to_owned(), kid.to_owned(), critical));
    assert_eq!(
        header("{\"alg\":\"RS256\",\"kid\":\"k\",\"x\":[1]}"),
        plain("RS256", "k", true)
    );
    assert_eq!(
        header("{\"ALG\":\"RS256\"}"),
        plain("", "", true),
        "names are case-sensitive here"
    );
    assert_eq!(
        header("{\"alg\":null,\"kid\":null,\"crit\":null}"),
        plain("", "", true)
    );
    assert_eq!(header("null"), plain("", "", true));
    assert_eq!(header(""), plain("", "", true));
    assert_eq!(header("{\"crit\":[\"b64\"]}"), plain("", "", true));
    assert_eq!(header("{\"crit\":[\"exp\"]}"), plain("", "", false));
    assert_eq!(header("{\"crit\":\"b64\"}"), plain("", "", false));
    let loose = format!(" \n{}\n ", token("{}", "{}").replace('.', " .\t"));
    assert_eq!(
        parse(&loose),
        plain("", "", true),
        "white space is stripped"
    );
}

#[test]
fn headers_that_it_does_not() {
    for (header, reason) in [
        ("{", "unexpected end of JSON input"),
        (
            "[]",
            "json: cannot unmarshal array into Go value of type jose.rawHeader",
        ),
        (
            "{\"alg\":\"a\",\"alg\":\"a\"}",
            "json: duplicate key 'alg' in object",
        ),
        (
            "{\"x\":{\"y\":1,\"y\":1}}",
            "json: duplicate key 'y' in object",
        ),
        (
            "{\"alg\":5}",
            "failed to unmarshal algorithm: json: cannot unmarshal number into Go value of type \
             string",
        ),
        (
            "{\"kid\":5}",
            "failed to unmarshal key ID: json: cannot unmarshal number into Go value of type string",
        ),
        (
            "{\"x5c\":[\"!\"]}",
            "failed to unmarshal x5c header: illegal base64 data at input byte 0",
        ),
        (
            "{\"jwk\":{\"kty\":\"x\"}}",
            "failed to unmarshal JWK: go-jose/go-jose: unknown json web key type 'x'",
        ),
        (
            "{\"jwk\":{\"kty\":\"oct\",\"k\":\"AQ\"}}",
            "go-jose/go-jose: invalid embedded jwk, must be public key",
        ),
        (
            "{\"x\":1e999}",
            "failed to unmarshal value: a number is out of range",
        ),
    ] {
        assert_eq!(
            parse(&token(header, "{}")),
            Err(reason.to_owned()),
            "{header}"
        );
    }
    assert_eq!(
        parse("e30=.e30.YQ"),
        Err("illegal base64 data at input byte 3".to_owned())
    );
}

#[test]
fn the_input_is_encoded_again() {
    // "e31" and "e30" are the same two bytes.
    let signed = |text: &str| Signed::parse(text).unwrap();
    assert_eq!(signed("e31.e31.YQ").input, b"e30.e30");
    let plain = format!("{}.e30.YQ", encode_raw_url(b"{\"b64\":false}"));
    assert!(signed(&plain).input.ends_with(b".{}"));
}

#[test]
fn a_header_nests_to_any_depth() {
    let parse = |member: &str| {
        let header = format!("{{\"alg\":\"ES256\",\"kid\":\"k\",\"x\":{member}}}");
        let token = format!("{}.e30.YQ", encode_raw_url(header.as_bytes()));
        match Signed::parse(&token) {
            Ok(signed) => Ok(signed.kid),
            Err(TokenFault::Malformed(reason, _)) => Err(reason),
            Err(TokenFault::Undetermined(undetermined)) => panic!("{undetermined}"),
        }
    };
    let around = |depth: usize, inner: &str| "[".repeat(depth) + inner + &"]".repeat(depth);
    // encoding/json stops at 10,000; go-jose's copy of it does not.
    for depth in [149, 150, 151, 1_000, 10_001, 100_000] {
        assert_eq!(parse(&around(depth, "1")), Ok("k".to_owned()), "{depth}");
        let twice = parse(&around(depth, "{\"a\":1,\"b\":[],\"a\":2}"));
        let reason = "json: duplicate key 'a' in object";
        assert_eq!(twice, Err(reason.to_owned()), "{depth}");
        assert!(parse(&around(depth, "1e400")).is_err(), "{depth}");
    }
    assert!(parse(&around(500, "{\"a\":{\"a\":1},\"b\":{\"a\":1}}")).is_ok());
}

fn registered(payload: &str) -> Result<Registered, String> {
    Registered::read(&Json::parse(payload.as_bytes()).unwrap()).map_err(|fault| fault.message)
}

#[test]
fn registered_claims_in_every_form_that_go_takes() {
    let expiry =
        |text: &str| registered(&format!("{{\"exp\":{text}}}")).map(|claims| claims.expiry);
    for (text, seconds) in [
        ("5", 5),
        ("5.9", 5),
        ("-1.5", -1),
        ("1e3", 1000),
        ("\"7\"", 7),
        ("\"1e3\"", 1000),
        ("1e19", i64::MIN),
        ("9223372036854775807", i64::MAX),
    ] {
        assert_eq!(expiry(text), Ok(Some(seconds)), "{text}");
    }
    assert_eq!(
        registered("{\"EXP\":1,\"exp\":2,\"Exp\":3}")
            .unwrap()
            .expiry,
        Some(3)
    );
    assert_eq!(
        registered("{\"nbf\":5,\"nbf\":null}").unwrap().not_before,
        None
    );
    let audience = |text: &str| registered(&format!("{{\"aud\":{text}}}")).unwrap().audience;
    assert_eq!(audience("\"a\""), ["a"]);
    assert_eq!(audience("[\"a\",null]"), ["a", ""]);
    assert_eq!(audience("null"), [""]);
    assert_eq!(audience("[]"), [""; 0]);
    assert!(registered("{\"sub\":null,\"azp\":5,\"jti\":5,\"typ\":[]}").is_ok());
}

#[test]
fn registered_claims_of_wrong_types() {
    for (payload, reason) in [
        (
            "{\"exp\":null}",
            "strconv.ParseFloat: parsing \"\": invalid syntax",
        ),
        (
            "{\"exp\":\"x\"}",
            "json: invalid number literal, trying to unmarshal \"\\\"x\\\"\" into Number",
        ),
        (
            "{\"exp\":1e400}",
            "strconv.ParseFloat: parsing \"1e400\": value out of range",
        ),
        (
            "{\"exp\":{}}",
            "json: cannot unmarshal object into Go struct field idToken.exp of type json.Number",
        ),
        (
            "{\"sub\":5}",
            "json: cannot unmarshal number into Go struct field idToken.sub of type string",
        ),
        (
            "{\"nonce\":[]}",
            "json: cannot unmarshal array into Go struct field idToken.nonce of type string",
        ),
        (
            "{\"AT_HASH\":true}",
            "json: cannot unmarshal bool into Go struct field idToken.at_hash of type string",
        ),
        (
            "{\"aud\":5}",
            "json: cannot unmarshal number into Go struct field idToken.aud of type []string",
        ),
        (
            "{\"sub\":5,\"exp\":null}",
            "strconv.ParseFloat: parsing \"\": invalid syntax",
        ),
        (
            "{\"_claim_names\":5}",
            "json: cannot unmarshal number into Go struct field idToken._claim_names of type \
             map[string]string",
        ),
    ] {
        assert_eq!(
            registered(payload),
            Err(format!("oidc: failed to unmarshal claims: {reason}")),
            "{payload}"
        );
    }
    assert_eq!(
        registered("{\"_claim_names\":{\"a\":\"s\"}}"),
        Err("oidc: source does not exist".to_owned())
    );
    assert_eq!(
        registered("{\"_claim_names\":{\"a\":null}}"),
        Err("oidc: failed to obtain source from claim name".to_owned())
    );
    assert!(registered("{\"_claim_names\":{\"a\":\"s\"},\"_claim_sources\":{\"s\":null}}").is_ok());
}

#[test]
fn numbers_are_what_the_minor_makes_of_them() {
    let claim = |text: &str, numbers| to_claim(&Json::parse(text.as_bytes()).unwrap(), numbers);
    assert!(
        claim("5", Numbers::Kept).unwrap().is_i64()
            && claim("5", Numbers::Doubles).unwrap().is_f64()
    );
    assert!(
        claim("12345678901234567890", Numbers::Kept)
            .unwrap()
            .is_f64()
            && claim("1.0", Numbers::Kept).unwrap().is_f64()
    );
    // A zero keeps its sign if it is a double.
    assert!(claim("-0", Numbers::Kept).unwrap().is_i64());
    for (text, numbers) in [
        ("-0.0", Numbers::Kept),
        ("-0", Numbers::Doubles),
        ("-0e5", Numbers::Doubles),
    ] {
        assert!(
            claim(text, numbers)
                .unwrap()
                .as_f64()
                .unwrap()
                .is_sign_negative(),
            "{text}"
        );
    }
    for text in ["1e400", "[1,{\"a\":-1e400}]"] {
        assert!(
            matches!(claim(text, Numbers::Kept), Err(ClaimFault::HugeNumber(digits)) if digits.ends_with("1e400")),
            "{text}"
        );
    }
    for text in ["{\"a\":1e400,\"a\":1}", "[{\"a\":{\"b\":1e400},\"a\":1}]"] {
        assert!(claim(text, Numbers::Kept).is_ok(), "replaced: {text}");
        let all = claim(text, Numbers::Doubles);
        assert!(matches!(all, Err(ClaimFault::HugeNumber(_))), "{text}");
    }
    assert!(claim("{\"a\":1,\"a\":1e400}", Numbers::Kept).is_err());
    let deep = "[".repeat(500) + &"]".repeat(500);
    assert_eq!(claim(&deep, Numbers::Kept), Err(ClaimFault::TooDeep));
}

#[test]
fn the_token_of_a_service_account_is_imagined() {
    let account = ServiceAccountToken {
        namespace: "ns".to_owned(),
        name: "sa".to_owned(),
        uid: None,
        issuer: "https://hub".to_owned(),
        audience: "a".to_owned(),
        issued_at: 100,
        lifetime: 600,
    };
    let token = Token::of_service_account(&account);
    assert!(!token.is_signed());
    assert_eq!(
        token.payload.member("sub"),
        Some(&Json::Text("system:serviceaccount:ns:sa".to_owned()))
    );
    assert_eq!(Registered::read(&token.payload).unwrap().expiry, Some(700));
    assert_eq!(
        account.assumed(),
        ["jti", "kubernetes.io.serviceaccount.uid"]
    );
}
