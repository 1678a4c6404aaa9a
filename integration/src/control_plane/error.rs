//! Errors of starting and using a control plane.

use std::path::{Path, PathBuf};

use crate::parts::PartError;
use crate::pki::PkiError;
use crate::process::ProcessError;
use crate::readiness::NotReady;
use crate::rest::RestError;

/// Why an operation on a control plane failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// A binary is unavailable.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A certificate or key could not be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A process could not be started or stopped.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It did not become ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A request failed.
    #[error(transparent)]
    Rest(#[from] RestError),
    /// No free port.
    #[error("find a free port: {0}")]
    Port(std::io::Error),
    /// A file of the control plane could not be written or read.
    #[error("file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// kubectl did not run, or did not finish in time.
    #[error("run kubectl {args}: {source}")]
    Kubectl {
        /// Its arguments.
        args: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// kubectl ran and failed.
    #[error("kubectl {args} failed: {said}")]
    KubectlFailed {
        /// Its arguments.
        args: String,
        /// Its standard error.
        said: String,
    },
    /// Only the newest minor has a kube-controller-manager here.
    #[error("no kube-controller-manager is pinned for {minor}")]
    NoControllerManager {
        /// The wanted version.
        minor: &'static str,
    },
    /// The kube-controller-manager created no ServiceAccount in time.
    #[error(
        "kube-controller-manager of {name} made no default ServiceAccount in {seconds} s; end of \
         its log:\n{log}"
    )]
    ControllersIdle {
        /// The control plane.
        name: String,
        /// How long the harness waited.
        seconds: u64,
        /// The end of its log.
        log: String,
    },
    /// The authorizer does not see roles that were written.
    #[error("{name} does not act by its roles after {seconds} s: {review}")]
    RoleUnseen {
        /// The control plane.
        name: String,
        /// How long the harness waited.
        seconds: u64,
        /// The review that it was asked.
        review: String,
    },
    /// The text is not a token, or the signing key is of an unknown kind.
    #[error("sign the claims of a token again: not a token, or not a key for it")]
    Forge,
    /// It was started without an AuthenticationConfiguration, so none can be replaced.
    #[error("{name} was started without --authentication-config")]
    NoAuthenticationConfig {
        /// The control plane.
        name: String,
    },
    /// It was started without an audit log.
    #[error("{name} was started without an audit log")]
    NoAuditLog {
        /// The control plane.
        name: String,
    },
    /// kube-apiserver refused the new AuthenticationConfiguration and kept the old one.
    #[error("{name} refused the AuthenticationConfiguration; end of its log:\n{log}")]
    ReloadRefused {
        /// The control plane.
        name: String,
        /// The lines of its log that name the configuration.
        log: String,
    },
    /// kube-apiserver did not notice the new AuthenticationConfiguration in time.
    #[error("{name} did not reload its AuthenticationConfiguration in {seconds} s")]
    ReloadLate {
        /// The control plane.
        name: String,
        /// How long the harness waited.
        seconds: u64,
    },
    /// kube-apiserver did not notice the new serving certificate in time.
    #[error("{name} did not show its new serving certificate in {seconds} s")]
    ExchangeLate {
        /// The control plane.
        name: String,
        /// How long the harness waited.
        seconds: u64,
    },
}

impl ControlPlaneError {
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn lost_port(&self) -> bool {
        matches!(self, Self::NotReady(reason) if reason.lost_port())
    }
}
