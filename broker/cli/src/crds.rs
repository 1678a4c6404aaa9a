//! `keyferry crds`: prints the CustomResourceDefinitions that the hub needs, or their reference.

use std::process::ExitCode;

use clap::Args;

use super::ui;

mod reference;

/// The definitions in the form in which they are applied.
const CRDS: [&str; 3] = [
    include_str!("../../crds/targetclusters.yaml"),
    include_str!("../../crds/targetaccesses.yaml"),
    include_str!("../../crds/audiencepairings.yaml"),
];

#[derive(Args)]
pub(super) struct CrdsArgs {
    /// Print a reference of all fields as Markdown instead.
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: &CrdsArgs) -> ExitCode {
    if !args.markdown {
        return ui::finish(CRDS.join("---\n").trim_end());
    }
    match reference::markdown(&CRDS) {
        Ok(text) => ui::finish(text.trim_end()),
        Err(error) => ui::fail(&format!("reading the definitions: {error}"), None),
    }
}
