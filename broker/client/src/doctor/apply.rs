//! Asks a target whether all objects of YAML files may be applied there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keyferry_kube_authn::rights::{
    ManifestKind, NeededRight, Served, defined_kinds, kind_of, needed_rights,
};
use keyferry_platform::regular_file::{self, FileError};
use serde::Deserialize;
use serde_json::Value;

use crate::doctor::api_discovery::ApiResourceList;
use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::resource_attributes::ResourceAttributes;
use crate::doctor::target_calls::{AccessError, TargetCallError, TargetCalls};

const MAX_FILES: usize = 10_000;
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_DEPTH: usize = 32;

/// The rights that were found for a set of objects.
#[derive(Debug, Default)]
pub struct Applied {
    /// Rights that the user has.
    pub allowed: Vec<NeededRight>,
    /// Rights that the user lacks.
    pub missing: Vec<NeededRight>,
    /// Questions that could not be asked, and why.
    pub unknown: Vec<String>,
    /// Why the target refuses the impersonation itself, which leaves every question open.
    pub denied: Option<String>,
}

/// Objects read from files, and files that would have to be built first.
#[derive(Debug, Default)]
pub struct ManifestObjects {
    /// The objects that were read.
    pub objects: Vec<Value>,
    /// Kustomization files, which are not built here.
    pub unbuilt: Vec<PathBuf>,
}

/// A file or folder of manifests cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("reading {}: {problem}", path.display())]
pub struct ManifestError {
    /// The file or folder.
    pub path: PathBuf,
    /// The problem with it.
    pub problem: ManifestProblem,
}

/// Why manifests cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestProblem {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not text.
    #[error("it is not text in UTF-8")]
    NotText,
    /// The file does not parse.
    #[error("it is not YAML")]
    NotYaml,
    /// The folder has too many files, or nests too deeply.
    #[error("there are too many files")]
    TooManyFiles,
}

/// Why it is not known how a target serves a kind.
#[derive(Debug, thiserror::Error)]
enum ServedProblem {
    #[error("it is not an apiVersion")]
    NotApiVersion,
    #[error(transparent)]
    Call(#[from] TargetCallError),
    #[error("the target does not serve it")]
    NotServed,
}

/// Reads every object of `path`: a file, or the `.yaml`, `.yml` and `.json` files below a folder.
///
/// # Errors
/// [`ManifestError`].
pub fn objects(path: &Path) -> Result<ManifestObjects, ManifestError> {
    let (mut files, mut found) = (Vec::new(), ManifestObjects::default());
    collect(path, &mut files, &mut found.unbuilt, 0)?;
    for file in files {
        match objects_of_file(&file) {
            Ok(objects) => found.objects.extend(objects),
            Err(problem) => {
                return Err(ManifestError {
                    path: file,
                    problem,
                });
            }
        }
    }
    Ok(found)
}

fn objects_of_file(file: &Path) -> Result<Vec<Value>, ManifestProblem> {
    let text = regular_file::read_regular_file(file, MAX_FILE_BYTES)?;
    let text = String::from_utf8(text).map_err(|_| ManifestProblem::NotText)?;
    objects_of(&text).ok_or(ManifestProblem::NotYaml)
}

/// Reads the objects of YAML documents and expands lists. Returns `None` if the text is not YAML.
pub fn objects_of(text: &str) -> Option<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    let mut objects = Vec::new();
    for document in documents {
        match ObjectList::deserialize(&document) {
            Ok(list) if list.kind.ends_with("List") => objects.extend(list.items),
            _ if document.is_null() => {}
            _ => objects.push(document),
        }
    }
    Some(objects)
}

/// A list of objects, as `kubectl get -o yaml` prints it.
#[derive(Deserialize)]
struct ObjectList {
    kind: String,
    items: Vec<Value>,
}

fn collect(
    path: &Path,
    files: &mut Vec<PathBuf>,
    unbuilt: &mut Vec<PathBuf>,
    depth: usize,
) -> Result<(), ManifestError> {
    let failed = |problem| ManifestError {
        path: path.to_owned(),
        problem,
    };
    let wrong = |error: std::io::Error| failed(FileError::from(error).into());
    if depth > MAX_DEPTH || files.len() > MAX_FILES {
        return Err(failed(ManifestProblem::TooManyFiles));
    }
    if !std::fs::metadata(path).map_err(wrong)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(wrong)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    entries.sort();
    for entry in entries {
        let yaml = entry.extension().is_some_and(|extension| {
            ["yaml", "yml", "json"]
                .iter()
                .any(|known| extension == *known)
        });
        let name = entry
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if ["kustomization.yaml", "kustomization.yml", "Kustomization"].contains(&name) {
            unbuilt.push(entry);
        } else if entry.is_dir() || yaml {
            collect(&entry, files, unbuilt, depth + 1)?;
        }
    }
    Ok(())
}

/// Asks the target about every object. Identical questions are asked once.
pub async fn ask(
    calls: &TargetCalls,
    objects: &[Value],
    default_namespace: &str,
    user: Option<&ImpersonatedUser>,
) -> Applied {
    let mut kinds: BTreeMap<ManifestKind, Result<Served, ServedProblem>> = defined_kinds(objects)
        .into_iter()
        .map(|(kind, served)| (kind, Ok(served)))
        .collect();
    let mut applied = Applied::default();
    let mut questions = std::collections::BTreeSet::new();
    for object in objects {
        let Some(kind) = kind_of(object) else {
            applied
                .unknown
                .push("an object has no apiVersion or kind".to_owned());
            continue;
        };
        if !kinds.contains_key(&kind) {
            let served = served(calls, &kind).await;
            kinds.insert(kind.clone(), served);
        }
        match kinds.get(&kind) {
            Some(Ok(served)) => questions.extend(needed_rights(object, served, default_namespace)),
            Some(Err(problem)) => applied
                .unknown
                .push(format!("{} of {}: {problem}", kind.kind, kind.api_version)),
            None => {}
        }
    }
    for need in questions {
        let attributes = ResourceAttributes {
            verb: need.verb.to_owned(),
            group: need.group.clone(),
            resource: need.resource.clone(),
            name: need.name.clone(),
            namespace: need.namespace.clone().unwrap_or_default(),
            ..ResourceAttributes::default()
        };
        match calls.access(&attributes, user).await {
            Ok(true) => applied.allowed.push(need),
            Ok(false) => applied.missing.push(need),
            Err(AccessError::Impersonation(why)) => {
                applied.denied = Some(why.to_string());
                break;
            }
            Err(AccessError::Unknown(why)) => applied
                .unknown
                .push(format!("{} {}: {why}", need.verb, need.resource)),
        }
    }
    applied.unknown.sort();
    applied.unknown.dedup();
    applied
}

async fn served(calls: &TargetCalls, kind: &ManifestKind) -> Result<Served, ServedProblem> {
    let (group, path) = match kind.api_version.split_once('/') {
        Some((group, _)) => (group, format!("/apis/{}", kind.api_version)),
        None => ("", format!("/api/{}", kind.api_version)),
    };
    // A tenant can write this, in the inventory of a Kustomization, so it must not change the path.
    if !is_api_version(&kind.api_version) {
        return Err(ServedProblem::NotApiVersion);
    }
    let list: ApiResourceList = calls.get_json(&path).await?;
    let resource = list
        .resources
        .into_iter()
        .find(|resource| resource.kind == kind.kind && resource.is_whole())
        .ok_or(ServedProblem::NotServed)?;
    Ok(Served {
        group: group.to_owned(),
        resource: resource.name,
        namespaced: resource.namespaced,
    })
}

/// Accepts `VERSION` or `GROUP/VERSION`, each of letters, digits, dots and dashes, but not of dots
/// and dashes alone.
fn is_api_version(text: &str) -> bool {
    let is_name = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && part.bytes().any(|byte| byte.is_ascii_alphanumeric())
    };
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() <= 2 && parts.into_iter().all(is_name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ManifestProblem, is_api_version, objects};

    #[test]
    fn an_api_version_leads_to_no_other_path() {
        for good in ["v1", "apps/v1", "source.toolkit.fluxcd.io/v1beta2"] {
            assert!(is_api_version(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "..",
            "../v1",
            "apps/..",
            "apps/v1/../../../api",
            "v1?x",
            "a b",
        ] {
            assert!(!is_api_version(bad), "{bad}");
        }
    }

    #[test]
    fn objects_are_found_in_files_below_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "kind: A\n---\n---\nkind: B\n");
        write(
            "below/c.yml",
            "kind: XList\nitems: [{kind: C}, {kind: D}]\n",
        );
        write("kustomization.yaml", "resources: [a.yaml]\n");
        write("notes.txt", "no yaml: [\n");
        let found = objects(folder.path()).unwrap();
        let kinds: Vec<_> = found
            .objects
            .iter()
            .map(|one| one["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, ["A", "B", "C", "D"]);
        assert_eq!(found.unbuilt, [folder.path().join("kustomization.yaml")]);
        write("broken.yaml", "a: [\n");
        let error = objects(folder.path()).unwrap_err();
        assert_eq!(error.path, folder.path().join("broken.yaml"));
        assert!(matches!(error.problem, ManifestProblem::NotYaml), "{error}");
    }
}
