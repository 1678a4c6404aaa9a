//! `keyferry crds`: prints the CustomResourceDefinitions that the hub needs, or their reference.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::definition;

use crate::args::output_format::ManifestFormatArgs;
use crate::ui;

mod reference;

#[derive(Args)]
pub(super) struct CrdsArgs {
    /// Print a reference of all fields as Markdown instead.
    #[arg(long, conflicts_with = "_output")]
    markdown: bool,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

pub(super) fn run(args: &CrdsArgs) -> ExitCode {
    let definitions = definition::all_definitions();
    if args.markdown {
        return match reference::markdown(&definitions) {
            Ok(text) => ui::finish(text.trim_end()),
            Err(error) => ui::fail(&format!("printing the reference: {error}"), None),
        };
    }
    let manifests: Result<Vec<String>, _> =
        definitions.iter().map(definition::print_manifest).collect();
    match manifests {
        Ok(manifests) => ui::finish(manifests.join("---\n").trim_end()),
        Err(error) => ui::fail(&format!("printing the definitions: {error}"), None),
    }
}
