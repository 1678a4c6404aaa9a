//! `keyferry kubeconfig`: prints a kubeconfig with a token, or with the exec plugin, which fetches
//! a token whenever a client needs one.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::AccessName;
use keyferry_client::caller_token;
use keyferry_client::plugin_folders::PluginFolders;
use keyferry_core::kubeconfig::{self, ExecStanza};
use secrecy::ExposeSecret;

use crate::args::access::AccessArgs;
use crate::args::client_config::Reach;
use crate::args::output_format::ManifestFormatArgs;
use crate::command_error::CommandError;
use crate::{kuberc, ui};

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
        value_name = "PROGRAM",
        hide_short_help = true
    )]
    exec_command: String,
    #[command(flatten)]
    _format: ManifestFormatArgs,
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
    let (access, reach) = match plugin_reach(args).await {
        Ok(reach) => reach,
        Err(error) => return ui::command_failed(&error),
    };
    // Written before any request: a file that cannot be written is a mistake in the arguments.
    let to_write = match &reach.file {
        Some(_) => Ok(None),
        None => reach.client_file().map(Some),
    };
    let to_write = match to_write {
        Ok(to_write) => to_write,
        Err(error) => return ui::command_failed(&error),
    };
    let fetched = async {
        reach.server.check()?;
        let caller =
            caller_token::find_caller_proof(&reach.caller, access.namespace.as_str()).await?;
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
    let arguments = arguments(args, &access);
    let stanza = ExecStanza::new(args.exec_command.clone(), arguments, Vec::new());
    match kubeconfig::with_exec(&cluster, &access, &stanza) {
        Ok(text) => {
            if let Some(file) = to_write {
                let folders = PluginFolders::of_this_user();
                ui::note(&format!(
                    "note: the exec plugin takes the server and the caller only from your own \
                     file; write this into client.yaml in {folders}:"
                ));
                ui::note_block(&file);
            }
            ui::note("note: if your kuberc has rules for exec plugins, kubectl needs this in it:");
            ui::note_block(&kuberc::stanza(&args.exec_command));
            ui::finish(text.trim_end())
        }
        Err(error) => ui::fail(&error.to_string(), None),
    }
}

/// Returns the access, and the server and the caller: those that the plugin will find in the user's
/// own file, or those of the flags if the user has no file yet.
async fn plugin_reach(args: &KubeconfigArgs) -> Result<(AccessName, Reach), CommandError> {
    let (access, server) = args.access.through_server().await?;
    let of_plugin = server.reach_of_plugin(&PluginFolders::of_this_user())?;
    let reach = match of_plugin {
        Some(reach) => Some(reach),
        None => server.reach_by_flags()?,
    };
    let reach = reach.ok_or_else(|| {
        CommandError::with_fix(
            "no server is named",
            "give --server URL, or write client.yaml",
        )
    })?;
    Ok((access, reach))
}

/// Returns the arguments of the stanza. They name no server and no caller.
fn arguments(args: &KubeconfigArgs, access: &AccessName) -> Vec<String> {
    let file = args
        .access
        .client_config()
        .map(|file| file.display().to_string());
    let named = file
        .into_iter()
        .flat_map(|file| ["--client-config".to_owned(), file]);
    ["credential".to_owned(), access.to_string()]
        .into_iter()
        .chain(named)
        .collect()
}
