//! The tokens that no job may use: each has one fault.

use std::sync::Arc;

use keyferry_integration::ci_issuer::{KID, SignedBy};
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use crate::ci::shapes::{OTHER_AUDIENCE, Shape, set_claim};
use crate::ci::stage::{AUDIENCE, Stage};

/// A token of the table.
pub(super) struct Forged {
    pub(super) name: String,
    pub(super) token: String,
}

/// All tokens of a shape.
pub(super) fn table(
    stage: &Stage,
    shape: &Shape,
    shapes: &[Shape],
) -> Result<Vec<Forged>, TestError> {
    let mut all = by_claims(shape)?;
    all.extend(by_rule(shape)?);
    all.extend(by_event(shape)?);
    all.extend(by_others(shape, shapes)?);
    all.extend(by_header(shape)?);
    all.extend(by_form(stage, shape)?);
    Ok(all)
}

/// Each claim of the rule with another value.
fn by_rule(shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let mut all = Vec::new();
    for (claim, value) in &shape.rule {
        let text = value.as_str().unwrap_or_default();
        for (name, value) in [
            ("another value", json!("another")),
            ("a value that goes on", json!(format!("{text}x"))),
            ("a value with a space", json!(format!("{text} "))),
            ("a value that is cut", json!(text.get(1..))),
            ("a list", json!([text])),
            ("an object", json!({ "value": text })),
            ("true", json!(true)),
            ("an empty text", json!("")),
            ("no such claim", Value::Null),
        ] {
            all.push(with_claim(
                shape,
                &format!("{claim}: {name}"),
                claim,
                value,
            )?);
        }
    }
    Ok(all)
}

/// Events that outsiders can cause, or whose jobs run code that is not merged.
fn by_event(shape: &Shape) -> Result<Vec<Forged>, TestError> {
    if shape.event.is_empty() {
        return Ok(Vec::new());
    }
    let events: &[&str] = match shape.event {
        "pipeline_source" => &[
            "merge_request_event",
            "external_pull_request_event",
            "parent_pipeline",
            "pipeline",
            "chat",
            "ondemand_dast_scan",
        ],
        _ => &[
            "pull_request",
            "pull_request_target",
            "pull_request_review",
            "issue_comment",
            "workflow_run",
            "workflow_call",
            "merge_group",
            "check_run",
            "status",
            "deployment_status",
            "gollum",
            "fork",
        ],
    };
    let named = shape.rule.get(shape.event).and_then(Value::as_str);
    events
        .iter()
        .filter(|event| named != Some(**event))
        .map(|event| with_claim(shape, &format!("event {event}"), shape.event, json!(event)))
        .chain([with_claim(shape, "no event", shape.event, Value::Null)])
        .collect()
}

/// The keys and the claims of other issuers.
fn by_others(shape: &Shape, shapes: &[Shape]) -> Result<Vec<Forged>, TestError> {
    let mut all = Vec::new();
    let mut servers = vec![&shape.issuer];
    for other in shapes {
        if !servers.iter().any(|one| Arc::ptr_eq(one, &other.issuer)) {
            servers.push(&other.issuer);
            // All issuers publish their key under the same kid.
            all.push(Forged {
                name: format!("signed by the issuer of {}", other.name),
                token: other.issuer.token(&shape.claims)?,
            });
        }
        let same_issuer = shape.claims["iss"] == other.claims["iss"];
        let meets_rule = shape
            .rule
            .iter()
            .all(|(claim, value)| other.claims.get(claim) == Some(value));
        if !same_issuer && !meets_rule {
            let mut claims = other.claims.clone();
            claims["iss"] = shape.claims["iss"].clone();
            claims["aud"] = shape.claims["aud"].clone();
            all.push(Forged {
                name: format!("the claims of {}", other.name),
                token: shape.issuer.token(&claims)?,
            });
        }
    }
    Ok(all)
}

/// The right token with one claim changed, or removed if the value is null.
fn with_claim(shape: &Shape, name: &str, claim: &str, value: Value) -> Result<Forged, TestError> {
    let mut claims = shape.claims.clone();
    claims["jti"] = json!(name);
    match value {
        Value::Null if claim.starts_with('/') => set_claim(&mut claims, claim, Value::Null),
        Value::Null => drop(claims.as_object_mut().and_then(|all| all.remove(claim))),
        value => set_claim(&mut claims, claim, value),
    }
    Ok(Forged {
        name: name.to_owned(),
        token: shape.issuer.token(&claims)?,
    })
}

/// Correctly signed tokens whose claims are not those of an admitted job.
fn by_claims(shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let good = &shape.claims;
    let (issuer, now) = (
        good["iss"].as_str().unwrap_or_default(),
        good["iat"].as_i64().unwrap_or_default(),
    );
    let scope = good[shape.scope].as_str().unwrap_or_default();
    let audience = good["aud"].as_str().unwrap_or_default();
    let id = good[shape.id].as_str().unwrap_or_default();
    let cases = [
        ("issuer with a slash", "iss", json!(format!("{issuer}/"))),
        ("issuer in capitals", "iss", json!(issuer.to_uppercase())),
        (
            "issuer that is a prefix",
            "iss",
            json!(issuer.get(..issuer.len() - 1)),
        ),
        (
            "issuer that goes on",
            "iss",
            json!(format!("{issuer}.evil.example")),
        ),
        (
            "the hub's issuer",
            "iss",
            json!("https://hub.keyferry.test"),
        ),
        ("issuer in a list", "iss", json!([issuer])),
        ("no issuer", "iss", Value::Null),
        (
            "another audience",
            "aud",
            json!("https://other.example.com"),
        ),
        (
            "the audience of another entry",
            "aud",
            json!(match audience == AUDIENCE {
                true => OTHER_AUDIENCE,
                false => AUDIENCE,
            }),
        ),
        ("the audience of Pods", "aud", json!("keyferry.dev")),
        (
            "the audience of the target",
            "aud",
            json!("https://target.keyferry.test"),
        ),
        (
            "two audiences",
            "aud",
            json!([audience, "https://other.example.com"]),
        ),
        ("an audience twice", "aud", json!([audience, audience])),
        (
            "audience with a slash",
            "aud",
            json!(format!("{audience}/")),
        ),
        ("no audience", "aud", Value::Null),
        ("an empty list of audiences", "aud", json!([])),
        ("expired", "exp", json!(now - 1)),
        ("expires as text", "exp", json!((now + 300).to_string())),
        ("no expiry", "exp", Value::Null),
        (
            "a longer life than allowed",
            "exp",
            json!(now + shape.longest + 100),
        ),
        ("a fraction of a second", "exp", json!(now as f64 + 300.5)),
        ("issued in the future", "iat", json!(now + 120)),
        ("no time of issue", "iat", Value::Null),
        ("not valid yet", "nbf", json!(now + 120)),
        ("no subject", "sub", Value::Null),
        ("an empty subject", "sub", json!("")),
        (
            "claims of a ServiceAccount",
            "kubernetes.io",
            json!({ "namespace": "tenant-a" }),
        ),
        ("another project", shape.id, json!("43")),
        (
            "a project that begins alike",
            shape.id,
            json!(format!("{id}0")),
        ),
        (
            "a project as a number",
            shape.id,
            json!(id.parse::<u64>().unwrap_or_default()),
        ),
        ("a project in a list", shape.id, json!([id])),
        ("a project with a space", shape.id, json!(format!("{id} "))),
        (
            "no project: only its name, after a rename",
            shape.id,
            Value::Null,
        ),
        (
            "another ref or environment",
            shape.scope,
            json!("refs/heads/next"),
        ),
        (
            "a scope that goes on",
            shape.scope,
            json!(format!("{scope}2")),
        ),
        (
            "a scope in capitals",
            shape.scope,
            json!(scope.to_uppercase()),
        ),
        (
            "a pull request's ref",
            shape.scope,
            json!("refs/pull/1/merge"),
        ),
        ("no ref and no environment", shape.scope, Value::Null),
    ];
    let mut all = cases
        .into_iter()
        .map(|(name, claim, value)| with_claim(shape, name, claim, value))
        .collect::<Result<Vec<_>, _>>()?;
    if shape.once {
        let mut without = good.clone();
        without.as_object_mut().and_then(|all| all.remove("jti"));
        all.push(Forged {
            name: "no jti".to_owned(),
            token: shape.issuer.token(&without)?,
        });
    }
    Ok(all)
}

/// The right claims under another header or another key.
fn by_header(shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let claims = shape.claims.to_string();
    let mut all = Vec::new();
    let mut add = |name: &str, header: Value, by| -> TestResult {
        all.push(Forged {
            name: name.to_owned(),
            token: shape.issuer.signed(&header.to_string(), &claims, by)?,
        });
        Ok(())
    };
    let algorithm = shape.issuer.algorithm().name();
    let usual = json!({ "alg": algorithm, "kid": KID, "typ": "JWT" });
    add("a key of nobody", usual.clone(), SignedBy::Stranger)?;
    for (name, member, value) in [
        (
            "alg in small letters",
            "alg",
            json!(algorithm.to_lowercase()),
        ),
        ("an unknown kid", "kid", json!("other-key")),
        ("a kid that is a path", "kid", json!("../../ci-key")),
        ("an empty kid", "kid", json!("")),
        ("a kid that is a number", "kid", json!(1)),
        ("an access token's typ", "typ", json!("at+jwt")),
        ("jku", "jku", json!("https://evil.example/keys")),
        ("jwk", "jwk", json!({ "kty": "EC" })),
        ("x5u", "x5u", json!("https://evil.example/cert")),
        ("x5c", "x5c", json!(["AA"])),
        ("crit", "crit", json!(["exp"])),
        ("b64", "b64", json!(false)),
        ("zip", "zip", json!("DEF")),
        ("cty", "cty", json!("JWT")),
    ] {
        let mut header = usual.clone();
        header[member] = value;
        add(name, header, SignedBy::Issuer)?;
    }
    for other in [
        "none", "None", "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "ES256",
        "ES384", "ES512", "EdDSA",
    ] {
        if other != algorithm {
            let mut header = usual.clone();
            header["alg"] = json!(other);
            add(&format!("alg {other}"), header, SignedBy::Issuer)?;
        }
    }
    add("no kid", json!({ "alg": algorithm }), SignedBy::Issuer)?;
    add("no alg", json!({ "kid": KID }), SignedBy::Issuer)?;
    Ok(all)
}

/// The right token in another form.
fn by_form(stage: &Stage, shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let good = stage.job(shape, "form")?;
    let other = stage.job(shape, "other form")?;
    let header = json!({ "alg": shape.issuer.algorithm().name(), "kid": KID }).to_string();
    let claims = shape.claims.to_string();
    let twice = claims.replacen('{', "{\"iss\":\"https://first.example\",", 1);
    let (unsigned, signature) = good.rsplit_once('.').ok_or("no token")?;
    let (_, others) = other.rsplit_once('.').ok_or("no token")?;
    let (start, _) = good.split_at(good.len() - 4);
    let cases = [
        ("no signature", format!("{unsigned}.")),
        ("no third part", unsigned.to_owned()),
        ("another token's signature", format!("{unsigned}.{others}")),
        ("a signature that is cut", start.to_owned()),
        ("padding", format!("{good}==")),
        ("a space before it", format!(" {good}")),
        ("a line break after it", format!("{good}\n")),
        ("two tokens", format!("{good}.{good}")),
        ("four dots", format!("{unsigned}.{signature}.x.y")),
        (
            "a claim twice",
            shape.issuer.signed(&header, &twice, SignedBy::Issuer)?,
        ),
        (
            "claims that are a list",
            shape.issuer.signed(&header, "[]", SignedBy::Issuer)?,
        ),
        (
            "claims that go on",
            shape
                .issuer
                .signed(&header, &format!("{claims} x"), SignedBy::Issuer)?,
        ),
        ("9 KiB", {
            let mut long = shape.claims.clone();
            long["pad"] = json!("x".repeat(7000));
            shape.issuer.token(&long)?
        }),
    ];
    Ok(cases
        .into_iter()
        .map(|(name, token)| Forged {
            name: name.to_owned(),
            token,
        })
        .collect())
}
