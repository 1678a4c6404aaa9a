//! `keyferry dashboard`: shows a fleet in the user's own browser, by a server on 127.0.0.1 that
//! answers GET and changes nothing.

mod answers;
pub(crate) mod bound_viewer;
pub(crate) mod current_facts;
mod guard;
mod page_path;
mod redirect_file;
pub(crate) mod viewer;

use std::sync::Arc;

use keyferry_listener::{ListenerMetrics, PlainListener};

use self::viewer::Viewer;

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
    fn connection_closed(&self, _: &'static str) {}
    fn serving_certificate(&self, _: &'static str, _: i64) {}
    fn serving_certificate_reloaded(&self, _: &'static str, _: bool) {}
}

#[cfg(test)]
mod tests;
