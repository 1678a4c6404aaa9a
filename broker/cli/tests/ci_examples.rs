//! The workflows of examples/ci hold no secret and ask for no more rights than they use, and the
//! configuration beside them is valid and fits them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_api::config::{self, ExternalSystem, TokenUse};
use keyferry_core::configuration_warnings::configuration_warnings;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap()
}

fn audience() -> String {
    let server = config::read(&text("config.yaml")).unwrap().server;
    server.external_issuers[0].audience.to_string()
}

#[test]
fn no_workflow_has_a_secret_or_a_right_that_it_does_not_use() {
    for (name, job, rights) in [
        (
            "deploy.yaml",
            "deploy",
            json!({ "contents": "read", "id-token": "write" }),
        ),
        (
            "push-artifact.yaml",
            "push",
            json!({ "contents": "read", "packages": "write", "id-token": "write" }),
        ),
        (
            "release-artifact.yaml",
            "release",
            json!({ "packages": "write" }),
        ),
    ] {
        let workflow = yaml(name);
        assert_eq!(
            workflow["permissions"],
            json!({}),
            "{name}: nothing by default"
        );
        assert_eq!(workflow["jobs"].as_object().unwrap().len(), 1, "{name}");
        assert_eq!(workflow["jobs"][job]["permissions"], rights, "{name}");
        assert!(
            workflow["jobs"][job]["timeout-minutes"].is_number(),
            "{name}"
        );
        assert!(!text(name).contains("secrets."), "{name}");
        assert!(
            !text(name).contains("pull_request"),
            "{name}: no event of outsiders"
        );
    }
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let known = [
        "README.md",
        "config.yaml",
        "deploy.yaml",
        "gitlab-ci.yaml",
        "haproxy.cfg",
        "push-artifact.yaml",
        "release-artifact.yaml",
        "systems",
    ];
    assert_eq!(files, known, "every file is checked here");
}

/// Each file has one entry. The server takes it, and warns of it only where no rule of the system
/// can be better.
#[test]
fn each_system_has_an_example_that_the_server_takes() {
    let mut systems = Vec::new();
    for file in std::fs::read_dir(folder().join("systems")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let configuration = config::read(&text(&format!("systems/{name}"))).unwrap();
        let [entry] = configuration.server.external_issuers.as_slice() else {
            panic!("{name}: one entry");
        };
        let system = entry.system.unwrap();
        systems.push(format!("{system:?}"));
        let warnings = configuration_warnings(&configuration, Timestamp::UNIX_EPOCH);
        let is_known = system == ExternalSystem::AzureDevOps;
        assert_eq!(
            warnings.len(),
            usize::from(is_known),
            "{name}: {warnings:?}"
        );
    }
    systems.sort();
    let all: Vec<_> = ExternalSystem::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(systems, all);
}

#[test]
fn the_jobs_ask_for_the_audience_that_the_server_expects() {
    let deploy = yaml("deploy.yaml");
    let gitlab = yaml("gitlab-ci.yaml");
    let audience = audience();
    for given in [
        &deploy["jobs"]["deploy"]["env"]["KEYFERRY_CALLER_AUDIENCE"],
        &gitlab["deploy"]["id_tokens"]["KEYFERRY_ID_TOKEN"]["aud"],
        &gitlab["deploy"]["variables"]["KEYFERRY_CALLER_AUDIENCE"],
    ] {
        assert_eq!(*given, audience);
    }
}

#[test]
fn the_rules_admit_the_shipped_workflow_on_one_branch() {
    let server = config::read(&text("config.yaml")).unwrap().server;
    let [github, gitlab] = server.external_issuers.as_slice() else {
        panic!("two issuers");
    };
    assert_eq!(
        (github.token_use, gitlab.token_use),
        (TokenUse::Once, TokenUse::UntilExpiry)
    );
    let claims = &github.rules[0].claims;
    assert_eq!(claims["ref"], "refs/heads/main");
    assert!(claims["job_workflow_ref"].contains("/deploy.yaml@refs/heads/main"));
    assert_eq!(gitlab.rules[0].claims["ref_protected"], "true");
    let origin = server.api_public_url.unwrap();
    assert_eq!(origin.as_str(), github.audience.as_str());
}
