#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::{self, TargetCluster};
use keyferry_api::name::AccessName;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::{
    ExecStanza, KubeconfigParts, kubeconfig_schema, render_kubeconfig, with_exec, with_files,
};
use crate::public_cluster::PublicCluster;

const TOKEN: &str = "header.claims.signature";

fn target(fields: &str) -> TargetCluster {
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://k.example.com\n\
        discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
        apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\nspec:\n  audience: prod\n{fields}"
    );
    config::read(&text)
        .unwrap()
        .policy
        .targets
        .into_values()
        .next()
        .unwrap()
}

fn rendered(target: &TargetCluster, ca_pem: Option<&str>, access: &str, token: &str) -> String {
    let access = AccessName::parse(access).unwrap();
    let token = SecretString::from(token);
    render_kubeconfig(&KubeconfigParts {
        target,
        ca_pem,
        access: &access,
        token: &token,
    })
    .unwrap()
    .expose_secret()
    .to_owned()
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn it_reads_back_to_what_was_meant() {
    let target = target(
        "  address: https://prod.example.com:6443/k8s\n  tlsServerName: \
         kubernetes.default\n  proxyURL: socks5://proxy.example.com:1080\n",
    );
    let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".repeat(200);
    let text = rendered(&target, Some(&pem), "tenant-a/prod", TOKEN);
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": {
            "server": "https://prod.example.com:6443/k8s",
            "certificate-authority-data": STANDARD.encode(&pem),
            "tls-server-name": "kubernetes.default",
            "proxy-url": "socks5://proxy.example.com:1080",
        }}],
        "users": [{"name": "tenant-a/prod", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tenant-a/prod@prod", "context": {"cluster": "prod", "user": "tenant-a/prod"}}],
        "current-context": "tenant-a/prod@prod",
    });
    assert_eq!(parsed(&text), expected, "{text}");
    assert!(
        text.lines().all(|line| !line.ends_with(['|', '>', '-'])),
        "every value stands on one line, whole:\n{text}"
    );
    assert_eq!(
        text.matches(TOKEN).count(),
        1,
        "the token stands where it belongs and nowhere else"
    );
}

/// A command writes these on the machine of its user. They name where the token is.
#[test]
fn the_forms_of_a_command_hold_no_token() {
    let access = AccessName::parse("tenant-a/prod").unwrap();
    let target = target("  address: https://prod.example.com\n");
    let cluster = |ca_pem| PublicCluster::of_target(&target, ca_pem);
    let stanza = ExecStanza::new(
        "keyferry".to_owned(),
        vec!["credential".to_owned(), "tenant-a/prod".to_owned()],
        vec![("HOME".to_owned(), "/home/a".to_owned())],
    );
    let exec = parsed(&with_exec(&cluster(Some("pem")), &access, &stanza).unwrap());
    let exec_user = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "keyferry",
        "args": ["credential", "tenant-a/prod"],
        "env": [{"name": "HOME", "value": "/home/a"}],
        "installHint": "keyferry is not on the PATH; install it, or write its full path as command",
        "interactiveMode": "Never",
        "provideClusterInfo": true,
    }});
    assert_eq!(exec["users"][0]["user"], exec_user);
    assert_eq!(
        exec["clusters"][0]["cluster"]["certificate-authority-data"],
        json!(STANDARD.encode("pem"))
    );
    let in_files = |ca_pem| parsed(&with_files(&cluster(ca_pem), &access).unwrap());
    let files = in_files(Some("pem"));
    assert_eq!(files["users"][0]["user"], json!({"tokenFile": "./token"}));
    assert_eq!(
        files["clusters"][0]["cluster"],
        json!({"server": "https://prod.example.com", "certificate-authority": "./ca.crt"})
    );
    assert_eq!(
        in_files(None)["clusters"][0]["cluster"],
        json!({"server": "https://prod.example.com"}),
        "the client's own roots"
    );
}

#[test]
fn the_schema_has_the_members_that_are_written() {
    let target = target("  address: https://a\n");
    let document = parsed(&rendered(&target, None, "tenant-a/prod", TOKEN));
    let names = |members: &Value| -> BTreeSet<String> {
        members.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names(&kubeconfig_schema()["properties"]), names(&document));
}

#[test]
fn what_is_not_there_is_left_out() {
    let text = rendered(
        &target("  address: https://prod.example.com\n"),
        None,
        "tenant-a/prod",
        TOKEN,
    );
    assert_eq!(
        parsed(&text)["clusters"][0]["cluster"],
        json!({"server": "https://prod.example.com"})
    );
}

#[test]
fn nothing_in_it_runs_a_program_names_a_file_or_skips_a_check() {
    let target =
        target("  address: https://prod.example.com\n  tlsServerName: a\n  proxyURL: http://b\n");
    let text = rendered(&target, Some("pem"), "tenant-a/prod", TOKEN);
    let mut keys = Vec::new();
    collect_keys(&parsed(&text), &mut keys);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(
        keys,
        [
            "apiVersion",
            "certificate-authority-data",
            "cluster",
            "clusters",
            "context",
            "contexts",
            "current-context",
            "kind",
            "name",
            "proxy-url",
            "server",
            "tls-server-name",
            "token",
            "user",
            "users",
        ]
    );
}

fn collect_keys(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                keys.push(key.clone());
                collect_keys(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

#[test]
fn hostile_but_valid_values_stay_texts() {
    // Numbers are not server names: clients read them as addresses.
    for (name, token) in [
        ("true", "5"),
        ("null", "0755"),
        ("yes", "0x1f"),
        ("on", "1.5"),
        ("n", "1.2"),
        ("1e3", "1e3"),
        ("2001-01-01", "2001-01-01"),
        ("0b1", "true"),
        ("0o7", "null"),
    ] {
        let text = rendered(
            &target(
                "  address: https://a\n  tlsServerName: NAME\n"
                    .replace("NAME", &format!("'{name}'"))
                    .as_str(),
            ),
            None,
            "true/null",
            token,
        );
        let document = parsed(&text);
        assert_eq!(
            document["clusters"][0]["cluster"]["tls-server-name"],
            json!(name),
            "{text}"
        );
        assert_eq!(
            document["users"][0]["user"]["token"],
            json!(token),
            "{text}"
        );
        // A reader of YAML 1.1, as kubectl is, takes some words without quotes for other types.
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("token:"))
            .unwrap();
        assert!(
            line.ends_with(['"', '\'']) || token.contains('-'),
            "{line} needs quotes"
        );
    }
    for token in [
        "a: b", "a #b", "- a", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "\"a\"",
        "'a'", "a\nb: c", " a ", "", "\u{7f}", "a\u{85}b", "---", "...",
    ] {
        let text = rendered(
            &target("  address: https://a\n"),
            None,
            "tenant-a/prod",
            token,
        );
        assert_eq!(
            parsed(&text)["users"][0]["user"]["token"],
            json!(token),
            "{text}"
        );
        assert_eq!(
            parsed(&text)["current-context"],
            json!("tenant-a/prod@prod"),
            "{text}"
        );
    }
    for path in [
        "/a&b=c;d", "/!a", "/a*b|c", "/(a)", "/~a", "/a:b,c$d", "/'a'",
    ] {
        let target = TargetCluster {
            address: format!("https://a{path}"),
            ..target("  address: https://a\n")
        };
        let text = rendered(&target, None, "tenant-a/prod", TOKEN);
        assert_eq!(
            parsed(&text)["clusters"][0]["cluster"]["server"],
            json!(target.address),
            "{text}"
        );
    }
}

#[test]
fn contexts_of_different_accesses_merge_without_hiding_each_other() {
    let target = target("  address: https://a\n");
    let name = |access: &str| {
        parsed(&rendered(&target, None, access, TOKEN))["contexts"][0]["name"].clone()
    };
    assert_ne!(name("tenant-a/prod"), name("tenant-b/prod"));
    assert_ne!(name("tenant-a/prod"), name("tenant-a/prod-2"));
}

#[test]
fn the_document_does_not_print() {
    let access = AccessName::parse("tenant-a/prod").unwrap();
    let token = SecretString::from(TOKEN);
    let document = render_kubeconfig(&KubeconfigParts {
        target: &target("  address: https://a\n"),
        ca_pem: None,
        access: &access,
        token: &token,
    })
    .unwrap();
    let printed = format!("{document:?}{document:#?}{token:?}");
    assert!(
        !printed.contains("claims") && !printed.contains("server"),
        "{printed}"
    );
}
