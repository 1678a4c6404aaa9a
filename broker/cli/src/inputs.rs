//! `keyferry inputs`: the credentials of machines that read fleet inputs. It writes nothing to the
//! hub.

mod credential_secret;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use keyferry_api::name::{ClusterDns, NameError, Namespace, ObjectName};
use keyferry_core::inputs::credential::InputToken;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::random::{Random, SystemRandomness};
use zeroize::Zeroizing;

use self::credential_secret::{HubSecret, child_secret};
use self::output::Output;
use crate::args::output_format::ManifestFormatArgs;
use crate::command_error::CommandError;
use crate::{local_file, ui};

/// The largest Secret that is read.
const MAX_BYTES: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Args)]
pub(super) struct InputsArgs {
    #[command(subcommand)]
    command: InputsCommand,
}

#[derive(Subcommand)]
enum InputsCommand {
    /// Make, rotate or revoke a credential that reads fleet inputs.
    Credential(CredentialArgs),
}

#[derive(Args)]
struct CredentialArgs {
    #[command(subcommand)]
    command: CredentialCommand,
}

#[derive(Subcommand)]
enum CredentialCommand {
    /// Print a new token as the child's Secret, and its hash as the hub's Secret.
    New(NewArgs),
    /// Print both Secrets with a new token.
    ///
    /// The old one stays valid for a while.
    Rotate(RotateArgs),
    /// Print the hub's Secret without the old token.
    ///
    /// Or with no token at all.
    Revoke(RevokeArgs),
}

#[derive(Args)]
struct NewArgs {
    /// The credential's name, which is also the user of HTTP Basic.
    #[arg(value_name = "NAME", value_parser = name)]
    name: ObjectName,
    /// Read the inputs of one cluster, by its clusterDNS.
    #[arg(long, value_name = "DNS", value_parser = dns, conflicts_with_all = ["tenant_namespace", "admin"])]
    cluster: Option<ClusterDns>,
    /// Read the targets of one namespace of the hub.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace, conflicts_with = "admin")]
    tenant_namespace: Option<Namespace>,
    /// Read the inputs of all clusters and namespaces.
    #[arg(long)]
    admin: bool,
    /// Keyferry's own namespace on the hub.
    #[arg(long, value_name = "NAMESPACE", default_value = "keyferry-system", value_parser = namespace)]
    keyferry_namespace: Namespace,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

#[derive(Args)]
struct RotateArgs {
    #[command(flatten)]
    secret: SecretArgs,
    /// Hours for which the old token stays valid.
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=167))]
    overlap_hours: u32,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
struct RevokeArgs {
    #[command(flatten)]
    secret: SecretArgs,
    /// Revoke only the old token of the last rotation, and keep the new one.
    #[arg(long)]
    previous: bool,
    /// Write the hub's Secret to this file, which must not exist, instead of standard output.
    #[arg(long, value_name = "FILE")]
    hub_file: Option<PathBuf>,
}

#[derive(Args)]
struct SecretArgs {
    /// The hub's Secret of the credential as YAML or JSON, or - for standard input.
    #[arg(long, value_name = "FILE")]
    hub_secret: PathBuf,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

#[derive(Args)]
struct OutputArgs {
    /// Namespace of the child's Secret, on the child cluster.
    #[arg(long, value_name = "NAMESPACE", default_value = "flux-system", value_parser = namespace, hide_short_help = true)]
    child_namespace: Namespace,
    /// Write the hub's Secret to this file, which must not exist, instead of standard output.
    #[arg(long, value_name = "FILE")]
    hub_file: Option<PathBuf>,
    /// Write the child's Secret, which holds the token, to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    child_file: Option<PathBuf>,
}

/// An argument is not the name of an object of Kubernetes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name {0}")]
struct ArgumentError(#[from] NameError);

fn name(text: &str) -> Result<ObjectName, ArgumentError> {
    Ok(ObjectName::new(text)?)
}

fn dns(text: &str) -> Result<ClusterDns, ArgumentError> {
    Ok(ClusterDns::new(text)?)
}

fn namespace(text: &str) -> Result<Namespace, ArgumentError> {
    Ok(Namespace::new(text)?)
}

pub(super) fn run(args: &InputsArgs) -> ExitCode {
    let InputsCommand::Credential(args) = &args.command;
    let made = match &args.command {
        CredentialCommand::New(args) => new(args),
        CredentialCommand::Rotate(args) => rotate(args),
        CredentialCommand::Revoke(args) => revoke(args),
    };
    match made {
        Ok(code) => code,
        Err(error) => ui::command_failed(&error),
    }
}

fn new(args: &NewArgs) -> Result<ExitCode, CommandError> {
    let scope = match (&args.cluster, &args.tenant_namespace, args.admin) {
        (Some(dns), None, false) => format!("scope: Read, cluster: {dns}"),
        (None, Some(namespace), false) => format!("scope: Read, namespace: {namespace}"),
        (None, None, true) => "scope: Admin".to_owned(),
        _ => {
            return Err(CommandError::with_fix(
                "the credential has no scope",
                "add exactly one of --cluster DNS, --tenant-namespace NAMESPACE and --admin",
            ));
        }
    };
    let token = token()?;
    let secret = HubSecret::new(&args.name, &args.keyferry_namespace, &token)?;
    ui::note("add this to inputs.credentials of Keyferry's configuration:");
    ui::note_block(&format!(
        "  - {{name: {}, {scope}, \
         secretRef: {{name: {}}}}}",
        args.name,
        secret.name()
    ));
    finish(&secret, Some(&token), &args.output)
}

fn rotate(args: &RotateArgs) -> Result<ExitCode, CommandError> {
    let token = token()?;
    let until = now()
        .saturating_add(HOUR * args.overlap_hours)
        .unwrap_or(Timestamp::MAX);
    let secret = read(&args.secret)?.rotated(&token, until);
    ui::note(&format!(
        "apply the hub's Secret first, then the child's: the old token is valid until {until}"
    ));
    finish(&secret, Some(&token), &args.output)
}

fn revoke(args: &RevokeArgs) -> Result<ExitCode, CommandError> {
    let secret = read(&args.secret)?;
    let secret = if args.previous {
        secret.without_previous()
    } else {
        ui::note(
            "once the Secret is applied, no token of this credential is valid; rotate makes a new \
             one, or remove the credential from the configuration",
        );
        // The hash of an unknown token, because a Secret without a hash is refused.
        secret.without_previous().replaced(&token()?)
    };
    let output = Output {
        hub_file: args.hub_file.as_deref(),
        child_file: None,
    };
    output.write(&secret.manifest()?, None)
}

fn finish(
    secret: &HubSecret,
    token: Option<&InputToken>,
    args: &OutputArgs,
) -> Result<ExitCode, CommandError> {
    let output = Output {
        hub_file: args.hub_file.as_deref(),
        child_file: args.child_file.as_deref(),
    };
    let child = token
        .map(|token| child_secret(secret.credential(), &args.child_namespace, token))
        .transpose()?;
    output.write(&secret.manifest()?, child.as_ref())
}

fn read(args: &SecretArgs) -> Result<HubSecret, CommandError> {
    let bytes = local_file::read(&args.hub_secret, "the hub's Secret", MAX_BYTES)
        .map_err(|error| CommandError::new(error.to_string()))?;
    HubSecret::read(&bytes, now())
}

/// Whole seconds, as Secrets state times.
fn now() -> Timestamp {
    let now = SystemClock::start().now().wall;
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn token() -> Result<InputToken, CommandError> {
    let mut random = Zeroizing::new([0; 32]);
    if SystemRandomness::default().fill_bytes(&mut *random) {
        Ok(InputToken::of(&random))
    } else {
        Err(CommandError::new(
            "making a token: the system has no random numbers",
        ))
    }
}
