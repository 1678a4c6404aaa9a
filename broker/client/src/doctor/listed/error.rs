//! Why the listed targets are unknown, or why none of them is the one at an address.

use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_core::public_cluster::OtherCluster;
use keyferry_hub::client::ClientError;
use keyferry_hub::ports::{HubError, TrustBundleError};
use keyferry_keys::ca_bundle::CaBundleError;
use keyferry_platform::config_file::ConfigFileError;

use super::sources::MAX_TARGETS;
use crate::doctor::plan::may_not_list;

/// Why the listed targets cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] ConfigFileError),
    /// The namespace of Keyferry is not valid.
    #[error(transparent)]
    Namespace(#[from] NameError),
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The user may not list them, nor does an access say what it leads to.
    #[error("listing the TargetClusters of the hub: {0}")]
    MissingRight(String),
    /// The call to the hub failed.
    #[error("listing the TargetClusters of the hub: {0}")]
    Hub(#[from] HubError),
    /// The hub has more targets than are read.
    #[error("listing the TargetClusters of the hub: there are more than {MAX_TARGETS}")]
    TooMany,
}

/// Why targets may be missing in the list, so that what is not in it is not known to be unlisted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingTargets {
    /// The message of the hub, if the user may list only the accesses of a namespace, whose
    /// statuses have the targets that they use.
    #[error("{}", may_not_list(.0))]
    NoRight(String),
    /// Objects that are too large to be read.
    #[error("{} too large to be read, and must be made smaller", joined_names(.0))]
    TooLarge(Vec<String>),
}

/// Names the first of some objects, for a sentence about all.
fn joined_names(names: &[String]) -> String {
    let first = names.first().map_or("an object", String::as_str);
    match names.len() {
        0 | 1 => format!("{first} is"),
        all => format!("{first} and {} more are", all - 1),
    }
}

/// Why no listed target is the one at an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// No listed target has the address.
    #[error("no TargetCluster of {place} has the address {url:?}")]
    OtherAddress {
        /// Describes where the list is.
        place: String,
        /// The address.
        url: String,
    },
    /// Listed targets have the address, but differ in other ways.
    #[error("{}", joined(.0))]
    Differs(Vec<TargetDifference>),
}

/// How an address differs from a listed target.
#[derive(Debug, thiserror::Error)]
#[error("it differs from TargetCluster {target} of {list_description}: {difference}")]
pub(crate) struct TargetDifference {
    /// The name of the listed target.
    pub(crate) target: ObjectName,
    /// Describes where the list is.
    pub(crate) list_description: String,
    /// The difference.
    pub(crate) difference: Difference,
}

/// A difference from a listed target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    /// It is unknown, because the target's CA certificates are.
    #[error(transparent)]
    Unknown(#[from] TargetAuthorityError),
    /// A member of the address differs.
    #[error(transparent)]
    Cluster(#[from] OtherCluster),
}

/// The CA certificates of a listed target cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the CA certificates of TargetCluster {target} could not be read: {problem}")]
pub(crate) struct TargetAuthorityError {
    /// The name of the target.
    pub(crate) target: ObjectName,
    /// The problem with its certificates.
    pub(crate) problem: AuthorityProblem,
}

/// Why CA certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityProblem {
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The Secret cannot be read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The ClusterTrustBundle cannot be read.
    #[error(transparent)]
    TrustBundle(#[from] TrustBundleError),
    /// The Secret has no certificates.
    #[error("Secret {namespace}/{name} has no ca.crt")]
    Empty {
        /// The namespace of the Secret.
        namespace: Namespace,
        /// The name of the Secret.
        name: ObjectName,
    },
    /// The certificates are not valid.
    #[error(transparent)]
    Bundle(#[from] CaBundleError),
}

fn joined(differences: &[TargetDifference]) -> String {
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_are_too_large_to_be_read_are_counted() {
        let missing = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            MissingTargets::TooLarge(names).to_string()
        };
        assert_eq!(
            missing(&["TargetCluster a"]),
            "TargetCluster a is too large to be read, and must be made smaller"
        );
        assert_eq!(
            missing(&["TargetCluster a", "x", "y"]),
            "TargetCluster a and 2 more are too large to be read, and must be made smaller"
        );
    }
}
