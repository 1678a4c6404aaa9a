//! A viewer with its listener: what a command that shows pages starts and serves.

use std::sync::Arc;

use keyferry_fleet::facts::Fleet;
use keyferry_listener::PlainListener;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::SystemRandomness;

use super::current_facts::{CurrentFacts, ReadFleet};
use super::viewer::Viewer;
use super::{NoMetrics, ViewerEnd, serve_viewer};
use crate::command_error::CommandError;

/// A viewer that has read its facts, and listens on a free port of 127.0.0.1.
pub(crate) struct BoundViewer {
    listener: PlainListener,
    viewer: Arc<Viewer>,
}

impl BoundViewer {
    /// Reads the facts for the first time, and binds a port.
    ///
    /// # Errors
    /// The error of the reader, or the operating system's.
    pub(crate) async fn bind(
        reader: Box<dyn ReadFleet>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let failed = |problem: &dyn std::fmt::Display| {
            CommandError::new(format!("starting the viewer on 127.0.0.1: {problem}"))
        };
        let facts = CurrentFacts::read_first(reader, clock).await?;
        let listener =
            PlainListener::bind_loopback(Arc::new(NoMetrics)).map_err(|error| failed(&error))?;
        let port = listener.address().map_err(|error| failed(&error))?.port();
        let viewer = Viewer::new(port, facts, &SystemRandomness::default())
            .map_err(|error| failed(&error))?;
        Ok(Self {
            listener,
            viewer: Arc::new(viewer),
        })
    }

    /// The URL that opens the pages, once.
    pub(crate) fn link(&self) -> String {
        self.viewer.link()
    }

    /// The facts that it shows.
    pub(crate) fn judged_facts(&self) -> Arc<Fleet> {
        self.viewer.judged_facts()
    }

    /// Serves until the viewer is idle or `stop` ends.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) -> std::io::Result<ViewerEnd> {
        serve_viewer(self.listener, self.viewer, stop).await
    }
}
