//! `keyferry can-i apply`: whether a user may do all that an application of objects needs.

use std::process::ExitCode;

use keyferry_client::doctor::apply::{self, Applied, ManifestObjects};
use keyferry_client::doctor::identity::calls;
use keyferry_client::doctor::plan::Plan;
use keyferry_kube_authn::rights::{NeededRight, role_binding, roles_for};
use serde_json::{Value, json};

use super::{Answer, CanIArgs, DENIED, MAX_INPUT, not_as, user};
use crate::args::start_arg::StartArg;
use crate::command_error::CommandError;
use crate::role_manifest::with_bindings;
use crate::ui;

pub(super) async fn can_apply(
    args: &CanIArgs,
    path: Option<&std::path::Path>,
    start: Option<&str>,
) -> Result<ExitCode, CommandError> {
    let start = starting_object(args, start)?;
    let input = Some(std::path::Path::new("-"));
    if path == input && args.objects.as_deref() == input {
        return Err(CommandError::with_fix(
            "both -f and --objects read standard input",
            "give one of them as a file",
        ));
    }
    let from_path = path.map(objects).transpose()?;
    let mut plan = args
        .target
        .plan(
            start.as_ref(),
            args.namespace.as_deref(),
            args.objects.as_deref(),
        )
        .await?;
    let ManifestObjects { objects, unbuilt } = objects_to_apply(from_path, &mut plan)?;
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
    let answer = application_answer(&applied);
    if let Some(format) = args.format.output.document() {
        let document = document(&applied, &user);
        return Ok(ui::finish_document(&document, format, answer.exit_code()));
    }
    let printed = ui::result(&ui::block(&text(&applied, &user, &plan.target_in_words())));
    Ok(answer.exit_code_after(printed))
}

/// The object to start from: before `-f`, or by `--from`.
fn starting_object(
    args: &CanIArgs,
    before_files: Option<&str>,
) -> Result<Option<StartArg>, CommandError> {
    match (before_files, &args.from) {
        (Some(_), Some(_)) => Err(CommandError::new(
            "the starting object is given twice, before -f and by --from",
        )),
        (Some(start), None) => Ok(Some(start.parse()?)),
        (None, from) => Ok(from.clone()),
    }
}

/// The objects of the files, or else those that a Kustomization has applied before.
fn objects_to_apply(
    from_path: Option<ManifestObjects>,
    plan: &mut Plan,
) -> Result<ManifestObjects, CommandError> {
    let of_inventory = |objects| ManifestObjects {
        objects,
        ..ManifestObjects::default()
    };
    let objects = from_path.or_else(|| plan.inventory.take().map(of_inventory));
    match objects {
        Some(given) if given.objects.is_empty() => {
            Err(CommandError::new("there is no object to check"))
        }
        Some(given) => Ok(given),
        None => {
            let hint = "give them by -f PATH, or -f - for standard input, or start from a \
                kustomization that has applied before";
            Err(CommandError::new(format!(
                "apply is asked about objects: {hint}"
            )))
        }
    }
}

fn application_answer(applied: &Applied) -> Answer {
    if applied.denied.is_some() || !applied.missing.is_empty() {
        Answer::No
    } else if !applied.unknown.is_empty() {
        Answer::Undetermined
    } else {
        Answer::Yes
    }
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
    let roles = roles_for(&applied.missing);
    let bindings: Vec<Value> = roles.iter().map(|role| role_binding(role, user)).collect();
    json!({
        "schema": "keyferry.dev/can-i-apply/v1", "answer": application_answer(applied).word(), "allowed": rows(&applied.allowed), "missing": rows(&applied.missing),
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
        return format!(
            "{}: {} has {} right(s) at {target}",
            application_answer(applied).word(),
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
