//! The binary under the names by which kubectl calls it, its completion scripts, and the template of krew's manifest.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};

fn called(name: &str, words: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keyferry"), &link).unwrap();
    Command::new(link).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn as_a_plugin_it_speaks_of_itself_as_kubectl_does() {
    let help = text(&called("kubectl-keyferry", &["token", "--help"]).stdout);
    assert!(help.contains("Usage: kubectl keyferry token [OPTIONS] <ACCESS>"), "{help}");
    let wrong = text(&called("kubectl-keyferry", &["token"]).stderr);
    assert!(wrong.contains("Usage: kubectl keyferry token <ACCESS>"), "{wrong}");
    let help = text(&called("keyferry", &["token", "--help"]).stdout);
    assert!(help.contains("Usage: keyferry token [OPTIONS] <ACCESS>"), "{help}");
    let explained = called("kubectl-keyferry", &["explain", "TargetNotGranted"]);
    assert!(explained.status.success(), "and does the same");
}

#[test]
fn it_answers_completion() {
    let answer = text(&called("kubectl_complete-keyferry", &["tok"]).stdout);
    let (candidate, directive) = answer.trim_end().split_once('\n').unwrap();
    assert!(candidate.starts_with("token\t"), "{answer}");
    assert_eq!(directive, ":4");
    for (shell, sign) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef keyferry"),
        ("fish", "complete -c keyferry"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = called("keyferry", &["completion", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains(sign) && script.contains("credential"), "{shell}");
    }
    assert!(
        Command::new("bash").args(["-n", "-c", &text(&called("keyferry", &["completion", "bash"]).stdout)]).status().unwrap().success()
    );
}

#[test]
fn the_krew_template_is_a_manifest_once_it_is_filled_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubectl/krew.yaml");
    let template = std::fs::read_to_string(path).unwrap();
    let filled: String = template
        .lines()
        .map(|line| match line.trim().strip_prefix("{{addURIAndSha \"") {
            Some(rest) => {
                let uri = rest.split("\" ").next().unwrap().replace("{{ .TagName }}", "v0.1.0");
                format!("      uri: {uri}\n      sha256: {}\n", "0".repeat(64))
            }
            None => format!("{}\n", line.replace("{{ .TagName }}", "v0.1.0")),
        })
        .collect();
    assert!(!filled.contains("{{"), "{filled}");
    let manifest: serde_json::Value = serde_saphyr::from_str(&filled).unwrap();
    assert_eq!((&manifest["kind"], &manifest["spec"]["version"]), (&"Plugin".into(), &"v0.1.0".into()));
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert!(!platforms.is_empty() && platforms.iter().all(|it| it["uri"].as_str().is_some_and(|uri| uri.contains("/v0.1.0/"))));
    assert!(template.starts_with("# A template, not a manifest"), "it says what it is");
}
