//! Finds the real binaries: in an assets directory, in a cache, or by one `go build` of a pinned
//! tool or of our own small client. Clients in other languages are in [`installed`].

mod build;
mod distribution;
pub mod installed;
mod minor;
mod module;
mod node;
mod secret_reader;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

pub use distribution::Distribution;
pub use minor::Minor;
pub use node::NodePart;
pub use secret_reader::SecretReader;

/// One real binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// etcd 3.6.
    Etcd,
    /// kube-apiserver of a minor version.
    ApiServer(Minor),
    /// kube-controller-manager of the newest minor version.
    ControllerManager,
    /// kubectl of the newest minor version.
    Kubectl,
    /// Helm 3.
    Helm,
    /// cosign, which signs releases.
    Cosign,
    /// Our small program that is a private Sigstore, and signs without a key.
    KeylessSigner,
    /// Our small program on client-go, the library that most controllers use.
    ClientGo,
    /// Our program that verifies tokens with current Go libraries.
    GoVerifiers,
    /// The same program with Go libraries that are several years old.
    OlderGoVerifiers,
    /// Our small program that reads alert rules with Prometheus' own parser.
    PrometheusRules,
    /// Our small program on the code with which Flux gets and caches tokens.
    FluxTokenCache,
    /// SPIRE's server, an issuer of JWT-SVIDs.
    SpireServer,
    /// SPIRE's oidc-discovery-provider, a comparable server.
    SpireDiscoveryProvider,
    /// Flux's kustomize-controller.
    KustomizeController,
    /// Flux's source-controller.
    SourceController,
    /// Flux's helm-controller.
    HelmController,
    /// Flux Operator, which is AGPL: it runs as a process, and nothing of it is linked or copied.
    FluxOperator,
    /// The OCI registry of the CNCF's distribution project.
    Registry,
    /// Traefik, a controller of the Gateway API and of Ingresses.
    Traefik,
    /// Our small program on the code with which Argo CD reads its cluster Secrets.
    ArgoCd,
    /// Our small program on the library that reads ClusterProfiles.
    ClusterInventory,
    /// Our small program on the code with which a distribution reads its configuration.
    Distribution(Distribution),
    /// Our small program on the code with which a consumer reads delivered Secrets.
    SecretReader(SecretReader),
    /// Our small program on the authenticator of kube-apiserver.
    Oracle(OracleRelease),
    /// A part of a node of a cluster.
    Node(NodePart),
}

/// A release of k8s.io/apiserver whose authenticator serves as an oracle, named by its minor
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OracleRelease {
    /// 1.30: go-oidc 2.2, cel-go 0.17.
    V0_30,
    /// 1.31: cel-go 0.20.
    V0_31,
    /// 1.32: cel-go 0.22.
    V0_32,
    /// 1.33: go-oidc 2.3, cel-go 0.23, JSON integers are CEL integers.
    V0_33,
    /// 1.34: cel-go 0.26; claims are evaluated where they are used.
    V0_34,
    /// 1.35.
    V0_35,
    /// 1.36: go-oidc 2.5, cel-go 0.26.
    V0_36,
    /// 1.37: cel-go 0.29.
    V0_37,
    /// The alpha of 1.38, which the evaluator does not know yet: go-oidc 3.21. It shows what will
    /// change.
    V0_38,
}

impl OracleRelease {
    /// The releases of every run, oldest first. Each relevant change of behaviour so far lies
    /// between two of them.
    pub const ALL: [Self; 3] = [Self::V0_33, Self::V0_36, Self::V0_37];

    /// One release for each minor version, oldest first. Those not in [`Self::ALL`] are built for
    /// `.ci/full` only.
    pub const EVERY_MINOR: [Self; 8] = [
        Self::V0_30,
        Self::V0_31,
        Self::V0_32,
        Self::V0_33,
        Self::V0_34,
        Self::V0_35,
        Self::V0_36,
        Self::V0_37,
    ];

    fn version(self) -> &'static str {
        match self {
            Self::V0_30 => "v0.30.14",
            Self::V0_31 => "v0.31.14",
            Self::V0_32 => "v0.32.13",
            Self::V0_33 => "v0.33.13",
            Self::V0_34 => "v0.34.9",
            Self::V0_35 => "v0.35.6",
            Self::V0_36 => "v0.36.6",
            Self::V0_37 => "v0.37.2",
            Self::V0_38 => "v0.38.0-alpha.2",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Self::V0_30 => "oracle-0.30",
            Self::V0_31 => "oracle-0.31",
            Self::V0_32 => "oracle-0.32",
            Self::V0_33 => "oracle-0.33",
            Self::V0_34 => "oracle-0.34",
            Self::V0_35 => "oracle-0.35",
            Self::V0_36 => "oracle-0.36",
            Self::V0_37 => "oracle-0.37",
            Self::V0_38 => "oracle-0.38",
        }
    }
}

impl Part {
    /// The file name of the binary.
    pub fn binary(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer(_) => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Cosign => "cosign",
            Self::KeylessSigner => "keyless-signer",
            Self::ClientGo => "client-go",
            Self::GoVerifiers => "verifiers",
            Self::OlderGoVerifiers => "older-verifiers",
            Self::PrometheusRules => "prometheus-rules",
            Self::FluxTokenCache => "flux-token-cache",
            Self::SpireServer => "spire-server",
            Self::SpireDiscoveryProvider => "oidc-discovery-provider",
            Self::KustomizeController => "kustomize-controller",
            Self::SourceController => "source-controller",
            Self::HelmController => "helm-controller",
            Self::FluxOperator => "flux-operator",
            Self::Registry => "registry",
            Self::Traefik => "traefik",
            Self::ArgoCd => "argocd",
            Self::ClusterInventory => "cluster-inventory",
            Self::Distribution(distribution) => distribution.binary(),
            Self::SecretReader(reader) => reader.binary(),
            Self::Oracle(_) => "oracle",
            Self::Node(part) => part.binary(),
        }
    }

    /// The version that the go.mod file pins, as the binary prints it.
    pub fn version(self) -> &'static str {
        match self {
            Self::Etcd => "3.6.12",
            Self::ApiServer(minor) => minor.git_version(),
            Self::ControllerManager | Self::Kubectl => Minor::newest().git_version(),
            Self::Helm => "v3.22.0",
            Self::Cosign => "v3.1.3",
            Self::KeylessSigner => "v1.2.2",
            Self::ClientGo => "v0.36.3",
            Self::GoVerifiers => "of today",
            Self::OlderGoVerifiers => "of some years ago",
            Self::PrometheusRules => "v0.304.2",
            Self::FluxTokenCache => "v0.54.3",
            Self::SpireServer | Self::SpireDiscoveryProvider => "1.13.0",
            Self::KustomizeController => "v1.9.5",
            Self::SourceController => "v1.9.3",
            Self::HelmController => "v1.6.4",
            Self::FluxOperator => "v0.59.0",
            Self::Registry => "v3.1.2",
            Self::Traefik => "v3.7.13",
            Self::ArgoCd => "v3.3.0",
            Self::ClusterInventory => "v0.1.3",
            Self::Distribution(distribution) => distribution.version(),
            Self::SecretReader(reader) => reader.version(),
            Self::Oracle(release) => release.version(),
            Self::Node(part) => part.version(),
        }
    }

    /// The name of the folder whose go.mod pins it.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer(minor) => minor.directory(),
            Self::ControllerManager | Self::Kubectl => Minor::newest().directory(),
            Self::Helm => "helm",
            Self::Cosign => "cosign",
            Self::KeylessSigner => "keyless-signer",
            Self::ClientGo => "client-go",
            Self::GoVerifiers | Self::OlderGoVerifiers => "verifiers/go",
            Self::PrometheusRules => "prometheus-rules",
            Self::FluxTokenCache => "flux-token-cache",
            Self::SpireServer | Self::SpireDiscoveryProvider => "spire",
            Self::KustomizeController => "kustomize-controller",
            Self::SourceController => "source-controller",
            Self::HelmController => "helm-controller",
            Self::FluxOperator => "flux-operator",
            Self::Registry => "registry",
            Self::Traefik => "traefik",
            Self::ArgoCd => "argocd",
            Self::ClusterInventory => "cluster-inventory",
            Self::Distribution(distribution) => distribution.directory(),
            Self::SecretReader(reader) => reader.directory(),
            Self::Oracle(release) => release.directory(),
            Self::Node(part) => part.directory(),
        }
    }

    /// The folder below `integration` that pins it.
    pub(crate) fn folder(self) -> String {
        format!("{}/{}", self.shelf(), self.directory())
    }

    /// The folder above [`Self::directory`]: pinned tools, or our own programs with their source.
    fn shelf(self) -> &'static str {
        match self {
            Self::Oracle(release) if !OracleRelease::ALL.contains(&release) => "weekly",
            Self::ApiServer(Minor::V1_34 | Minor::V1_35 | Minor::V1_36) => "weekly",
            Self::Node(part) if !part.is_ours() => "weekly",
            Self::HelmController | Self::FluxOperator | Self::Registry | Self::Traefik => "weekly",
            Self::ControllerManager | Self::Kubectl if Minor::newest() == Minor::V1_36 => "weekly",
            Self::Oracle(_) => "parts",
            _ if self.is_ours() => "clients",
            _ => "parts",
        }
    }

    fn is_ours(self) -> bool {
        matches!(
            self,
            Self::ClientGo
                | Self::KeylessSigner
                | Self::GoVerifiers
                | Self::OlderGoVerifiers
                | Self::PrometheusRules
                | Self::FluxTokenCache
                | Self::Oracle(_)
                | Self::ArgoCd
                | Self::ClusterInventory
                | Self::Distribution(_)
                | Self::SecretReader(_)
                | Self::Node(_)
        )
    }

    /// The file that pins its modules instead of go.mod.
    fn modfile(self) -> Option<&'static str> {
        (self == Self::OlderGoVerifiers).then_some("older.mod")
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer(_) => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "helm.sh/helm/v3/cmd/helm",
            Self::Cosign => "github.com/sigstore/cosign/v3/cmd/cosign",
            Self::SpireServer => "github.com/spiffe/spire/cmd/spire-server",
            Self::SpireDiscoveryProvider => {
                "github.com/spiffe/spire/support/oidc-discovery-provider"
            }
            Self::KustomizeController => "github.com/fluxcd/kustomize-controller",
            Self::SourceController => "github.com/fluxcd/source-controller",
            Self::HelmController => "github.com/fluxcd/helm-controller",
            Self::FluxOperator => "github.com/controlplaneio-fluxcd/flux-operator/cmd/operator",
            Self::Registry => "github.com/distribution/distribution/v3/cmd/registry",
            Self::Traefik => "github.com/traefik/traefik/v3/cmd/traefik",
            Self::ClientGo
            | Self::KeylessSigner
            | Self::Oracle(_)
            | Self::GoVerifiers
            | Self::OlderGoVerifiers
            | Self::PrometheusRules
            | Self::FluxTokenCache
            | Self::ArgoCd
            | Self::ClusterInventory
            | Self::Distribution(_)
            | Self::SecretReader(_) => ".",
            Self::Node(part) => part.package(),
        }
    }

    /// The module whose sources are needed. For our own program, this is the library that it
    /// exercises.
    fn module(self) -> &'static str {
        match self {
            Self::ClusterInventory => "sigs.k8s.io/cluster-inventory-api",
            Self::SecretReader(_) => "sigs.k8s.io/kueue",
            Self::FluxOperator => "github.com/controlplaneio-fluxcd/flux-operator",
            Self::Traefik => "github.com/traefik/traefik/v3",
            _ => self.package(),
        }
    }

    /// The seconds of a cold build on two cores. Printed only, never used as a timeout.
    pub(crate) fn expected_seconds(self) -> u32 {
        match self {
            Self::Etcd => 50,
            Self::ApiServer(_) => 250,
            Self::ControllerManager => 60,
            Self::Kubectl => 40,
            Self::Helm => 90,
            Self::Cosign => 200,
            Self::ClientGo | Self::KeylessSigner | Self::FluxTokenCache | Self::Oracle(_) => 60,
            Self::GoVerifiers | Self::OlderGoVerifiers | Self::PrometheusRules => 20,
            // It has the clients of three clouds.
            Self::SpireServer => 400,
            Self::SpireDiscoveryProvider | Self::ClusterInventory => 60,
            Self::KustomizeController => 180,
            Self::SourceController => 160,
            Self::HelmController => 100,
            Self::FluxOperator => 150,
            Self::Registry => 60,
            Self::Traefik => 240,
            Self::ArgoCd => 100,
            Self::Distribution(distribution) => distribution.expected_seconds(),
            Self::SecretReader(reader) => reader.expected_seconds(),
            Self::Node(part) => part.expected_seconds(),
        }
    }

    fn cgo(self) -> bool {
        match self {
            // Its SQLite is C.
            Self::SpireServer => true,
            Self::Node(part) => part.cgo(),
            _ => false,
        }
    }

    fn patch(self) -> Option<node::Patch> {
        match self {
            Self::Node(part) => part.patch(),
            _ => None,
        }
    }

    fn linker_flags(self) -> String {
        let minor = match self {
            Self::Helm => return helm_linker_flags(self.version(), Minor::V1_37),
            Self::ApiServer(minor) => minor,
            Self::ControllerManager | Self::Kubectl => Minor::newest(),
            Self::Node(part) if part.is_kubernetes() => Minor::V1_37,
            _ => return build::STRIPPED.to_owned(),
        };
        // Without these flags, /version is not semver and clients refuse it.
        let package = "k8s.io/component-base/version";
        format!(
            "{} -X {package}.gitVersion={} -X {package}.gitMajor=1 -X {package}.gitMinor={}",
            build::STRIPPED,
            minor.git_version(),
            minor.number()
        )
    }

    fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            Self::Helm => &["version", "--short"],
            Self::Cosign => &["version"],
            _ => &["--version"],
        }
    }
}

/// Sets Helm's default Kubernetes version. Without these flags, Helm renders for a Kubernetes that
/// is many years old unless a caller names a version.
fn helm_linker_flags(version: &str, minor: Minor) -> String {
    let mut flags = format!(
        "{} -X helm.sh/helm/v3/internal/version.version={version}",
        build::STRIPPED
    );
    for package in ["pkg/lint/rules", "pkg/chartutil"] {
        let variable = format!("helm.sh/helm/v3/{package}.k8sVersion");
        flags.push_str(&format!(
            " -X {variable}Major=1 -X {variable}Minor={}",
            minor.number()
        ));
    }
    flags
}

/// Why a part cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The binary is not present and cannot be built.
    #[error("no {part} {version} here: {why}")]
    Unavailable {
        /// File name of the binary.
        part: &'static str,
        /// The required version.
        version: &'static str,
        /// What was tried, and why it failed.
        why: String,
    },
    /// The cache cannot be read or written.
    #[error("parts cache at {path}: {source}")]
    Cache {
        /// The file or folder that failed.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Finds binaries, builds missing ones, and installs clients.
#[derive(Debug, Clone)]
pub struct Parts {
    manifests: PathBuf,
    cache: PathBuf,
    assets: Option<PathBuf>,
}

impl Parts {
    /// Uses the folders that the environment names: `KUBEBUILDER_ASSETS`, and `XDG_CACHE_HOME` or
    /// `HOME`.
    pub fn from_environment() -> Self {
        let cache_home = std::env::var_os("XDG_CACHE_HOME")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .unwrap_or_else(|| {
                PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| OsString::from("/tmp")))
                    .join(".cache")
            });
        Self {
            manifests: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
            cache: cache_home.join("keyferry").join("parts"),
            assets: std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from),
        }
    }

    /// The folder in which built parts are kept between runs.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Returns the path of the binary; builds it once if no folder has it.
    pub async fn locate(&self, part: Part) -> Result<PathBuf, PartError> {
        if let Some(found) = self.in_assets(part).await {
            return Ok(found);
        }
        build::cached_or_built(&self.manifest(part), &self.cache, part).await
    }

    /// Whether the binary is in a folder, so that nothing has to be built.
    pub async fn has(&self, part: Part) -> bool {
        build::cached(&self.manifest(part), &self.cache, part).is_ok_and(|path| path.is_file())
            || self.in_assets(part).await.is_some()
    }

    /// Whether a client in another language is installed.
    pub fn has_client(&self, client: installed::Client) -> bool {
        let source = self.manifests.join("clients").join(client.directory());
        installed::is_installed(&source, &self.cache, client)
    }

    /// Returns the source folder of a pinned tool, for files beside its program such as its CRDs.
    /// Go downloads it once.
    pub async fn module(&self, part: Part) -> Result<PathBuf, PartError> {
        self.library(part, part.module()).await
    }

    /// Returns the source folder of a library of a pinned tool, in the version that its go.mod pins.
    pub async fn library(&self, part: Part, module: &str) -> Result<PathBuf, PartError> {
        module::folder(&self.manifest(part), part, module).await
    }

    /// Returns a client in another language, ready to run; installs it once if it is not in the
    /// cache.
    pub async fn install(
        &self,
        client: installed::Client,
    ) -> Result<installed::Installed, PartError> {
        installed::cached_or_installed(
            &self.manifests.join("clients").join(client.directory()),
            &self.cache,
            client,
        )
        .await
    }

    fn manifest(&self, part: Part) -> PathBuf {
        self.manifests.join(part.shelf()).join(part.directory())
    }

    async fn in_assets(&self, part: Part) -> Option<PathBuf> {
        if part.is_ours() {
            return None;
        }
        let candidate = self.assets.as_ref()?.join(part.binary());
        let output = Command::new(&candidate)
            .args(part.version_arguments())
            .stdin(Stdio::null())
            .output()
            .await
            .ok()?;
        says_version(&String::from_utf8_lossy(&output.stdout), part.version()).then_some(candidate)
    }
}

/// Whether a whole word of the text equals the version, so that `v1.36.3` does not match
/// `v1.36.30`.
fn says_version(text: &str, version: &str) -> bool {
    text.split_whitespace().any(|word| word == version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_version_is_a_whole_word() {
        assert!(says_version("Kubernetes v1.36.3\n", "v1.36.3"));
        assert!(says_version("etcd Version: 3.6.12\nGit SHA: x", "3.6.12"));
        assert!(!says_version("Kubernetes v1.36.30\n", "v1.36.3"));
        assert!(!says_version("", "v1.36.3"));
    }

    #[test]
    fn the_compatibility_page_names_the_tested_versions() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/compatibility.md");
        let page = std::fs::read_to_string(path).unwrap();
        for part in [
            Part::ApiServer(Minor::V1_33),
            Part::ApiServer(Minor::V1_36),
            Part::ApiServer(Minor::V1_37),
            Part::KustomizeController,
            Part::SourceController,
            Part::ClientGo,
            Part::Helm,
            Part::ArgoCd,
            Part::ClusterInventory,
        ] {
            let version = part.version().trim_start_matches('v');
            assert!(page.contains(version), "{part:?} {version}");
        }
    }

    #[test]
    fn kubernetes_parts_carry_their_version_and_etcd_does_not() {
        assert!(
            Part::ApiServer(Minor::V1_33)
                .linker_flags()
                .contains("version.gitVersion=v1.33.13 ")
        );
        assert!(
            Part::ApiServer(Minor::V1_37)
                .linker_flags()
                .ends_with("gitMinor=37")
        );
        assert_eq!(Part::Etcd.linker_flags(), "-s -w");
    }
}
