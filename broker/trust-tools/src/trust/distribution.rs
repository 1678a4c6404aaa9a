//! Renders the AuthenticationConfiguration for each distribution, and says where it goes.

use keyferry_kube_authn::Minor;
use keyferry_terminal::yaml_document::{YamlError, yaml_document};
use serde_json::{Value, json};

use super::rbac::{self, RbacPart};
use super::{Format, indented};

/// The folder of the file on a control plane node, for distributions without one of their own.
const FOLDER: &str = "/etc/kubernetes/keyferry";
const FILE: &str = "authentication.yaml";

/// Why the form of a distribution cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DistributionError {
    /// The form of Talos 1.14 does not fit the target's release.
    #[error(
        "writing the form of Talos 1.14: Kubernetes {0} does not take its anonymous section; use \
         talos-legacy"
    )]
    Talos(Minor),
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// A file of `--output-dir`.
#[derive(Debug)]
pub struct OutputFile {
    /// Its name in the folder.
    pub name: &'static str,
    /// Its content.
    pub text: String,
}

/// The name of the file with the RBAC objects.
pub(super) const RBAC_FILE: &str = "rbac.yaml";
const INSTRUCTIONS_FILE: &str = "instructions.txt";

/// A part of the output: instructions, and a YAML document.
struct OutputSection {
    about: Vec<String>,
    text: String,
    /// The file of `--output-dir` that has the document alone, if there is one.
    file: Option<&'static str>,
}

impl OutputSection {
    fn new<const N: usize>(about: [&str; N], text: impl Into<String>) -> Self {
        Self {
            about: about.map(str::to_owned).to_vec(),
            text: text.into(),
            file: None,
        }
    }

    fn in_file(self, name: &'static str) -> Self {
        Self {
            file: Some(name),
            ..self
        }
    }
}

/// Everything that the target needs.
pub(super) struct TrustOutput {
    sections: Vec<OutputSection>,
    /// The AuthenticationConfiguration alone.
    file: String,
}

impl TrustOutput {
    /// Returns the output as one YAML stream with instructions as comments.
    pub(super) fn stream(&self) -> String {
        self.joined(|section| section.text.clone())
    }

    /// Returns the output as files: the AuthenticationConfiguration, the RBAC objects if there are
    /// any, and the instructions.
    pub(super) fn files(&self) -> Vec<OutputFile> {
        let file = |name, text: &str| OutputFile {
            name,
            text: text.to_owned(),
        };
        let rbac = self
            .sections
            .iter()
            .filter(|section| section.file == Some(RBAC_FILE))
            .map(|section| file(RBAC_FILE, &section.text));
        let instructions = self.joined(|section| match section.file {
            Some(name) => format!("# The document is {name} in this folder.\n"),
            None => section.text.clone(),
        });
        [file(FILE, &self.file)]
            .into_iter()
            .chain(rbac)
            .chain([file(INSTRUCTIONS_FILE, &instructions)])
            .collect()
    }

    /// Joins the sections, with their instructions as comments before each.
    fn joined(&self, document: impl Fn(&OutputSection) -> String) -> String {
        let last = self.sections.len();
        let printed = self.sections.iter().enumerate().map(|(index, section)| {
            let number = if last > 1 && !section.about.is_empty() {
                format!("{}. ", index + 1)
            } else {
                String::new()
            };
            let about: String = section
                .about
                .iter()
                .enumerate()
                .map(|(line, text)| format!("# {}{text}\n", if line == 0 { &number } else { "" }))
                .collect();
            format!("{about}{}", document(section))
        });
        printed.collect::<Vec<_>>().join("---\n")
    }
}

/// Renders everything that the target needs in the form of its distribution.
///
/// # Errors
/// [`DistributionError`].
pub(super) fn render(
    format: Format,
    file: &str,
    rbac: &[RbacPart],
    minor: Minor,
    merged: bool,
) -> Result<TrustOutput, DistributionError> {
    let mut sections = match format {
        // Prints only the file, so that the output can be redirected into it.
        Format::Authn => vec![OutputSection::new([], file).in_file(FILE)],
        Format::Kubeadm => kubeadm(file, minor)?,
        Format::K3s => rancher(file, "k3s")?,
        Format::Rke2 => rancher(file, "rke2")?,
        Format::Talos => vec![talos(file, minor, merged)?],
        Format::TalosLegacy => vec![talos_legacy(file)],
        Format::Kind => kind(file)?,
        Format::Capi => vec![capi(file)?],
    };
    if !rbac.is_empty() {
        let section = OutputSection::new(
            ["Apply this at the target with kubectl."],
            rbac::stream(rbac)?,
        );
        sections.push(section.in_file(RBAC_FILE));
    }
    Ok(TrustOutput {
        sections,
        file: file.to_owned(),
    })
}

fn file_at(place: &str, file: &str) -> OutputSection {
    let first = format!(
        "Write this document as {place} on every control plane node. Later changes take effect by \
         themselves:"
    );
    let second = "write them beside it and rename, because a half-written file is refused.";
    OutputSection {
        about: vec![first, second.to_owned()],
        text: file.to_owned(),
        file: Some(FILE),
    }
}

/// The apiserver's argument and volume for the file, with arguments in the form of kubeadm's
/// `v1beta4`.
fn listed_arguments() -> Value {
    json!({
        "extraArgs": [{ "name": "authentication-config", "value": format!("{FOLDER}/{FILE}") }],
        "extraVolumes": volumes(),
    })
}

/// The same with arguments in the form of kubeadm's `v1beta3`.
fn mapped_arguments() -> Value {
    json!({
        "extraArgs": { "authentication-config": format!("{FOLDER}/{FILE}") },
        "extraVolumes": volumes(),
    })
}

/// Mounts the folder and not the file: a mounted file would not follow a rename.
fn volumes() -> Value {
    json!([{
        "name": "keyferry",
        "hostPath": FOLDER,
        "mountPath": FOLDER,
        "readOnly": true,
        "pathType": "DirectoryOrCreate",
    }])
}

fn kubeadm(file: &str, minor: Minor) -> Result<Vec<OutputSection>, YamlError> {
    let (version, arguments) = if minor >= Minor::V1_31 {
        ("v1beta4", listed_arguments())
    } else {
        ("v1beta3", mapped_arguments())
    };
    let configuration = json!({
        "apiVersion": format!("kubeadm.k8s.io/{version}"),
        "kind": "ClusterConfiguration",
        "apiServer": arguments,
    });
    let about = [
        "For a new cluster, put this into the file of kubeadm init --config. For one that runs, \
         put it into ClusterConfiguration of",
        "ConfigMap kube-system/kubeadm-config, and the same argument and volume into \
         /etc/kubernetes/manifests/kube-apiserver.yaml",
        "of one node after the other.",
    ];
    Ok(vec![
        file_at(&format!("{FOLDER}/{FILE}"), file),
        OutputSection::new(about, yaml_document(&configuration)?),
    ])
}

fn rancher(file: &str, name: &str) -> Result<Vec<OutputSection>, YamlError> {
    let folder = format!("/etc/rancher/{name}/keyferry");
    let drop_in = if name == "rke2" {
        // In rke2, kube-apiserver is a Pod. If an argument names a file of the node, rke2 also
        // mounts this file, and the Pod keeps the old one after a rename. So the Pod has another
        // path.
        json!({
            "kube-apiserver-arg+": [format!("authentication-config={FOLDER}/{FILE}")],
            "kube-apiserver-extra-mount+": [format!("{folder}:{FOLDER}:ro")],
        })
    } else {
        json!({ "kube-apiserver-arg+": [format!("authentication-config={folder}/{FILE}")] })
    };
    let first = format!(
        "Write this as /etc/rancher/{name}/config.yaml.d/90-keyferry.yaml on every server, and \
         restart {name} on one after the other."
    );
    Ok(vec![
        file_at(&format!("{folder}/{FILE}"), file),
        OutputSection {
            about: vec![first],
            text: yaml_document(&drop_in)?,
            file: None,
        },
    ])
}

/// Talos's default for this section. A given configuration replaces the default as a whole.
const TALOS_ANONYMOUS: &str = "anonymous:\n  enabled: true\n  conditions:\n    - path: \
    /livez\n    - path: /readyz\n    - path: /healthz\n";

/// Text, because it contains the file with its comments.
fn talos(file: &str, minor: Minor, merged: bool) -> Result<OutputSection, DistributionError> {
    if minor < Minor::V1_32 {
        return Err(DistributionError::Talos(minor));
    }
    let first = "Talos 1.14 and newer, for a machine configuration with a document \
        KubeAPIServerConfig: patch the control plane nodes with";
    let second = "this document. Without KubeAPIServerConfig Talos ignores it: use talos-legacy. \
        It replaces the authentication";
    // A merged file states its own anonymous section.
    let (third, anonymous) = if merged {
        (
            "configuration that is there, so it needs an anonymous section to keep anonymous \
             probes working.",
            "",
        )
    } else {
        (
            "configuration that is there, so the anonymous section repeats Talos's own default.",
            TALOS_ANONYMOUS,
        )
    };
    let configuration = indented(&format!("{file}{anonymous}"), 2);
    let text = format!(
        "apiVersion: v1alpha1\nkind: KubeAuthenticationConfig\nconfiguration:\n{configuration}"
    );
    Ok(OutputSection::new([first, second, third], text))
}

/// Text, because Talos's documents write permissions as `0o644`, which no serialiser does.
fn talos_legacy(file: &str) -> OutputSection {
    let about = [
        "Talos before 1.14, and newer for a machine configuration without KubeAPIServerConfig: \
         patch the control plane nodes, and",
        "only these, with this. A change of the file needs another patch; nodes may have to be \
         rebooted for it.",
    ];
    let folder = "/var/lib/keyferry";
    let text = format!(
        "machine:\n  files:\n    - path: {folder}/{FILE}\n      permissions: 0o644\n      op: create\n      content: |\n{}\
         cluster:\n  apiServer:\n    extraArgs:\n      authentication-config: {FOLDER}/{FILE}\n    extraVolumes:\n      - hostPath: {folder}\n        \
         mountPath: {FOLDER}\n        readonly: true\n",
        indented(file, 8)
    );
    OutputSection::new(about, text)
}

fn kind(file: &str) -> Result<Vec<OutputSection>, YamlError> {
    // Without apiVersion, kind 0.33 and newer write the arguments as a list where kubeadm wants
    // one.
    let patch = json!({ "kind": "ClusterConfiguration", "apiServer": mapped_arguments() });
    let cluster = json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{
            "role": "control-plane",
            "extraMounts": [{
                "hostPath": "./keyferry",
                "containerPath": FOLDER,
                "readOnly": true,
            }],
            "kubeadmConfigPatches": [yaml_document(&patch)?],
        }],
    });
    let about = ["Create the cluster with kind create cluster --config and this."];
    Ok(vec![
        OutputSection::new(
            ["Write this document as ./keyferry/authentication.yaml, beside the file below."],
            file,
        )
        .in_file(FILE),
        OutputSection::new(about, yaml_document(&cluster)?),
    ])
}

fn capi(file: &str) -> Result<OutputSection, YamlError> {
    let control_plane = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
        "kind": "KubeadmControlPlane",
        "spec": { "kubeadmConfigSpec": {
            "files": [{
                "path": format!("{FOLDER}/{FILE}"),
                "owner": "root:root",
                "permissions": "0644",
                "content": file,
            }],
            "clusterConfiguration": { "apiServer": listed_arguments() },
        }},
    });
    let about = [
        "Cluster API: put this into the KubeadmControlPlane of the cluster; its machines are then \
         replaced one after the other. In",
        "controlplane.cluster.x-k8s.io/v1beta1, extraArgs is a map: authentication-config: and the \
         path.",
    ];
    Ok(OutputSection::new(about, yaml_document(&control_plane)?))
}
