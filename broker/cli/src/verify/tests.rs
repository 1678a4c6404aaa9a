#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;
use insta::assert_snapshot;

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

/// Creates a file with this content, deleted when the returned value is dropped.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn with_its_fix(error: &CommandError) -> String {
    format!("{error}\nfix: {}", error.fix.as_deref().unwrap_or("none"))
}

fn ask(config: &str, more: &[&str]) -> Result<(Report, String), String> {
    let config = file(config);
    let path = config.path().to_str().unwrap();
    let line = [
        &[
            "verify",
            "--auth-config",
            path,
            "--kubernetes",
            "1.33",
            "--at",
            "2026-01-01T00:00:00Z",
        ],
        more,
    ]
    .concat();
    let args = Line::try_parse_from(line)
        .map_err(|error| error.to_string())?
        .args;
    let (report, about) = report_verdict(&args).map_err(|error| with_its_fix(&error))?;
    let text = text::of(&report, &about);
    Ok((report, text.replace(path, "FILE")))
}

#[test]
fn an_account_without_a_token_is_mapped() {
    let (report, text) = ask(
        CONFIG,
        &[
            "--service-account",
            "tenant-a/reconciler",
            "--issuer",
            "https://hub",
        ],
    )
    .unwrap();
    assert_eq!(code(report.verdict), 0);
    assert_eq!(
        report.user.unwrap().username,
        "hub:system:serviceaccount:tenant-a:reconciler"
    );
    assert_snapshot!("an-account-without-a-token", text);
}

#[test]
fn an_account_that_is_not_allowed_is_refused_by_the_rule() {
    let (report, text) = ask(
        CONFIG,
        &[
            "--service-account",
            "tenant-b/reconciler",
            "--issuer",
            "https://hub",
        ],
    )
    .unwrap();
    assert_eq!(code(report.verdict), 1);
    assert_snapshot!("an-account-that-is-not-allowed", text);
}

#[test]
fn what_the_file_leaves_open_is_asked_for() {
    let account = ["--service-account", "tenant-a/reconciler"];
    let third = [&account[..], &["--issuer", "https://third"]].concat();
    let problems = [&account[..], &third, &[]].map(|more| ask(CONFIG, more).unwrap_err());
    assert_snapshot!("what-the-file-leaves-open", problems.join("\n\n"));
}

#[test]
fn a_file_that_is_refused_is_an_answer() {
    let (report, text) = ask(
        &CONFIG.replace("https://hub", "http://hub"),
        &["--service-account", "a/b", "--issuer", "x"],
    )
    .unwrap();
    assert_eq!(code(report.verdict), 1);
    assert_snapshot!("a-file-that-is-refused", text);
    let (report, _) = ask("1: x\n\"1\": y\n", &["--service-account", "a/b"]).unwrap();
    assert_eq!(code(report.verdict), 3);
}

#[test]
fn a_token_is_never_repeated() {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims =
        r#"{"iss":"https://hub","aud":["https://prod"],"sub":"x\u001b[2J","exp":1767225700}"#;
    let token = format!(
        "{}.{}.c2lnbmF0dXJlLW9mLXRva2Vu",
        encode(r#"{"alg":"RS256","kid":"k"}"#),
        encode(claims)
    );
    let held = file(&format!("{token}\n"));
    let (report, text) = ask(CONFIG, &["--token-file", held.path().to_str().unwrap()]).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    for printed in [&text, &json] {
        assert!(
            token.split('.').all(|part| !printed.contains(part)),
            "{printed}"
        );
        assert!(
            !printed.contains('\u{1b}'),
            "a claim speaks to the terminal: {printed:?}"
        );
    }
    assert_eq!(code(report.verdict), 1, "{text}");
    let problem = ask(CONFIG, &["--token-file", &token]).unwrap_err();
    assert!(
        problem.contains("never an argument") && !problem.contains(&token),
        "{problem}"
    );
}

#[test]
fn what_is_open_about_a_signature_is_said() {
    let (_, text) = ask(
        CONFIG,
        &[
            "--service-account",
            "tenant-a/reconciler",
            "--issuer",
            "https://hub",
        ],
    )
    .unwrap();
    assert_snapshot!("a-signature-of-no-token", text);
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims = r#"{"iss":"https://hub","aud":["https://prod"],"sub":"system:serviceaccount:tenant-a:reconciler","exp":1767225700}"#;
    let token = file(&format!(
        "{}.{}.AA",
        encode(r#"{"alg":"RS256","kid":"k"}"#),
        encode(claims)
    ));
    let by_token = ["--token-file", token.path().to_str().unwrap()];
    let (report, text) = ask(CONFIG, &by_token).unwrap();
    assert_eq!(report.verdict, Answer::Accepted, "{text}");
    let without_path = |text: &str, path: &str| text.replace(path, "PATH");
    assert_snapshot!(
        "a-signature-that-is-not-checked",
        without_path(&text, by_token[1])
    );
    for (case, document) in [
        ("no-key", r#"{"keys":[]}"#),
        (
            "a-discovery-document",
            r#"{"issuer":"https://hub","jwks_uri":"https://hub/keys"}"#,
        ),
        ("one-key", r#"{"kty":"oct","k":"AQ"}"#),
        (
            "a-set-of-one-key",
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQ"}]}"#,
        ),
        ("a-symmetric-key", r#"{"keys":[{"kty":"oct","k":"AQ"}]}"#),
    ] {
        let keys = file(document);
        let path = keys.path().to_str().unwrap();
        let more = [&by_token[..], &["--jwks", path]].concat();
        let (report, text) = ask(CONFIG, &more).unwrap();
        assert_eq!(report.verdict, Answer::Rejected, "{text}");
        let text = without_path(&without_path(&text, by_token[1]), path);
        assert_snapshot!(format!("a-signature-and-{case}"), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_keys_are_those_of_the_issuer() {
    use keyferry_testing::{Authority, EmbeddedHub, HubOptions};
    use secrecy::ExposeSecret;

    let authority = Authority::new("test CA").unwrap();
    let options = HubOptions {
        issuer: Some("https://hub.example".to_owned()),
        discovery_ca: Some(authority.clone()),
        ..HubOptions::default()
    };
    let hub = EmbeddedHub::start(options).await.unwrap();
    hub.add_service_account("tenant-a", "reconciler");
    let token = hub
        .token(
            "tenant-a",
            "reconciler",
            "prod",
            std::time::Duration::from_secs(3600),
        )
        .unwrap();
    let token = token.expose_secret().to_owned();
    let config = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    discoveryURL: {}\n    \
         audiences: [prod]\n    certificateAuthority: |\n      {}\n  claimMappings:\n    username: {{claim: sub, prefix: 'hub:'}}\n",
        hub.issuer(),
        hub.discovery_url(),
        authority.ca_pem().trim().replace('\n', "\n      ")
    );
    // The command starts its own runtime, which cannot run inside the test's.
    const LOOPBACK_RANGE: &str = "127.0.0.0/8";
    const OTHER_RANGE: &str = "192.0.2.0/24";
    let live = move |token: String, allowed: &'static str| {
        let config = config.clone();
        async move {
            tokio::task::spawn_blocking(move || {
                let (config, token) = (file(&config), file(&token));
                let [config, token] = [&config, &token].map(|file| file.path().to_str().unwrap());
                let line = [
                    "verify",
                    "--auth-config",
                    config,
                    "--token-file",
                    token,
                    "--live",
                    "--allow-target-cidr",
                    allowed,
                ];
                report_verdict(&Line::try_parse_from(line).unwrap().args)
                    .unwrap()
                    .0
            })
            .await
            .unwrap()
        }
    };
    let refused = live(token.clone(), OTHER_RANGE).await;
    assert_eq!(refused.verdict, Answer::Undetermined, "{refused:?}");
    let message = refused.reason.unwrap().message;
    assert!(message.contains("TargetAddressRefused"), "{message}");
    let report = live(token.clone(), LOOPBACK_RANGE).await;
    assert_eq!(report.verdict, Answer::Accepted, "{report:?}");
    assert_eq!(
        report.signature,
        keyferry_kube_authn::verify::SignatureCheck::Checked
    );
    let (input, signature) = token.rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { "B" } else { "A" };
    let changed = format!("{input}.{first}{}", signature.get(1..).unwrap());
    let report = live(changed, LOOPBACK_RANGE).await;
    assert_eq!(
        report.reason.unwrap().code,
        keyferry_kube_authn::Code::SignatureInvalid
    );
}

#[test]
fn a_name_that_is_not_the_hubs_is_a_problem_though_it_is_accepted() {
    let more = [
        "--service-account",
        "tenant-a/reconciler",
        "--issuer",
        "https://hub",
    ];
    let (sound, text) = ask(CONFIG, &[&more[..], &["--hub-name", "hub"]].concat()).unwrap();
    assert!(sound.problems.is_empty(), "{text}");
    let names = |report: &Report| {
        report
            .problems
            .iter()
            .map(|problem| problem.code)
            .collect::<Vec<_>>()
    };
    let (empty, text) = ask(&CONFIG.replace("prefix: \"hub:\"", "prefix: \"\""), &more).unwrap();
    assert_eq!(
        (empty.verdict, names(&empty)),
        (Answer::Accepted, vec!["EmptyPrefix", "EmptyPrefix"])
    );
    assert_snapshot!("an-empty-prefix", text);
    let (foreign, text) = ask(CONFIG, &[&more[..], &["--hub-name", "elsewhere"]].concat()).unwrap();
    assert_eq!(
        (foreign.verdict, names(&foreign)),
        (Answer::Accepted, vec!["IdentityUnexpected"])
    );
    assert_snapshot!("a-name-of-another-hub", text);
}

#[test]
fn for_a_newer_release_it_is_undetermined_and_says_what_the_known_one_does() {
    let account = [
        "--service-account",
        "tenant-a/reconciler",
        "--issuer",
        "https://hub",
    ];
    let (report, _) = ask(CONFIG, &account).unwrap();
    let newer = report.for_release("1.38".parse().unwrap());
    assert_eq!(code(newer.verdict), 3);
    assert_eq!((newer.minor.as_str(), &newer.user), ("1.38", &None));
    let reason = newer.reason.unwrap();
    assert_eq!(reason.code, keyferry_kube_authn::Code::NewerRelease);
    assert_snapshot!("a-newer-release", reason.message);
    let config = file(CONFIG);
    let path = config.path().to_str().unwrap();
    let line = ["verify", "--auth-config", path, "--kubernetes", "1.38"];
    let args = Line::try_parse_from([&line[..], &account].concat())
        .unwrap()
        .args;
    assert_eq!(run(&args), ExitCode::from(3));
}

#[test]
fn a_token_of_another_issuer_shows_both_issuers() {
    let more = [
        "--service-account",
        "tenant-a/reconciler",
        "--issuer",
        "https://hub/",
        "--audience",
        "a",
    ];
    let (report, text) = ask(CONFIG, &more).unwrap();
    assert_eq!(report.verdict, Answer::Skipped);
    assert_snapshot!("a-token-of-another-issuer", text);
}
