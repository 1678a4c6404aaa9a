//! `keyferry runtime-info`: prints the ConfigMaps with a child cluster's names, for its Flux.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::issuer::PublicUrl;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::wanted_objects::Wanted;
use keyferry_core::inputs::runtime_info::RuntimeInfo;

use crate::args::HubArgs;
use crate::args::objects_argument::ObjectsArgs;
use crate::args::output_format::ManifestFormatArgs;
use crate::command_error::CommandError;
use crate::ui;
use crate::yaml_document::yaml_document;

#[derive(Args)]
pub(super) struct RuntimeInfoArgs {
    /// The TargetCluster, which needs an identity.
    #[arg(value_name = "TARGET")]
    target: String,
    /// The origin at which the child cluster reaches Keyferry's token API.
    #[arg(long, value_name = "URL", value_parser = PublicUrl::new)]
    internal_api_url: PublicUrl,
    /// The tag of the artifacts that the child cluster runs.
    #[arg(long, value_name = "TAG", default_value = "latest-stable")]
    artifact_tag: String,
    /// Namespace of the ConfigMaps, on the child cluster.
    #[arg(long, value_name = "NAMESPACE", default_value = "flux-system")]
    flux_namespace: String,
    #[command(flatten)]
    objects: ObjectsArgs,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

pub(super) async fn run(args: RuntimeInfoArgs) -> ExitCode {
    match manifest(&args).await {
        Ok(text) => ui::finish(text.trim_end()),
        Err(error) => ui::command_failed(&error),
    }
}

async fn manifest(args: &RuntimeInfoArgs) -> Result<String, CommandError> {
    let name = ObjectName::new(&args.target)
        .map_err(|error| CommandError::new(format!("the name of the TargetCluster {error}")))?;
    let namespace = Namespace::new(&args.flux_namespace)
        .map_err(|error| CommandError::new(format!("--flux-namespace {error}")))?;
    if !is_tag(&args.artifact_tag) {
        return Err(CommandError::with_fix(
            "--artifact-tag is not a tag of an OCI artifact",
            "write a tag such as latest-stable or v1.2.3",
        ));
    }
    let source = args.objects.source()?;
    let configuration = source
        .read_configuration(|| args.hub.client(), Wanted::Target(&name))
        .await?;
    let target = configuration.policy.targets.get(&name).ok_or_else(|| {
        CommandError::with_fix(
            format!(
                "{} has no usable TargetCluster {name}",
                source.describe_place()
            ),
            "look at its status, or list the names by keyferry targets",
        )
    })?;
    let identity = target.identity.as_ref().ok_or_else(|| {
        CommandError::with_fix(
            format!("TargetCluster {name} has no spec.identity"),
            "set clusterName, clusterDNS and environment there; they never change afterwards",
        )
    })?;
    let info = RuntimeInfo {
        identity,
        internal_api_url: args.internal_api_url.as_str(),
        artifact_tag: &args.artifact_tag,
        hub_name: &configuration.server.hub_name,
        target: name.as_str(),
        namespace: &namespace,
    };
    let documents: Result<Vec<String>, _> = info.config_maps().iter().map(yaml_document).collect();
    let documents = documents.map_err(|error| CommandError::new(error.to_string()))?;
    Ok(documents.join("---\n"))
}

/// A tag by the OCI distribution specification: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(word)
        && text.chars().all(|c| word(c) || c == '.' || c == '-')
}
