//! Parses the arguments of `keyferry` and runs one command. Each command is a module here, with a
//! folder if it needs one; `args` has the flags that several share, and `ui` alone prints.
//!
//! Flag names are kubectl's. A flag that says where something is can be a `KEYFERRY_*` variable too.

mod admission_policies;
mod agent;
mod approve_certificates;
mod args;
mod can_i;
mod command_error;
mod completion;
mod crds;
mod credential;
#[cfg(feature = "view")]
mod dashboard;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod doctor_report;
#[cfg(test)]
mod documented;
mod exec;
mod explain;
mod export;
#[cfg(feature = "view")]
mod fleet;
mod help;
mod import;
mod inner_file;
mod inputs;
#[cfg(feature = "view")]
mod inspect;
mod keys;
mod kubeconfig;
mod kuberc;
mod lint;
mod local_file;
mod offboard;
mod onboard;
mod onboarding;
mod proxy_role;
#[cfg(feature = "view")]
mod rehearse;
mod revoke;
mod role_manifest;
mod runtime_info;
mod serve;
mod signals;
#[cfg(feature = "view")]
mod target_folder;
mod targets;
mod tls;
mod token;
mod token_source;
#[cfg(feature = "view")]
mod trace;
#[cfg(feature = "view")]
mod tree;
mod trust;
mod ui;
mod verify;
mod version;
#[cfg(feature = "view")]
mod view;
#[cfg(feature = "view")]
mod what_if;
#[cfg(feature = "view")]
mod who_can;
mod whoami;
pub mod wiring;
mod yaml_document;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use keyferry_core::exec_credential::EXEC_INFO;

/// Short-lived, audience-bound access from a hub cluster to generic Kubernetes clusters, without
/// stored credentials.
#[derive(Parser)]
#[command(
    name = "keyferry",
    version,
    long_version = version::LONG_VERSION.as_str(),
    about,
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the token API and the hub's discovery documents.
    Serve(serve::ServeArgs),
    /// Print a token for an access.
    Token(token::TokenArgs),
    /// Print a kubeconfig for an access.
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Print an ExecCredential for an access: the exec plugin of kubectl.
    Credential(credential::CredentialArgs),
    /// Keep token files fresh, for programs that read files.
    Agent(Box<agent::AgentArgs>),
    /// Run a command with a kubeconfig for an access.
    Exec(exec::ExecArgs),
    /// Create a TargetCluster from a kubeconfig, or from what has one.
    ///
    /// An object of Flux, Cluster API, Argo CD, Open Cluster Management or Sveltos, or a
    /// ClusterProfile has one. It works without a cluster and without a network.
    Import(import::ImportArgs),
    /// List what a configuration file, or the objects of the hub, allow.
    Targets(targets::TargetsArgs),
    /// Show the hub's signing keys and their states.
    ///
    /// With rotate, rotate those of a managed issuer.
    Keys(keys::KeysArgs),
    /// Revoke a hub signing key for ever, and make targets reload their keys.
    Revoke(revoke::RevokeArgs),
    /// Check each step from an object to the target; name the first that fails.
    Doctor(Box<doctor::DoctorArgs>),
    /// Ask a target which user a token authenticates as.
    Whoami(Box<whoami::WhoamiArgs>),
    /// Ask a target what a token's user may do, or may apply.
    ///
    /// One verb and resource, or all objects of a folder.
    CanI(Box<can_i::CanIArgs>),
    /// Write the hub's discovery documents as files.
    ///
    /// For a bucket or a plain web server.
    Export(export::ExportArgs),
    /// Predict what a target does with a token: the user, or the exact refusal.
    ///
    /// It works without a cluster and without a network. --live is the exception.
    Verify(verify::VerifyArgs),
    /// Find the errors and traps of AuthenticationConfiguration files.
    ///
    /// It works without a cluster and without a network. --network is the exception.
    Lint(lint::LintArgs),
    /// Print what a target needs to trust a hub, and where it goes.
    ///
    /// An AuthenticationConfiguration, and RBAC.
    Trust(Box<trust::TrustArgs>),
    /// Onboard a target or a tenant, and prove it with a token.
    ///
    /// Shows the objects, and applies them with --apply.
    Onboard(onboard::OnboardArgs),
    /// Offboard a target or a tenant.
    ///
    /// Lists the accesses that end, and removes them with --remove.
    Offboard(offboard::OffboardArgs),
    /// Print a Role to read one port of a Pod through the hub's apiserver.
    ///
    /// The Role is for the user of a client certificate. It works without a cluster and without a
    /// network.
    ProxyRole(proxy_role::ProxyRoleArgs),
    /// Approve Keyferry's requests for client certificates.
    ///
    /// It runs under an account of its own.
    ApproveCertificates(approve_certificates::ApproveCertificatesArgs),
    /// Print the CustomResourceDefinitions that the hub needs.
    ///
    /// It works without a cluster and without a network.
    Crds(crds::CrdsArgs),
    /// Print a CA and Keyferry's serving certificates, as Secrets.
    ///
    /// For hubs without cert-manager.
    Tls(tls::TlsArgs),
    /// Manage the credentials of machines that read fleet inputs.
    ///
    /// It works without a cluster and without a network.
    Inputs(inputs::InputsArgs),
    /// Print the ConfigMaps by which a child cluster's Flux knows its cluster.
    RuntimeInfo(runtime_info::RuntimeInfoArgs),
    /// Print or check the hub's admission policies.
    ///
    /// They are filled in for this hub. --check finds whether they are on the hub and refuse what
    /// they must.
    AdmissionPolicies(admission_policies::AdmissionPoliciesArgs),
    /// Print a completion script for a shell.
    Completion(completion::CompletionArgs),
    /// Explain a reason code or a message: cause and fix.
    ///
    /// It works without a cluster and without a network.
    Explain(explain::ExplainArgs),
    /// The commands that show a fleet or answer about it.
    #[cfg(feature = "view")]
    #[command(flatten)]
    View(view::ViewCommand),
    /// Run the main flow on an embedded hub and target: no cluster needed.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
}

command_error::command_errors!(
    trust::OidcFlagsError,
    trust::DistributionError,
    onboarding::target_facts::TargetFactsError,
);

command_error::command_errors!(
    with fix:
    inner_file::SeveralFilesError,
    trust::CertificatesError,
    trust::OutputDirError,
    verify::SubjectError,
    revoke::WitnessError,
);

/// Runs the command line of this process. The program's name says whether kubectl calls it as a
/// plugin, and for which command.
pub fn main() -> ExitCode {
    let program = std::env::args_os().next().map(PathBuf::from);
    let called = program
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if is_refused_for_plugin() {
        return ui::fail(
            &format!(
                "{EXEC_INFO} is set, so a kubeconfig runs this as its exec plugin, and not the \
                 command credential"
            ),
            Some("write credential NAMESPACE/NAME as the arguments of its exec stanza"),
        );
    }
    if called == "kubectl_complete-keyferry" {
        return completion::answer_kubectl(std::env::args_os().skip(1), Cli::command());
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == completion::NAMES)
    {
        return completion::answer_names(std::env::args_os().skip(2), Cli::command());
    }
    let mut command = help::presented(Cli::command());
    if called == "kubectl-keyferry" {
        command = command.bin_name("kubectl keyferry");
    }
    let matches = command
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let command = match matches {
        Ok(cli) => cli.command,
        Err(error) => {
            // The exit below ends the process with clap's exit code for this kind of error.
            let _ = error.print();
            let words: Vec<OsString> = std::env::args_os().skip(1).collect();
            if let Some(hint) = help::hint(error.kind(), &words) {
                ui::note(&format!("fix: {hint}"));
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Some(code) = offline(&command) {
        return code;
    }
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(online(command)),
        Err(error) => ui::fail(&format!("starting: {error}"), None),
    }
}

/// Whether a kubeconfig runs another command than the exec plugin's. An allow-list of kubectl names
/// the program alone (KEP-3104), so a kubeconfig's writer could have any command send a token to a
/// server of its choice. client-go sets the variable last, so a stanza cannot unset it.
fn is_refused_for_plugin() -> bool {
    std::env::var_os(EXEC_INFO).is_some()
        && std::env::args_os()
            .nth(1)
            .is_none_or(|first| first != "credential")
}

/// Runs a command that only reads files and prints, without starting a runtime; returns `None` for
/// all others. The exec plugin is included, since most of its calls do no more.
fn offline(command: &Command) -> Option<ExitCode> {
    match command {
        Command::Credential(args) => Some(credential::run(args)),
        Command::Agent(args) if args.is_check() => Some(agent::check(args)),
        Command::Import(args) => Some(import::run(args)),
        Command::Completion(args) => Some(completion::run(args, Cli::command())),
        Command::Verify(args) => Some(verify::run(args)),
        Command::Lint(args) => Some(lint::run(args)),
        Command::Explain(args) => Some(explain::run(args)),
        Command::Crds(args) => Some(crds::run(args)),
        Command::Inputs(args) => Some(inputs::run(args)),
        #[cfg(feature = "view")]
        Command::View(command) => command.run_offline(),
        _ => None,
    }
}

async fn online(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Token(args) => token::run(args).await,
        Command::Kubeconfig(args) => kubeconfig::run(args).await,
        Command::Agent(args) => agent::run(*args).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Keys(args) => keys::run(args).await,
        Command::Revoke(args) => revoke::run(args).await,
        Command::Targets(args) => targets::run(args).await,
        Command::RuntimeInfo(args) => runtime_info::run(args).await,
        Command::Trust(args) => trust::run(&args).await,
        Command::Onboard(args) => onboard::run(args).await,
        Command::Offboard(args) => offboard::run(args).await,
        Command::ProxyRole(args) => proxy_role::run(&args),
        Command::ApproveCertificates(args) => approve_certificates::run(args).await,
        Command::Doctor(args) => doctor::run(*args).await,
        Command::Whoami(args) => whoami::run(*args).await,
        Command::CanI(args) => can_i::run(*args).await,
        Command::Export(args) => export::run(args).await,
        Command::Tls(args) => tls::run(&args).await,
        Command::AdmissionPolicies(args) => admission_policies::run(args).await,
        #[cfg(feature = "view")]
        Command::View(command) => command.run().await,
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args).await,
        command => offline(&command).unwrap_or(ExitCode::FAILURE),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory;

    use super::Cli;

    /// Old and short spellings that are hidden: in the command that takes one, it has no other
    /// meaning.
    const OLD_SPELLINGS: [(&str, &str); 11] = [
        ("keys", "namespace"),
        ("revoke", "namespace"),
        ("rotate", "namespace"),
        ("verify", "token-file"),
        ("trust", "certificate-authority"),
        ("doctor", "target"),
        ("whoami", "target"),
        ("can-i", "target"),
        ("can-i", "from-namespace"),
        ("what-if", "at"),
        ("what-if", "allow"),
    ];

    #[test]
    fn a_kid_may_begin_with_a_hyphen() {
        let parsed = Cli::command().try_get_matches_from(["keyferry", "revoke", "--kid", "-A5tjd"]);
        let kid = parsed
            .unwrap()
            .subcommand()
            .and_then(|(_, args)| args.get_one::<String>("kid").cloned());
        assert_eq!(kid.as_deref(), Some("-A5tjd"));
    }

    /// Returns a flag's meaning, which is the first paragraph of its help. The next ones say what
    /// this command does with the flag.
    fn meaning(argument: &clap::Arg) -> String {
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let meaning = help.split(" [default: ").next().unwrap_or_default();
        meaning
            .trim_end_matches(" (may be repeated)")
            .trim_end_matches('.')
            .to_owned()
    }

    #[test]
    fn one_flag_name_has_one_meaning_over_all_commands() {
        fn walk(
            command: &clap::Command,
            found: &mut BTreeMap<String, BTreeMap<String, Vec<String>>>,
        ) {
            for argument in command
                .get_arguments()
                .filter(|argument| !argument.is_positional())
            {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                let old = |alias: &&str| OLD_SPELLINGS.contains(&(command.get_name(), alias));
                let aliases = argument.get_all_aliases().unwrap_or_default();
                let aliases = aliases
                    .iter()
                    .filter(|alias| !old(alias))
                    .map(|alias| format!("--{alias}"));
                for name in long.into_iter().chain(short).chain(aliases) {
                    found
                        .entry(name)
                        .or_default()
                        .entry(meaning(argument))
                        .or_default()
                        .push(command.get_name().to_owned());
                }
            }
            command
                .get_subcommands()
                .for_each(|command| walk(command, found));
        }
        let mut found = BTreeMap::new();
        walk(&Cli::command(), &mut found);
        assert!(found.len() > 50, "the tree was walked: {found:?}");
        let several: Vec<_> = found
            .iter()
            .filter(|(_, meanings)| meanings.len() > 1)
            .collect();
        assert!(several.is_empty(), "{several:#?}");
    }
}
