#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use clap::Parser;
use insta::assert_snapshot;
use keyferry_api::config::{Overrides, of_hub_objects};
use keyferry_api::status::TargetClusterStatus;
use keyferry_kube_authn::lint::Finding;
use keyferry_kube_authn::token::{ServiceAccountToken, Token};
use keyferry_kube_authn::verify::{Keys, Union, User, verify_token};
use keyferry_platform::config_file;
use serde_json::json;

use super::known_hub::UnknownLabels;
use super::*;

mod flux;
mod hub;
mod many_accounts;
mod merge;
mod oidc_flags;
mod roles;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TrustArgs,
}

pub(super) const HUB: [&str; 10] = [
    "trust",
    "prod",
    "--issuer=https://hub.example.com",
    "--audience=https://prod",
    "--prefix=hub:",
    "--allow=tenant-a/reconciler",
    "--allow=tenant-b/ci",
    "--max-lifetime=2h",
    "--bind=edit",
    "--bind-cluster-wide",
];

fn printed(line: &[&str]) -> Result<Printed, String> {
    let args = Line::try_parse_from(line)
        .map_err(|error| error.to_string())?
        .args;
    let known = args.config.as_deref().map(|path| KnownHub {
        configuration: config_file::read_config_file(path, Overrides::of_a_reader()).unwrap(),
        status: None,
        unread_roles: None,
        namespaces: Ok(BTreeMap::new()),
    });
    print(&args, known.as_ref()).map_err(|error| error.to_string())
}

/// A printed text and its notes, as a person sees them.
fn with_notes(printed: &Printed) -> String {
    format!("{}\nnotes:\n{}", printed.text, printed.notes.join("\n"))
}

pub(super) fn ca() -> tempfile::NamedTempFile {
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = parameters
        .self_signed(&rcgen::KeyPair::generate().unwrap())
        .unwrap()
        .pem();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    file
}

/// Extracts the AuthenticationConfiguration from the output of each format.
fn inside(format: Format, text: &str) -> String {
    let first = text.split("\n---\n").next().unwrap();
    let block = |start: &str, by: usize| {
        let (_, rest) = first.split_once(start).unwrap();
        let inside = rest
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with(&" ".repeat(by)));
        inside
            .map(|line| format!("{}\n", line.get(by..).unwrap_or_default()))
            .collect::<String>()
    };
    match format {
        Format::Authn | Format::Kubeadm | Format::K3s | Format::Rke2 | Format::Kind => {
            format!("{first}\n")
        }
        Format::Talos => block("configuration:\n", 2),
        Format::TalosLegacy => block("content: |\n", 8),
        Format::Capi => block("content: |\n", 10),
    }
}

fn errors(file: &str, minor: Minor) -> Vec<Finding> {
    let found = lint_file(
        file.as_bytes(),
        minor,
        &["https://kubernetes.default.svc.cluster.local".to_owned()],
    );
    found
        .into_iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect()
}

fn user(file: &str, minor: Minor, token: &ServiceAccountToken) -> Option<User> {
    let loaded = config::load_configuration(file.as_bytes(), minor).unwrap();
    let compiled = validate_configuration(&loaded.configuration, minor, &[]).unwrap();
    let now = jiff::Timestamp::from_second(token.issued_at).unwrap();
    let verdict = verify_token(
        &compiled,
        &Token::of_service_account(token),
        &Keys::none(),
        now,
    );
    match verdict.union() {
        Union::Accepted(user) => Some(user.clone()),
        _ => None,
    }
}

fn token() -> ServiceAccountToken {
    ServiceAccountToken {
        namespace: "tenant-a".to_owned(),
        name: "reconciler".to_owned(),
        uid: Some("u-1".to_owned()),
        issuer: "https://hub.example.com".to_owned(),
        audience: "https://prod".to_owned(),
        issued_at: 1_790_000_000,
        lifetime: 7200,
    }
}

#[test]
fn every_form_holds_rules_for_every_minor() {
    let ca = ca();
    let authority = format!("--discovery-ca={}", ca.path().display());
    for format in Format::value_variants() {
        for minor in Minor::ALL {
            let (format_flag, minor_flag) = (
                format!(
                    "--format={}",
                    format.to_possible_value().unwrap().get_name()
                ),
                format!("--kubernetes={minor}"),
            );
            let line = [
                &HUB[..],
                &[
                    &authority,
                    "--discovery-url=https://keyferry/.well-known/openid-configuration",
                    &format_flag,
                    &minor_flag,
                ],
            ]
            .concat();
            let printed = match printed(&line) {
                Ok(printed) => printed.text,
                Err(problem) => {
                    assert!(
                        *format == Format::Talos
                            && minor < Minor::V1_32
                            && problem.contains("talos-legacy"),
                        "{format:?} {minor}: {problem}"
                    );
                    continue;
                }
            };
            let file = inside(*format, &printed);
            assert_eq!(errors(&file, minor), [], "{format:?} {minor}:\n{file}");
            let user = user(&file, minor, &token()).expect("it is let in");
            assert_eq!(
                user.username,
                "hub:system:serviceaccount:tenant-a:reconciler"
            );
            assert_eq!(
                user.groups,
                [
                    "hub:system:serviceaccounts",
                    "hub:system:serviceaccounts:tenant-a"
                ]
            );
            assert_eq!(user.uid, "u-1");
            assert!(printed.contains("kind: ClusterRoleBinding"), "{printed}");
        }
    }
}

#[test]
fn the_form_of_each_distribution_is_as_recorded() {
    for format in Format::value_variants() {
        let name = format.to_possible_value().unwrap();
        let name = name.get_name();
        let flag = format!("--format={name}");
        let printed = printed(&[&HUB[..], &[&flag, "--kubernetes=1.36"]].concat()).unwrap();
        assert_snapshot!(format!("for-{name}"), with_notes(&printed));
    }
}

#[test]
fn the_admission_policy_holds() {
    let file = printed(&HUB[..8]).unwrap().text;
    let minor = Minor::V1_37;
    assert!(user(&file, minor, &token()).is_some());
    assert_eq!(
        user(
            &file,
            minor,
            &ServiceAccountToken {
                name: "other".to_owned(),
                ..token()
            }
        ),
        None
    );
    assert_eq!(
        user(
            &file,
            minor,
            &ServiceAccountToken {
                namespace: "tenant-b".to_owned(),
                ..token()
            }
        ),
        None
    );
    assert_eq!(
        user(
            &file,
            minor,
            &ServiceAccountToken {
                lifetime: 7201,
                ..token()
            }
        ),
        None
    );
    assert_eq!(
        user(
            &file,
            minor,
            &ServiceAccountToken {
                audience: "https://dev".to_owned(),
                ..token()
            }
        ),
        None
    );
    assert_eq!(
        user(
            &file,
            minor,
            &ServiceAccountToken {
                issuer: "https://else".to_owned(),
                ..token()
            }
        ),
        None
    );
    assert!(
        !file.contains("rbac.authorization"),
        "nothing is bound that was not asked for"
    );
}

#[test]
fn what_would_open_the_target_is_refused() {
    let without = |name: &str| {
        let kept = HUB.into_iter().filter(|known| !known.starts_with(name));
        kept.collect::<Vec<&str>>()
    };
    let mut problems = Vec::new();
    for flag in [
        "--prefix=",
        "--prefix=system:hub:",
        "--prefix=a'b",
        "--issuer=http://hub",
    ] {
        let name = flag.split('=').next().unwrap();
        let line = [&without(name)[..], &[flag]].concat();
        problems.push(format!("{flag}: {}", printed(&line).unwrap_err()));
    }
    let nobody = printed(&without("--allow")).unwrap_err();
    problems.push(format!("no --allow: {nobody}"));
    let old = printed(&[&HUB[..], &["--kubernetes=1.29"]].concat()).unwrap_err();
    problems.push(format!("--kubernetes=1.29: {old}"));
    assert_snapshot!("what-would-open-the-target", problems.join("\n\n"));
}

#[test]
fn forms_that_contain_the_file_as_text_keep_it_byte_for_byte() {
    for (format, path) in [
        ("kind", "/nodes/0/kubeadmConfigPatches/0"),
        ("capi", "/spec/kubeadmConfigSpec/files/0/content"),
    ] {
        let text = printed(&[&HUB[..8], &[&format!("--format={format}")]].concat())
            .unwrap()
            .text;
        let last = text.rsplit("---\n").next().unwrap();
        let document: serde_json::Value = serde_saphyr::from_str(last).unwrap();
        let inside = document.pointer(path).unwrap().as_str().unwrap();
        let inside: serde_json::Value = serde_saphyr::from_str(inside).unwrap();
        assert_eq!(
            inside["kind"],
            if format == "kind" {
                "ClusterConfiguration"
            } else {
                "AuthenticationConfiguration"
            }
        );
        assert!(last.contains("|\n"), "a literal block:\n{last}");
        if format == "capi" {
            assert_eq!(
                document["spec"]["kubeadmConfigSpec"]["files"][0]["permissions"],
                "0644"
            );
            let file = printed(&HUB[..8]).unwrap().text;
            assert_eq!(document.pointer(path).unwrap().as_str().unwrap(), file);
        }
    }
}

#[test]
fn the_files_of_a_folder_have_what_the_screen_shows() {
    for format in Format::value_variants() {
        let name = format.to_possible_value().unwrap();
        let flag = format!("--format={}", name.get_name());
        let line = [&HUB[..], &[&flag]].concat();
        let Printed { text, files, .. } = printed(&line).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name).collect();
        assert_eq!(
            names,
            ["authentication.yaml", "rbac.yaml", "instructions.txt"]
        );
        let alone = printed(&HUB[..8]).unwrap().text;
        let is_rancher = matches!(format, Format::K3s | Format::Rke2);
        assert!(files[0].text.starts_with(&alone), "{format:?}");
        assert_eq!(files[0].text != alone, is_rancher, "{format:?}");
        assert!(text.ends_with(&files[1].text), "{format:?}");
        // Every line of the instructions is on the screen too, but those that name a file.
        for line in files[2]
            .text
            .lines()
            .filter(|line| !line.contains("in this folder"))
        {
            assert!(text.contains(line), "{format:?}: {line}");
        }
        assert!(
            files[2].text.contains("Apply this at the target"),
            "{format:?}"
        );
    }
    let files = printed(&HUB[..8]).unwrap().files;
    assert!(
        !files.iter().any(|file| file.name == "rbac.yaml"),
        "nothing was bound"
    );
}

const OLD: &str = "# ours\napiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: # people\n  - issuer:\n      url: \
                   https://people\n      audiences: [k8s]\n    claimMappings:\n      username:\n        claim: sub\n        prefix: \"p:\"   # kept\n";

const KEEPS_EMPTY_LINES: &str = "  - issuer:\n      url: https://more\n      audiences: \
    [k8s]\n    claimMappings:\n      username:\n        expression: |+\n          \'m:\' \
    +\n          claims.sub\n\n\n";

fn merge(old: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), old).unwrap();
    let path = file.path().display().to_string();
    let flag = format!("--merge={path}");
    let printed = printed(&[&HUB[..8], &[&flag]].concat());
    printed
        .map(|printed| printed.text)
        .map_err(|problem| problem.replace(&path, "FILE"))
}

#[test]
fn a_merged_file_keeps_every_byte_of_the_old_one() {
    let flush = OLD.replace("\n  ", "\n");
    let tail = "\n# the end\nanonymous:\n  enabled: true\n";
    let olds = [
        OLD.to_owned(),
        format!("{OLD}{tail}"),
        flush.clone(),
        format!("{flush}{tail}"),
        OLD.trim_end().to_owned(),
        format!("{OLD}{KEEPS_EMPTY_LINES}"),
        format!("{OLD}{KEEPS_EMPTY_LINES}# the end\n---\nmore: 1\n"),
        OLD.replace("jwt: # people\n", "jwt:\n  # people\n\n"),
        OLD.replace('\n', "\r\n"),
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n"
            .to_owned(),
    ];
    for old in olds {
        let merged = merge(&old).unwrap_or_else(|problem| panic!("{problem}\n{old}"));
        let start = merged
            .char_indices()
            .zip(old.chars())
            .take_while(|((_, new), old)| new == old)
            .count();
        let tail: String = old.chars().skip(start).collect();
        assert!(merged.ends_with(&tail), "{merged}");
        assert!(user(&merged, Minor::V1_37, &token()).is_some(), "{merged}");
    }
}

#[test]
fn a_file_that_text_cannot_be_added_to_is_refused() {
    let alias = OLD.replace("jwt: # people\n", "jwt: &list\n");
    let problems = [
        format!("{alias}x-jwt: 1\n"),
        OLD.replace("claim: sub", "claimz: sub"),
        OLD.replace("https://people", "https://hub.example.com"),
    ]
    .map(|old| merge(&old).unwrap_err());
    assert_snapshot!("a-file-that-text-cannot-be-added-to", problems.join("\n\n"));
}

#[test]
fn flags_and_their_entry_map_alike() {
    // What kube-apiserver does with the flags: the resulting user name of each case.
    let cases = [
        ("", "https://idp.example.com#u"),
        ("--oidc-username-prefix=-", "u"),
        ("--oidc-username-prefix 'corp: '", "corp: u"),
        ("--oidc-username-claim=email", "u@example.com"),
        (
            "--oidc-username-claim=email --oidc-username-prefix=mail:",
            "mail:u@example.com",
        ),
    ];
    for (flags, name) in cases {
        let flags = format!(
            "--oidc-issuer-url=https://idp.example.com --oidc-client-id k8s \
             --oidc-groups-claim=groups --oidc-groups-prefix=g: {flags}"
        );
        for minor in Minor::ALL {
            let minor_flag = format!("--kubernetes={minor}");
            let printed = printed(&["trust", "--from-oidc-flags", &flags, &minor_flag]).unwrap();
            assert!(
                printed.notes.iter().any(|note| note.contains("RS256")),
                "{:?}",
                printed.notes
            );
            let user = user_of(&printed.text, minor);
            assert_eq!(user.username, name, "{flags}");
            assert_eq!(user.groups, ["g:dev", "g:ops"]);
        }
    }
    let required =
        "--oidc-issuer-url=https://idp --oidc-client-id=k8s --oidc-required-claim=hd=example.com";
    let text = printed(&["trust", "--from-oidc-flags", required])
        .unwrap()
        .text;
    assert!(text.contains("requiredValue: \"example.com\""), "{text}");
    for wrong in [
        "--oidc-issuer-url=https://idp",
        "--oidc-x=1",
        "--oidc-issuer-url='a",
        "--oidc-issuer-url=http://a --oidc-client-id=b",
        "x",
    ] {
        assert!(
            printed(&["trust", "--from-oidc-flags", wrong]).is_err(),
            "{wrong}"
        );
    }
}

fn user_of(file: &str, minor: Minor) -> User {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims = r#"{"iss":"https://idp.example.com","aud":"k8s","exp":1790000300,"sub":"u","email":"u@example.com","groups":["dev","ops"]}"#;
    let token =
        Token::read(format!("{}.{}.AA", encode(r#"{"alg":"RS256"}"#), encode(claims)).as_bytes())
            .unwrap();
    let loaded = config::load_configuration(file.as_bytes(), minor).unwrap();
    let compiled = validate_configuration(&loaded.configuration, minor, &[]).unwrap();
    let verdict = verify_token(
        &compiled,
        &token,
        &Keys::none(),
        jiff::Timestamp::from_second(1_790_000_000).unwrap(),
    );
    match verdict.union() {
        Union::Accepted(user) => user.clone(),
        other => panic!("{other:?}"),
    }
}

/// `lint` reads the issuer of any file, and has no URL parser; `trust` reads Keyferry's own.
#[test]
fn trust_and_lint_agree_on_the_issuers_of_every_cluster() {
    use keyferry_kube_authn::{Code, Minor, lint};

    for (issuer, is_default) in [
        ("https://kubernetes", true),
        ("https://kubernetes.default", true),
        ("https://kubernetes.default.svc", true),
        ("https://kubernetes.default.svc/", true),
        ("https://kubernetes.default.svc:443", true),
        ("https://kubernetes.default.svc.cluster.local", true),
        ("https://kubernetes.default.svc.corp:6443/x", true),
        ("https://KUBERNETES.default.svc", true),
        ("HTTPS://kubernetes.default.svc", true),
        ("https://kubernetes.default.svcs.example.com", false),
        ("https://kubernetes.example.com", false),
        ("https://kubernetes.default.example.com", false),
        ("https://hub/kubernetes.default.svc", false),
        ("https://xkubernetes", false),
    ] {
        let read = keyferry_api::issuer::Issuer::new(issuer).unwrap();
        assert_eq!(read.is_cluster_default(), is_default, "{issuer}");
        let file = format!(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n\
             jwt:\n- issuer: {{url: '{issuer}', audiences: [prod]}}\n  \
             claimMappings: {{username: {{claim: sub, prefix: 'hub:'}}}}\n"
        );
        let findings = lint::lint_file(file.as_bytes(), Minor::V1_34, &[]);
        let warned = findings
            .iter()
            .any(|finding| finding.code == Code::IssuerOfEveryCluster);
        assert_eq!(warned, is_default, "{issuer}: {findings:?}");
    }
}

#[test]
fn values_that_a_target_takes_literally_are_noted() {
    const KEYS: &str = "--discovery-url=https://keys.example.com/.well-known/openid-configuration";
    let noted = |changed: &str, flags: &[&str]| {
        let line: Vec<&str> = HUB
            .iter()
            .filter(|flag| !flag.starts_with(changed))
            .chain(flags)
            .copied()
            .collect();
        printed(&line).unwrap().notes.join("\n")
    };
    let cases: [(&str, &[&str], &str); 4] = [
        (
            "--none",
            &[],
            "by https://hub.example.com/.well-known/openid-configuration: give --discovery-url",
        ),
        (
            "--none",
            &["--discovery-url=https://keys.example.com/"],
            "has no path, and the target reads exactly this URL: Keyferry publishes \
             https://keys.example.com/.well-known/openid-configuration",
        ),
        (
            "--prefix",
            &["--prefix=hub", KEYS],
            "the users are hubsystem:serviceaccount:NAMESPACE:NAME",
        ),
        (
            "--issuer",
            &["--issuer=https://hub.example.com/", KEYS],
            "--issuer https://hub.example.com/ ends in a slash",
        ),
    ];
    let plain = noted("--none", &[KEYS]);
    for (changed, flags, wanted) in cases {
        let notes = noted(changed, flags);
        assert!(notes.contains(wanted), "{flags:?}: {notes}");
        assert!(!plain.contains(wanted), "{plain}");
    }
}
