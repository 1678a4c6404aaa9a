//! What is in Keyferry's image. A test compares it with `examples/install/Dockerfile`.

use crate::archive::{Image, ImageConfig, ImageFile};
use crate::executable::{ExecutableError, static_architecture};

/// What an image says about where it comes from.
#[derive(Debug, Clone)]
pub struct Labels {
    /// `org.opencontainers.image.version`.
    pub version: String,
    /// `org.opencontainers.image.revision`: the commit.
    pub revision: String,
}

impl Default for Labels {
    /// The default arguments of the Dockerfile.
    fn default() -> Self {
        Self {
            version: "dev".to_owned(),
            revision: "unknown".to_owned(),
        }
    }
}

/// The user and the group of the process, as numbers: the kubelet cannot check that a name is not
/// root.
const USER: &str = "65532:65532";
const PASSWD: &str = "nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n";
const GROUP: &str = "nonroot:x:65532:\n";

/// Keyferry's image: its static binary, the CA certificates (PEM) that it trusts, and its user.
///
/// # Errors
/// The binary is not static, or for another machine.
pub fn keyferry(
    binary: Vec<u8>,
    authorities: Vec<u8>,
    labels: &Labels,
) -> Result<Image, ExecutableError> {
    let architecture = static_architecture(&binary)?;
    let label =
        |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let text = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Ok(Image {
        architecture,
        files: vec![
            ImageFile::new("etc/group", 0o644, GROUP),
            ImageFile::new("etc/passwd", 0o644, PASSWD),
            ImageFile::new("etc/ssl/certs/ca-certificates.crt", 0o644, authorities),
            ImageFile::new("usr/bin/keyferry", 0o755, binary),
        ],
        config: ImageConfig {
            user: USER.to_owned(),
            entrypoint: text(&["/usr/bin/keyferry"]),
            command: text(&["serve", "--help"]),
            ports: vec![8443, 9443, 8080],
            labels: vec![
                label("title", "Keyferry"),
                label(
                    "description",
                    "Cross-cluster workload-identity token broker for generic Kubernetes clusters",
                ),
                label("source", "https://github.com/keyferry/keyferry"),
                label(
                    "documentation",
                    "https://github.com/keyferry/keyferry/tree/main/docs",
                ),
                label("licenses", "Apache-2.0"),
                label("version", &labels.version),
                label("revision", &labels.revision),
            ],
        },
    })
}
