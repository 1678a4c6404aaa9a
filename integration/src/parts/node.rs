//! The programs of a node, each built from its Go module, so a machine with Go and Rust needs no
//! packages for them.

/// A part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodePart {
    /// kubelet 1.37.
    Kubelet,
    /// kube-scheduler 1.37, which places the Pods.
    Scheduler,
    /// containerd 2.
    Containerd,
    /// The process between containerd and one Pod.
    Shim,
    /// The command with which images are imported into containerd.
    Ctr,
    /// runc, which creates the containers. Its seccomp filters are compiled by our own file instead
    /// of libseccomp.
    Runc,
    /// The CNI plugin that connects Pods to a bridge.
    Bridge,
    /// The CNI plugin that assigns addresses.
    HostLocal,
    /// The CNI plugin that brings up the loopback interface.
    Loopback,
    /// CoreDNS.
    CoreDns,
    /// kube-router, which enforces NetworkPolicies.
    KubeRouter,
    /// Our small program in the Pods of tests.
    PodTool,
}

/// A file of this repository that replaces one of a module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patch {
    /// The file in the module's folder.
    pub(super) replaced: &'static str,
    /// The file beside go.mod.
    pub(super) by: &'static str,
}

impl NodePart {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Kubelet,
        Self::Scheduler,
        Self::Containerd,
        Self::Shim,
        Self::Ctr,
        Self::Runc,
        Self::Bridge,
        Self::HostLocal,
        Self::Loopback,
        Self::CoreDns,
        Self::KubeRouter,
        Self::PodTool,
    ];

    pub(super) fn binary(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Shim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::Bridge => "bridge",
            Self::HostLocal => "host-local",
            Self::Loopback => "loopback",
            Self::CoreDns => "coredns",
            Self::KubeRouter => "kube-router",
            Self::PodTool => "pod-tool",
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Kubelet | Self::Scheduler => "v1.37.2",
            Self::Containerd | Self::Shim | Self::Ctr => "v2.4.2",
            Self::Runc => "v1.5.2",
            Self::Bridge | Self::HostLocal | Self::Loopback => "v1.9.1",
            Self::CoreDns => "v1.14.7",
            Self::KubeRouter => "v2.1.0",
            Self::PodTool => "of this repository",
        }
    }

    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Kubelet | Self::Scheduler => "node-1.37",
            Self::Containerd | Self::Shim | Self::Ctr => "containerd",
            Self::Runc => "runc",
            Self::Bridge | Self::HostLocal | Self::Loopback => "cni-plugins",
            Self::CoreDns => "coredns",
            Self::KubeRouter => "kube-router",
            Self::PodTool => "pod-tool",
        }
    }

    pub(super) fn package(self) -> &'static str {
        match self {
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Containerd => "github.com/containerd/containerd/v2/cmd/containerd",
            Self::Shim => "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            Self::Ctr => "github.com/containerd/containerd/v2/cmd/ctr",
            Self::Runc => "github.com/opencontainers/runc",
            Self::Bridge => "github.com/containernetworking/plugins/plugins/main/bridge",
            Self::HostLocal => "github.com/containernetworking/plugins/plugins/ipam/host-local",
            Self::Loopback => "github.com/containernetworking/plugins/plugins/main/loopback",
            Self::KubeRouter => "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
            Self::CoreDns | Self::PodTool => ".",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        self == Self::PodTool
    }

    pub(super) fn is_kubernetes(self) -> bool {
        matches!(self, Self::Kubelet | Self::Scheduler)
    }

    /// runc enters namespaces in C, before Go's runtime starts its threads.
    pub(super) fn cgo(self) -> bool {
        self == Self::Runc
    }

    pub(super) fn patch(self) -> Option<Patch> {
        (self == Self::Runc).then_some(Patch {
            replaced: "libcontainer/seccomp/seccomp_unsupported.go",
            by: "seccomp.go",
        })
    }

    pub(super) fn expected_seconds(self) -> u32 {
        match self {
            Self::Kubelet => 180,
            Self::Scheduler => 30,
            Self::Containerd => 90,
            Self::Runc => 40,
            Self::CoreDns | Self::KubeRouter => 90,
            Self::Shim | Self::Ctr | Self::Bridge | Self::HostLocal | Self::Loopback => 10,
            Self::PodTool => 10,
        }
    }
}
