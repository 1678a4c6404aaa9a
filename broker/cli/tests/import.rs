//! `keyferry import` as a command: what it prints is a configuration, and what it leaves out it
//! says.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: prod, user: u}}]\n\
                          clusters: [{name: prod, cluster: {server: 'https://prod.example.com:6443'}}]\n\
                          users: [{name: u, user: {token: canary, client-key-data: canary}}]\n";
const HEAD: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://k.example\n\
                    discovery: {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n---\n";
const ACCESS: &str = "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {name: prod, namespace: tenant-a}\n\
                      spec: {targetClusterRef: {name: prod}, serviceAccountName: reconciler}\n";

fn import(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
    command
        .arg("import")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    // It may have refused before it read everything.
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()).is_ok());
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_it_prints_is_a_configuration() {
    let output = import(&["-", "--audience", "https://prod.example.com"], KUBECONFIG);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(!stdout.contains("canary") && !stderr.contains("canary"));
    assert_eq!(
        stderr,
        "left out: a bearer token, a client key\nno ServiceAccount may use the target yet; list \
         them in spec.allow\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, format!("{HEAD}{stdout}{ACCESS}")).unwrap();
    let targets = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["targets", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let listed = text(&targets.stdout);
    assert!(
        listed.contains("https://prod.example.com:6443") && listed.contains("no"),
        "{listed}{}",
        text(&targets.stderr)
    );
}

#[test]
fn what_it_cannot_use_it_says() {
    let without = import(&["-"], KUBECONFIG);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("--audience <TEXT>"));
    let cases = [
        (
            KUBECONFIG.replace("https://", "http://"),
            1,
            "not an https URL",
        ),
        (
            KUBECONFIG.replace("token: canary", "token: canary, token: canary"),
            1,
            "each key of it once: line 6",
        ),
        ("canary".to_owned(), 1, "neither a kubeconfig"),
        ("#".repeat(3 << 20), 2, "longer than"),
    ];
    for (input, code, says) in cases {
        let output = import(&["-", "--audience", "prod"], &input);
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(code), 0),
            "{said}"
        );
        assert!(said.contains(says) && !said.contains("canary"), "{said}");
    }
}

/// Opening a pipe waits for its writer, and a device has no end: neither is waited for, whichever
/// command is given one.
#[test]
fn a_pipe_or_a_device_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let pipe = pipe.display().to_string();
    let commands: [&[&str]; 9] = [
        &["import", "FILE", "--audience", "prod"],
        &["lint", "FILE"],
        &["verify", "--auth-config", "FILE", "-"],
        &["verify", "--batch", "FILE"],
        &["targets", "--config", "FILE"],
        &[
            "trust",
            "prod",
            "--issuer",
            "https://hub",
            "--audience",
            "a",
            "--prefix",
            "hub:",
            "--allow",
            "a:b",
            "--discovery-ca",
            "FILE",
        ],
        &[
            "whoami",
            "--target-address",
            "https://127.0.0.1:1",
            "--target-token-file",
            "FILE",
        ],
        &[
            "token",
            "a/b",
            "--server",
            "https://127.0.0.1:1",
            "--token-file",
            "FILE",
        ],
        &["keys", "--kubeconfig", "FILE"],
    ];
    for command in commands {
        for file in [pipe.as_str(), "/dev/zero"] {
            let arguments = command
                .iter()
                .map(|argument| if *argument == "FILE" { file } else { argument });
            let output = Command::new("timeout")
                .args(["10", env!("CARGO_BIN_EXE_keyferry")])
                .args(arguments)
                .stdin(Stdio::null())
                .output();
            let output = output.unwrap();
            let said = text(&output.stderr);
            assert!(
                matches!(output.status.code(), Some(1 | 2)),
                "{command:?} {file}: {:?} {said}",
                output.status
            );
            assert!(said.contains("regular file"), "{command:?} {file}: {said}");
        }
    }
    assert!(
        import(&["/dev/zero", "--audience", "prod"], "")
            .stderr
            .ends_with(b"fix: name a file, or pipe the text into -\n")
    );
}
