//! The commands that the demo prints work against the demo, and Ctrl-C ends it well.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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
    for command in commands {
        let command = with_script(
            command,
            "grep -c 'certificate-authority-data' \"$KUBECONFIG\"",
        );
        // The demo prints this setting before its first command that connects to the target.
        let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
            .env("KEYFERRY_ALLOW_TARGET_CIDR", "127.0.0.0/8")
            .args(&command)
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "keyferry {}: {stderr}",
            command.join(" ")
        );
        assert!(
            !stdout.trim().is_empty(),
            "keyferry {} prints something",
            command.join(" ")
        );
    }
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
