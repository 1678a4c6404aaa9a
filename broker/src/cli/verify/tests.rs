#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: VerifyArgs,
}

const CONFIG: &str = r#"apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://other, audiences: [a]}
  claimMappings: {username: {claim: sub, prefix: "other:"}}
- issuer: {url: https://hub, audiences: [https://prod]}
  claimValidationRules:
  - expression: "claims.sub in ['system:serviceaccount:tenant-a:reconciler']"
    message: not allowed
  claimMappings:
    username: {claim: sub, prefix: "hub:"}
"#;

/// A file of these bytes, which lives as long as what is returned.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn ask(config: &str, more: &[&str]) -> Result<(Report, String), String> {
    let config = file(config);
    let path = config.path().to_str().unwrap();
    let line = [&["verify", "--auth-config", path, "--kubernetes", "1.33", "--at", "2026-01-01T00:00:00Z"], more].concat();
    let args = Line::try_parse_from(line).map_err(|error| error.to_string())?.args;
    answer(&args).map(|(report, about)| {
        let text = text::of(&report, &about);
        (report, text)
    })
}

#[test]
fn an_account_without_a_token_is_mapped() {
    let (report, text) = ask(CONFIG, &["--service-account", "tenant-a/reconciler", "--issuer", "https://hub"]).unwrap();
    assert_eq!(code(report.verdict), 0);
    assert_eq!(report.user.unwrap().username, "hub:system:serviceaccount:tenant-a:reconciler");
    for part in [
        "jwt[0] https://other: skipped, IssuerDiffers",
        "jwt[1] https://hub: accepted",
        "verdict: accepted",
        "Kubernetes 1.33",
        "assumed: jti",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn an_account_that_is_not_allowed_is_refused_by_the_rule() {
    let (report, text) = ask(CONFIG, &["--service-account", "tenant-b/reconciler", "--issuer", "https://hub"]).unwrap();
    assert_eq!(code(report.verdict), 1);
    assert!(text.contains("rejected at ClaimRules, ClaimRuleFalse") && text.contains("not allowed"), "{text}");
}

#[test]
fn what_the_file_leaves_open_is_asked_for() {
    let problem = ask(CONFIG, &["--service-account", "tenant-a/reconciler"]).unwrap_err();
    assert!(problem.contains("--issuer"), "{problem}");
    let problem = ask(CONFIG, &["--service-account", "tenant-a/reconciler", "--issuer", "https://third"]).unwrap_err();
    assert!(problem.contains("--audience"), "{problem}");
    assert!(ask(CONFIG, &[]).unwrap_err().contains("--token-file"));
}

#[test]
fn a_file_that_is_refused_is_an_answer() {
    let (report, text) = ask(&CONFIG.replace("https://hub", "http://hub"), &["--service-account", "a/b", "--issuer", "x"]).unwrap();
    assert_eq!(code(report.verdict), 1);
    assert!(text.contains("URL scheme must be https") && text.contains("UrlNotHttps"), "{text}");
    let (report, _) = ask("%YAML 1.1\n---\n", &["--service-account", "a/b"]).unwrap();
    assert_eq!(code(report.verdict), 3);
}

#[test]
fn a_token_is_never_repeated() {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims = r#"{"iss":"https://hub","aud":["https://prod"],"sub":"x\u001b[2J","exp":1767225700}"#;
    let token = format!("{}.{}.c2lnbmF0dXJlLW9mLXRva2Vu", encode(r#"{"alg":"RS256","kid":"k"}"#), encode(claims));
    let held = file(&format!("{token}\n"));
    let (report, text) = ask(CONFIG, &["--token-file", held.path().to_str().unwrap()]).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    for printed in [&text, &json] {
        assert!(token.split('.').all(|part| !printed.contains(part)), "{printed}");
        assert!(!printed.contains('\u{1b}'), "a claim speaks to the terminal: {printed:?}");
    }
    assert_eq!(code(report.verdict), 1, "{text}");
    let problem = ask(CONFIG, &["--token-file", &token]).unwrap_err();
    assert!(problem.contains("never an argument") && !problem.contains(&token), "{problem}");
}

#[test]
fn without_keys_the_signature_is_said_to_be_open() {
    let (_, text) = ask(CONFIG, &["--service-account", "tenant-a/reconciler", "--issuer", "https://hub"]).unwrap();
    assert!(text.contains("signature: not checked"), "{text}");
    let keys = file("{\"keys\":[");
    let (report, text) =
        ask(CONFIG, &["--service-account", "tenant-a/reconciler", "--issuer", "https://hub", "--jwks", keys.path().to_str().unwrap()])
            .unwrap();
    assert_eq!(report.verdict, Answer::Accepted, "nothing is signed, so nothing is verified: {text}");
}
