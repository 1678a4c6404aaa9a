//! Our programs on the code with which distributions of Kubernetes read their configuration.

/// A distribution whose own code reads the form that `keyferry trust --format` prints for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// kubeadm 1.36, the last one that reads `v1beta3` beside `v1beta4`.
    Kubeadm,
    /// kind.
    Kind,
    /// Talos.
    Talos,
    /// Cluster API with its kubeadm providers.
    ClusterApi,
}

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kubeadm, Self::Kind, Self::Talos, Self::ClusterApi];

    pub(super) fn binary(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::Kind => "kind",
            Self::Talos => "talos",
            Self::ClusterApi => "cluster-api",
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Kubeadm => "v1.36.3",
            Self::Kind => "v0.33.0",
            Self::Talos => "v1.14.1",
            Self::ClusterApi => "v1.13.4",
        }
    }

    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Kubeadm => "distributions/kubeadm",
            Self::Kind => "distributions/kind",
            Self::Talos => "distributions/talos",
            Self::ClusterApi => "distributions/cluster-api",
        }
    }

    pub(super) fn expected_seconds(self) -> u32 {
        match self {
            Self::Kind => 20,
            Self::Talos | Self::ClusterApi => 60,
            Self::Kubeadm => 100,
        }
    }
}
