//! Renders the AuthenticationConfiguration for each distribution, and says where it goes.

use keyferry_api::service_account::ServiceAccount;
use keyferry_kube_authn::Minor;
use serde_json::{Value, json};

use super::merge::{MergeProblem, with_anonymous};
use super::rbac::{self, RbacPart};
use super::{Format, indented};
use crate::yaml_document::{YamlError, yaml_document};

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
    /// The file cannot get an anonymous section.
    #[error("adding the anonymous section: {0}")]
    Anonymous(#[from] MergeProblem),
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Whether the target gets its file for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// It does: the apiserver's argument and volume are needed too, and a restart.
    First,
    /// It has the file already, and only its content changes.
    Change,
}

/// A file of `--output-dir`.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// Its name in the folder.
    pub(crate) name: &'static str,
    /// Its content.
    pub(crate) text: String,
}

/// The name of the file with the RBAC objects.
pub(crate) const RBAC_FILE: &str = "rbac.yaml";
/// The name of the file with the ServiceAccount that Flux looks for on the hub.
const FLUX_ACCOUNT_FILE: &str = "hub-service-account.yaml";
const INSTRUCTIONS_FILE: &str = "instructions.txt";

/// A part of the output: instructions, and a YAML document.
struct OutputSection {
    about: Vec<String>,
    text: String,
    /// The file of `--output-dir` that has the document alone, if there is one.
    file: Option<&'static str>,
    /// Where the document is on a node, if it is a file of its own there.
    node_path: Option<String>,
    /// Whether only a target that gets its file for the first time needs this.
    is_setup: bool,
}

impl OutputSection {
    fn new<const N: usize>(about: [&str; N], text: impl Into<String>) -> Self {
        Self {
            about: about.map(str::to_owned).to_vec(),
            text: text.into(),
            file: None,
            node_path: None,
            is_setup: false,
        }
    }

    fn for_setup(self) -> Self {
        Self {
            is_setup: true,
            ..self
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
    /// Leaves out what a target that has its file already does not need again.
    pub(super) fn on(mut self, occasion: Occasion) -> Self {
        if occasion == Occasion::First {
            return self;
        }
        self.sections.retain(|section| !section.is_setup);
        for section in &mut self.sections {
            if let Some(place) = &section.node_path {
                section.about = vec![
                    format!(
                        "Replace {place} by this document, on one control plane node after the \
                         other. No restart: it takes effect"
                    ),
                    "within some 10 s. Write it beside the old one and rename; a bad file is refused \
                     after up to 60 s."
                        .to_owned(),
                ];
            }
        }
        self
    }

    /// Adds the account that Flux looks for on the hub before it prunes.
    ///
    /// # Errors
    /// [`YamlError`].
    pub(super) fn add_flux_account(&mut self, account: &ServiceAccount) -> Result<(), YamlError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": account.name.as_str(), "namespace": account.namespace.as_str(),
            },
        });
        let about = [
            "Apply this on the hub too: Flux looks for the account there before it prunes, and \
             leaves the target's objects",
            "behind if there is none. It needs no rights on the hub.",
        ];
        let section = OutputSection::new(about, yaml_document(&object)?);
        self.sections.push(section.in_file(FLUX_ACCOUNT_FILE));
        Ok(())
    }

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
        let more = self.sections.iter().filter_map(|section| {
            let name = section.file.filter(|name| *name != FILE)?;
            Some(file(name, &section.text))
        });
        let instructions = self.joined(|section| match section.file {
            Some(name) => format!("# The document is {name} in this folder.\n"),
            None => section.text.clone(),
        });
        [file(FILE, &self.file)]
            .into_iter()
            .chain(more)
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
) -> Result<TrustOutput, DistributionError> {
    let closed = match format {
        Format::K3s | Format::Rke2 => Some(closed_to_anonymous(file, minor)?),
        _ => None,
    };
    let (file, anonymous) = match &closed {
        Some((file, anonymous)) => (file.as_str(), *anonymous),
        None => (file, RancherAnonymous::Stated),
    };
    let mut sections = match format {
        // Prints only the file, so that the output can be redirected into it.
        Format::Authn => vec![OutputSection::new([], file).in_file(FILE)],
        Format::Kubeadm => kubeadm(file, minor)?,
        Format::K3s => rancher(file, "k3s", anonymous)?,
        Format::Rke2 => rancher(file, "rke2", anonymous)?,
        Format::Talos => vec![talos(file, minor)?],
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
    let third = "With several control plane nodes: on all of them, then restart one after the other; \
                 go on once a node answers again.";
    OutputSection {
        about: [&first, second, third].map(str::to_owned).to_vec(),
        node_path: Some(place.to_owned()),
        ..OutputSection::new([], file).in_file(FILE)
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
        OutputSection::new(about, yaml_document(&configuration)?).for_setup(),
    ])
}

/// How K3s and RKE2 are told to refuse anonymous requests. By default they start kube-apiserver
/// with `anonymous-auth=false`, which they drop as soon as it has an authentication-config
/// (k3s-io/k3s#12245), and kube-apiserver's own default is true.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RancherAnonymous {
    /// The file has had a section of its own.
    Stated,
    /// The file got the section that refuses them.
    Section,
    /// By the argument: releases before 1.32 do not take the section.
    Argument,
}

/// Their own probes use client certificates, so the section needs no conditions.
const NO_ANONYMOUS: &str = "# Without this section, K3s and RKE2 admit anonymous requests, because \
    they drop their own\n# anonymous-auth=false as soon as they have this file.\nanonymous:\n  \
    enabled: false\n";

fn closed_to_anonymous(
    file: &str,
    minor: Minor,
) -> Result<(String, RancherAnonymous), MergeProblem> {
    if minor < Minor::V1_32 {
        return Ok((file.to_owned(), RancherAnonymous::Argument));
    }
    Ok(match with_anonymous(file, NO_ANONYMOUS, minor)? {
        Some(file) => (file, RancherAnonymous::Section),
        None => (file.to_owned(), RancherAnonymous::Stated),
    })
}

fn rancher(
    file: &str,
    name: &str,
    anonymous: RancherAnonymous,
) -> Result<Vec<OutputSection>, YamlError> {
    let folder = format!("/etc/rancher/{name}/keyferry");
    let place = if name == "rke2" { FOLDER } else { &folder };
    let mut arguments = vec![format!("authentication-config={place}/{FILE}")];
    if anonymous == RancherAnonymous::Argument {
        arguments.push("anonymous-auth=false".to_owned());
    }
    let mut drop_in = json!({ "kube-apiserver-arg+": arguments });
    if name == "rke2" {
        // In rke2, kube-apiserver is a Pod. If an argument names a file of the node, rke2 also
        // mounts this file, and the Pod keeps the old one after a rename. So the Pod has another
        // path.
        drop_in["kube-apiserver-extra-mount+"] = json!([format!("{folder}:{FOLDER}:ro")]);
    }
    let mut written = file_at(&format!("{folder}/{FILE}"), file);
    if anonymous == RancherAnonymous::Section {
        written.about.extend([
            format!(
                "A change of the anonymous section alone takes a restart of {name}. Before 1.32.5 \
                 and 1.33.1, {name} keeps its own"
            ),
            "anonymous-auth=false, and kube-apiserver then refuses the section: upgrade, or remove \
             the section there."
                .to_owned(),
        ]);
    }
    let mut about = vec![format!(
        "Write this as /etc/rancher/{name}/config.yaml.d/90-keyferry.yaml on every server, and \
         restart {name} on one after the other."
    )];
    if anonymous == RancherAnonymous::Argument {
        about.push(format!(
            "anonymous-auth=false repeats the default that {name} drops as soon as it has an \
             authentication-config."
        ));
    }
    Ok(vec![
        written,
        OutputSection {
            about,
            ..OutputSection::new([], yaml_document(&drop_in)?).for_setup()
        },
    ])
}

/// Talos's default for this section. A given configuration replaces the default as a whole.
const TALOS_ANONYMOUS: &str = "anonymous:\n  enabled: true\n  conditions:\n    - path: \
    /livez\n    - path: /readyz\n    - path: /healthz\n";

/// Text, because it contains the file with its comments.
fn talos(file: &str, minor: Minor) -> Result<OutputSection, DistributionError> {
    if minor < Minor::V1_32 {
        return Err(DistributionError::Talos(minor));
    }
    let first = "Talos 1.14 and newer, for a machine configuration with a document \
        KubeAPIServerConfig: patch the control plane nodes with";
    let second = "this document. Without KubeAPIServerConfig Talos ignores it: use talos-legacy. \
        It replaces the authentication";
    let completed = with_anonymous(file, TALOS_ANONYMOUS, minor)?;
    let third = if completed.is_some() {
        "configuration that is there, so the anonymous section repeats Talos's own default."
    } else {
        "configuration that is there, with the anonymous section of the merged file."
    };
    let configuration = indented(completed.as_deref().unwrap_or(file), 2);
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
    let place = "./keyferry/authentication.yaml";
    Ok(vec![
        OutputSection {
            node_path: Some(place.to_owned()),
            ..OutputSection::new(
                ["Write this document as ./keyferry/authentication.yaml, beside the file below."],
                file,
            )
            .in_file(FILE)
        },
        OutputSection::new(about, yaml_document(&cluster)?).for_setup(),
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
