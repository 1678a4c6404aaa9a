//! `keyferry trust`: prints what a target needs to trust a hub: the AuthenticationConfiguration,
//! where to put it, and RBAC.

mod binding;
#[cfg(feature = "view")]
mod desired;
mod diff;
mod distribution;
mod inputs;
mod known_hub;
mod merge;
mod oidc_flags;
mod output_dir;
mod rbac;
mod relying_party;
mod target_rules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::object_view::ObjectHead;
use keyferry_kube_authn::config::{self, MAX_BYTES};
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::validate::validate_configuration;
use keyferry_kube_authn::{Code, Minor};
use serde_json::Value;

pub(crate) use self::binding::{Binding, powers_of, powers_of_shipped_role};
use self::binding::{RoleBinding, namespace, role_binding};
#[cfg(feature = "view")]
pub(crate) use self::desired::DesiredTrust;
pub(crate) use self::distribution::DistributionError;
pub(crate) use self::distribution::{Occasion, OutputFile, RBAC_FILE};
pub(crate) use self::inputs::CertificatesError;
pub(crate) use self::known_hub::KnownHub;
use self::merge::{MergeError, MergeProblem, Merged};
pub(crate) use self::oidc_flags::OidcFlagsError;
pub(crate) use self::output_dir::{OutputDirArgs, OutputDirError, write as write_files};
use self::rbac::RbacPart;
use self::target_rules::TargetRules;
use crate::args::minor::MinorArgs;
use crate::args::{HubArgs, names};
use crate::command_error::CommandError;
use crate::{inner_file, local_file, ui};

/// The flags of `keyferry trust`.
#[derive(Args, Default)]
pub(crate) struct TrustArgs {
    /// The TargetCluster, of --config or of the hub.
    ///
    /// Where the flags say everything, a name for what is printed.
    #[arg(value_name = "TARGET", required_unless_present = "from_oidc_flags")]
    target: Option<String>,
    /// Keyferry's configuration file.
    ///
    /// For all values that the other flags do not set. Without it, the TargetCluster of the hub and
    /// its status are used.
    #[arg(long, value_name = "FILE", requires = "target")]
    config: Option<PathBuf>,
    /// Objects from a file, or - for standard input.
    ///
    /// The TargetCluster and its status as `kubectl get targetclusters -o yaml` prints them,
    /// instead of the hub.
    #[arg(
        short,
        long,
        visible_alias = "objects",
        value_name = "PATH",
        requires = "target"
    )]
    filename: Option<PathBuf>,
    /// The hub's issuer, which is the iss of its tokens.
    ///
    /// Byte for byte.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    issuer: Option<String>,
    /// Where the target reads the issuer's discovery document [default: below the issuer]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    discovery_url: Option<String>,
    /// CA certificates of the server of the discovery document [default: the system's]
    #[arg(long, alias = "certificate-authority", value_name = "FILE")]
    discovery_ca: Option<PathBuf>,
    /// The target's audience.
    ///
    /// Its only one.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    audience: Option<String>,
    /// The prefix of the hub's users and groups, like `hub:`.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    prefix: Option<String>,
    /// A ServiceAccount of the hub that may use the target (may be repeated)
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = names::service_account, hide_short_help = true)]
    allow: Vec<ServiceAccount>,
    /// The maximum lifetime of a token.
    #[arg(long, value_name = "DURATION", value_parser = names::lifetime, hide_short_help = true)]
    max_lifetime: Option<Duration>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// An AuthenticationConfiguration to add to, byte for byte as it is.
    #[arg(long, value_name = "FILE")]
    merge: Option<PathBuf>,
    /// The target's present AuthenticationConfiguration, to compare with.
    ///
    /// Prints how its entry of this hub differs from what it should be. Exits with 1 if it differs.
    #[arg(
        long,
        value_name = "FILE",
        requires = "target",
        conflicts_with_all = [
            "merge", "from_oidc_flags", "bind", "bind_role", "flux_service_account", "format",
            "output_dir"
        ]
    )]
    diff: Option<PathBuf>,
    #[command(flatten)]
    parts: OutputDirArgs,
    /// The --oidc-* flags of the target's kube-apiserver, as one text.
    ///
    /// Prints an entry that maps every user as they do.
    #[arg(
        long,
        value_name = "FLAGS",
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    from_oidc_flags: Option<String>,
    /// The file that --oidc-ca-file names, where it is on this machine.
    #[arg(
        long,
        value_name = "FILE",
        requires = "from_oidc_flags",
        hide_short_help = true
    )]
    oidc_ca_file: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArgs,
}

// The form and the RBAC of what is printed. Not a doc comment, which clap would print.
/// The form of what is printed, and its RBAC.
#[derive(Args, Clone, Default)]
pub(crate) struct ShapeArgs {
    /// The form of the target's distribution.
    #[arg(long, value_enum, default_value_t = Format::Authn)]
    format: Format,
    #[command(flatten)]
    /// The release of the target.
    pub(crate) minor: MinorArgs,
    /// A ClusterRole of the target to bind to the users, in each --bind-namespace [default: none]
    #[arg(long, value_name = "CLUSTERROLE")]
    bind: Option<String>,
    /// A namespace of the target in which --bind binds (may be repeated)
    #[arg(
        long,
        value_name = "NAMESPACE",
        requires = "bind",
        conflicts_with = "bind_cluster_wide",
        value_parser = namespace
    )]
    bind_namespace: Vec<Namespace>,
    /// Bind --bind in the whole cluster.
    ///
    /// `edit`, for example, may then act as every ServiceAccount.
    #[arg(long, requires = "bind", hide_short_help = true)]
    bind_cluster_wide: bool,
    /// Bind a ClusterRole to the users of a role, also in one namespace alone (may be repeated)
    ///
    /// The role is that of a TargetCluster with sameAs: view=view binds ClusterRole view to the group
    /// of role view in the whole cluster, and view=view@apps in namespace apps.
    #[arg(long, value_name = "ROLE=CLUSTERROLE[@NAMESPACE]", value_parser = role_binding, hide_short_help = true)]
    bind_role: Vec<RoleBinding>,
    /// The ServiceAccount of the target that Flux is to impersonate there.
    ///
    /// --bind then binds to it. The hub needs one of the same name, or Flux does not prune.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = names::service_account, hide_short_help = true)]
    flux_service_account: Option<ServiceAccount>,
}

impl ShapeArgs {
    /// Whether RBAC at the target is asked for.
    pub(crate) fn asks_for_rbac(&self) -> bool {
        self.bind.is_some() || !self.bind_role.is_empty() || self.flux_service_account.is_some()
    }

    /// Returns the ClusterRoles to bind to the users of roles.
    pub(crate) fn role_bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bind_role.iter().map(|bound| &bound.binding)
    }

    /// Returns the role to bind, and where.
    ///
    /// # Errors
    /// The flags do not say where to bind.
    pub(crate) fn binding(&self) -> Result<Option<Binding>, CommandError> {
        let role = self.bind.as_deref();
        Binding::of(role, &self.bind_namespace, self.bind_cluster_wide)
    }

    /// Returns the ServiceAccount that Flux is to impersonate.
    pub(crate) fn flux_account(&self) -> Option<&ServiceAccount> {
        self.flux_service_account.as_ref()
    }
}

/// The forms in which a target takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The AuthenticationConfiguration alone.
    #[default]
    Authn,
    /// kubeadm.
    Kubeadm,
    /// K3s.
    K3s,
    /// RKE2.
    Rke2,
    /// Talos 1.14 and newer, with a document KubeAPIServerConfig.
    Talos,
    /// Talos without a document KubeAPIServerConfig, as before 1.14.
    TalosLegacy,
    /// kind.
    Kind,
    /// Cluster API with the kubeadm control plane provider.
    Capi,
}

/// Prints or writes what a target needs, or compares it with a file; returns the exit code.
pub(crate) async fn run(args: &TrustArgs) -> ExitCode {
    let configuration = known_hub::read(args).await;
    if let Some(path) = &args.diff {
        let compared = configuration.and_then(|known| diff::of_file(args, known.as_ref(), path));
        return match compared {
            Ok(compared) => {
                note(&compared.notes);
                ui::finish_with(
                    &ui::block(&compared.text),
                    u8::from(!compared.differences.is_empty()),
                )
            }
            // Exit code 1 says that the file differs, so a failure has another one.
            Err(error) => ui::command_misused(&error),
        };
    }
    let known = match configuration {
        Ok(known) => known,
        Err(error) => return ui::command_failed(&error),
    };
    match print(args, known.as_ref()) {
        Ok(printed) => {
            note(&printed.notes);
            match &args.parts.output_dir {
                None => ui::finish(printed.text.trim_end()),
                Some(folder) => {
                    let files: Vec<&OutputFile> = printed.files.iter().collect();
                    match output_dir::write(folder, &files, args.parts.force) {
                        Ok(lines) => ui::finish(&ui::block(&lines.join("\n"))),
                        Err(error) => ui::command_failed(&error.into()),
                    }
                }
            }
        }
        Err(error) => ui::command_failed(&error),
    }
}

fn note(notes: &[String]) {
    for note in notes {
        ui::note(&format!("note: {note}"));
    }
}

/// The output, and notes for the user beside it.
#[derive(Debug)]
struct Printed {
    text: String,
    /// The same in files, for --output-dir.
    files: Vec<OutputFile>,
    notes: Vec<String>,
}

/// What a target needs, in parts.
pub(crate) struct TargetPart {
    /// The AuthenticationConfiguration in the form of the distribution, with instructions.
    pub(crate) text: String,
    /// The same in files, with the RBAC objects.
    pub(crate) files: Vec<OutputFile>,
    /// The AuthenticationConfiguration alone.
    pub(crate) file: String,
    /// The RBAC objects at the target, in the order in which they can be applied.
    pub(crate) rbac: Vec<Value>,
    /// The beginning of the names of the objects of this hub at the target.
    name: String,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}

impl TargetPart {
    /// Whether a ClusterRoleBinding of the target with this name and role was made by an earlier run
    /// for users of this hub, and is not in this part.
    pub(crate) fn is_earlier_binding(&self, name: &str, role: &str) -> bool {
        let is_planned = self.rbac.iter().any(|object| {
            let head = ObjectHead::of(object);
            head.kind == "ClusterRoleBinding" && head.metadata.name == name
        });
        name == rbac::binding_name(&self.name, role) && !is_planned
    }
}

/// What is asked for a TargetCluster.
pub(crate) struct TargetRequest {
    /// The TargetCluster.
    pub(crate) target: ObjectName,
    /// Keyferry's configuration file, if it has the objects.
    pub(crate) config: Option<PathBuf>,
    /// The hub's issuer, if neither the configuration nor the hub states it.
    pub(crate) issuer: Option<String>,
    /// CA certificates of the server of the discovery document.
    pub(crate) discovery_ca: Option<PathBuf>,
    /// The form, and the RBAC.
    pub(crate) shape: ShapeArgs,
    /// The AuthenticationConfiguration that the target has.
    pub(crate) merge: Option<PathBuf>,
    /// Whether the target gets its file for the first time.
    pub(crate) occasion: Occasion,
    /// Where the hub is.
    pub(crate) hub: HubArgs,
}

/// Returns what a TargetCluster needs at the target, from the configuration or the hub.
///
/// # Errors
/// What is missing or cannot be read.
pub(crate) async fn for_target(request: TargetRequest) -> Result<TargetPart, CommandError> {
    let occasion = request.occasion;
    let args = TrustArgs {
        target: Some(request.target.to_string()),
        config: request.config,
        issuer: request.issuer,
        discovery_ca: request.discovery_ca,
        shape: request.shape,
        merge: request.merge,
        hub: request.hub,
        ..TrustArgs::default()
    };
    let known = known_hub::read(&args).await?;
    let prepared = prepare(&args, known.as_ref())?;
    let (format, minor) = (args.shape.format, args.shape.minor.known_minor()?);
    let render = |rbac: &[RbacPart]| -> Result<_, CommandError> {
        let output = distribution::render(format, &prepared.file, rbac, minor)?;
        Ok(output.on(occasion))
    };
    Ok(TargetPart {
        text: render(&[])?.stream(),
        files: render(&prepared.rbac)?.files(),
        rbac: rbac::applied(&prepared.rbac),
        file: prepared.file,
        name: prepared.name,
        notes: prepared.notes,
    })
}

/// The file and the RBAC objects, before they are written in a form.
struct Prepared {
    file: String,
    rbac: Vec<RbacPart>,
    /// The beginning of the names of the RBAC objects.
    name: String,
    notes: Vec<String>,
}

fn print(args: &TrustArgs, known: Option<&KnownHub>) -> Result<Printed, CommandError> {
    if let (Some(known), Some(name)) = (known, &args.target)
        && known.is_relying_party(name)
    {
        return relying_party::print(args, known);
    }
    let Prepared {
        file, rbac, notes, ..
    } = prepare(args, known)?;
    let (format, minor) = (args.shape.format, args.shape.minor.known_minor()?);
    let mut output = distribution::render(format, &file, &rbac, minor)?;
    if let Some(account) = args.shape.flux_account() {
        output
            .add_flux_account(account)
            .map_err(DistributionError::from)?;
    }
    Ok(Printed {
        text: output.stream(),
        files: output.files(),
        notes,
    })
}

fn prepare(args: &TrustArgs, known: Option<&KnownHub>) -> Result<Prepared, CommandError> {
    let minor = args.shape.minor.known_minor()?;
    let mut notes = vec![format!("for {}", args.shape.minor.description())];
    let mut entries = Vec::new();
    let mut own_issuers = Vec::new();
    if let Some(flags) = &args.from_oidc_flags {
        entries.push(oidc_flags::entry(
            flags,
            args.oidc_ca_file.as_deref(),
            &mut notes,
        )?);
    }
    let (mut rbac, mut name) = (Vec::new(), String::new());
    let binding = args.shape.binding()?;
    for binding in binding.iter().chain(args.shape.role_bindings()) {
        notes.extend(binding.warning(&powers_of_shipped_role(&binding.role)));
    }
    if args.target.is_some() {
        let trust_inputs = inputs::read(args, known)?;
        notes.extend(trust_inputs.notes.iter().cloned());
        own_issuers.extend(trust_inputs.own_issuer.clone());
        entries.extend(trust_inputs.entries.iter().map(TargetRules::entry));
        name = rbac::name(&trust_inputs.prefix);
        rbac = rbac::parts(
            &trust_inputs,
            binding.as_ref(),
            args.shape.flux_service_account.as_ref(),
            args.shape.minor.given_release().map(|_| minor),
        );
        rbac.extend(rbac::of_roles(&trust_inputs, &args.shape.bind_role)?);
    }
    if rbac.is_empty() {
        notes.push(
            "no RBAC is printed: the target's admin decides what the users may do; --bind \
            CLUSTERROLE with --bind-namespace NAMESPACE binds one"
                .to_owned(),
        );
    }
    let file = match &args.merge {
        Some(path) => {
            let merged = merged(path, &entries, minor, &mut notes)?;
            notes.extend(merged.notes);
            merged.text
        }
        None => file(&entries.concat(), minor),
    };
    check(&file, minor, &own_issuers, &mut notes)?;
    Ok(Prepared {
        file,
        rbac,
        name,
        notes,
    })
}

/// Adds the entries to the file of `--merge`, which may be inside another document.
fn merged(
    path: &Path,
    entries: &[String],
    minor: Minor,
    notes: &mut Vec<String>,
) -> Result<Merged, CommandError> {
    let bytes = local_file::read(path, "the AuthenticationConfiguration", MAX_BYTES)?;
    let inner = inner_file::only(&bytes, path)?;
    if let Some(inside) = &inner.inside {
        notes.push(format!(
            "{} holds the file as {}: what is printed is the file alone",
            path.display(),
            inside.location
        ));
    }
    let wrong = |problem| MergeError {
        path: path.to_owned(),
        problem,
    };
    let text = String::from_utf8(inner.bytes).map_err(|_| wrong(MergeProblem::NotUtf8))?;
    Ok(merge::merge(&text, entries, minor).map_err(wrong)?)
}

/// Renders an AuthenticationConfiguration with these entries.
fn file(entries: &str, minor: Minor) -> String {
    let version = if minor >= Minor::V1_34 {
        "v1"
    } else {
        "v1beta1"
    };
    format!(
        "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthenticationConfiguration\njwt:\n{}",
        indented(entries, 2)
    )
}

/// Fails if the target would refuse the file. Adds a note for each trap.
fn check(
    file: &str,
    minor: Minor,
    own_issuers: &[String],
    notes: &mut Vec<String>,
) -> Result<(), CommandError> {
    let loaded = config::load_configuration(file.as_bytes(), minor)
        .map_err(|fault| CommandError::new(format!("checking what would be printed: {fault}")))?;
    validate_configuration(&loaded.configuration, minor, own_issuers).map_err(|invalid| {
        let undetermined = invalid.undetermined.first().map(ToString::to_string);
        let description = if invalid.errors.is_empty() {
            undetermined.unwrap_or_default()
        } else {
            invalid.message()
        };
        CommandError::new(format!(
            "checking what would be printed: the target would refuse it: {description}"
        ))
    })?;
    for finding in lint_file(file.as_bytes(), minor, own_issuers) {
        // The inputs say this with what to do about it.
        let is_noted = finding.code == Code::IssuerOfEveryCluster;
        if finding.severity != Severity::Note && !is_noted {
            let line = finding
                .line
                .map_or_else(String::new, |line| format!(" (line {line} of the file)"));
            notes.push(format!(
                "{} at {}{line}: {} Fix: {}",
                finding.code,
                finding.path,
                finding.code.cause(),
                finding.fix
            ));
        }
    }
    Ok(())
}

/// Indents every line that is not empty.
fn indented(text: &str, by: usize) -> String {
    let pad = " ".repeat(by);
    text.lines()
        .map(|line| {
            if line.is_empty() {
                "\n".to_owned()
            } else {
                format!("{pad}{line}\n")
            }
        })
        .collect()
}

/// Quotes a text so that YAML reads it literally.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
