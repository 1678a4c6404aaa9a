//! The command line. Flag names are kubectl's; a flag that says where something is can be a `KEYFERRY_*` variable too.

mod access;
mod agent;
mod can_i;
mod client_config;
mod completion;
mod crds;
mod credential;
#[cfg(feature = "embedded")]
mod demo;
mod doctor;
mod exec;
mod explain;
mod export;
mod import;
mod keys;
mod kubeconfig;
mod lint;
mod local_file;
mod minor;
mod revoke;
mod serve;
mod target_way;
mod targets;
mod trust;
pub mod ui;
mod verify;
mod whoami;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::kube::client::HubAccess;

/// Short-lived, audience-bound access from a hub cluster to generic Kubernetes clusters, without stored credentials.
#[derive(Parser)]
#[command(name = "keyferry", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the token API and the hub's discovery documents.
    Serve(serve::ServeArgs),
    /// Print a token for an access.
    Token(access::TokenArgs),
    /// Print a kubeconfig for an access.
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Print an ExecCredential for an access: the exec plugin of kubectl and client-go.
    Credential(credential::CredentialArgs),
    /// Keep token files fresh, for programs that read files.
    Agent(Box<agent::AgentArgs>),
    /// Run a command with a kubeconfig for an access.
    Exec(exec::ExecArgs),
    /// Make a TargetCluster of a kubeconfig, a Secret of Flux, Cluster API or Argo CD, or a ClusterProfile. Offline.
    Import(import::ImportArgs),
    /// List what a configuration file allows.
    Targets(targets::TargetsArgs),
    /// Show the hub's keys: published, settled, held, revoked; rotate those of own issuers.
    Keys(keys::KeysArgs),
    /// Withdraw a key of the hub for ever, and make the targets forget it.
    Revoke(revoke::RevokeArgs),
    /// Walk the way of a token to a target, and name the first broken hop.
    Doctor(Box<doctor::DoctorArgs>),
    /// Ask a target who a token is.
    Whoami(Box<whoami::WhoamiArgs>),
    /// Ask a target whether a token may do something, or apply all objects of a folder.
    CanI(Box<can_i::CanIArgs>),
    /// Write the hub's discovery documents as files, for a bucket or a plain web server.
    Export(export::ExportArgs),
    /// Say what a target's apiserver makes of a token: the user, or the exact refusal. Offline, without a cluster.
    Verify(verify::VerifyArgs),
    /// Find the errors and traps of AuthenticationConfiguration files. Offline, without a cluster.
    Lint(lint::LintArgs),
    /// Print what a target needs to trust a hub: its AuthenticationConfiguration, where it goes, and RBAC.
    Trust(Box<trust::TrustArgs>),
    /// Print the CustomResourceDefinitions that the hub needs, or their reference. Offline.
    Crds(crds::CrdsArgs),
    /// Print a completion script for a shell.
    Completion(completion::CompletionArgs),
    /// Tell the cause and the mend of a reason code. Offline.
    Explain(explain::ExplainArgs),
    /// Show the main job on an embedded hub and target: no cluster needed.
    #[cfg(feature = "embedded")]
    Demo(demo::DemoArgs),
}

/// Where the hub is.
#[derive(Args, Clone)]
struct HubArgs {
    /// Kubeconfig of the hub; without it, the Pod's own ServiceAccount.
    #[arg(long, env = "KEYFERRY_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig.
    #[arg(long, env = "KEYFERRY_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

impl HubArgs {
    fn access(&self) -> HubAccess {
        HubAccess { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// Runs the command line of this process. The name by which it was called says whether kubectl calls it, and for what.
pub fn main() -> ExitCode {
    let program = std::env::args_os().next().map(PathBuf::from);
    let called = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    if called == "kubectl_complete-keyferry" {
        return completion::answer_kubectl(std::env::args_os().skip(1), Cli::command());
    }
    let mut command = Cli::command();
    if called == "kubectl-keyferry" {
        command = command.bin_name("kubectl keyferry");
    }
    let matches = command.get_matches();
    let command = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    };
    if let Some(code) = offline(&command) {
        return code;
    }
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(online(command)),
        Err(error) => ui::fail(&format!("starting: {error}"), None),
    }
}

/// Runs a command that reads files and prints, without starting anything else. No other, but for the exec plugin, which most of the time
/// does no more.
fn offline(command: &Command) -> Option<ExitCode> {
    match command {
        Command::Credential(args) => Some(credential::run(args)),
        Command::Agent(args) if args.is_check() => Some(agent::check(args)),
        Command::Import(args) => Some(import::run(args)),
        Command::Completion(args) => Some(completion::run(args, Cli::command())),
        Command::Targets(args) => Some(targets::run(args)),
        Command::Verify(args) => Some(verify::run(args)),
        Command::Lint(args) => Some(lint::run(args)),
        Command::Trust(args) => Some(trust::run(args)),
        Command::Explain(args) => Some(explain::run(args)),
        Command::Crds(args) => Some(crds::run(args)),
        _ => None,
    }
}

async fn online(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Token(args) => access::token(args).await,
        Command::Kubeconfig(args) => kubeconfig::run(args).await,
        Command::Agent(args) => agent::run(*args).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Keys(args) => keys::run(args).await,
        Command::Revoke(args) => revoke::run(args).await,
        Command::Doctor(args) => doctor::run(*args).await,
        Command::Whoami(args) => whoami::run(*args).await,
        Command::CanI(args) => can_i::run(*args).await,
        Command::Export(args) => export::run(args).await,
        #[cfg(feature = "embedded")]
        Command::Demo(args) => demo::run(args).await,
        command => offline(&command).unwrap_or(ExitCode::FAILURE),
    }
}
