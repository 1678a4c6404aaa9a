//! `keyferry demo`: issues a token between an embedded hub and an embedded target, on loopback.

mod screen;
mod stage;
mod steps;

use std::process::ExitCode;

use clap::Args;

use self::screen::Screen;
use self::stage::Stage;
use super::serve::stop_signal;
use super::ui;

#[derive(Args)]
pub(super) struct DemoArgs {
    /// Do it once, and exit: show the steps, without keeping the servers running.
    #[arg(long)]
    once: bool,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("starting the demo: {0}")]
    Embedded(#[from] keyferry_testing::EmbeddedError),
    #[error("starting the demo: {0}")]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Serve(#[from] keyferry_server::serve::ServeError),
    #[error("calling {0}: the connection failed")]
    Call(&'static str),
    #[error("showing the demo: {0}")]
    Unexpected(&'static str),
}

pub(super) async fn run(args: DemoArgs) -> ExitCode {
    let screen = Screen::new(ui::is_terminal());
    match show(&screen, args.once).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ui::fail(&error.to_string(), None),
    }
}

async fn show(screen: &Screen, once: bool) -> Result<(), DemoError> {
    screen.title(
        "keyferry demo: an embedded hub and an embedded target, real TLS and real \
        signatures on loopback",
    )?;
    let stage = Stage::start().await?;
    steps::play(&stage, screen).await?;
    if !once {
        steps::try_next(&stage, screen)?;
        stop_signal().await;
    }
    stage.stop().await
}
