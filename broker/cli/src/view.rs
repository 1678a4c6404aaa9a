//! The commands that show a fleet or answer about it. They act where their user is, so the image is
//! built without them: without the feature `view`.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{command_error, dashboard, fleet, inspect, rehearse, trace, tree, what_if, who_can};

#[derive(Subcommand)]
pub(crate) enum ViewCommand {
    /// Show all targets, worst first, with one cause and the next command for each.
    ///
    /// From the hub with your own rights, or from a folder.
    #[command(visible_alias = "status")]
    Fleet(Box<fleet::FleetArgs>),
    /// Write what you may read of the hub into a folder, for keyferry fleet.
    ///
    /// It has no token, key or Secret.
    Snapshot(fleet::SnapshotArgs),
    /// Predict what an outage, a key rotation or a new CA costs, and when.
    ///
    /// It changes nothing. Exit code 3 says that the facts leave a part of the answer open.
    Rehearse(Box<rehearse::RehearseArgs>),
    /// Show the fleet in your own browser, on this machine.
    ///
    /// It prints a link that opens once, reads with your own rights on the hub, and changes nothing.
    Dashboard(Box<dashboard::DashboardArgs>),
    /// Show the path of an access as a tree, with a tick for each step.
    ///
    /// From the Flux objects that use its delivered objects to the user at the target, as the
    /// objects of the hub state it. No target is contacted.
    Tree(tree::TreeArgs),
    /// List who can do something at a target, and by which way.
    ///
    /// From the hub, read with your rights, or from a snapshot, without a cluster and without a
    /// network.
    WhoCan(Box<who_can::WhoCanArgs>),
    /// List the targets that a subject of the hub reaches, and by which way.
    ///
    /// From the hub, read with your rights, or from a snapshot, without a cluster and without a
    /// network.
    Reach(Box<who_can::ReachArgs>),
    /// Predict which ways to targets a change opens and closes, and what it breaks.
    ///
    /// From a snapshot and the objects of the change, or from two snapshots. With --check it fails on
    /// new access. It works without a cluster and without a network.
    WhatIf(Box<what_if::WhatIfArgs>),
    /// Decode a token on this machine: whose it is, for what, and for how long.
    ///
    /// It works without a cluster and without a network. With --jwks it checks the signature too.
    Inspect(inspect::InspectArgs),
    /// Follow tokens through the audit logs of hub, Keyferry and targets.
    ///
    /// It finds tokens that Keyferry never recorded, that were used after their end or their key's
    /// revocation, or from several networks. It works without a cluster and without a network.
    Trace(trace::TraceArgs),
}

command_error::command_errors!(with fix: inspect::KeySetError);

impl ViewCommand {
    /// Runs a command that only reads files and prints; returns `None` for all others.
    pub(crate) fn run_offline(&self) -> Option<ExitCode> {
        match self {
            Self::Inspect(args) => Some(inspect::run(args)),
            Self::Trace(args) => Some(trace::run(args)),
            Self::WhatIf(args) => Some(what_if::run(args)),
            _ => None,
        }
    }

    /// Runs any of them.
    pub(crate) async fn run(self) -> ExitCode {
        match self {
            Self::Fleet(args) => fleet::run(*args).await,
            Self::Snapshot(args) => fleet::run_snapshot(args).await,
            Self::Rehearse(args) => rehearse::run(*args).await,
            Self::Dashboard(args) => dashboard::run(*args).await,
            Self::Tree(args) => tree::run(args).await,
            Self::WhoCan(args) => who_can::run(*args).await,
            Self::Reach(args) => who_can::run_reach(*args).await,
            command => command.run_offline().unwrap_or(ExitCode::FAILURE),
        }
    }
}
