//! Compares expressions of an extra value with results of the apiserver's own authenticator, for a
//! token with the claims of `observed.json`.
//!
//! Each row of `observed.tsv` is an expression and one column for each minor of the first line.
//! `=a|b` are the values, `!` begins an error, and `?` names the kind of the field error that
//! refuses the configuration.

use super::*;
use crate::config::ExtraMapping;

fn extra(expression: &str) -> JwtAuthenticator {
    let mut jwt = authenticator();
    jwt.claim_mappings.extra.push(ExtraMapping {
        key: "a.b/c".to_owned(),
        value_expression: expression.to_owned(),
    });
    jwt
}

/// Returns the outcome in the table's form, and whether its message counts as exact. `None` if it
/// is undetermined.
fn observe(expression: &str, minor: Minor, token: &Token, keys: &Keys) -> Option<(String, bool)> {
    let configuration = AuthenticationConfiguration {
        jwt: vec![extra(expression)],
        anonymous: None,
    };
    let compiled = match validate_configuration(&configuration, minor, &[]) {
        Ok(compiled) => compiled,
        Err(invalid) => {
            let kinds: Vec<&str> = invalid
                .errors
                .iter()
                .map(|error| error.kind.name())
                .collect();
            return invalid
                .undetermined
                .is_empty()
                .then(|| (format!("?{}", kinds.join(" ")), true));
        }
    };
    match verify_token(&compiled, token, keys, at(NOW))
        .outcomes
        .into_iter()
        .next()?
    {
        Outcome::Accepted(user) => Some((
            format!(
                "={}",
                user.extra
                    .get("a.b/c")
                    .cloned()
                    .unwrap_or_default()
                    .join("|")
            ),
            true,
        )),
        Outcome::Rejected(rejection) => Some((format!("!{}", rejection.message), rejection.exact)),
        _ => None,
    }
}

#[test]
fn outcomes_are_those_observed() {
    let hub = Hub::new();
    let (token, keys) = (
        Token::read(hub.token(include_str!("observed.json")).as_bytes()).unwrap(),
        hub.keys(),
    );
    let mut rows = include_str!("observed.tsv").lines();
    let minors: Vec<Minor> = rows
        .next()
        .unwrap()
        .split('\t')
        .skip(1)
        .map(|minor| minor.parse().unwrap())
        .collect();
    let (mut wrong, mut open) = (Vec::new(), Vec::new());
    for row in rows {
        let texts: Vec<String> = row
            .split('\t')
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        for (minor, expected) in minors.iter().zip(&texts[1..]) {
            match observe(&texts[0], *minor, &token, &keys) {
                Some((found, true)) if found == *expected => {}
                Some((found, false)) if found[..1] == expected[..1] => {}
                Some((found, _)) => {
                    wrong.push(format!("{} in {minor}: {found}, not {expected}", texts[0]))
                }
                None => open.push(format!("{} in {minor}", texts[0])),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Releases before 1.33 treat these two as texts that are not UTF-8.
    let broken = |row: &String| row.contains("\\UFFFFFFFF") || row.contains("\\U800000");
    assert!(open.iter().all(broken), "{open:?}");
}

/// Returns the outcome of an extra value for a token with one more claim, written as JSON.
fn with_claim(expression: &str, minor: Minor, claim: &str) -> Outcome {
    let hub = Hub::new();
    let payload = claims(json!({})).replacen('{', &format!("{{\"odd\":{claim},"), 1);
    ask(extra(expression), minor, &hub.token(&payload), &hub.keys())
}

#[test]
fn a_number_beyond_a_double_fails_where_it_is_used() {
    for claim in ["1e400", "[1,{\"a\":-1e400}]"] {
        for minor in [Minor::V1_34, Minor::V1_37] {
            assert_eq!(
                user(with_claim("claims.sub", minor, claim))
                    .extra
                    .get("a.b/c")
                    .unwrap(),
                &["s"]
            );
            assert_eq!(
                user(with_claim("string(claims.odd == 1 || true)", minor, claim))
                    .extra
                    .get("a.b/c")
                    .unwrap(),
                &["true"]
            );
            for expression in [
                "claims.odd",
                "string(has(claims.odd))",
                "string(claims[?'odd'].hasValue())",
            ] {
                let digits = if claim.starts_with('1') {
                    "1e400"
                } else {
                    "-1e400"
                };
                let reason = format!(
                    "claim \"odd\" failed to unmarshal: json: cannot unmarshal number {digits} \
                     into Go value of type float64"
                );
                let found = rejection(with_claim(expression, minor, claim));
                assert_eq!(
                    (found.message, found.exact),
                    (
                        format!("expression '{expression}' resulted in error: {reason}"),
                        true
                    )
                );
            }
        }
        // Go visits the claims in random order, so the message is random too.
        assert!(
            !rejection(with_claim(
                "dyn(claims).filter(name, name)",
                Minor::V1_36,
                claim
            ))
            .exact
        );
        assert_eq!(
            rejected(with_claim("claims.sub", Minor::V1_33, claim)).0,
            Code::ClaimsNotConvertible,
            "all are converted before 1.34"
        );
    }
}

#[test]
fn a_claim_that_nests_deep_is_left_alone_where_nothing_uses_it() {
    for depth in [300, 5000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        for minor in [Minor::V1_33, Minor::V1_36] {
            assert_eq!(
                user(with_claim("claims.sub", minor, &deep))
                    .extra
                    .get("a.b/c")
                    .unwrap(),
                &["s"]
            );
            let open = |expression| matches!(with_claim(expression, minor, &deep), Outcome::Undetermined(found) if found.code == Code::TooDeep);
            assert!(
                [
                    "string(size(claims.odd))",
                    "string(has(claims.odd))",
                    "claims[?'odd'].orValue('')"
                ]
                .into_iter()
                .all(open)
            );
            // Before 1.34 such an expression is evaluated on every claim.
            assert!(
                minor == Minor::V1_36
                    || ["claims[claims.sub]", "string(dyn(claims) == 1)"]
                        .into_iter()
                        .all(open)
            );
        }
        let since = |expression| with_claim(expression, Minor::V1_36, &deep);
        assert_eq!(
            rejection(since("claims[claims.sub]")).message,
            "expression 'claims[claims.sub]' resulted in error: no such key: s"
        );
        for (expression, value) in [
            ("claims['su' + 'b']", "s"),
            ("string(claims.odd == 1 || true)", "true"),
        ] {
            assert_eq!(
                user(since(expression)).extra.get("a.b/c").unwrap(),
                &[value]
            );
        }
    }
    let beyond = "[".repeat(10_001) + &"]".repeat(10_001);
    assert_eq!(
        with_claim("claims.sub", Minor::V1_36, &beyond),
        Outcome::Skipped(Code::PayloadNotJson),
        "Go does not read it either"
    );
}
