//! `keyferry demo`: issues a token between an embedded hub and an embedded target, on loopback.
//! [`stage`] starts and wires them, [`steps`] shows what happens.

mod auth_file;
mod generated_fleet;
mod impersonation;
mod observed_fleet;
mod reviewed_user;
mod screen;
mod stage;
mod steps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use futures::FutureExt;
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::doctor::impersonated_user::ImpersonatedUser;
use keyferry_platform::clock::SystemClock;
use keyferry_testing::RbacPolicy;

use self::auth_file::AuthFile;
use self::generated_fleet::GeneratedArgs;
use self::observed_fleet::DemoReader;
use self::screen::Screen;
use self::stage::{Stage, StageOptions};
use crate::args::TARGET;
use crate::args::impersonation_args::ImpersonationArgs;
use crate::command_error::CommandError;
use crate::dashboard::bound_viewer::BoundViewer;
use crate::local_file::read_small_file;
use crate::signals::stop_signal;
use crate::ui;

/// The workload of the demo, and the ServiceAccount of its namespace that it impersonates.
const WORKLOAD: &str = "tenant-a/reconciler";
const IMPERSONATED: &str = "deployer";

/// The flags of `keyferry demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Do it once, and exit.
    ///
    /// Show the steps, without keeping the servers running.
    #[arg(long)]
    once: bool,
    /// The target's AuthenticationConfiguration.
    ///
    /// The demo's hub has the issuer of its first entry, and the target reads the keys from the
    /// demo instead of discoveryURL.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    auth_config: Option<PathBuf>,
    /// The target's roles and bindings, as YAML [default: the demo grants the impersonation itself,
    /// after a refusal]
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    rbac: Option<PathBuf>,
    /// A ServiceAccount of the hub.
    ///
    /// The one that uses the target.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = WORKLOAD, value_parser = crate::args::names::service_account)]
    service_account: ServiceAccount,
    #[command(flatten)]
    impersonation: ImpersonationArgs,
    #[command(flatten)]
    generated: GeneratedArgs,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("starting the demo: {0}")]
    Embedded(#[from] keyferry_testing::EmbeddedError),
    #[error("starting the demo: {0}")]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Serve(#[from] crate::wiring::ServeError),
    #[error("calling {0}: the connection failed")]
    Call(&'static str),
    #[error("showing the demo: {0}")]
    Unexpected(&'static str),
    #[error("the target refuses the workload's token: {0}")]
    Refused(String),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Shows the steps, and keeps the servers running until a signal; returns the exit code.
pub(crate) async fn run(args: DemoArgs) -> ExitCode {
    let screen = Screen::new(ui::uses_colour());
    let shown = match args.generated.size() {
        Some(size) => generated_fleet::show(&screen, size).await,
        None => show(&screen, &args).await,
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(DemoError::Command(error)) => ui::command_misused(&error),
        Err(error @ DemoError::Refused(_)) => ui::fail(
            &error.to_string(),
            Some("change the file, or choose --service-account; keyferry lint explains the file"),
        ),
        Err(error) => ui::fail(&error.to_string(), None),
    }
}

impl DemoArgs {
    fn stage(&self) -> Result<StageOptions, CommandError> {
        let namespace = self.service_account.namespace.as_str();
        let impersonated = self.impersonation.user()?;
        Ok(StageOptions {
            auth_file: self
                .auth_config
                .as_deref()
                .map(AuthFile::read)
                .transpose()?,
            rbac: self.rbac.as_deref().map(rbac).transpose()?,
            workload: self.service_account.clone(),
            impersonated: impersonated
                .unwrap_or_else(|| ImpersonatedUser::service_account(namespace, IMPERSONATED)),
        })
    }
}

fn rbac(path: &Path) -> Result<RbacPolicy, CommandError> {
    let refused = |fault: &dyn std::fmt::Display| {
        CommandError::new(format!("reading {}: {fault}", path.display()))
    };
    let text = String::from_utf8(read_small_file(path)?)
        .map_err(|_| refused(&"it is not text in UTF-8"))?;
    RbacPolicy::from_yaml(&text).map_err(|error| refused(&error))
}

async fn show(screen: &Screen, args: &DemoArgs) -> Result<(), DemoError> {
    let options = args.stage()?;
    screen.title(
        "keyferry demo: an embedded hub and an embedded target, real TLS and real \
        signatures on loopback",
    )?;
    let stage = Stage::start(options).await?;
    let user = steps::play(&stage, screen).await?;
    if !args.once {
        let reader = DemoReader::new(&stage, user);
        let viewer = BoundViewer::bind(Box::new(reader), Arc::new(SystemClock::start())).await?;
        steps::show_link(&viewer.link(), screen)?;
        steps::try_next(&stage, screen)?;
        // An hour without a request ends the viewer, and not the demo.
        let stopped = stop_signal().shared();
        let _ = viewer.serve(stopped.clone()).await?;
        stopped.await;
    }
    stage.stop().await
}
