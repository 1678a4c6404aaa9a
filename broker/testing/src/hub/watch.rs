//! GET of one object, list, and watch.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::object::{Object, Resource, Shape};
use super::objects::{Change, Expired};
use super::policy::HubPolicy;
use crate::status::ApiError;

/// One object by name; `namespace` is empty for a namespace.
pub(super) fn get(
    hub: &HubPolicy,
    headers: &HeaderMap,
    resource: Resource,
    namespace: &str,
    name: &str,
) -> Result<Response, ApiError> {
    let object = hub
        .objects
        .get(resource, namespace, name)
        .ok_or_else(|| ApiError::not_found(resource.plural(), name))?;
    Ok(Json(object.to_json(shape(headers))).into_response())
}

/// A list, or with `watch=true` a stream of changes. An empty `namespace` means all of them.
pub(super) fn list_or_watch(
    hub: Arc<HubPolicy>,
    headers: &HeaderMap,
    resource: Resource,
    namespace: &str,
    query: Option<&str>,
) -> Result<Response, ApiError> {
    let query = Query::parse(query.unwrap_or_default())?;
    let selection = Selection {
        resource,
        namespace: namespace.to_owned(),
        name: query.name.clone(),
        shape: shape(headers),
    };
    if !query.watch {
        return Ok(Json(selection.list(&hub)).into_response());
    }
    let body = Body::from_stream(events(hub, selection, &query));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The supported query parameters; a label selector is refused, not ignored.
#[derive(Default)]
struct Query {
    watch: bool,
    send_initial_events: bool,
    /// The resourceVersion to start from; 0 = the current state.
    version: u64,
    timeout: Option<Duration>,
    name: Option<String>,
}

impl Query {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parsed = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let is_true = value == "true" || value == "1";
            match key.as_ref() {
                "watch" => parsed.watch = is_true,
                "sendInitialEvents" => parsed.send_initial_events = is_true,
                "resourceVersion" if !value.is_empty() => {
                    parsed.version = value
                        .parse()
                        .map_err(|_| ApiError::bad_request("resourceVersion is no number"))?;
                }
                "timeoutSeconds" => parsed.timeout = value.parse().ok().map(Duration::from_secs),
                "fieldSelector" if !value.is_empty() => {
                    let name = value.strip_prefix("metadata.name=").ok_or_else(|| {
                        ApiError::bad_request("only the field selector metadata.name=… is known")
                    })?;
                    parsed.name = Some(name.to_owned());
                }
                "labelSelector" if !value.is_empty() => {
                    return Err(ApiError::bad_request("label selectors are not served"));
                }
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Which objects an answer contains, and in which form.
struct Selection {
    resource: Resource,
    namespace: String,
    name: Option<String>,
    shape: Shape,
}

impl Selection {
    fn list(&self, hub: &HubPolicy) -> Value {
        let (objects, version) = hub.objects.list(self.resource, &self.namespace);
        let items: Vec<Value> = objects
            .iter()
            .filter(|object| self.selects(object))
            .map(|object| object.to_json(self.shape))
            .collect();
        let (kind, api_version) = match self.shape {
            Shape::Full => (format!("{}List", self.resource.kind()), "v1"),
            Shape::MetadataOnly => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1"),
        };
        json!({
            "kind": kind,
            "apiVersion": api_version,
            "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        })
    }

    fn selects(&self, object: &Object) -> bool {
        self.name.as_ref().is_none_or(|name| *name == object.name)
    }

    fn event(&self, change: &Change) -> String {
        line(change.kind, &change.object.to_json(self.shape))
    }

    /// Returns the bookmark that ends the initial events of a streaming list.
    fn bookmark(&self, version: u64) -> String {
        let (kind, api_version) = match self.shape {
            Shape::Full => (self.resource.kind(), "v1"),
            Shape::MetadataOnly => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        };
        let object = json!({
            "kind": kind,
            "apiVersion": api_version,
            "metadata": {
                "resourceVersion": version.to_string(),
                "creationTimestamp": null,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        line("BOOKMARK", &object)
    }
}

/// The position of a watch.
struct Cursor {
    hub: Arc<HubPolicy>,
    selection: Selection,
    versions: watch::Receiver<u64>,
    version: u64,
    /// Lines to send before the first check for changes.
    first: Option<String>,
    deadline: Instant,
    ended: bool,
}

/// How long a watch lasts when the client sets no limit.
const LONGEST_WATCH: Duration = Duration::from_secs(1800);

fn events(
    hub: Arc<HubPolicy>,
    selection: Selection,
    query: &Query,
) -> impl Stream<Item = Result<String, Infallible>> + use<> {
    // Subscribe before reading, so that no change falls between the two.
    let versions = hub.objects.versions();
    let (first, version) = if query.version == 0 || query.send_initial_events {
        initial_events(&hub, &selection, query.send_initial_events)
    } else {
        (String::new(), query.version)
    };
    let cursor = Cursor {
        hub,
        selection,
        versions,
        version,
        first: Some(first).filter(|first| !first.is_empty()),
        deadline: Instant::now() + query.timeout.unwrap_or(LONGEST_WATCH),
        ended: false,
    };
    stream::unfold(cursor, |mut cursor| async move {
        let lines = cursor.next().await?;
        Some((Ok(lines), cursor))
    })
}

impl Cursor {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.ended {
            self.versions.borrow_and_update();
            match self.changes() {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Some(lines),
                Err(Expired) => {
                    self.ended = true;
                    let status = ApiError::expired(self.version).to_status();
                    return Some(line("ERROR", &status));
                }
            }
            tokio::select! {
                changed = self.versions.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.deadline) => return None,
            }
        }
        None
    }

    /// Returns lines for all changes since the last call.
    fn changes(&mut self) -> Result<String, Expired> {
        let Selection {
            resource,
            namespace,
            ..
        } = &self.selection;
        let (changes, version) =
            self.hub
                .objects
                .changes_since(*resource, namespace, self.version)?;
        self.version = version;
        Ok(changes
            .iter()
            .filter(|change| self.selection.selects(&change.object))
            .map(|change| self.selection.event(change))
            .collect())
    }
}

fn initial_events(hub: &HubPolicy, selection: &Selection, bookmark: bool) -> (String, u64) {
    let (objects, version) = hub.objects.list(selection.resource, &selection.namespace);
    let mut lines: String = objects
        .into_iter()
        .filter(|object| selection.selects(object))
        .map(|object| {
            selection.event(&Change {
                kind: "ADDED",
                object,
            })
        })
        .collect();
    if bookmark {
        lines.push_str(&selection.bookmark(version));
    }
    (lines, version)
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// Returns the form that the first media type of `Accept` requests.
fn shape(headers: &HeaderMap) -> Shape {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    if first.contains("as=PartialObjectMetadata") {
        Shape::MetadataOnly
    } else {
        Shape::Full
    }
}
