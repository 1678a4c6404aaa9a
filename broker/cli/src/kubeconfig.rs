//! `keyferry kubeconfig`: prints a kubeconfig with a token, or with the exec plugin, which fetches
//! a token whenever a client needs one.

use std::process::ExitCode;

use clap::Args;
use keyferry_client::caller_token;
use keyferry_core::kubeconfig::{self, ExecStanza};
use keyferry_terminal::access::AccessArgs;
use keyferry_terminal::client_config::Beside;
use keyferry_terminal::command_error::CommandError;
use keyferry_terminal::ui;
use secrecy::ExposeSecret;

use crate::kuberc;

#[derive(Args)]
pub(super) struct KubeconfigArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Without a token: the user is an exec stanza that runs `keyferry credential`.
    #[arg(long)]
    exec: bool,
    /// The program that the exec stanza runs.
    #[arg(
        long,
        requires = "exec",
        default_value = "keyferry",
        value_name = "PROGRAM"
    )]
    exec_command: String,
}

pub(super) async fn run(args: KubeconfigArgs) -> ExitCode {
    if args.exec {
        return with_exec(&args).await;
    }
    let source = match args.access.source().await {
        Ok(source) => source,
        Err(error) => return ui::command_failed(&error),
    };
    match source.kubeconfig().await {
        Ok(kubeconfig) => ui::finish(kubeconfig.expose_secret().trim_end()),
        Err(error) => ui::command_failed(&error.into()),
    }
}

/// Exchanges once, only to learn where the target is; drops the token itself.
async fn with_exec(args: &KubeconfigArgs) -> ExitCode {
    let reach = args.access.through_server().and_then(|(access, server)| {
        let reach = server.reach(Beside::File)?;
        let reach = reach
            .ok_or_else(|| CommandError::with_fix("no server is named", "give --server URL"))?;
        // Checked before any request: a stanza that cannot be written is a mistake in the
        // arguments.
        let arguments = reach.arguments(&access, server.client_config.as_deref())?;
        Ok((access, reach, arguments))
    });
    let (access, reach, arguments) = match reach {
        Ok(reach) => reach,
        Err(error) => return ui::command_failed(&error),
    };
    let fetched = async {
        let caller = caller_token::find(&reach.caller, access.namespace.as_str()).await?;
        reach.server.cluster_token(&caller, &access).await
    };
    let cluster = match fetched.await {
        Ok(fetched) => fetched.cluster,
        Err(error) => return ui::command_failed(&error.into()),
    };
    let Some(cluster) = cluster else {
        return ui::fail(
            "the server does not report the target's address",
            Some("update the Keyferry server"),
        );
    };
    let stanza = ExecStanza::new(args.exec_command.clone(), arguments, Vec::new());
    match kubeconfig::with_exec(&cluster, &access, &stanza) {
        Ok(text) => {
            ui::note(&format!(
                "note: if your kuberc has rules for exec plugins, kubectl needs this in it:\n{}",
                kuberc::stanza(&args.exec_command)
            ));
            ui::finish(text.trim_end())
        }
        Err(error) => ui::fail(&error.to_string(), None),
    }
}
