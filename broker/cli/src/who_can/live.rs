//! Reads the hub and targets with the user's own rights, into memory alone, and compares a sample of
//! what RBAC says with what the hub answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_api::foreign_text::{ForeignText, one_line};
use keyferry_api::name::ObjectName;
use keyferry_client::ClientError;
use keyferry_client::target_trust::TargetReader;
use keyferry_hub::client::{HubClient, MAX_PAGE_BYTES};
use keyferry_hub::ports::HubError;
use keyferry_kube_rbac::RequestTarget;
use keyferry_reach::ListKind;
use keyferry_reach::answer::{Answers, Question, answer_question};
use keyferry_reach::report::Report;
use keyferry_reach::sample::{SampledCell, sample_cells};
use keyferry_reach::world::{MAX_SNAPSHOT_BYTES, ObjectError, SlimValue, TargetFiles, World};
use serde_json::{Value, json};

use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::target_folder::read_target_folder;
use crate::ui;

/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 500;
/// How many objects of one list are kept.
const MAX_OBJECTS: usize = 300_000;
/// The most characters of a warning, which may repeat a name of any length.
const MAX_WARNING_CHARS: usize = 500;
/// How long one list may take, however slowly its pages come.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of one list of the hub, as JSON and without what no answer needs.
const MAX_HUB_LIST_BYTES: u64 = 128 << 20;
/// The most bytes of one list of a target, so that no target takes the room of the others.
const MAX_TARGET_LIST_BYTES: u64 = 16 << 20;
/// How many cells are compared with the hub.
const SAMPLED_CELLS: usize = 200;
/// How many targets, or cells, are asked about at the same time.
const CONCURRENT_CALLS: usize = 16;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A client of the hub, and the namespace of the kubeconfig's context.
pub(super) async fn connect(hub: &HubArgs) -> Result<(HubClient, String), CommandError> {
    let config = hub.access().config().await?;
    let namespace = config.default_namespace.clone();
    Ok((HubClient::new(config)?, namespace))
}

/// What is read of the hub and of targets together, in bytes.
pub(super) fn read_budget() -> AtomicU64 {
    AtomicU64::new(MAX_SNAPSHOT_BYTES)
}

/// Reads every list of the hub. One that is refused is read in the own namespace, and what was not
/// read is unknown to every answer.
///
/// # Errors
/// The hub does not answer, or does not accept the credentials.
pub(super) async fn read_hub(
    client: &HubClient,
    own_namespace: &str,
    world: &mut World,
    bytes_left: &AtomicU64,
) -> Result<(), CommandError> {
    let hub = &mut world.hub;
    let reader = ListReader {
        client,
        list_limit: MAX_HUB_LIST_BYTES,
        bytes_left,
    };
    for kind in ListKind::ALL {
        let is_object = matches!(kind, ListKind::TargetClusters | ListKind::TargetAccesses);
        if is_object && hub.is_configured() {
            continue;
        }
        let read = reader.read_list(kind, None, |object| hub.add(object)).await;
        let fault = match read {
            Ok(()) => {
                hub.lists.note_whole(kind);
                continue;
            }
            Err(ListFault::Hub(
                error @ (HubError::Unreachable(_) | HubError::Unauthenticated(_)),
            )) => {
                let error = ClientError::HubCall {
                    doing: "reading the hub",
                    error,
                };
                return Err(CommandError::from(error)
                    .or_fix("check the hub's kubeconfig, or name a folder with --snapshot DIR"));
            }
            // Without Keyferry's definitions there is no such object.
            Err(ListFault::Hub(HubError::NotFound(_)))
                if kind == ListKind::AudiencePairings && hub.is_configured() =>
            {
                hub.lists.note_whole(kind);
                continue;
            }
            Err(fault) => fault,
        };
        note_unread("the hub", kind, &fault);
        let is_refused = matches!(fault, ListFault::Hub(HubError::Forbidden(_)));
        if is_refused && kind.is_namespaced() {
            let read = reader.read_list(kind, Some(own_namespace), |object| hub.add(object));
            if read.await.is_ok() {
                hub.lists.note_namespace(kind, own_namespace);
            }
        }
    }
    Ok(())
}

/// Reads RBAC and the release of each target that the folder has a kubeconfig of. A target that does
/// not answer hides no other.
pub(super) async fn read_targets(
    folder: &Path,
    world: &mut World,
    bytes_left: &AtomicU64,
) -> Result<(), CommandError> {
    let folder = read_target_folder(folder, |_| true)?;
    for (name, text) in folder.authentication {
        let files = Arc::make_mut(world.targets.entry(name).or_default());
        files.authentication = Some(text.into_bytes());
    }
    let read = stream::iter(folder.kubeconfigs).map(|(name, path)| async move {
        let files = read_target(&name, path, bytes_left).await;
        (name, files)
    });
    let read: Vec<(ObjectName, Option<TargetFiles>)> =
        read.buffer_unordered(CONCURRENT_CALLS).collect().await;
    for (name, files) in read {
        if let Some(mut files) = files {
            let in_folder = world.targets.get(&name);
            files.authentication = in_folder.and_then(|folder| folder.authentication.clone());
            world.targets.insert(name, Arc::new(files));
        }
    }
    Ok(())
}

async fn read_target(
    name: &ObjectName,
    kubeconfig: PathBuf,
    bytes_left: &AtomicU64,
) -> Option<TargetFiles> {
    let target = match TargetReader::open(&kubeconfig).await {
        Ok(target) => target,
        Err(error) => {
            let text = format!("warning: target {name} was not read: {error}");
            ui::note(&ui::plain(&text));
            ui::note(&format!("fix: {}", error.fix()));
            return None;
        }
    };
    let client = target.client();
    let mut files = TargetFiles::default();
    let version: Result<Value, HubError> = client.get_object("/version", "version").await;
    files.release = version
        .ok()
        .and_then(|version| version["gitVersion"].as_str()?.parse().ok());
    let reader = ListReader {
        client,
        list_limit: MAX_TARGET_LIST_BYTES,
        bytes_left,
    };
    for kind in ListKind::RBAC {
        match reader
            .read_list(kind, None, |object| files.add(object))
            .await
        {
            Ok(()) => files.lists.note_whole(kind),
            Err(fault) => note_unread(&format!("target {name}"), kind, &fault),
        }
    }
    Some(files)
}

/// Why a list is not whole. What was read of it before exists.
enum ListFault {
    Hub(HubError),
    Object(ObjectError),
    TooSlow,
    TooMany,
    /// The list, or all lists together, have more than this many bytes.
    TooLarge(&'static str, u64),
}

fn note_unread(cluster: &str, kind: ListKind, fault: &ListFault) {
    let why = match fault {
        ListFault::Hub(HubError::TooLarge) => {
            format!("an object has more than {} MiB", MAX_PAGE_BYTES >> 20)
        }
        ListFault::Hub(error) => error.to_string(),
        ListFault::Object(error) => error.to_string(),
        ListFault::TooSlow => format!("the list took more than {} s", LIST_TIMEOUT.as_secs()),
        ListFault::TooMany => format!("there are more than {MAX_OBJECTS} objects"),
        ListFault::TooLarge(subject, bytes) => format!("{subject} more than {} MiB", bytes >> 20),
    };
    let resource = kind.resource();
    let warning = format!("warning: {resource} of {cluster} were not read whole: {why}");
    ui::note(&one_line(&warning, MAX_WARNING_CHARS));
}

/// A cluster whose lists are read, and how much of them is kept.
struct ListReader<'a> {
    client: &'a HubClient,
    /// The most bytes of one list.
    list_limit: u64,
    /// What may still be read of all clusters together.
    bytes_left: &'a AtomicU64,
}

impl ListReader<'_> {
    /// Reads one list object by object.
    async fn read_list(
        &self,
        kind: ListKind,
        namespace: Option<&str>,
        mut add: impl FnMut(Value) -> Result<(), ObjectError>,
    ) -> Result<(), ListFault> {
        let path = kind.path(namespace);
        let (mut object_fault, mut objects, mut bytes) = (None, 0_usize, 0_u64);
        // A page that was too large is read again, and no one else compares Pods by their names.
        let mut pods = BTreeSet::new();
        let mut visit = |object: Value, secret_type: Option<&str>| {
            let object = reduced(typed(object, kind, secret_type));
            let size = u64::try_from(object.to_string().len()).unwrap_or(u64::MAX);
            (objects, bytes) = (objects + 1, bytes.saturating_add(size));
            let take = |left: u64| left.checked_sub(size);
            if objects > MAX_OBJECTS {
                return Some(ListFault::TooMany);
            }
            if bytes > self.list_limit {
                return Some(ListFault::TooLarge("the list has", self.list_limit));
            }
            if self
                .bytes_left
                .fetch_update(Relaxed, Relaxed, take)
                .is_err()
            {
                return Some(ListFault::TooLarge("all lists have", MAX_SNAPSHOT_BYTES));
            }
            let name = ["namespace", "name"].map(|field| object["metadata"][field].to_string());
            if kind == ListKind::Pods && !pods.insert(name) {
                return None;
            }
            if let Err(error) = add(object) {
                object_fault.get_or_insert(ListFault::Object(error));
            }
            None
        };
        let reading = async {
            // Of Secrets the apiserver sends no values, but it selects by the type.
            let parts: &[_] = match kind {
                ListKind::Secrets => &[("=", Some(TOKEN_TYPE)), ("!=", Some("Opaque"))],
                _ => &[("", None)],
            };
            for (operator, secret_type) in parts {
                let (path, accept) = match kind {
                    ListKind::Secrets => (
                        format!("{path}?fieldSelector=type{operator}{TOKEN_TYPE}"),
                        METADATA,
                    ),
                    ListKind::Definitions => (path.clone(), METADATA),
                    _ => (path.clone(), "application/json"),
                };
                let visit = |SlimValue(object)| visit(object, *secret_type);
                let read = self.client.visit_list(&path, accept, PAGE_OBJECTS, visit);
                if let Some(fault) = read.await.map_err(ListFault::Hub)? {
                    return Err(fault);
                }
            }
            Ok(())
        };
        match tokio::time::timeout(LIST_TIMEOUT, reading).await {
            Ok(Ok(())) => object_fault.map_or(Ok(()), Err),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(ListFault::TooSlow),
        }
    }
}

/// The object without what no answer needs, so that the limits are about the rest.
fn reduced(mut object: Value) -> Value {
    if let Some(annotations) = object.pointer_mut("/metadata/annotations")
        && let Some(annotations) = annotations.as_object_mut()
    {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if object["kind"] == ListKind::Pods.object_kind() {
        let phase = object.pointer("/status/phase").cloned();
        object["status"] = json!({ "phase": phase });
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| {
                ["serviceAccountName", "nodeName", "volumes"].contains(&field.as_str())
            });
        }
    }
    object
}

/// The object with its kind, which an apiserver leaves out of the items of a list.
fn typed(mut object: Value, kind: ListKind, secret_type: Option<&str>) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind".to_owned(), kind.object_kind().into());
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        if let Some(secret_type) = secret_type {
            fields.insert("type".to_owned(), secret_type.into());
        }
    }
    object
}

/// What the comparison with the hub says, for the report.
#[derive(Default)]
pub(super) struct LiveCheck {
    compared: Option<usize>,
    not_compared: Option<String>,
    disagreements: Vec<String>,
}

impl LiveCheck {
    pub(super) fn add_to(&self, report: &mut Report) {
        let text = |text: &String| ForeignText::new(text);
        report.checked = self.compared;
        report.not_checked = self.not_compared.as_ref().map(text);
        report.disagreements = self.disagreements.iter().map(text).collect();
    }
}

/// Asks the hub about a sample of what its RBAC says. Where it disagrees, the question is answered
/// again without the rights of that user.
pub(super) async fn check_answers(
    client: &HubClient,
    world: &mut World,
    question: &Question,
    answers: &mut Answers,
) -> LiveCheck {
    let cells = sample_cells(world, question, SAMPLED_CELLS);
    let reviews: Result<Vec<bool>, HubError> = stream::iter(&cells)
        .map(|cell| is_allowed(client, cell))
        .buffered(CONCURRENT_CALLS)
        .try_collect()
        .await;
    let reviews = match reviews {
        Ok(reviews) => reviews,
        Err(error) => {
            let why = match error {
                HubError::Forbidden(_) => "your rights lack create subjectaccessreviews".to_owned(),
                error => error.to_string(),
            };
            return LiveCheck {
                not_compared: Some(why),
                ..LiveCheck::default()
            };
        }
    };
    let compared = cells.iter().zip(reviews);
    let wrong: Vec<&SampledCell> = compared
        .filter(|(cell, is_allowed)| cell.is_allowed != *is_allowed)
        .map(|(cell, _)| cell)
        .collect();
    for cell in &wrong {
        world.distrust(cell);
    }
    if !wrong.is_empty() {
        *answers = answer_question(world, question);
    }
    LiveCheck {
        compared: Some(cells.len()),
        not_compared: None,
        disagreements: wrong.iter().map(|cell| cell.disagreement()).collect(),
    }
}

async fn is_allowed(client: &HubClient, cell: &SampledCell) -> Result<bool, HubError> {
    let groups: Vec<&str> = cell.groups().collect();
    let mut spec = json!({ "user": cell.user(), "groups": groups });
    let verb = &cell.request.verb;
    match &cell.request.target {
        RequestTarget::Path(path) => {
            spec["nonResourceAttributes"] = json!({ "verb": verb, "path": path });
        }
        RequestTarget::Resource(request) => {
            spec["resourceAttributes"] = json!({
                "verb": verb, "group": request.group, "resource": request.resource,
                "subresource": request.subresource, "namespace": request.namespace,
                "name": request.name,
            });
        }
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
    });
    let answer: Value = client
        .create(REVIEWS, &review, "SubjectAccessReview")
        .await?;
    let status = &answer["status"];
    Ok(status["allowed"] == true && status["denied"] != true)
}
