//! Our programs on the code with which consumers read the Secrets that Keyferry delivers.

/// A consumer whose own code reads a delivered Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretReader {
    /// Istio: the controller of remote clusters of istiod.
    Istio,
    /// Kueue: the controllers of MultiKueue.
    MultiKueue,
    /// Crossplane's provider-kubernetes.
    ProviderKubernetes,
}

impl SecretReader {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Istio, Self::MultiKueue, Self::ProviderKubernetes];

    pub(super) fn binary(self) -> &'static str {
        match self {
            Self::Istio => "istio",
            Self::MultiKueue => "multikueue",
            Self::ProviderKubernetes => "provider-kubernetes",
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            // Istio's releases have no version that Go knows.
            Self::Istio => "v0.0.0-20260827124520-eed52ebb66ad",
            Self::MultiKueue => "v0.17.0",
            Self::ProviderKubernetes => "v0.17.1",
        }
    }

    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Istio => "secret-readers/istio",
            Self::MultiKueue => "secret-readers/multikueue",
            Self::ProviderKubernetes => "secret-readers/provider-kubernetes",
        }
    }

    pub(super) fn expected_seconds(self) -> u32 {
        match self {
            Self::Istio => 400,
            Self::MultiKueue => 200,
            Self::ProviderKubernetes => 100,
        }
    }
}
