//! The commands that predict and write what a target trusts: `lint`, `verify` and `trust`.
//!
//! They judge as the target's kube-apiserver does, by `keyferry-kube-authn`. `lint` and `verify`
//! read files and need no cluster.

pub mod lint;
pub mod trust;
pub mod verify;

keyferry_terminal::command_errors!(
    trust::CertificatesError,
    trust::DiffError,
    trust::MergeError,
    trust::OidcFlagsError,
    trust::OutputDirError,
    trust::DistributionError,
    verify::SubjectError,
);
