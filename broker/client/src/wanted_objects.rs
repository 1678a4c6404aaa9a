//! Which objects of the configuration a command needs.

use keyferry_api::name::{AccessName, ObjectName};

/// The objects that a command needs.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// All objects.
    All,
    /// One TargetAccess, and the TargetCluster that it names.
    Access(&'a AccessName),
    /// One TargetCluster.
    Target(&'a ObjectName),
    /// One TargetCluster, and every role at its cluster.
    Cluster(&'a ObjectName),
}
