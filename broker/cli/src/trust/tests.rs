#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;
use keyferry_api::config::{Overrides, of_hub_objects};
use keyferry_api::status::TargetClusterStatus;
use keyferry_hub::config_file;
use keyferry_kube_authn::lint::Finding;
use keyferry_kube_authn::token::{ServiceAccountToken, Token};
use keyferry_kube_authn::verify::{Keys, Union, User, verify};
use serde_json::json;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TrustArgs,
}

pub(super) const HUB: [&str; 9] = [
    "trust",
    "prod",
    "--issuer=https://hub.example.com",
    "--audience=https://prod",
    "--prefix=hub:",
    "--allow=tenant-a/reconciler",
    "--allow=tenant-b/ci",
    "--max-lifetime=2h",
    "--bind=edit",
];

fn printed(line: &[&str]) -> Result<Printed, String> {
    let args = Line::try_parse_from(line)
        .map_err(|error| error.to_string())?
        .args;
    let known = args.config.as_deref().map(|path| KnownHub {
        configuration: config_file::read(path, Overrides::of_a_reader()).unwrap(),
        status: None,
        namespaces: Ok(BTreeMap::new()),
    });
    print(&args, known.as_ref()).map_err(|error| error.to_string())
}

fn ca() -> tempfile::NamedTempFile {
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
    let found = lint(
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
    let loaded = config::load(file.as_bytes(), minor).unwrap();
    let compiled = validate(&loaded.configuration, minor, &[]).unwrap();
    let now = jiff::Timestamp::from_second(token.issued_at).unwrap();
    let verdict = verify(&compiled, &Token::imagine(token), &Keys::none(), now);
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
    for (flag, needle) in [
        ("--prefix=", "cluster's own"),
        ("--prefix=system:hub:", "system:"),
        ("--prefix=a'b", "letters"),
        ("--issuer=http://hub", "--issuer"),
    ] {
        let name = flag.split('=').next().unwrap();
        let line: Vec<&str> = HUB
            .into_iter()
            .filter(|known| !known.starts_with(name))
            .chain([flag])
            .collect();
        let problem = printed(&line).unwrap_err();
        assert!(problem.contains(needle), "{flag}: {problem}");
    }
    let nobody: Vec<&str> = HUB
        .into_iter()
        .filter(|flag| !flag.starts_with("--allow"))
        .collect();
    assert!(printed(&nobody).unwrap_err().contains("--allow"));
    assert!(
        printed(&[&HUB[..], &["--kubernetes=1.29"]].concat())
            .unwrap_err()
            .contains("before 1.30")
    );
}

/// What is printed for Flux at a target of this release, as documents.
fn for_flux(more: &[&str]) -> (String, Vec<serde_json::Value>) {
    let line = [&HUB[..], &["--flux-service-account=apps/deployer"], more].concat();
    let text = printed(&line).unwrap().text;
    let documents = serde_saphyr::from_multiple(&text).unwrap();
    (text, documents)
}

fn kinds(documents: &[serde_json::Value]) -> Vec<&str> {
    documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect()
}

#[test]
fn flux_gets_what_it_needs_and_the_users_no_role() {
    let (_, documents) = for_flux(&["--kubernetes=1.35"]);
    assert_eq!(
        kinds(&documents),
        [
            "AuthenticationConfiguration",
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRoleBinding"
        ]
    );
    assert_eq!(
        documents[3]["rules"],
        json!([{ "apiGroups": [""], "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"], "verbs": ["impersonate"] }])
    );
    assert_eq!(
        documents[5]["rules"],
        json!([{ "nonResourceURLs": ["/livez/ping"], "verbs": ["head"] }])
    );
    let binding = &documents[7];
    assert_eq!(binding["roleRef"]["name"], "edit");
    assert_eq!(
        binding["subjects"],
        json!([{ "kind": "ServiceAccount", "namespace": "apps", "name": "deployer" }])
    );
}

/// Rke2 mounts each existing file that an argument names, and such a mount hides a renamed file.
#[test]
fn rke2_gives_the_pod_a_path_that_the_node_does_not_have() {
    let text = printed(&[&HUB[..8], &["--format=rke2"]].concat())
        .unwrap()
        .text;
    assert!(text.contains("Write this document as /etc/rancher/rke2/keyferry/authentication.yaml"));
    let drop_in: serde_json::Value =
        serde_saphyr::from_str(text.rsplit("\n---\n").next().unwrap()).unwrap();
    assert_eq!(
        drop_in,
        json!({
            "kube-apiserver-arg+": ["authentication-config=/etc/kubernetes/keyferry/authentication.yaml"],
            "kube-apiserver-extra-mount+": ["/etc/rancher/rke2/keyferry:/etc/kubernetes/keyferry:ro"],
        })
    );
}

#[test]
fn from_1_36_flux_impersonates_by_the_constrained_right_alone() {
    let (text, documents) = for_flux(&["--kubernetes=1.36"]);
    assert_eq!(
        kinds(&documents),
        [
            "AuthenticationConfiguration",
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRoleBinding"
        ]
    );
    let role = &documents[3];
    assert_eq!(role["metadata"]["namespace"], "apps");
    assert_eq!(
        role["rules"],
        json!([{ "apiGroups": ["authentication.k8s.io"], "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"], "verbs": ["impersonate:serviceaccount"] }])
    );
    let on = documents[5]["rules"].as_array().unwrap();
    assert_eq!(
        (&on[0]["apiGroups"], &on[0]["resources"]),
        (&json!(["*"]), &json!(["*"]))
    );
    for verb in ["get", "list", "watch", "create", "patch", "delete"] {
        let verb = json!(format!("impersonate-on:serviceaccount:{verb}"));
        assert!(on[0]["verbs"].as_array().unwrap().contains(&verb), "{verb}");
    }
    assert_eq!(on[1]["verbs"], json!(["impersonate-on:serviceaccount:get"]));
    assert!(
        on[1]["nonResourceURLs"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis"))
    );
    for bound in [&documents[4], &documents[6]] {
        let names: Vec<&str> = bound["subjects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|subject| subject["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "hub:system:serviceaccount:tenant-a:reconciler",
                "hub:system:serviceaccount:tenant-b:ci"
            ]
        );
    }
    // The legacy right is a comment, so that applying the stream does not grant it.
    let verbs = |document: &serde_json::Value| document["rules"].to_string();
    assert!(
        documents
            .iter()
            .all(|document| !verbs(document).contains("\"impersonate\""))
    );
    assert!(text.contains("\n#       - impersonate\n"), "{text}");
}

#[test]
fn for_an_unknown_release_both_rights_say_when_they_are_needed() {
    let (text, documents) = for_flux(&[]);
    let roles = kinds(&documents)
        .iter()
        .filter(|kind| **kind == "Role")
        .count();
    assert_eq!(roles, 2, "{text}");
    for said in [
        "# Kubernetes 1.36 and newer:",
        "# Before 1.36",
        "# Kubernetes before 1.36:",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    let names: Vec<String> = documents
        .iter()
        .skip(1)
        .map(|document| format!("{}/{}", document["kind"], document["metadata"]["name"]))
        .collect();
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
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
        assert_eq!(
            files[0].text,
            printed(&HUB[..8]).unwrap().text,
            "{format:?}"
        );
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
    let flag = format!("--merge={}", file.path().display());
    printed(&[&HUB[..8], &[&flag]].concat()).map(|printed| printed.text)
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
    let flow =
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: []\n";
    assert!(merge(flow).unwrap_err().contains("block list"));
    assert!(
        merge(r#"{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[]}"#)
            .unwrap_err()
            .contains("JSON")
    );
    assert!(
        merge(&OLD.replace("claim: sub", "claimz: sub"))
            .unwrap_err()
            .contains("claimz")
    );
    assert!(
        merge(&OLD.replace("https://people", "https://hub.example.com"))
            .unwrap_err()
            .contains("Duplicate value")
    );
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
    let loaded = config::load(file.as_bytes(), minor).unwrap();
    let compiled = validate(&loaded.configuration, minor, &[]).unwrap();
    let verdict = verify(
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

/// A hub with one target whose callers are selected by labels.
fn known_hub(issuer: &str) -> KnownHub {
    let target = format!(
        r#"{{"apiVersion":"keyferry.dev/v1alpha1","kind":"TargetCluster",
        "metadata":{{"name":"prod","uid":"u","resourceVersion":"1","generation":1,
        "creationTimestamp":"2026-01-01T00:00:00Z"}},
        "spec":{{"address":"https://prod.example.com","audience":"https://prod","issuer":"{issuer}",
        "allow":[{{"serviceAccounts":["reconciler"],
        "namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"tenant-a"}}}}}}]}}}}"#
    );
    let mut configuration =
        of_hub_objects("hub", "https://keys.example.com", "keyferry-system").unwrap();
    let object = serde_json::from_str(&target).unwrap();
    let mut objects = keyferry_api::config::StoredObjects::default();
    objects
        .targets
        .extend(keyferry_api::config::StoredTarget::read(
            &object,
            &configuration.server,
        ));
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    configuration.server.hub_issuer =
        Some(keyferry_api::issuer::Issuer::new("https://hub.example.com").unwrap());
    let labels = |name: &str| {
        let labels = [("kubernetes.io/metadata.name".to_owned(), name.to_owned())];
        (Namespace::new(name).unwrap(), labels.into())
    };
    KnownHub {
        configuration,
        status: Some(TargetClusterStatus {
            discovery_certificate_authority: Some(std::fs::read_to_string(ca().path()).unwrap()),
            ..TargetClusterStatus::default()
        }),
        namespaces: Ok([
            labels("tenant-a"),
            labels("tenant-b"),
            labels("kube-system"),
        ]
        .into()),
    }
}

#[test]
fn the_hubs_object_and_its_status_say_everything() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let text = print(&args, Some(&known_hub("Hub"))).unwrap().text;
    let file: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let issuer = &file["jwt"][0]["issuer"];
    assert_eq!(issuer["url"], "https://hub.example.com");
    assert_eq!(
        issuer["discoveryURL"],
        "https://keys.example.com/.well-known/openid-configuration"
    );
    assert!(
        issuer["certificateAuthority"]
            .as_str()
            .unwrap()
            .contains("BEGIN CERTIFICATE")
    );
    assert!(user(&text, Minor::V1_37, &token()).is_some());
    assert!(text.contains("system:serviceaccount:tenant-a:reconciler"));
    assert!(!text.contains("tenant-b"), "{text}");
}

#[test]
fn a_managed_issuer_is_the_one_that_the_target_trusts() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let text = print(&args, Some(&known_hub("Keyferry"))).unwrap().text;
    let file: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let issuer = &file["jwt"][0]["issuer"];
    assert_eq!(issuer["url"], "https://keys.example.com/issuers/prod");
    assert!(issuer["discoveryURL"].is_null(), "{issuer}");
}

#[test]
fn without_the_right_to_list_namespaces_the_rule_is_left_out_and_named() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let known = KnownHub {
        namespaces: Err("no right".to_owned()),
        ..known_hub("Hub")
    };
    let problem = print(&args, Some(&known)).unwrap_err().to_string();
    assert!(problem.contains("names no ServiceAccount"), "{problem}");
    let args = Line::try_parse_from(["trust", "prod", "--allow=tenant-a/reconciler"])
        .unwrap()
        .args;
    assert!(print(&args, Some(&known)).is_ok());
}

#[test]
fn a_status_that_cannot_be_used_does_not_widen_the_trust_silently() {
    let args = |line: &[&str]| {
        Line::try_parse_from([&["trust", "prod"], line].concat())
            .unwrap()
            .args
    };
    let broken = KnownHub {
        status: Some(TargetClusterStatus {
            discovery_certificate_authority: Some("no PEM".to_owned()),
            ..TargetClusterStatus::default()
        }),
        ..known_hub("Hub")
    };
    let problem = print(&args(&[]), Some(&broken)).unwrap_err();
    assert_eq!(
        problem.fix,
        Some("give the CA certificates by --discovery-ca FILE")
    );
    let none = KnownHub {
        status: Some(TargetClusterStatus::default()),
        ..known_hub("Hub")
    };
    let printed = print(&args(&[]), Some(&none)).unwrap();
    assert!(
        printed
            .notes
            .iter()
            .any(|note| note.contains("--discovery-ca"))
    );
    let elsewhere = print(
        &args(&["--discovery-url=https://other/d"]),
        Some(&known_hub("Hub")),
    );
    assert!(!elsewhere.unwrap().text.contains("BEGIN CERTIFICATE"));
}

#[test]
fn keyferrys_own_namespace_is_left_out() {
    let mut known = known_hub("Hub");
    known.configuration.policy.own_namespace = Some(Namespace::new("tenant-a").unwrap());
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let problem = print(&args, Some(&known)).unwrap_err().to_string();
    assert!(problem.contains("names no ServiceAccount"), "{problem}");
}
