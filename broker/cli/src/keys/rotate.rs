//! `keyferry keys rotate`: makes the next key of a managed issuer sign.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::ObjectName;
use keyferry_hub::issuer_keys::KubeIssuerKeys;
use keyferry_hub::ports::HubError;
use keyferry_platform::clock::{Clock, SystemClock};

use crate::args::{HubArgs, KeyferryArgs};
use crate::command_error::CommandError;
use crate::ui;

#[derive(Args)]
pub(crate) struct RotateArgs {
    /// The TargetCluster.
    ///
    /// One with `issuer: Keyferry`.
    #[arg(long, value_name = "NAME")]
    target: String,
    #[command(flatten)]
    keyferry: KeyferryArgs,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(args: &RotateArgs) -> ExitCode {
    match rotate(args).await {
        Ok(text) => ui::finish(&text),
        Err(error) => ui::command_failed(&error),
    }
}

async fn rotate(args: &RotateArgs) -> Result<String, CommandError> {
    let target = ObjectName::new(args.target.clone())
        .map_err(|error| CommandError::new(format!("--target {:?} {error}", args.target)))?;
    let namespace = args.keyferry.namespace()?;
    let hub = args.hub.access();
    ui::note(&format!("hub: {}", hub.describe_hub().await?));
    let client = hub.client().await?;
    let request = SystemClock::start().now().wall.to_string();
    match KubeIssuerKeys::new(client, namespace.clone())
        .request_rotation(&target, &request)
        .await
    {
        Ok(()) => Ok(format!(
            "a rotation of the keys of {target} was requested: the next key signs within 10 s, or \
             once it has been published for long enough"
        )),
        Err(HubError::NotFound(_)) => Err(CommandError::new(format!(
            "target {target} has no key set: there is no Secret keyferry-issuer-{target} in \
             {namespace}"
        ))),
        Err(error) => Err(CommandError::new(format!(
            "marking the Secret keyferry-issuer-{target} in {namespace}: {error}"
        ))),
    }
}
