//! The commands that the demo prints work against the demo, and Ctrl-C ends it well.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};

struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running demo and the keyferry commands that it printed.
fn start() -> (Demo, Vec<Vec<String>>) {
    let child = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .arg("demo")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut demo = Demo(child);
    let lines = BufReader::new(demo.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut commands: Vec<Vec<String>> = Vec::new();
    for line in lines {
        assert!(
            !line.contains('\u{1b}'),
            "no colour without a terminal: {line:?}"
        );
        if let Some(command) = line.strip_prefix("  keyferry ") {
            commands.push(command.split(' ').map(str::to_owned).collect());
        }
        if line.starts_with("  tail ") {
            break;
        }
    }
    assert_eq!(commands.len(), 6, "{commands:?}");
    (demo, commands)
}

/// The command with another program after `--`: kubectl need not be there, and any command sees the
/// same kubeconfig.
fn with_script(mut command: Vec<String>, script: &str) -> Vec<String> {
    if let Some(separator) = command.iter().position(|word| word == "--") {
        command.truncate(separator + 1);
        command.extend(["sh", "-c", script].map(str::to_owned));
    }
    command
}

/// All that a person sees of a command beside the demo.
fn transcript_of(words: &[String], folder: &str) -> Transcript {
    // The demo prints this setting before its first command that connects to the target.
    let variables = [("KEYFERRY_ALLOW_TARGET_CIDR", "127.0.0.0/8")];
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .envs(variables)
        .args(words)
        .output()
        .unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Transcript::new("keyferry", &words, &output)
        .with_variables(&variables)
        .with_name(folder, "DEMO")
        // A second may begin between two readings.
        .with_name("by +1 s", "by +0 s")
        .with_name("by -1 s", "by +0 s")
        .without_random_words()
}

/// The value of a flag in the printed commands.
fn value_of(commands: &[Vec<String>], flag: &str) -> String {
    let mut words = commands.iter().flatten();
    words.find(|word| *word == flag).unwrap();
    words.next().unwrap().clone()
}

/// The folder of the demo's files.
fn folder_of(commands: &[Vec<String>]) -> String {
    let config = value_of(commands, "--config");
    config.strip_suffix("/config.yaml").unwrap().to_owned()
}

fn signal(process: &Child, name: &str) {
    assert!(
        Command::new("kill")
            .args([name, &process.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn the_printed_commands_work_while_it_runs() {
    let (mut demo, commands) = start();
    let folder = folder_of(&commands);
    let hub = format!("{folder}/hub.kubeconfig");
    let documents = format!("{folder}/documents");
    let config = format!("{folder}/config.yaml");
    let export = [
        "export",
        &documents,
        "--config",
        &config,
        "--kubeconfig",
        &hub,
    ];
    let keys = ["keys", "--kubeconfig", &hub];
    let tokens = format!("{folder}/tokens");
    let server = ["--server", "--certificate-authority", "--token-file"];
    let flags = server
        .map(|flag| [flag.to_owned(), value_of(&commands, flag)])
        .concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let agent = [
        &["agent", "tenant-a/prod", "--dir", &tokens, "--once"][..],
        &flags,
    ]
    .concat();
    let whoami = [&["whoami", "tenant-a/prod"][..], &flags].concat();
    let other = [&["token", "tenant-b/prod"][..], &flags].concat();
    let further = [&export[..], &keys, &agent, &whoami, &other].map(|words| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    });
    let shown: Vec<Transcript> = commands
        .into_iter()
        .map(|command| {
            with_script(
                command,
                "grep -c certificate-authority-data \"$KUBECONFIG\"",
            )
        })
        .chain(further)
        .map(|words| transcript_of(&words, &folder))
        .collect();
    assert_snapshot!("commands-while-the-demo-runs", joined(&shown));
    signal(&demo.0, "-INT");
    assert!(demo.0.wait().unwrap().success(), "Ctrl-C is the normal end");
}

#[test]
fn exec_leaves_no_kubeconfig_when_it_is_terminated() {
    let (_demo, commands) = start();
    let command = commands
        .into_iter()
        .find(|command| command.iter().any(|word| word == "exec"))
        .unwrap();
    let command = with_script(command, "echo \"$KUBECONFIG\"; exec sleep 60");
    let mut exec = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(command)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut path = String::new();
    BufReader::new(exec.stdout.take().unwrap())
        .read_line(&mut path)
        .unwrap();
    assert!(
        std::path::Path::new(path.trim()).exists(),
        "the command sees a kubeconfig at {path:?}"
    );
    signal(&exec, "-TERM");
    assert_eq!(
        exec.wait().unwrap().code(),
        Some(128 + 15),
        "the command's own end is passed on"
    );
    assert!(
        !std::path::Path::new(path.trim()).parent().unwrap().exists(),
        "{path:?} is still there"
    );
}
