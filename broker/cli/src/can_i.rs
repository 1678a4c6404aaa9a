//! `keyferry can-i`: whether a token, or the user that Flux impersonates with it, may do something
//! at a target.

mod rules_list;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_client::doctor::apply::{self, Applied, ManifestObjects};
use keyferry_client::doctor::identity::calls;
use keyferry_client::doctor::plan::Plan;
use keyferry_client::doctor::resources::{self, ResolvedResource, ResourceError};
use keyferry_client::doctor::target_calls::{AccessError, TargetCalls};
use keyferry_kube_authn::Code;
use keyferry_kube_authn::rights::{NeededRight, role_binding, role_for, roles_for};
use serde_json::{Value, json};

use crate::args::TARGET;
use crate::args::output_format::FormatArgs;
use crate::args::start_args::{StartArg, TargetArgs, attributes};
use crate::command_error::CommandError;
use crate::role_manifest::with_bindings;
use crate::ui;

/// The reason if the target refuses the impersonation itself.
const DENIED: Code = Code::ImpersonationDenied;
/// The exit code if the target could not be asked.
const UNDETERMINED: u8 = 3;
/// The largest standard input that is read.
const MAX_INPUT: usize = 16 << 20;

#[derive(Args)]
pub(super) struct CanIArgs {
    /// The verb, as kubectl takes it, or `apply` with -f.
    #[arg(required_unless_present = "list")]
    verb: Option<String>,
    /// The resource, as kubectl takes it: RESOURCE[.GROUP][/SUBRESOURCE], a short name or a kind.
    ///
    /// With `apply`, what to start from, as --from.
    #[arg(required_unless_present_any = ["filename", "list"])]
    resource: Option<String>,
    /// List what the user may do at the target.
    ///
    /// In --target-namespace, else in default, and in the whole cluster.
    #[arg(long, conflicts_with_all = ["verb", "resource", "filename"])]
    list: bool,
    /// Objects from a file, or - for standard input.
    ///
    /// With `apply`, those that Flux is to apply, also from a folder of files; without it, what a
    /// Kustomization has applied before, by its inventory. Overlays are not built: pipe `kubectl
    /// kustomize DIR` into -f -.
    #[arg(short, long, value_name = "PATH")]
    filename: Option<PathBuf>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses, as -f of the other commands takes them; here -f
    /// has the objects to apply, as in kubectl.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    objects: Option<PathBuf>,
    /// Namespace at the target [default: default]
    ///
    /// Of what is checked, and of objects without one.
    #[arg(long, value_name = "NAMESPACE", help_heading = TARGET)]
    target_namespace: Option<String>,
    /// What to start from, as KIND/NAME [default: the flags alone]
    ///
    /// KIND is targetaccess, targetcluster, secret, configmap, kustomization or helmrelease, or a
    /// short name of these.
    #[arg(long, value_name = "KIND/NAME")]
    from: Option<StartArg>,
    /// Namespace on the hub [default: that of the hub's context]
    ///
    /// The namespace of the starting object.
    #[arg(
        short,
        long,
        alias = "from-namespace",
        env = "KEYFERRY_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    namespace: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) async fn run(args: CanIArgs) -> ExitCode {
    let asked = match (args.verb.as_deref(), &args.filename, &args.resource) {
        (None, ..) => rules_list::list(&args).await,
        (Some("apply"), path, start) => can_apply(&args, path.as_deref(), start.as_deref()).await,
        (Some(_), Some(_), _) => Err(CommandError::new(
            "a file is given, but the verb is not apply",
        )),
        (Some(verb), None, Some(resource)) => can(&args, verb, resource).await,
        (Some(_), None, None) => Err(CommandError::new("neither a resource nor a file is given")),
    };
    asked.unwrap_or_else(|error| {
        let error = error.or_fix("keyferry doctor names the first step that fails");
        ui::misuse(&error.problem, error.fix.as_deref())
    })
}

async fn can(args: &CanIArgs, verb: &str, resource: &str) -> Result<ExitCode, CommandError> {
    refuse_swapped(verb, resource)?;
    let plan = args
        .target
        .plan(
            args.from.as_ref(),
            args.namespace.as_deref(),
            args.objects.as_deref(),
        )
        .await?;
    let calls = calls(&plan).await?;
    let user = user(&calls, &plan).await?;
    let given = attributes(verb, resource, args.target_namespace.as_deref());
    let (wanted, namespaced, unread) = match resources::resolve(&calls, &given).await {
        Ok(ResolvedResource {
            attributes,
            namespaced,
        }) => (attributes, namespaced, None),
        Err(ResourceError::Unread(why)) => (given, true, Some(why)),
        Err(error @ ResourceError::Unknown { .. }) => {
            return Err(CommandError::with_fix(
                format!(
                    "looking up {resource} at {}: {error}",
                    plan.target_in_words()
                ),
                "write a resource as kubectl api-resources prints it, such as deployments.apps",
            ));
        }
    };
    let asked = calls.access(&wanted, plan.impersonate.as_ref()).await;
    let namespace = args.target_namespace.as_deref();
    let place = match (namespaced, namespace) {
        (false, _) => "the cluster".to_owned(),
        (true, Some(namespace)) => namespace.to_owned(),
        (true, None) => "all namespaces (--target-namespace asks for one)".to_owned(),
    };
    let asked = match (asked, unread) {
        // Of a resource by another name than its own, a no says nothing.
        (Ok(false), Some(why)) => Err(AccessError::Unknown(why)),
        (asked, _) => asked,
    };
    let (who, target) = (&user, plan.target_in_words());
    let resource = wanted.full_name();
    let (word, code, detail) = match &asked {
        Ok(true) => (
            "yes",
            ExitCode::SUCCESS,
            format!("{who} may {verb} {resource} in {place} at {target}"),
        ),
        Ok(false) => (
            "no",
            ExitCode::FAILURE,
            format!("{who} may not {verb} {resource} in {place} at {target}"),
        ),
        Err(AccessError::Impersonation(why)) => (
            "no",
            ExitCode::FAILURE,
            not_as(&user, &target, &why.to_string()),
        ),
        Err(AccessError::Unknown(why)) => (
            "undetermined",
            ExitCode::from(UNDETERMINED),
            format!("{verb} {resource} in {place}: {why}"),
        ),
    };
    let denied = matches!(asked, Err(AccessError::Impersonation(_))).then_some(DENIED);
    if let Some(format) = args.format.output.document() {
        let document = json!({
            "schema": "keyferry.dev/can-i/v1", "answer": word, "detail": (word != "yes").then_some(&detail), "user": user, "target": target,
            "reason": denied.map(Code::name), "fix": denied.map(Code::fix),
        });
        return Ok(ui::finish_document(&document, format, code));
    }
    let printed = ui::result(&ui::plain(&format!("{word}: {detail}")));
    if let Some(code) = denied {
        ui::note(code.name());
        ui::note(&format!("fix: {}", code.fix()));
    }
    if let Ok(false) = &asked {
        let role = role_for(
            namespace.filter(|_| namespaced),
            &[(&wanted.group, &wanted.resource_path(), verb)],
        );
        ui::note(&format!(
            "these would allow it; review and apply them at {target}:"
        ));
        ui::note_block(&with_bindings(&[role], &user));
    }
    Ok(if printed.is_ok() {
        code
    } else {
        ExitCode::FAILURE
    })
}

/// The verbs of Kubernetes' own authorizer and admission.
const VERBS: [&str; 15] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "proxy",
];

/// Refuses a resource in the place of the verb: no target would deny it by mistake.
fn refuse_swapped(verb: &str, resource: &str) -> Result<(), CommandError> {
    let is_verb = |word: &str| VERBS.contains(&word.to_ascii_lowercase().as_str());
    if is_verb(resource) && !is_verb(verb) {
        return Err(CommandError::with_fix(
            format!("{resource} is a verb, and {verb} is none"),
            "write the verb first: keyferry can-i VERB RESOURCE",
        ));
    }
    Ok(())
}

/// Says that the bearer may not act as the user.
fn not_as(user: &str, target: &str, why: &str) -> String {
    format!(
        "the bearer of the token may not act as {} at {target}: {}",
        ui::plain(user),
        ui::plain(why),
    )
}

/// Returns the user name that the target applies: the bearer's, or that of the impersonated user.
async fn user(calls: &TargetCalls, plan: &Plan) -> Result<String, CommandError> {
    let Some(wanted) = &plan.impersonate else {
        let user = calls.review(None).await.ok();
        let name = user.as_ref().and_then(|user| user["username"].as_str());
        return Ok(name.unwrap_or("the bearer of the token").to_owned());
    };
    // A response without a user, such as that of another server, says nothing about impersonation.
    let answered = calls.review(Some(wanted)).await.ok();
    let answered = answered.filter(|answered| answered["username"].is_string());
    match answered.and_then(|answered| wanted.ignored(&answered)) {
        Some(problem) => Err(CommandError::with_fix(
            format!(
                "asking as {}: {}: {}",
                wanted.name,
                problem.cause.name(),
                problem.detail
            ),
            problem.cause.fix(),
        )),
        None => Ok(wanted.name.clone()),
    }
}

async fn can_apply(
    args: &CanIArgs,
    path: Option<&std::path::Path>,
    start: Option<&str>,
) -> Result<ExitCode, CommandError> {
    let start = match (start, &args.from) {
        (Some(_), Some(_)) => {
            return Err(CommandError::new(
                "the starting object is given twice, before -f and by --from",
            ));
        }
        (Some(start), None) => Some(start.parse::<StartArg>()?),
        (None, from) => from.clone(),
    };
    let input = Some(std::path::Path::new("-"));
    if path == input && args.objects.as_deref() == input {
        return Err(CommandError::with_fix(
            "both -f and --objects read standard input",
            "give one of them as a file",
        ));
    }
    let given = path.map(objects).transpose()?;
    let mut plan = args
        .target
        .plan(
            start.as_ref(),
            args.namespace.as_deref(),
            args.objects.as_deref(),
        )
        .await?;
    let ManifestObjects { objects, unbuilt } = match (given, plan.inventory.take()) {
        (Some(given), _) => given,
        (None, Some(objects)) => ManifestObjects {
            objects,
            ..ManifestObjects::default()
        },
        (None, None) => {
            let hint = "give them by -f PATH, or -f - for standard input, or start from a \
                kustomization that has applied before";
            return Err(CommandError::new(format!(
                "apply is asked about objects: {hint}"
            )));
        }
    };
    if objects.is_empty() {
        return Err(CommandError::new("there is no object to check"));
    }
    let calls = calls(&plan).await?;
    let user = user(&calls, &plan).await?;
    let place = args.target_namespace.as_deref().unwrap_or("default");
    let mut applied = apply::ask(&calls, &objects, place, plan.impersonate.as_ref()).await;
    // A kustomization's objects are unknown until it is built.
    let not_built = |file: &std::path::PathBuf| {
        format!(
            "{} is not built here: pipe kubectl kustomize DIR into -f -",
            file.display()
        )
    };
    applied.unknown.extend(unbuilt.iter().map(not_built));
    let code = match (applied.missing.is_empty(), applied.unknown.is_empty()) {
        _ if applied.denied.is_some() => ExitCode::FAILURE,
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(UNDETERMINED),
        (true, true) => ExitCode::SUCCESS,
    };
    if let Some(format) = args.format.output.document() {
        let document = document(&applied, &user);
        return Ok(ui::finish_document(&document, format, code));
    }
    let printed = ui::result(&ui::block(&text(&applied, &user, &plan.target_in_words())));
    Ok(if printed.is_ok() {
        code
    } else {
        ExitCode::FAILURE
    })
}

fn objects(path: &std::path::Path) -> Result<ManifestObjects, CommandError> {
    if path != std::path::Path::new("-") {
        return Ok(apply::objects(path)?);
    }
    let text = String::from_utf8(crate::local_file::read(path, "the objects", MAX_INPUT)?).ok();
    let objects = text
        .and_then(|text| apply::objects_of(&text))
        .ok_or_else(|| CommandError::new("reading the objects from -: it is not YAML"))?;
    Ok(ManifestObjects {
        objects,
        ..ManifestObjects::default()
    })
}

fn document(applied: &Applied, user: &str) -> Value {
    let rows = |needs: &[NeededRight]| {
        let row = |need: &NeededRight| json!({ "verb": need.verb, "group": need.group, "resource": need.resource, "name": need.name, "namespace": need.namespace });
        needs.iter().map(row).collect::<Vec<_>>()
    };
    let answer = match (applied.missing.is_empty(), applied.unknown.is_empty()) {
        _ if applied.denied.is_some() => "no",
        (false, _) => "no",
        (true, false) => "undetermined",
        (true, true) => "yes",
    };
    let roles = roles_for(&applied.missing);
    let bindings: Vec<Value> = roles.iter().map(|role| role_binding(role, user)).collect();
    json!({
        "schema": "keyferry.dev/can-i-apply/v1", "answer": answer, "allowed": rows(&applied.allowed), "missing": rows(&applied.missing),
        "undetermined": applied.unknown, "roles": roles, "bindings": bindings, "user": user,
        "detail": applied.denied, "reason": applied.denied.as_ref().map(|_| DENIED.name()),
        "fix": applied.denied.as_ref().map(|_| DENIED.fix()),
    })
}

fn text(applied: &Applied, user: &str, target: &str) -> String {
    for why in &applied.unknown {
        ui::note(&format!("undetermined: {}", why));
    }
    if let Some(why) = &applied.denied {
        ui::note(DENIED.name());
        ui::note(&format!("fix: {}", DENIED.fix()));
        return format!("no: {}", not_as(user, target, why));
    }
    if applied.missing.is_empty() {
        let word = if applied.unknown.is_empty() {
            "yes"
        } else {
            "undetermined"
        };
        return format!(
            "{word}: {} has {} right(s) at {target}",
            ui::plain(user),
            applied.allowed.len()
        );
    }
    let count = applied.missing.len();
    ui::note(&format!(
        "no: {} lacks {count} right(s) at {target}; these would grant them; review and apply them \
         there:",
        ui::plain(user)
    ));
    with_bindings(&roles_for(&applied.missing), user)
}

#[cfg(test)]
mod tests {
    use super::refuse_swapped;

    #[test]
    fn a_verb_in_the_place_of_the_resource_is_noticed() {
        assert!(refuse_swapped("pods", "get").is_err());
        assert!(refuse_swapped("pods", "LIST").is_err());
        for (verb, resource) in [("get", "pods"), ("frobnicate", "pods"), ("get", "watch")] {
            assert!(refuse_swapped(verb, resource).is_ok(), "{verb} {resource}");
        }
    }
}
