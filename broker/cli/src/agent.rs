//! `keyferry agent`: keeps token files fresh for programs that read files. It opens no port.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use keyferry_api::name::AccessName;
use keyferry_client::ClientError;
use keyferry_client::token_agent::{self, AgentUpdate, AgentUpdateError, Received, TokenAgent};
use keyferry_client::token_directory::{self, Rights, TokenDirectory};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::random::SystemRandomness;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::access::{ServerArgs, Source, source};
use crate::args::names::access_name;
use crate::command_error::{CommandError, fix_of_client_error};
use crate::ui;

#[derive(Args)]
pub(super) struct AgentArgs {
    /// A TargetAccess, as NAME with -n, or as NAMESPACE/NAME (may be repeated)
    ///
    /// One is written into DIR itself, several each into DIR/NAMESPACE/NAME.
    #[arg(required = true, value_name = "ACCESS")]
    accesses: Vec<String>,
    /// Namespace on the hub.
    ///
    /// The namespace of the accesses that are given without one.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
    /// The directory, best one in memory.
    #[arg(long, env = "KEYFERRY_DIR", value_name = "DIR")]
    dir: PathBuf,
    /// Permission of the files: 0400, 0440, 0600 or 0640.
    #[arg(long, env = "KEYFERRY_MODE", default_value = "0600", value_parser = mode, hide_short_help = true)]
    mode: u32,
    /// Group of the files.
    #[arg(
        long,
        env = "KEYFERRY_GROUP",
        value_name = "GID",
        hide_short_help = true
    )]
    group: Option<u32>,
    /// Do it once, and exit.
    ///
    /// Write the files.
    #[arg(long, conflicts_with = "check")]
    once: bool,
    /// Only check, and exit.
    ///
    /// Whether every token exists and has not expired. For a startup probe.
    #[arg(long)]
    check: bool,
    /// Write only the token, and no kubeconfig.
    ///
    /// For a target with kind: Audience, which has no address.
    #[arg(long, hide_short_help = true)]
    token_only: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Keyferry's configuration file.
    ///
    /// Work without a server, by this file and your own rights on the hub.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The permission of the files is not one that keeps a token for its user.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write 0400, 0440, 0600 or 0640: a token is for its user, and at most for one group")]
struct ModeError;

fn mode(text: &str) -> Result<u32, ModeError> {
    match text {
        "0400" | "400" => Ok(0o400),
        "0440" | "440" => Ok(0o440),
        "0600" | "600" => Ok(0o600),
        "0640" | "640" => Ok(0o640),
        _ => Err(ModeError),
    }
}

impl AgentArgs {
    fn names(&self) -> Result<Vec<AccessName>, CommandError> {
        let mut names = Vec::new();
        for access in &self.accesses {
            let name = access_name(access, self.namespace.as_deref())?;
            if names.contains(&name) {
                return Err(CommandError::with_fix(
                    format!("the access {name} is given twice"),
                    "name each access once",
                ));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Returns the folders below DIR for one access.
    fn below<'a>(&self, access: &'a AccessName) -> Vec<&'a str> {
        if self.accesses.len() == 1 {
            Vec::new()
        } else {
            vec![access.namespace.as_str(), access.name.as_str()]
        }
    }

    /// Whether this is a probe, which only reads.
    pub(super) fn is_check(&self) -> bool {
        self.check
    }
}

/// Runs the startup probe.
pub(super) fn check(args: &AgentArgs) -> ExitCode {
    let names = match args.names() {
        Ok(names) => names,
        Err(error) => return ui::command_failed(&error),
    };
    let now = SystemClock::start().now().wall;
    for access in &names {
        let directory = args
            .below(access)
            .into_iter()
            .fold(args.dir.clone(), |path, name| path.join(name));
        let problem = match token_directory::read_token(&directory) {
            Err(error) => error.to_string(),
            Ok(token) => match token_agent::token_expiry(&token) {
                Some(expires) if expires > now => continue,
                Some(expires) => format!("it ended at {expires}"),
                None => "it is not a token".to_owned(),
            },
        };
        return ui::fail(
            &format!(
                "checking the token of {access} in {}: {problem}",
                directory.display()
            ),
            None,
        );
    }
    ExitCode::SUCCESS
}

pub(super) async fn run(args: AgentArgs) -> ExitCode {
    let agents = match agents(&args) {
        Ok(agents) => agents,
        Err(error) => return ui::command_failed(&error),
    };
    let token_only = args.token_only;
    if args.once {
        return once(agents, token_only).await;
    }
    let (mut terminate, mut interrupt) = match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => {
            return ui::fail(&format!("listening for signals: {error}"), None);
        }
    };
    let all = agents.into_iter().map(|(parts, source)| async move {
        token_agent::run_rounds(parts, async || received(&source, token_only).await, &report).await;
    });
    tokio::select! {
        _ = futures::future::join_all(all) => ExitCode::FAILURE,
        _ = terminate.recv() => ExitCode::SUCCESS,
        _ = interrupt.recv() => ExitCode::SUCCESS,
    }
}

/// Returns each access with its files and the source of its token.
fn agents(args: &AgentArgs) -> Result<Vec<(TokenAgent, Source)>, CommandError> {
    let rights = Rights {
        mode: args.mode,
        group: args.group,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let mut agents = Vec::new();
    for access in args.names()? {
        let source = source(access.clone(), &args.server, args.config.as_ref())?;
        // In a Pod, the hub's own kubeconfig is the Pod's: a forgotten --server must not go there.
        if source.is_hub_alone() {
            return Err(CommandError::with_fix(
                "no server and no configuration file is named",
                "give --server URL, or --config FILE with a kubeconfig of the hub",
            ));
        }
        let directory = TokenDirectory::open_directory(&args.dir, &args.below(&access), rights)?;
        agents.push((
            TokenAgent {
                access,
                directory,
                clock: Arc::clone(&clock),
                random: Arc::new(SystemRandomness::default()),
            },
            source,
        ));
    }
    Ok(agents)
}

async fn received(source: &Source, token_only: bool) -> Result<Received, ClientError> {
    if token_only {
        return source
            .token()
            .await
            .map(|token| Received::Token(token.token));
    }
    source.received().await.map(Received::from)
}

async fn once(agents: Vec<(TokenAgent, Source)>, token_only: bool) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (parts, source) in agents {
        let round = match received(&source, token_only).await {
            Ok(received) => token_agent::write_files(&parts, received),
            Err(error) => Err(error.into()),
        };
        report(&parts.access, &round);
        if round.is_err() {
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn report(access: &AccessName, round: &Result<AgentUpdate, AgentUpdateError>) {
    match round {
        Ok(AgentUpdate {
            expires,
            written: true,
        }) => ui::note(&format!("{access}: written; the token ends at {expires}")),
        Ok(_) => {}
        Err(error) => {
            let hint = if let AgentUpdateError::Client(error) = error {
                fix_of_client_error(error)
            } else {
                None
            };
            ui::fail(
                &format!("{access}: {error}; the previous token stays"),
                hint,
            );
        }
    }
}
