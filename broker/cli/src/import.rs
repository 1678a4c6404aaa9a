//! `keyferry import`: makes a TargetCluster from another tool's description of a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_core::import::{self, Choice, MAX_IMPORT_BYTES};
use keyferry_platform::clock::{Clock, SystemClock};

use crate::args::output_format::ManifestFormatArgs;
use crate::{local_file, ui};

#[derive(Args)]
pub(super) struct ImportArgs {
    /// A kubeconfig, or an object that has a cluster's address.
    ///
    /// A Secret that holds a kubeconfig, a cluster Secret of Argo CD, a ClusterProfile, a
    /// ManagedCluster, a generic ConfigMap of Flux, or a List of a SveltosCluster and its Secret.
    /// As YAML or JSON; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The target's audience.
    ///
    /// One that no other target has.
    #[arg(long, value_name = "TEXT")]
    audience: String,
    /// The TargetCluster's name, if it differs from the cluster's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Context of the kubeconfig [default: its current one, or its only one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The key of a Secret [default: value, value.yaml or kubeconfig, or its only one]
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    key: Option<String>,
    /// The access provider of a ClusterProfile, if it has several.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    provider: Option<String>,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    let input = match local_file::read(&args.file, "the cluster", MAX_IMPORT_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => return ui::command_misused(&error.into()),
    };
    let audience = match Audience::new(args.audience.as_str()) {
        Ok(audience) => audience,
        Err(error) => return ui::misuse(&format!("--audience {error}"), None),
    };
    let choice = Choice {
        context: args.context.as_deref(),
        key: args.key.as_deref(),
        provider: args.provider.as_deref(),
    };
    let now = SystemClock::start().now().wall;
    let imported = import::read_import(&input, choice).and_then(|mut imported| {
        let text = imported.render_target(args.name.as_deref(), &audience, now)?;
        Ok((text, imported))
    });
    match imported {
        Ok((text, imported)) => {
            if !imported.dropped.is_empty() {
                ui::note(&format!("left out: {}", imported.dropped.join(", ")));
            }
            for warning in &imported.warnings {
                ui::note(&format!("warning: {warning}"));
            }
            ui::note("no ServiceAccount may use the target yet; list them in spec.allow");
            ui::finish(text.trim_end())
        }
        Err(error) => ui::fail(&format!("importing {}: {error}", args.file.display()), None),
    }
}
