//! `keyferry dashboard`: shows a fleet in the user's own browser, by a server on 127.0.0.1 that
//! answers GET and changes nothing.

mod answers;
pub(crate) mod bound_viewer;
pub(crate) mod current_facts;
mod guard;
mod page_path;
mod redirect_file;
mod viewer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_fleet::facts::{Fleet, Reading, Source};
use keyferry_fleet::judge::judge;
use keyferry_fleet::snapshot::Snapshot;
use keyferry_listener::{ListenerMetrics, PlainListener};
use keyferry_platform::clock::{Clock, SystemClock};

use self::bound_viewer::BoundViewer;
use self::current_facts::{JudgeFleet, ReadFleet};
use self::viewer::Viewer;
use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::fleet::{FleetFiles, read_fleet};
use crate::{signals, ui};

/// The flags of `keyferry dashboard`. None chooses an address: a viewer acts with its user's rights,
/// so no other machine may reach it.
#[derive(Args, Clone)]
pub(super) struct DashboardArgs {
    /// A folder that keyferry snapshot or kubectl wrote.
    ///
    /// Its objects are shown instead of those of the hub.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    snapshot: Option<PathBuf>,
    /// Keyferry's configuration file.
    ///
    /// What it states is shown, and nothing of it is asked. Where it says `objects:
    /// CustomResources`, the hub is read.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Namespace on the hub [default: all]
    ///
    /// Only what its tenant may read: its accesses, and what their statuses say of targets.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Keyferry's audit log.
    ///
    /// For refused requests.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    audit: Option<PathBuf>,
    /// What keyferry keys -o json printed.
    ///
    /// For the lives of the keys.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    keys: Option<PathBuf>,
    /// Open the link in your browser.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Shows the fleet until the user ends the command, or sends no request for an hour.
pub(super) async fn run(args: DashboardArgs) -> ExitCode {
    match show_fleet(args).await {
        Ok(code) => code,
        Err(error) => ui::command_failed(&error),
    }
}

async fn show_fleet(args: DashboardArgs) -> Result<ExitCode, CommandError> {
    let mut interruption = std::pin::pin!(signals::interruption());
    let opens_browser = args.open;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let reader = Box::new(FlagsReader {
        args,
        clock: Arc::clone(&clock),
    });
    let viewer = tokio::select! {
        viewer = BoundViewer::bind(reader, clock) => viewer?,
        code = &mut interruption => return Ok(code),
    };
    ui::note(&describe_reading(&viewer.judged_facts().reading));
    let failed = |error: std::io::Error| {
        CommandError::new(format!("serving the viewer on 127.0.0.1: {error}"))
    };
    let link = viewer.link();
    ui::result(&format!("open {link}")).map_err(failed)?;
    ui::note("the link opens once; Ctrl-C ends the viewer, and so does an hour without a request");
    let redirect_file = opens_browser.then(|| open_link(&link)).flatten();
    let stop = async {
        interruption.await;
    };
    let end = viewer.serve(stop).await.map_err(failed)?;
    drop(redirect_file);
    if end == ViewerEnd::Idle {
        ui::note("the viewer ended after an hour without a request");
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the link in the user's browser. The file that leads there lives as long as the result.
fn open_link(link: &str) -> Option<tempfile::NamedTempFile> {
    let opened = redirect_file::write_redirect_file(link).and_then(|file| {
        redirect_file::open_in_browser(&file)?;
        Ok(file)
    });
    opened
        .inspect_err(|error| {
            ui::note_with_fix(
                &format!("no browser could be opened: {error}"),
                "open the link yourself",
            );
        })
        .ok()
}

/// Says whose rights show what is shown.
fn describe_reading(reading: &Reading) -> String {
    let source = match &reading.source {
        Source::Hub { server } => format!("the hub {server}"),
        Source::Folder { path } => format!("the folder {path}"),
        Source::Demo => "the demo".to_owned(),
        Source::Generated { seed } => format!("a made-up fleet of seed {seed}"),
    };
    match &reading.user {
        Some(user) => format!("read from {source} as {user}, with your own rights"),
        None => format!("read from {source}"),
    }
}

/// Reads what the flags name.
struct FlagsReader {
    args: DashboardArgs,
    clock: Arc<dyn Clock>,
}

impl ReadFleet for FlagsReader {
    fn read_fleet(&self) -> BoxFuture<'_, Result<Arc<dyn JudgeFleet>, CommandError>> {
        Box::pin(async move {
            let files = FleetFiles {
                folder: self.args.snapshot.as_deref(),
                config: self.args.config.as_deref(),
                audit: self.args.audit.as_deref(),
                keys: self.args.keys.as_deref(),
            };
            let namespace = self.args.namespace.as_deref();
            let now = self.clock.now().wall;
            let read = read_fleet(&self.args.hub, namespace, &files, now);
            Ok(Arc::new(read.await?) as Arc<dyn JudgeFleet>)
        })
    }
}

impl JudgeFleet for Snapshot {
    fn judge_fleet(&self, now: Timestamp) -> Fleet {
        judge(self, now)
    }
}

/// Why the viewer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewerEnd {
    /// Its reader sent no request for an hour.
    Idle,
    /// A signal came.
    Stopped,
}

/// Serves the viewer until it is idle or `stop` ends.
///
/// # Errors
/// The operating system's error.
async fn serve_viewer(
    listener: PlainListener,
    viewer: Arc<Viewer>,
    stop: impl Future<Output = ()>,
) -> std::io::Result<ViewerEnd> {
    let handle = listener.handle();
    let serving = listener.serve_local(Arc::<Viewer>::clone(&viewer));
    let end = tokio::select! {
        outcome = serving => outcome.map(|()| ViewerEnd::Stopped),
        () = viewer.until_idle() => Ok(ViewerEnd::Idle),
        () = stop => Ok(ViewerEnd::Stopped),
    };
    handle.shutdown();
    end
}

/// Counts nothing: nobody scrapes a viewer.
struct NoMetrics;

impl ListenerMetrics for NoMetrics {
    fn connection_refused(&self, _: &'static str, _: &'static str) {}
    fn connection_opened(&self, _: &'static str) {}
    fn connection_ended(&self, _: &'static str, _: &'static str) {}
    fn connection_paused(&self, _: &'static str) {}
    fn connection_closed(&self, _: &'static str) {}
    fn serving_certificate(&self, _: &'static str, _: i64) {}
    fn serving_certificate_reloaded(&self, _: &'static str, _: bool) {}
}

#[cfg(test)]
mod tests;
