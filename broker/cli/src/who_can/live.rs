//! Reads the hub and targets with the user's own rights, into memory alone, and compares a sample of
//! what RBAC says with what the hub answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use keyferry_client::ClientError;
use keyferry_client::target_trust::TargetReader;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use keyferry_kube_rbac::RequestTarget;
use keyferry_reach::ListKind;
use keyferry_reach::answer::{Answers, Question, answer_question};
use keyferry_reach::report::Report;
use keyferry_reach::sample::{SampledCell, sample_cells};
use keyferry_reach::world::{ObjectError, TargetFiles, World};
use serde_json::{Value, json};

use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::target_folder::read_target_folder;
use crate::ui;

/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 500;
/// How many objects of one list are kept.
const MAX_OBJECTS: usize = 300_000;
/// How long one list may take, however slowly its pages come.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// How many pages of metadata one list may have.
const MAX_METADATA_PAGES: usize = 2_000;
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

/// Reads every list of the hub. One that is refused is read in the own namespace, and what was not
/// read is unknown to every answer.
///
/// # Errors
/// The hub does not answer, or does not accept the credentials.
pub(super) async fn read_hub(
    client: &HubClient,
    own_namespace: &str,
    world: &mut World,
) -> Result<(), CommandError> {
    let hub = &mut world.hub;
    for kind in ListKind::ALL {
        let is_object = matches!(kind, ListKind::TargetClusters | ListKind::TargetAccesses);
        if is_object && hub.is_configured() {
            continue;
        }
        let read = read_list(client, kind, None, |object| hub.add(object)).await;
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
            let read = read_list(client, kind, Some(own_namespace), |object| hub.add(object));
            if read.await.is_ok() {
                hub.lists.note_namespace(kind, own_namespace);
            }
        }
    }
    Ok(())
}

/// Reads RBAC and the release of each target that the folder has a kubeconfig of. A target that does
/// not answer hides no other.
pub(super) async fn read_targets(folder: &Path, world: &mut World) -> Result<(), CommandError> {
    let folder = read_target_folder(folder, |_| true)?;
    for (name, text) in folder.authentication {
        let files = Arc::make_mut(world.targets.entry(name).or_default());
        files.authentication = Some(text.into_bytes());
    }
    let read = stream::iter(folder.kubeconfigs).map(|(name, path)| async move {
        let files = read_target(&name, path).await;
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

async fn read_target(name: &ObjectName, kubeconfig: PathBuf) -> Option<TargetFiles> {
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
    for kind in ListKind::RBAC {
        match read_list(client, kind, None, |object| files.add(object)).await {
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
}

fn note_unread(cluster: &str, kind: ListKind, fault: &ListFault) {
    let why = match fault {
        ListFault::Hub(error) => error.to_string(),
        ListFault::Object(error) => error.to_string(),
        ListFault::TooSlow => format!("the list took more than {} s", LIST_TIMEOUT.as_secs()),
        ListFault::TooMany => format!("there are more than {MAX_OBJECTS} objects"),
    };
    let resource = kind.resource();
    ui::note(&ui::plain(&format!(
        "warning: {resource} of {cluster} were not read whole: {why}"
    )));
}

/// Reads one list object by object.
async fn read_list(
    client: &HubClient,
    kind: ListKind,
    namespace: Option<&str>,
    mut add: impl FnMut(Value) -> Result<(), ObjectError>,
) -> Result<(), ListFault> {
    let path = path_of(kind, namespace);
    let (mut fault, mut objects) = (None, 0_usize);
    let mut keep = |object: Value, secret_type: Option<&str>| {
        objects += 1;
        if objects > MAX_OBJECTS {
            fault.get_or_insert(ListFault::TooMany);
        } else if let Err(error) = add(typed(object, kind, secret_type)) {
            fault.get_or_insert(ListFault::Object(error));
        }
    };
    let reading = async {
        match kind {
            // The values never leave the apiserver, but it selects by the type.
            ListKind::Secrets => {
                for (operator, secret_type) in [("=", TOKEN_TYPE), ("!=", "Opaque")] {
                    let path = format!("{path}?fieldSelector=type{operator}{TOKEN_TYPE}");
                    read_metadata(client, &path, |item| keep(item, Some(secret_type))).await?;
                }
                Ok(())
            }
            ListKind::Definitions => {
                read_metadata(client, &format!("{path}?"), |item| keep(item, None)).await
            }
            _ => {
                let keep = |item: Value| {
                    keep(item, None);
                    None::<()>
                };
                let list = client.list(&path, PAGE_OBJECTS, "list", keep);
                list.await.map(|_| ())
            }
        }
    };
    match tokio::time::timeout(LIST_TIMEOUT, reading).await {
        Ok(Ok(())) => fault.map_or(Ok(()), Err),
        Ok(Err(error)) => Err(ListFault::Hub(error)),
        Err(_) => Err(ListFault::TooSlow),
    }
}

/// Reads the metadata of a list, page by page. `path` has a query.
async fn read_metadata(
    client: &HubClient,
    path: &str,
    mut keep: impl FnMut(Value),
) -> Result<(), HubError> {
    let mut next = String::new();
    for _ in 0..MAX_METADATA_PAGES {
        let page = format!("{path}&limit={PAGE_OBJECTS}{next}");
        let bytes = client.get(&page, METADATA).await?;
        let mut page: Value =
            serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable("list"))?;
        let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else {
            return Err(HubError::Unreadable("list"));
        };
        items.into_iter().for_each(&mut keep);
        next = match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => {
                let token: String =
                    url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
                format!("&continue={token}")
            }
            _ => return Ok(()),
        };
    }
    Err(HubError::Unreadable("list"))
}

/// The object with its kind, which an apiserver leaves out of the items of a list.
fn typed(mut object: Value, kind: ListKind, secret_type: Option<&str>) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind".to_owned(), kind.object_kind().into());
        fields.insert("apiVersion".to_owned(), group_version(kind).into());
        if let Some(secret_type) = secret_type {
            fields.insert("type".to_owned(), secret_type.into());
        }
    }
    object
}

fn group_version(kind: ListKind) -> &'static str {
    match kind {
        ListKind::ClusterRoles
        | ListKind::ClusterRoleBindings
        | ListKind::Roles
        | ListKind::RoleBindings => "rbac.authorization.k8s.io/v1",
        ListKind::ServiceAccounts | ListKind::Namespaces | ListKind::Pods | ListKind::Secrets => {
            "v1"
        }
        ListKind::TargetClusters | ListKind::TargetAccesses | ListKind::AudiencePairings => {
            "keyferry.dev/v1alpha1"
        }
        ListKind::AdmissionPolicies | ListKind::AdmissionPolicyBindings => {
            "admissionregistration.k8s.io/v1"
        }
        ListKind::Definitions => "apiextensions.k8s.io/v1",
    }
}

fn path_of(kind: ListKind, namespace: Option<&str>) -> String {
    let version = group_version(kind);
    let root = if version == "v1" { "api" } else { "apis" };
    let namespace = namespace.map(|name| format!("namespaces/{name}/"));
    let resource = kind.resource();
    format!(
        "/{root}/{version}/{}{resource}",
        namespace.unwrap_or_default()
    )
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
