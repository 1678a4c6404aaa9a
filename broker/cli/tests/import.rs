//! `keyferry import` as a command: what it prints is a configuration, and what it leaves out it
//! says.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};

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

/// All that a person sees of the import.
fn transcript_of(arguments: &[&str], input: &str) -> Transcript {
    let output = import(arguments, input);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(
        !printed.contains("canary"),
        "a secret is printed: {printed}"
    );
    Transcript::new("keyferry import", arguments, &output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_it_prints_is_a_configuration() {
    let arguments = ["-", "--audience", "https://prod.example.com"];
    assert_snapshot!("import", transcript_of(&arguments, KUBECONFIG));
    let printed = text(&import(&arguments, KUBECONFIG).stdout);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.yaml"),
        format!("{HEAD}{printed}{ACCESS}"),
    )
    .unwrap();
    let read = ["targets", "--config", "config.yaml"];
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(read)
        .current_dir(folder.path())
        .output();
    let targets = Transcript::new("keyferry", &read, &output.unwrap());
    assert_snapshot!("targets-of-what-import-prints", targets);
}

#[test]
fn what_it_cannot_use_it_says() {
    assert_snapshot!(
        "import-without-an-audience",
        transcript_of(&["-"], KUBECONFIG)
    );
    let twice = KUBECONFIG.replace("token: canary", "token: canary, token: canary");
    for (case, input) in [
        ("plain-http", KUBECONFIG.replace("https://", "http://")),
        ("a-repeated-key", twice),
        ("no-kubeconfig", "canary".to_owned()),
        ("a-long-text", "#".repeat(3 << 20)),
    ] {
        let shown = transcript_of(&["-", "--audience", "prod"], &input);
        assert_snapshot!(format!("import-of-{case}"), shown);
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
    let mut shown = Vec::new();
    for command in commands {
        for (file, name) in [(pipe.as_str(), "PIPE"), ("/dev/zero", "/dev/zero")] {
            let arguments: Vec<&str> = command
                .iter()
                .map(|argument| if *argument == "FILE" { file } else { argument })
                .collect();
            let output = Command::new("timeout")
                .args(["10", env!("CARGO_BIN_EXE_keyferry")])
                .args(&arguments)
                .stdin(Stdio::null())
                .output();
            let output = output.unwrap();
            assert!(
                matches!(output.status.code(), Some(1 | 2)),
                "{command:?} {file}: {output:?}"
            );
            let transcript = Transcript::new("keyferry", &arguments, &output);
            shown.push(transcript.with_name(file, name));
        }
    }
    shown.push(transcript_of(&["/dev/zero", "--audience", "prod"], ""));
    assert_snapshot!("a-pipe-or-a-device", joined(&shown));
}
