#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::Code;

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";

fn refusal(text: &str, minor: Minor) -> (Code, String) {
    match load_configuration(text.as_bytes(), minor) {
        Err(LoadFault::Refused(refusal)) => (refusal.code, refusal.message),
        other => panic!("{text}: {other:?}"),
    }
}

fn with_head(rest: &str) -> String {
    format!("{HEAD}{rest}")
}

#[test]
fn a_plain_file_is_loaded_with_its_lines() {
    let text = with_head(
        "jwt:\n- issuer:\n    url: https://hub\n    audiences: [a, \"b\"]\n    audienceMatchPolicy: MatchAny\n  claimMappings:\n    \
         username: {claim: sub, prefix: ''}\n    groups:\n      expression: |\n        claims.groups\n  claimValidationRules:\n  \
         - claim: hd\n    requiredValue: \"yes\"\nanonymous:\n  enabled: on\n",
    );
    let loaded = load_configuration(text.as_bytes(), Minor::V1_33).unwrap();
    let jwt = loaded.configuration.jwt.first().unwrap();
    assert_eq!(
        (jwt.issuer.url.as_str(), jwt.issuer.audiences.as_slice()),
        ("https://hub", &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(jwt.claim_mappings.username.prefix.as_deref(), Some(""));
    assert_eq!(jwt.claim_mappings.groups.expression, "claims.groups\n");
    assert_eq!(
        jwt.claim_validation_rules.first().unwrap().required_value,
        "yes"
    );
    assert!(loaded.configuration.anonymous.as_ref().unwrap().enabled);
    let position = |path: &str| {
        let position = loaded.positions.get(path).unwrap();
        (position.line, position.column)
    };
    assert_eq!(position("jwt[0].issuer.url"), (5, 5));
    assert_eq!(position("jwt[0].claimMappings.groups.expression"), (11, 7));
    assert_eq!(position("jwt[0].claimMappings.username.prefix"), (9, 28));
    assert!(!loaded.second_document);
}

#[test]
fn json_is_loaded_too() {
    let text = "\n \
        {\"apiVersion\":\"apiserver.config.k8s.io/v1\",\"kind\":\"AuthenticationConfiguration\",\n\"jwt\":[{\"issuer\":{\"url\":\"x\"}}]}";
    let loaded = load_configuration(text.as_bytes(), Minor::V1_34).unwrap();
    assert_eq!(
        (loaded.version, loaded.configuration.jwt.len()),
        (ApiVersion::V1, 1)
    );
    assert_eq!(
        loaded.positions.get("jwt[0].issuer"),
        Some(&Position { line: 3, column: 9 })
    );
}

#[test]
fn every_version_is_known_from_its_minor_on() {
    for (version, first) in [
        ("v1alpha1", Minor::V1_30),
        ("v1beta1", Minor::V1_30),
        ("v1", Minor::V1_34),
    ] {
        for minor in Minor::ALL {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthenticationConfiguration\n"
            );
            assert_eq!(
                load_configuration(text.as_bytes(), minor).is_ok(),
                minor >= first,
                "{version} {minor}"
            );
        }
    }
}

#[test]
fn a_key_that_no_json_has_is_told_in_the_words_of_the_release() {
    assert_eq!(
        refusal("~: x\n", Minor::V1_30).1,
        "Unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\""
    );
    assert_eq!(
        refusal("~: x\n", Minor::V1_31).1,
        "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\""
    );
}

#[test]
fn refusals_are_in_the_words_of_the_apiserver() {
    let username = "jwt:\n- claimMappings:\n    username:\n      prefix: ";
    for (text, code, message) in [
        (String::new(), Code::EmptyFile, "empty config data".to_owned()),
        (
            with_head("jwt:\n- issuer:\n    audiencez: []\n"),
            Code::UnknownField,
            "strict decoding error: unknown field \"jwt[0].issuer.audiencez\"".to_owned(),
        ),
        (
            with_head("jwt:\n- ClaimMappings: {}\n"),
            Code::UnknownField,
            "strict decoding error: unknown field \"jwt[0].ClaimMappings\"".to_owned(),
        ),
        (
            with_head("jwt:\n- b: 1\n  a: 1\n"),
            Code::UnknownField,
            "strict decoding error: unknown field \"jwt[0].a\", unknown field \"jwt[0].b\"".to_owned(),
        ),
        (
            with_head("jwt: []\njwt: []\n"),
            Code::DuplicateField,
            "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"jwt\" already set in \
             map".to_owned(),
        ),
        (
            with_head(&format!("{username}5\n")),
            Code::WrongFieldType,
            "json: cannot unmarshal number into Go struct field \
             PrefixedClaimOrExpression.jwt.claimMappings.username.prefix of type string"
                .to_owned(),
        ),
        (
            with_head(&format!("{username}yes\n")),
            Code::WrongFieldType,
            "json: cannot unmarshal bool into Go struct field \
             PrefixedClaimOrExpression.jwt.claimMappings.username.prefix of type string"
                .to_owned(),
        ),
        (
            with_head("jwt: x\n"),
            Code::WrongFieldType,
            "json: cannot unmarshal string into Go struct field AuthenticationConfiguration.jwt of \
             type []v1beta1.JWTAuthenticator"
                .to_owned(),
        ),
        (
            with_head("jwt:\n- issuer: []\n"),
            Code::WrongFieldType,
            "json: cannot unmarshal array into Go struct field JWTAuthenticator.jwt.issuer of type \
             v1beta1.Issuer".to_owned(),
        ),
        (
            with_head("jwt:\n- issuer: {audiences: [1]}\n"),
            Code::WrongFieldType,
            "json: cannot unmarshal number into Go struct field Issuer.jwt.issuer.audiences of \
             type string".to_owned(),
        ),
        ("kind: X\n".to_owned(), Code::ApiVersionMissing, "Object 'apiVersion' is missing in \
            'kind: X\n'".to_owned()),
        ("apiVersion: a/b\n".to_owned(), Code::KindMissing, "Object 'Kind' is missing in \
            'apiVersion: a/b\n'".to_owned()),
        ("apiVersion: a/b/c\nkind: X\n".to_owned(), Code::ApiVersionMalformed, "unexpected GroupVersion string: a/b/c".to_owned()),
        (
            "kind: 5\n".to_owned(),
            Code::WrongFieldType,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go \
             struct field .kind of type string"
                .to_owned(),
        ),
        (
            "- a\n".to_owned(),
            Code::KindMissing,
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"
                .to_owned(),
        ),
        ("{".to_owned(), Code::NotJson, "couldn't get version/kind; json parse error: unexpected \
            end of JSON input".to_owned()),
        ("# nothing\n".to_owned(), Code::KindMissing, "Object 'Kind' is missing in '# nothing\n'".to_owned()),
    ] {
        assert_eq!(refusal(&text, Minor::V1_33), (code, message), "{text}");
    }
}

#[test]
fn names_of_kind_and_version_are_found_in_any_case_but_unknown_then() {
    let (code, message) = refusal(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nKind: AuthenticationConfiguration\n",
        Minor::V1_33,
    );
    assert_eq!(
        (code, message.as_str()),
        (
            Code::UnknownField,
            "strict decoding error: unknown field \"Kind\""
        )
    );
}

#[test]
fn a_duplicate_in_json_is_named_by_its_path() {
    let text = "{\"apiVersion\":\"apiserver.config.k8s.io/v1beta1\",\"kind\":\"AuthenticationConfiguration\",\"jwt\":[{\"issuer\":{\"url\":\"a\",\"url\":\"b\"}}]}";
    assert_eq!(
        refusal(text, Minor::V1_33).1,
        "strict decoding error: duplicate field \"jwt[0].issuer.url\""
    );
}

#[test]
fn a_type_error_beats_unknown_fields() {
    let (code, _) = refusal(&with_head("jwt:\n- issuer: {url: 5, x: 1}\n"), Minor::V1_33);
    assert_eq!(code, Code::WrongFieldType);
}

#[test]
fn fields_of_later_minors_are_unknown_before() {
    let egress = with_head("jwt:\n- issuer: {egressSelectorType: cluster}\n");
    assert!(load_configuration(egress.as_bytes(), Minor::V1_34).is_ok());
    assert_eq!(refusal(&egress, Minor::V1_33).0, Code::UnknownField);
    let anonymous = with_head("anonymous: {enabled: true}\n");
    assert!(load_configuration(anonymous.as_bytes(), Minor::V1_31).is_ok());
    assert_eq!(refusal(&anonymous, Minor::V1_30).0, Code::UnknownField);
}

#[test]
fn null_is_absent() {
    let text = with_head(
        "jwt:\n- issuer: ~\n  claimMappings:\n    username:\n      claim: sub\n      prefix: null\n",
    );
    let loaded = load_configuration(text.as_bytes(), Minor::V1_33).unwrap();
    assert_eq!(
        loaded
            .configuration
            .jwt
            .first()
            .unwrap()
            .claim_mappings
            .username
            .prefix,
        None
    );
}

#[test]
fn a_second_document_is_ignored_but_noted() {
    let loaded =
        load_configuration(with_head("---\nnonsense: [\n").as_bytes(), Minor::V1_33).unwrap();
    assert!(loaded.second_document);
    assert_eq!(
        refusal("---\n---\nkind: X\n", Minor::V1_33).0,
        Code::KindMissing
    );
}

#[test]
fn yaml_is_read_as_the_apiserver_reads_it_and_not_by_the_specification() {
    let entry = "jwt:\n- issuer: {url: https://a}\n  claimMappings:\n    username:\n      claim: \
        sub\n      prefix: ";
    for (written, prefix) in [
        // Quoted text may be indented less than its key.
        ("\"a\nb\"\n", "a b"),
        ("'a\n\n b'\n", "a\nb"),
        // A comment needs no blank before it if a token has just ended.
        ("\"a\"# comment\n", "a"),
        ("\"a\"\t# comment\n", "a"),
        ("a# no comment\n", "a# no comment"),
        // A tab is white space after a colon.
        ("\ta\n", "a"),
        ("!foo a\n", "a"),
        ("a\n", "a"),
        ("\"a\\\n    b\"\n", "ab"),
    ] {
        let text = with_head(&format!("{entry}{written}"));
        let loaded = load_configuration(text.as_bytes(), Minor::V1_33).unwrap();
        assert_eq!(
            loaded
                .configuration
                .jwt
                .first()
                .unwrap()
                .claim_mappings
                .username
                .prefix
                .as_deref(),
            Some(prefix),
            "{written}"
        );
    }
    for (written, message) in [
        (
            "\ta: b\n",
            "yaml: found character that cannot start any token",
        ),
        (
            "a:\n\tb: c\n",
            "yaml: line 2: found character that cannot start any token",
        ),
        (
            "kind: {{ kind }}\n",
            "yaml: invalid map key: map[interface {}]interface {}{\"kind\":interface {}(nil)}",
        ),
        (
            "a: b\nc\nd: e\n",
            "yaml: line 3: could not find expected ':'",
        ),
        (
            "a: b: c\n",
            "yaml: mapping values are not allowed in this context",
        ),
        ("%YAML 1.2\n---\n", "yaml: found incompatible YAML document"),
        ("a: *b\n", "yaml: unknown anchor 'b' referenced"),
        ("a: .nan\n", "json: unsupported value: NaN"),
    ] {
        assert_eq!(
            refusal(written, Minor::V1_33),
            (Code::NotYaml, message.to_owned()),
            "{written}"
        );
    }
    // A merge key counts as setting its members.
    let (code, message) = refusal(
        &with_head("x: &x {jwt: []}\n<<: *x\njwt: []\n"),
        Minor::V1_33,
    );
    assert_eq!(code, Code::DuplicateField);
    assert!(
        message.starts_with(
            "strict decoding error: yaml: unmarshal errors:\n  line 5: \
        key \"jwt\" already set in map"
        ),
        "{message}"
    );
}

#[test]
fn what_is_not_decided_is_said() {
    for text in [
        "1: x\n\"1\": y\n".to_owned(),
        "- ".repeat(5000),
        format!("[{}]", "a,".repeat(200_000)),
    ] {
        assert!(
            matches!(
                load_configuration(text.as_bytes(), Minor::V1_33),
                Err(LoadFault::Undetermined(_))
            ),
            "{:.40}",
            text
        );
    }
    assert!(matches!(
        load_configuration(&vec![b' '; MAX_BYTES + 1], Minor::V1_33),
        Err(LoadFault::Undetermined(_))
    ));
}

#[test]
fn aliases_are_expanded_within_bounds() {
    let text = with_head("jwt:\n- issuer: &i {url: https://a}\n- issuer: *i\n");
    assert_eq!(
        load_configuration(text.as_bytes(), Minor::V1_33)
            .unwrap()
            .configuration
            .jwt
            .get(1)
            .unwrap()
            .issuer
            .url,
        "https://a"
    );
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        bomb.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(", ")
        ));
    }
    assert_eq!(
        refusal(&bomb, Minor::V1_33),
        (
            Code::NotYaml,
            "yaml: document contains excessive aliasing".to_owned()
        )
    );
}
