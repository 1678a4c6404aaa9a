//! `keyferry exec ACCESS -- COMMAND`: gives the command a kubeconfig that is deleted when it ends.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::access::AccessArgs;
use crate::ui;

#[derive(Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) async fn run(args: ExecArgs) -> ExitCode {
    let source = match args.access.source().await {
        Ok(source) => source,
        Err(error) => return ui::command_failed(&error),
    };
    let kubeconfig = match source.kubeconfig().await {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => return ui::command_failed(&error.into()),
    };
    let folder = match write(&kubeconfig) {
        Ok(folder) => folder,
        // An image with nothing but programs has no folder for temporary files.
        Err(error) => {
            let place = std::env::temp_dir();
            let said = format!(
                "writing a temporary kubeconfig below {}: {error}",
                place.display()
            );
            return ui::fail(
                &said,
                Some("mount a writable folder there, or name one in TMPDIR"),
            );
        }
    };
    let Some((program, arguments)) = args.command.split_first() else {
        return ui::fail("no command is given", Some("write it after --"));
    };
    // Signals are handled from before the command starts until the file is removed.
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return ui::fail(&format!("listening for signals: {error}"), None),
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", folder.path().join("config"));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return ui::fail(
                &format!("starting {}: {error}", program.to_string_lossy()),
                None,
            );
        }
    };
    loop {
        tokio::select! {
            status = child.wait() => return match status {
                Ok(status) => exit_code(status),
                Err(error) => ui::fail(&format!("waiting for {}: {error}", program.to_string_lossy()), None),
            },
            signal = signals.next() => pass_on(&child, signal),
        }
    }
}

/// The signals that would end this process without removing the file.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self {
            interrupt,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Returns the next signal to pass on. Ctrl-C reaches the command directly from the terminal.
    async fn next(&mut self) -> Option<rustix::process::Signal> {
        tokio::select! {
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => Some(rustix::process::Signal::TERM),
            _ = self.hang_up.recv() => Some(rustix::process::Signal::HUP),
        }
    }
}

fn pass_on(child: &Child, signal: Option<rustix::process::Signal>) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        // The command may have just ended, so a failure is ignored.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Writes the kubeconfig to a file that only this user can read, in a folder that only this user
/// can enter.
fn write(kubeconfig: &SecretString) -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("keyferry-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    let folder = builder.tempdir()?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
        .open(folder.path().join("config"))?
        .write_all(kubeconfig.expose_secret().as_bytes())?;
    Ok(folder)
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    )
}
