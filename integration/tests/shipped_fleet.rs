//! What the suites of both shipped fleets share: the files of an example, what the hub's admission
//! refuses, and what the audit log of a target says.

use std::path::Path;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestError;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::shipped;
use serde_json::Value;

/// A path in a repository or an artifact, and the text of the file.
pub(crate) type File = (String, String);

/// A name, the change to a valid spec, and the text of the refusal.
pub(crate) type RefusedSpec = (&'static str, fn(&mut Value), &'static str);

/// All files of a folder of the repository, with their paths below it.
pub(crate) fn files_below(folder: &str) -> Result<Vec<File>, TestError> {
    let mut files = Vec::new();
    collect(&shipped(folder), "", &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, below: &str, files: &mut Vec<File>) -> Result<(), TestError> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or("a file of the example has no name")?;
        let shown = if below.is_empty() {
            name.to_owned()
        } else {
            format!("{below}/{name}")
        };
        match path.is_dir() {
            true => collect(&path, &shown, files)?,
            false => files.push((shown, std::fs::read_to_string(&path)?)),
        }
    }
    Ok(())
}

/// The path of a Kustomization on the hub.
pub(crate) fn kustomization(namespace: &str, name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{namespace}/kustomizations/{name}")
}

/// The text of a ConfigMap of a tenant at a target.
pub(crate) fn config_map_of(tenant: &str, namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         data:\n  owner: {tenant}\n"
    )
}

/// Replaces a text that the shipped file must hold.
pub(crate) fn replaced(text: &str, needle: &str, by: &str) -> Result<String, TestError> {
    match text.contains(needle) {
        true => Ok(text.replace(needle, by)),
        false => Err(format!("the shipped file does not hold {needle:?}").into()),
    }
}

/// Checks that the hub's admission refused the request, and for this cause.
pub(crate) fn refused(
    answer: Result<Value, RestError>,
    said: &str,
    case: &str,
) -> Result<(), TestError> {
    match answer {
        Err(RestError::Status {
            status: 422 | 403,
            message,
            ..
        }) if message.contains(said) => Ok(()),
        other => Err(format!("{case}: expected a refusal with {said:?}, not {other:?}").into()),
    }
}

/// Checks that the hub takes the object, and refuses it with each of these changes of its spec.
pub(crate) async fn each_is_refused(
    hub: &ControlPlane,
    path: &str,
    good: &Value,
    cases: &[RefusedSpec],
) -> Result<(), TestError> {
    hub.admin().create(path, good).await?;
    for (case, change, said) in cases {
        let mut bad = good.clone();
        change(&mut bad["spec"]);
        refused(hub.admin().create(path, &bad).await, said, case)?;
    }
    Ok(())
}

/// Checks that the tenant's settings were applied in this namespace of the target, by the hub's
/// user for the tenant, who impersonates the tenant's ServiceAccount of the target.
pub(crate) fn settings_are_the_tenants(events: &[Value], namespace: &str, tenant: &str) {
    let applied: Vec<&Value> = events
        .iter()
        .filter(|event| {
            event["verb"] == "patch"
                && event["objectRef"]["name"] == "settings"
                && event["objectRef"]["namespace"] == namespace
        })
        .collect();
    assert!(!applied.is_empty(), "{tenant} applied nothing");
    for event in applied {
        assert_eq!(
            event["user"]["username"],
            format!("hub:system:serviceaccount:{tenant}:reconciler"),
            "{event}"
        );
        assert_eq!(
            event["impersonatedUser"]["username"],
            format!("system:serviceaccount:{tenant}:reconciler"),
            "{event}"
        );
    }
}
