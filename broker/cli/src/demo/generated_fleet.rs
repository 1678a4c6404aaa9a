//! The demo of a large fleet: generated objects, shown by the viewer. Nothing is started.

use std::sync::Arc;

use clap::Args;
use futures::future::BoxFuture;
use keyferry_fleet::generated;
use keyferry_platform::clock::{Clock, SystemClock};

use super::DemoError;
use super::screen::Screen;
use crate::command_error::CommandError;
use crate::dashboard::bound_viewer::BoundViewer;
use crate::dashboard::current_facts::{JudgeFleet, ReadFleet};
use crate::signals::stop_signal;

/// The most targets, and the most accesses, that are generated.
const MAX_TARGETS: u32 = 5_000;
const MAX_ACCESSES: u32 = 50_000;
/// The accesses of each target, if only the number of targets is given.
const ACCESSES_PER_TARGET: u32 = 30;

/// The flags of a generated fleet.
#[derive(Args)]
pub(super) struct GeneratedArgs {
    /// Show a made-up fleet with this many targets instead, at most 5000.
    ///
    /// Nothing is started, and each page says that none of it exists.
    #[arg(long, value_name = "NUMBER", hide_short_help = true, conflicts_with_all = ["once", "auth_config", "rbac"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TARGETS)))]
    targets: Option<u32>,
    /// How many accesses the made-up fleet has, at most 50000 [default: 30 for each target]
    #[arg(long, value_name = "NUMBER", hide_short_help = true, requires = "targets",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_ACCESSES)))]
    accesses: Option<u32>,
    /// The seed of the made-up fleet: the same seed makes the same fleet.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        hide_short_help = true,
        requires = "targets"
    )]
    seed: u64,
}

/// How large a generated fleet is.
#[derive(Clone, Copy)]
pub(super) struct FleetSize {
    targets: u32,
    accesses: u32,
    seed: u64,
}

impl GeneratedArgs {
    /// The size of the wanted fleet, if one is wanted.
    pub(super) fn size(&self) -> Option<FleetSize> {
        let targets = self.targets?;
        let default = targets.saturating_mul(ACCESSES_PER_TARGET);
        Some(FleetSize {
            targets,
            accesses: self.accesses.unwrap_or(default.min(MAX_ACCESSES)),
            seed: self.seed,
        })
    }
}

/// Shows the link to a generated fleet, and serves its pages until a signal.
pub(super) async fn show(screen: &Screen, size: FleetSize) -> Result<(), DemoError> {
    screen.title(&format!(
        "keyferry demo: a made-up fleet of {} targets and {} accesses (seed {})",
        size.targets, size.accesses, size.seed
    ))?;
    let viewer = BoundViewer::bind(Box::new(size), Arc::new(SystemClock::start())).await?;
    screen.line(&format!("open {}", viewer.link()))?;
    screen
        .line("None of it exists. It is shown until Ctrl-C, or an hour after the last request.")?;
    let _ = viewer.serve(stop_signal()).await?;
    Ok(())
}

impl ReadFleet for FleetSize {
    fn read_fleet(&self) -> BoxFuture<'_, Result<Arc<dyn JudgeFleet>, CommandError>> {
        let Self {
            targets,
            accesses,
            seed,
        } = *self;
        Box::pin(async move {
            let now = SystemClock::start().now().wall;
            let count = |number: u32| usize::try_from(number).unwrap_or_default();
            let snapshot = generated::snapshot(count(targets), count(accesses), seed, now);
            Ok(Arc::new(snapshot) as Arc<dyn JudgeFleet>)
        })
    }
}
