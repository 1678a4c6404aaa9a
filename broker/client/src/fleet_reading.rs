//! Reads a hub for `keyferry fleet` and `keyferry snapshot`, with the user's own rights. A list that
//! is refused, or breaks off, becomes a gap, and all else is shown.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::ReducedObject;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::Namespace;
use keyferry_core::self_subject_review::{self, SelfSubjectReview};
use keyferry_fleet::facts::Source;
use keyferry_fleet::folder::MAX_FOLDER_BYTES;
use keyferry_fleet::gap::{Gap, GapCause};
use keyferry_fleet::snapshot::{Added, MAX_OBJECTS, Snapshot};
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;

use crate::ClientError;

const GROUP_PATH: &str = "/apis/keyferry.dev/v1alpha1";
/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 500;
/// How long one list may take, however slowly its pages come.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of all objects, as JSON. As YAML they fit into a folder that is read again.
const MAX_HUB_BYTES: u64 = MAX_FOLDER_BYTES / 2;

/// Which part of a hub is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetScope {
    /// All of it. Where the list of all accesses is refused, those of this namespace.
    Hub {
        /// The namespace of the kubeconfig's context.
        own_namespace: Option<Namespace>,
    },
    /// What a tenant of this namespace may read: its accesses.
    Tenant(Namespace),
}

/// Reads the TargetClusters and TargetAccesses of the hub at `server`. Each object is given to
/// `each_object` too, as soon as it was read.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub did not answer at all, or does not accept the credentials.
pub async fn read_fleet(
    client: &HubClient,
    server: &str,
    scope: FleetScope,
    now: Timestamp,
    each_object: &mut (dyn FnMut(&ReducedObject) + Send),
) -> Result<Snapshot, ClientError> {
    read_up_to(MAX_HUB_BYTES, client, server, scope, now, each_object).await
}

async fn read_up_to(
    bytes_left: u64,
    client: &HubClient,
    server: &str,
    scope: FleetScope,
    now: Timestamp,
    each_object: &mut (dyn FnMut(&ReducedObject) + Send),
) -> Result<Snapshot, ClientError> {
    let source = Source::Hub {
        server: ForeignText::new(server),
    };
    let mut snapshot = Snapshot::new(source, now);
    snapshot.user = own_user(client).await;
    let mut reading = Reading {
        client,
        snapshot,
        each_object,
        bytes_left,
    };
    match scope {
        FleetScope::Tenant(namespace) => {
            let fault = reading.read_accesses_of(&namespace).await?;
            reading.note_accesses(fault, Some(&namespace));
            reading.snapshot.tenant = Some(namespace);
        }
        FleetScope::Hub { own_namespace } => {
            let fault = reading.read_list("targetclusters", "TargetCluster").await?;
            reading.note_targets(fault);
            let fault = reading.read_list("targetaccesses", "TargetAccess").await?;
            let is_refused = matches!(&fault, Some(ListFault::Hub(HubError::Forbidden(_))));
            reading.note_accesses(fault, None);
            if let Some(namespace) = own_namespace.filter(|_| is_refused)
                && reading.read_accesses_of(&namespace).await?.is_none()
            {
                reading.snapshot.tenant = Some(namespace);
            }
        }
    }
    Ok(reading.snapshot)
}

/// What is read so far.
struct Reading<'a> {
    client: &'a HubClient,
    snapshot: Snapshot,
    each_object: &'a mut (dyn FnMut(&ReducedObject) + Send),
    /// How much more is kept.
    bytes_left: u64,
}

/// Why a list is not whole. What was read of it before is kept.
enum ListFault {
    Hub(HubError),
    TooSlow,
    TooMany,
    TooLarge,
}

impl Reading<'_> {
    async fn read_accesses_of(
        &mut self,
        namespace: &Namespace,
    ) -> Result<Option<ListFault>, ClientError> {
        let path = format!("namespaces/{namespace}/targetaccesses");
        self.read_list(&path, "TargetAccess").await
    }

    /// Reads one list. A hub that answered nothing so far is an error, because a page without any
    /// fact would say less than its message.
    async fn read_list(
        &mut self,
        path: &str,
        kind: &str,
    ) -> Result<Option<ListFault>, ClientError> {
        let path = format!("{GROUP_PATH}/{path}");
        let snapshot = &mut self.snapshot;
        let each_object = &mut self.each_object;
        let bytes_left = &mut self.bytes_left;
        let keep = |object: ReducedObject| {
            // Some servers omit the kind in the items of a list.
            let object = object.of_kind(kind);
            let size = object.clone().into_value().to_string().len();
            *bytes_left = bytes_left.saturating_sub(u64::try_from(size).unwrap_or(u64::MAX));
            if *bytes_left == 0 {
                return Some(ListFault::TooLarge);
            }
            if snapshot.add_object(&object) == Added::TooMany {
                return Some(ListFault::TooMany);
            }
            each_object(&object);
            None
        };
        // The first fault ends the reading.
        let list = self
            .client
            .list_until_kept(&path, PAGE_OBJECTS, 1, "list", keep);
        let fault = match tokio::time::timeout(LIST_TIMEOUT, list).await {
            Ok(Ok(faults)) => faults.into_iter().next(),
            Ok(Err(error)) => Some(ListFault::Hub(error)),
            Err(_) => Some(ListFault::TooSlow),
        };
        let is_silent = self.snapshot.user.is_none()
            && self.snapshot.targets.is_empty()
            && self.snapshot.accesses.is_empty();
        match fault {
            Some(ListFault::Hub(
                error @ (HubError::Unreachable(_) | HubError::Unauthenticated(_)),
            )) if is_silent => Err(ClientError::HubCall {
                doing: "reading the fleet from the hub",
                error,
            }),
            fault => Ok(fault),
        }
    }

    fn note_targets(&mut self, fault: Option<ListFault>) {
        if let Some(fault) = fault {
            let gap = Gap::of_targets(fault.cause(), &fault.message());
            self.snapshot.gaps.push(fault.with_fix(gap));
        }
    }

    fn note_accesses(&mut self, fault: Option<ListFault>, namespace: Option<&Namespace>) {
        if let Some(fault) = fault {
            let gap = Gap::of_accesses(fault.cause(), namespace.cloned(), &fault.message());
            self.snapshot.gaps.push(fault.with_fix(gap));
        }
    }
}

impl ListFault {
    fn cause(&self) -> GapCause {
        match self {
            Self::Hub(HubError::Forbidden(_)) => GapCause::Refused,
            Self::Hub(HubError::NotFound(_)) => GapCause::Absent,
            Self::TooMany | Self::TooLarge => GapCause::Cut,
            Self::Hub(_) | Self::TooSlow => GapCause::Failed,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Hub(error) => error.to_string(),
            Self::TooSlow => format!("the list took more than {} s", LIST_TIMEOUT.as_secs()),
            Self::TooMany => format!("there are more than {MAX_OBJECTS} objects"),
            Self::TooLarge => format!("the objects have more than {} MiB", MAX_HUB_BYTES >> 20),
        }
    }

    /// Says what to do about a hub without Keyferry's definitions: its server reads a file.
    fn with_fix(&self, gap: Gap) -> Gap {
        match self {
            Self::Hub(HubError::NotFound(_)) => Gap {
                fix: "show the server's file with --config FILE, or create the definitions with \
                      keyferry crds"
                    .to_owned(),
                ..gap
            },
            _ => gap,
        }
    }
}

/// The user of the client, as the hub authenticates it; `None` if the hub does not say it.
async fn own_user(client: &HubClient) -> Option<ForeignText> {
    let review: SelfSubjectReview = client
        .create(
            self_subject_review::REVIEW_PATH,
            &self_subject_review::review_request(),
            self_subject_review::REVIEW_KIND,
        )
        .await
        .ok()?;
    Some(ForeignText::new(&review.status.user_info.username))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::answering_hub;

    fn review() -> serde_json::Value {
        json!({ "status": { "userInfo": { "username": "jane" } } })
    }

    fn page(name: &str, next: &str) -> serde_json::Value {
        json!({ "kind": "TargetClusterList", "metadata": { "continue": next, "resourceVersion": "1" },
                "items": [{ "metadata": { "name": name, "uid": "u", "resourceVersion": "1" } }] })
    }

    async fn read(answers: Vec<serde_json::Value>) -> Result<Snapshot, ClientError> {
        let client = answering_hub::hub(answers).await;
        let scope = FleetScope::Hub {
            own_namespace: None,
        };
        let now = Timestamp::UNIX_EPOCH;
        read_fleet(&client, "https://hub.test", scope, now, &mut |_| {}).await
    }

    /// Each page says that there is another one.
    #[tokio::test]
    async fn a_hub_that_sends_without_end_is_cut() {
        let number = AtomicUsize::new(0);
        let client = answering_hub::hub_of(move |request| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            Some(match request.starts_with("GET") {
                true => page(&format!("t{number}"), "next"),
                false => review(),
            })
        })
        .await;
        let scope = FleetScope::Hub {
            own_namespace: None,
        };
        let (now, mut passed_on) = (Timestamp::UNIX_EPOCH, 0);
        let mut count = |_: &ReducedObject| passed_on += 1;
        let read = read_up_to(2_000, &client, "https://hub.test", scope, now, &mut count);
        let snapshot = read.await.unwrap();
        let kept = snapshot.targets.len();
        assert!(
            (6..40).contains(&kept) && kept == passed_on,
            "{kept}, {passed_on}"
        );
        let causes: Vec<GapCause> = snapshot.gaps.iter().map(|gap| gap.cause).collect();
        assert_eq!(causes, [GapCause::Cut, GapCause::Cut]);
    }

    #[tokio::test]
    async fn a_hub_that_breaks_off_in_the_middle_leaves_a_gap_and_what_it_said() {
        let snapshot = read(vec![review(), page("prod", "next")]).await.unwrap();
        assert_eq!(snapshot.targets.len(), 1);
        assert_eq!(
            snapshot.user.as_ref().map(ToString::to_string).as_deref(),
            Some("jane")
        );
        let causes: Vec<(&str, GapCause)> = snapshot
            .gaps
            .iter()
            .map(|gap| (gap.resource.as_str(), gap.cause))
            .collect();
        assert_eq!(
            causes,
            [
                ("targetclusters.keyferry.dev", GapCause::Failed),
                ("targetaccesses.keyferry.dev", GapCause::Failed)
            ]
        );
    }

    #[tokio::test]
    async fn a_hub_that_says_nothing_is_an_error() {
        let error = read(Vec::new()).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("reading the fleet from the hub: "),
            "{error}"
        );
    }

    /// A hub with this many accesses, each with so many bytes that no fact needs, in pages as they are
    /// asked for. It counts the requests.
    async fn hub_with(accesses: usize, padding: usize, requests: Arc<AtomicUsize>) -> HubClient {
        let padding = "x".repeat(padding);
        answering_hub::hub_of(move |head| {
            requests.fetch_add(1, Ordering::SeqCst);
            if !head.contains("/targetaccesses?") {
                return Some(review());
            }
            let number = |name: &str| -> Option<usize> {
                let rest = head.split_once(name)?.1;
                rest.split(['&', ' ']).next()?.parse().ok()
            };
            let start = number("continue=").unwrap_or_default();
            let end = accesses.min(start + number("limit=").unwrap_or(accesses));
            let next = if end < accesses { end.to_string() } else { String::new() };
            let item = |index| {
                json!({ "metadata": { "name": format!("a{index}"), "namespace": "tenant-a",
                    "managedFields": [{ "fieldsV1": padding }], "annotations": { "note": padding } },
                    "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "ci" } })
            };
            Some(json!({ "kind": "TargetAccessList", "metadata": { "continue": next },
                "items": (start..end).map(item).collect::<Vec<_>>() }))
        })
        .await
    }

    #[tokio::test]
    async fn what_no_fact_needs_is_not_kept_and_few_requests_are_sent() {
        // The largest objects that etcd stores, and as many as one hub is promised to have.
        for (accesses, padding, most_requests) in [(24, 750 << 10, 30), (10_000, 10, 22)] {
            let requests = Arc::new(AtomicUsize::new(0));
            let client = hub_with(accesses, padding, Arc::clone(&requests)).await;
            let (mut kept_bytes, scope) =
                (0, FleetScope::Tenant(Namespace::new("tenant-a").unwrap()));
            let mut count = |object: &ReducedObject| {
                kept_bytes += object.clone().into_value().to_string().len();
            };
            let now = Timestamp::UNIX_EPOCH;
            let snapshot = read_fleet(&client, "https://hub.test", scope, now, &mut count).await;
            let snapshot = snapshot.unwrap();
            assert_eq!(
                (snapshot.accesses.len(), snapshot.gaps.len()),
                (accesses, 0)
            );
            let requests = requests.load(Ordering::SeqCst);
            assert!(
                requests <= most_requests,
                "{accesses} accesses: {requests} requests"
            );
            // A page that was too large is read again, so some objects come twice.
            assert!(
                kept_bytes <= 2 * accesses * 512,
                "{accesses} accesses: {kept_bytes} bytes"
            );
        }
    }

    #[tokio::test]
    async fn pages_are_read_to_their_end() {
        let answers = vec![review(), page("a", "next"), page("b", ""), page("c", "")];
        let snapshot = read(answers).await.unwrap();
        assert_eq!((snapshot.targets.len(), snapshot.gaps.len()), (2, 0));
    }
}
