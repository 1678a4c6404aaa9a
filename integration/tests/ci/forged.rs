//! Tokens that no job may use, against each shape of external issuer and on both routes. None is
//! accepted, and all get the same answer.

use std::sync::Arc;

use keyferry_integration::ci_issuer::{KID, SignedBy};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::Answer;
use serde_json::{Value, json};

use super::stage::{AUDIENCE, Shape, Stage};

/// A token of the table.
struct Forged {
    name: String,
    token: String,
}

pub(crate) async fn no_forged_or_mismatched_token_is_accepted(stage: Arc<Stage>) -> TestResult {
    let shapes = stage.shapes()?;
    let mut tried = 0;
    let mut expected: Option<[(u16, String); 2]> = None;
    for shape in &shapes {
        let access = [
            "tenant-a",
            if shape.scope == "environment" {
                "own"
            } else {
                "prod"
            },
        ];
        // The same token without the fault is admitted: only the fault is refused.
        let good = stage.job(shape, &format!("good {}", shape.name))?;
        admitted(&stage, &good, access).await?;
        for Forged { name, token } in table(&stage, shape)? {
            let what = format!("{}: {name}", shape.name);
            let exchange = stage.broker.exchange(&token, &access.join("/")).await?;
            let [namespace, object] = access;
            // A header holds no line break and at most 8 KiB.
            let sendable = token.len() < 8000 && token.bytes().all(|byte| byte.is_ascii_graphic());
            let outside = |answer: &Answer| (answer.status, answer.body.clone());
            let mut answers = vec![exchange];
            if sendable {
                let route = stage
                    .broker
                    .kubeconfig_of(&token, namespace, object)
                    .await?;
                answers.push(route);
            }
            for answer in &answers {
                assert!(!answer.body.contains("eyJ"), "{what}: {}", answer.body);
                let record = stage.broker.audit_of(&answer.request_id)?;
                let reason = record["reason"].as_str().unwrap_or_default();
                assert!(
                    record["decision"] == "denied" && reason.starts_with("Caller"),
                    "{what}: {record}"
                );
                assert!(record.get("callerIssuer").is_none(), "{what}: {record}");
            }
            if let [one, other] = answers.as_slice() {
                let bytes = [outside(one), outside(other)];
                let known = expected.get_or_insert_with(|| bytes.clone());
                assert_eq!(*known, bytes, "{what}: every fault has the same bytes");
            }
            tried += 1;
        }
        admitted_again(&stage, shape, access).await?;
    }
    eprintln!("{tried} forged or mismatched tokens, none accepted");
    assert!(tried >= 180, "{tried}");
    Ok(())
}

async fn admitted(stage: &Stage, token: &str, access: [&str; 2]) -> TestResult {
    if access == ["tenant-a", "own"] {
        // Keyferry may not mint for this account in one of the modes. The reason shows whether the
        // caller was accepted.
        let answer = stage.broker.exchange(token, "tenant-a/own").await?;
        let record = stage.broker.audit_of(&answer.request_id)?;
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(!reason.starts_with("Caller"), "{record}");
        assert_eq!(record["caller"], "system:serviceaccount:tenant-a:notifier");
        return Ok(());
    }
    stage
        .broker
        .exchange_in_time(token, &access.join("/"))
        .await?;
    Ok(())
}

async fn admitted_again(stage: &Stage, shape: &Shape, access: [&str; 2]) -> TestResult {
    let good = stage.job(shape, &format!("good again {}", shape.name))?;
    admitted(stage, &good, access).await
}

fn table(stage: &Stage, shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let mut all = by_claims(stage, shape)?;
    all.extend(by_header(stage, shape)?);
    all.extend(by_form(stage, shape)?);
    Ok(all)
}

/// Correctly signed tokens whose claims are not those of an admitted job.
fn by_claims(stage: &Stage, shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let good = &shape.claims;
    let (issuer, now) = (
        good["iss"].as_str().unwrap_or_default(),
        good["iat"].as_i64().unwrap_or_default(),
    );
    let scope = good[shape.scope].as_str().unwrap_or_default();
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
        ("the audience of Pods", "aud", json!("keyferry.dev")),
        (
            "the audience of the target",
            "aud",
            json!("https://target.keyferry.test"),
        ),
        (
            "two audiences",
            "aud",
            json!([AUDIENCE, "https://other.example.com"]),
        ),
        ("an audience twice", "aud", json!([AUDIENCE, AUDIENCE])),
        (
            "audience with a slash",
            "aud",
            json!(format!("{AUDIENCE}/")),
        ),
        ("no audience", "aud", Value::Null),
        ("an empty list of audiences", "aud", json!([])),
        ("expired", "exp", json!(now - 1)),
        ("expires as text", "exp", json!((now + 300).to_string())),
        ("no expiry", "exp", Value::Null),
        ("a longer life than allowed", "exp", json!(now + 3700)),
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
        ("an event of outsiders", shape.event, json!(shape.outsiders)),
    ];
    let mut all = Vec::new();
    for (name, claim, value) in cases {
        let mut claims = good.clone();
        claims["jti"] = json!(name);
        match value {
            Value::Null => drop(claims.as_object_mut().and_then(|all| all.remove(claim))),
            value => claims[claim] = value,
        }
        all.push(Forged {
            name: name.to_owned(),
            token: stage.issuer.token(&claims)?,
        });
    }
    if shape.id == "project_id" {
        let mut tag = good.clone();
        tag["ref_type"] = json!("tag");
        let mut open = good.clone();
        open["ref_protected"] = json!("false");
        let mut child = good.clone();
        child["pipeline_source"] = json!("parent_pipeline");
        for (name, claims) in [
            ("a tag of that name", tag),
            ("an open branch", open),
            ("a child pipeline", child),
        ] {
            all.push(Forged {
                name: name.to_owned(),
                token: stage.issuer.token(&claims)?,
            });
        }
    } else {
        let mut without = good.clone();
        without.as_object_mut().and_then(|all| all.remove("jti"));
        all.push(Forged {
            name: "no jti".to_owned(),
            token: stage.issuer.token(&without)?,
        });
    }
    Ok(all)
}

/// The right claims under another header or another key.
fn by_header(stage: &Stage, shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let claims = shape.claims.to_string();
    let mut all = Vec::new();
    let mut add = |name: &str, header: Value, by| -> TestResult {
        all.push(Forged {
            name: name.to_owned(),
            token: stage.issuer.signed(&header.to_string(), &claims, by)?,
        });
        Ok(())
    };
    let usual = json!({ "alg": "ES256", "kid": KID, "typ": "JWT" });
    add("a key of nobody", usual.clone(), SignedBy::Stranger)?;
    for (name, member, value) in [
        ("alg none", "alg", json!("none")),
        ("alg HS256", "alg", json!("HS256")),
        ("alg RS256", "alg", json!("RS256")),
        ("alg ES384", "alg", json!("ES384")),
        ("alg in small letters", "alg", json!("es256")),
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
    add("no kid", json!({ "alg": "ES256" }), SignedBy::Issuer)?;
    add("no alg", json!({ "kid": KID }), SignedBy::Issuer)?;
    Ok(all)
}

/// The right token in another form.
fn by_form(stage: &Stage, shape: &Shape) -> Result<Vec<Forged>, TestError> {
    let good = stage.job(shape, "form")?;
    let other = stage.job(shape, "other form")?;
    let header = json!({ "alg": "ES256", "kid": KID }).to_string();
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
            stage.issuer.signed(&header, &twice, SignedBy::Issuer)?,
        ),
        (
            "claims that are a list",
            stage.issuer.signed(&header, "[]", SignedBy::Issuer)?,
        ),
        (
            "claims that go on",
            stage
                .issuer
                .signed(&header, &format!("{claims} x"), SignedBy::Issuer)?,
        ),
        ("9 KiB", {
            let mut long = shape.claims.clone();
            long["pad"] = json!("x".repeat(7000));
            stage.issuer.token(&long)?
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
