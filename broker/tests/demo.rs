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

#[test]
fn the_printed_commands_work_while_it_runs() {
    let binary = env!("CARGO_BIN_EXE_keyferry");
    let child = Command::new(binary).arg("demo").stdout(Stdio::piped()).spawn().unwrap();
    let mut demo = Demo(child);
    let lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut commands: Vec<Vec<String>> = Vec::new();
    for line in lines {
        assert!(!line.contains('\u{1b}'), "no colour without a terminal: {line:?}");
        if let Some(command) = line.strip_prefix("  keyferry ") {
            commands.push(command.split(' ').map(str::to_owned).collect());
        }
        if line.starts_with("  tail ") {
            break;
        }
    }
    assert_eq!(commands.len(), 5, "{commands:?}");
    for mut command in commands {
        if let Some(separator) = command.iter().position(|word| word == "--") {
            // kubectl need not be there: any command sees the same kubeconfig.
            command.truncate(separator + 1);
            command.extend(["sh", "-c", "grep -c 'certificate-authority-data' \"$KUBECONFIG\""].map(str::to_owned));
        }
        let output = Command::new(binary).args(&command).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "keyferry {}: {stderr}", command.join(" "));
        assert!(!stdout.trim().is_empty(), "keyferry {} prints something", command.join(" "));
    }
    let interrupted = Command::new("kill").args(["-INT", &demo.0.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(demo.0.wait().unwrap().success(), "Ctrl-C is the normal end");
}
