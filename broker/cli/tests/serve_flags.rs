//! Which of the flags and variables of `keyferry serve` comes first, with the real program.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

/// The warnings of `serve --check` about Secrets that it cannot see, in the order of the listeners.
fn secrets(args: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
                publicURL: https://keyferry.test\nmetrics: {address: ':8444'}\n";
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["serve", "--check", "--config"])
        .arg(&config)
        .args(args)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said.lines()
        .filter_map(|line| line.split_once("Secret keyferry-system/"))
        .filter_map(|(_, rest)| rest.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn a_flag_comes_before_every_variable() {
    let all = ("KEYFERRY_TLS_SECRET", "all-by-variable");
    let api = ("KEYFERRY_API_TLS_SECRET", "api-by-variable");
    let by_flag = ["--tls-secret", "all-by-flag"];
    let discovery_by_flag = ["--discovery-tls-secret", "discovery-by-flag"];
    assert_eq!(
        secrets(&[], &[all, api]),
        ["all-by-variable", "api-by-variable", "all-by-variable"]
    );
    assert_eq!(
        secrets(&by_flag, &[all, api]),
        ["all-by-flag", "all-by-flag", "all-by-flag"]
    );
    assert_eq!(
        secrets(&[by_flag, discovery_by_flag].concat(), &[all, api]),
        ["discovery-by-flag", "all-by-flag", "all-by-flag"]
    );
    assert_eq!(
        secrets(&discovery_by_flag, &[all, api]),
        ["discovery-by-flag", "api-by-variable", "all-by-variable"]
    );
}
