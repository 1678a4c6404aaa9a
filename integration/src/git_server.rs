//! A git server on loopback: bare repositories behind git's own `http-backend`, which uses CGI (RFC
//! 3875).

mod cgi;
mod repository;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum_server::Handle;
use http::StatusCode;
use tokio::process::Command;

pub use repository::Repository;

use crate::parts::PartError;
use crate::ports::bound_listener;

/// The largest request that a test's client sends: a list of what it wants and has.
const MOST_BYTES: usize = 4 << 20;

/// Why a git server or a repository could not be created or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The server has no port, or a file could not be written.
    #[error("{what}: {source}")]
    File {
        /// What was tried.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A git command failed.
    #[error("git {command} failed: {said}")]
    Git {
        /// Its first argument.
        command: String,
        /// What it wrote on standard error.
        said: String,
    },
}

/// A running git server. Dropping it ends it.
#[derive(Debug)]
pub struct GitServer {
    address: SocketAddr,
    folder: PathBuf,
    handle: Handle<SocketAddr>,
}

impl GitServer {
    /// Checks that this machine has git and its `http-backend`.
    ///
    /// # Errors
    /// [`PartError::Unavailable`] if something is missing.
    pub async fn prepare() -> Result<(), PartError> {
        let unavailable = |why: String| PartError::Unavailable {
            part: "git http-backend",
            version: "of any version",
            why,
        };
        let output = Command::new("git")
            .arg("--exec-path")
            .output()
            .await
            .map_err(|error| unavailable(format!("git did not start: {error}")))?;
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        match folder.join("git-http-backend").is_file() {
            true => Ok(()),
            false => Err(unavailable(format!(
                "there is none in {}",
                folder.display()
            ))),
        }
    }

    /// Starts a server for the repositories below `<folder>/git`, which is empty at first.
    ///
    /// # Errors
    /// [`GitError::File`].
    pub fn start(folder: &Path) -> Result<Self, GitError> {
        let folder = folder.join("git");
        let failed = |what: &'static str| {
            move |source| GitError::File {
                what: what.to_owned(),
                source,
            }
        };
        std::fs::create_dir_all(&folder).map_err(failed("make a folder for repositories"))?;
        let listener = bound_listener().map_err(failed("listen for git clients"))?;
        let address = listener
            .local_addr()
            .map_err(failed("listen for git clients"))?;
        let handle = Handle::new();
        let routes = Router::new()
            .fallback(serve_git_request)
            .with_state(folder.clone());
        let server = axum_server::from_tcp(listener)
            .map_err(failed("listen for git clients"))?
            .handle(handle.clone());
        tokio::spawn(server.serve(routes.into_make_service()));
        Ok(Self {
            address,
            folder,
            handle,
        })
    }

    /// Its address on this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates an empty repository, served at `<url>/<name>.git`. A name may contain folders, such
    /// as `fleet/tenant-a`.
    ///
    /// # Errors
    /// git failed.
    pub async fn create(&self, name: &str) -> Result<Repository, GitError> {
        Repository::create(&self.folder, name, format!("{}/{name}.git", self.url())).await
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn serve_git_request(State(folder): State<PathBuf>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = match to_bytes(body, MOST_BYTES).await {
        Ok(body) => body,
        Err(error) => return (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response(),
    };
    match cgi::run(&folder, &head, &body).await {
        Ok(response) => response,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}
