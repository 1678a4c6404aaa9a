//! What can go wrong with a control plane.

use std::path::{Path, PathBuf};

use crate::parts::PartError;
use crate::pki::PkiError;
use crate::process::ProcessError;
use crate::readiness::NotReady;
use crate::rest::RestError;

/// Why a control plane did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// There is no binary.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A certificate or key was not made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A process did not start or stop.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It did not come up.
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
        /// What the system said.
        source: std::io::Error,
    },
    /// kubectl did not run, or not in time.
    #[error("run kubectl {args}: {source}")]
    Kubectl {
        /// Its arguments.
        args: String,
        /// What the system said.
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
    /// The kube-controller-manager did nothing.
    #[error(
        "kube-controller-manager of {name} made no default ServiceAccount in {seconds} s; end of \
         its log:\n{log}"
    )]
    ControllersIdle {
        /// The control plane.
        name: String,
        /// How long it was waited for.
        seconds: u64,
        /// The end of its log.
        log: String,
    },
    /// Roles that were written are not acted upon.
    #[error("{name} does not act by its roles after {seconds} s: {review}")]
    RoleUnseen {
        /// The control plane.
        name: String,
        /// How long it was waited for.
        seconds: u64,
        /// What was asked of it.
        review: String,
    },
    /// The token is none, or the signing key is of an unknown kind.
    #[error("sign the claims of a token again: not a token, or not a key for it")]
    Forge,
    /// It was started without an AuthenticationConfiguration, so none can be swapped.
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
    /// kube-apiserver did not take notice of the new AuthenticationConfiguration.
    #[error("{name} did not reload its AuthenticationConfiguration in {seconds} s")]
    ReloadLate {
        /// The control plane.
        name: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// kube-apiserver did not take notice of the new serving certificate.
    #[error("{name} did not show its new serving certificate in {seconds} s")]
    ExchangeLate {
        /// The control plane.
        name: String,
        /// How long it was waited for.
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
