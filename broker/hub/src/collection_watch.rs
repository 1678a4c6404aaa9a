//! Lists and watches one collection of the hub for ever.
//!
//! Everything is parsed while it arrives, and only what the item type keeps takes memory: tenants
//! decide how long their objects are.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use keyferry_platform::clock::Clock;
use keyferry_platform::gzip;
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::streamed_json::{BodyFault, BodyReader, Items, parse_body};
use crate::streamed_list::{Page, PageSize, read_page};
use crate::watch_fault::{self, WatchFault};
use crate::watch_health::WatchHealth;

/// How long the hub keeps a watch open, in seconds. It is shorter than the idle limit of common
/// load balancers, which drop a watch silently.
const WATCH_SECONDS: u32 = 200;
/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause, after several failures in a row. A recovered hub can go unnoticed for this
/// long.
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// How long the hub may take to begin to answer a list. Apiservers hold a request for up to 15 s in
/// their own queues. A request that was lost while the hub restarted would otherwise be waited for
/// until its connection counts as dead.
const MAX_LIST_WAIT: Duration = Duration::from_secs(20);
/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 100;
/// The largest body of a refusal that is read, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// An object of a watched collection, reduced to what is kept of it.
pub(super) trait WatchedItem: DeserializeOwned + Send + 'static {
    /// Its resourceVersion.
    fn version(&self) -> Option<&str>;
}

/// What a watch reports.
pub(super) enum Change<T> {
    /// A list begins, perhaps again: what was listed before does not count.
    Listing,
    /// An object of the list. One object may be listed twice.
    Listed(T),
    /// The list is complete.
    ListingDone,
    /// An object was added or changed.
    Set(T),
    /// An object was deleted.
    Gone(T),
}

/// Follows a collection for ever. After a failure it lists again instead of resuming the watch. A
/// resumed watch reports nothing until an object changes, so its recovery would go unnoticed.
pub(super) async fn follow_collection<T: WatchedItem>(
    client: &Client,
    path: &str,
    health: &impl WatchHealth,
    clock: &dyn Clock,
    mut act: impl FnMut(Change<T>),
) {
    let collection = WatchedCollection {
        client,
        request: Request::new(path),
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let fault = match collection.list_objects(health, &mut act).await {
            Ok(version) => {
                act(Change::ListingDone);
                health.note_listed();
                pause = FIRST_PAUSE;
                collection.watch_from(version, health, &mut act).await
            }
            Err(fault) => fault,
        };
        report_fault(health.name(), &fault);
        // Also after an expired watch: until the new list, changes may have been missed.
        health.note_failure(clock.now());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn report_fault(watched: &str, fault: &WatchFault) {
    let error = watch_fault::describe_fault(fault);
    match watch_fault::is_expired(fault) {
        true => tracing::info!(
            watched,
            error,
            "the hub no longer has the changes since the last one; listing again"
        ),
        false => tracing::warn!(watched, error, "watching the hub failed; trying again"),
    }
}

struct WatchedCollection<'a> {
    client: &'a Client,
    request: Request,
}

impl WatchedCollection<'_> {
    /// Lists all objects, and returns the version from which to watch.
    async fn list_objects<T: WatchedItem>(
        &self,
        health: &impl WatchHealth,
        act: &mut impl FnMut(Change<T>),
    ) -> Result<String, WatchFault> {
        let (mut size, mut next) = (PageSize::new(PAGE_OBJECTS), None::<String>);
        act(Change::Listing);
        loop {
            let terms = ListParams {
                limit: Some(size.limit()),
                continue_token: next.clone(),
                ..ListParams::default()
            };
            let request = self.request.list(&terms);
            let answer = tokio::time::timeout(MAX_LIST_WAIT, self.send(request)).await;
            let no_answer =
                || kube::Error::Service(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            let answer = answer.unwrap_or_else(|_| Err(no_answer()));
            let response = answer.map_err(WatchFault::Listing)?;
            let page = read_page(response, &mut size, |item| act(Change::Listed(item)));
            let page = page
                .await
                .map_err(|fault| WatchFault::Listing(fault.into()))?;
            let Page::Complete(end) = page else {
                tracing::info!(
                    watched = health.name(),
                    limit = size.limit(),
                    "a page of a list is too large; reading smaller ones"
                );
                // A continued list keeps its version, while a new one may lack what was listed.
                if next.is_none() {
                    act(Change::Listing);
                }
                continue;
            };
            let version = end.resource_version.clone().unwrap_or_default();
            next = end.next_token();
            if next.is_none() {
                return match version.is_empty() {
                    true => Err(WatchFault::NoVersion),
                    false => Ok(version),
                };
            }
        }
    }

    /// Watches from a version until the first failure, which it returns.
    async fn watch_from<T: WatchedItem>(
        &self,
        mut version: String,
        health: &impl WatchHealth,
        act: &mut impl FnMut(Change<T>),
    ) -> WatchFault {
        loop {
            let began = tokio::time::Instant::now();
            if let Err(fault) = self.watch_once(&mut version, health, act).await {
                return fault;
            }
            // The hub ends each watch in time. One that ends at once must not become a loop.
            if began.elapsed() < FIRST_PAUSE {
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }

    /// Watches until the hub ends the watch, or its connection ends. `version` follows.
    async fn watch_once<T: WatchedItem>(
        &self,
        version: &mut String,
        health: &impl WatchHealth,
        act: &mut impl FnMut(Change<T>),
    ) -> Result<(), WatchFault> {
        let terms = WatchParams::default().timeout(WATCH_SECONDS);
        let request = self.request.watch(&terms, version);
        let response = self.send(request).await.map_err(WatchFault::Starting)?;
        if gzip::is_packed(response.headers()) {
            return Err(WatchFault::Starting(BodyFault::PackedWatch.into()));
        }
        let body = response.into_body();
        let mut failed = None;
        let ended = parse_body(body, u64::MAX, parse_events::<T>, |event| {
            match apply_event(event, health, act) {
                Ok(seen) => *version = seen,
                Err(fault) => failed = Some(fault),
            }
            match failed {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        let ended = ended.await;
        match (failed, ended) {
            (Some(fault), _) => Err(fault),
            (None, Ok(_)) => Ok(()),
            (None, Err(fault)) if fault.is_end() => Ok(()),
            (None, Err(fault)) => Err(WatchFault::Watching(fault.into())),
        }
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<http::Response<Body>, kube::Error> {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        // From 1.37 on, apiservers send a watch as many gzip members, which few clients read.
        request.headers_mut().insert(
            http::header::ACCEPT_ENCODING,
            http::HeaderValue::from_static("identity"),
        );
        let response = self.client.send(request.map(Body::from)).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = Limited::new(response.into_body(), MAX_REFUSAL_BYTES);
        let text = body.collect().await.map(|body| body.to_bytes());
        let status: Option<Status> = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let unknown = || Status::failure("no further details", "Unknown").with_code(code.as_u16());
        Err(kube::Error::Api(status.unwrap_or_else(unknown).boxed()))
    }
}

/// Applies an event, and returns the version that it brings.
fn apply_event<T: WatchedItem>(
    event: WatchEvent<T>,
    health: &impl WatchHealth,
    act: &mut impl FnMut(Change<T>),
) -> Result<String, WatchFault> {
    let (version, change) = match event {
        WatchEvent::Set(item) => (item.version().map(str::to_owned), Some(Change::Set(item))),
        WatchEvent::Gone(item) => (item.version().map(str::to_owned), Some(Change::Gone(item))),
        WatchEvent::Bookmark(version) => (version, None),
        WatchEvent::Failed(status) => return Err(WatchFault::Ended(status)),
    };
    let version = version.filter(|version| !version.is_empty());
    let version = version.ok_or(WatchFault::NoVersion)?;
    if let Some(change) = change {
        act(change);
        health.note_answer();
    }
    Ok(version)
}

fn parse_events<T: WatchedItem>(
    reader: BodyReader<'_>,
    events: &Items<WatchEvent<T>>,
) -> Result<(), serde_json::Error> {
    let json = serde_json::Deserializer::from_reader(reader);
    for event in json.into_iter::<WatchEvent<T>>() {
        events.pass_item::<serde_json::Error>(event?)?;
    }
    Ok(())
}

/// One event of a watch.
enum WatchEvent<T> {
    Set(T),
    Gone(T),
    Bookmark(Option<String>),
    Failed(Box<Status>),
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: Option<String>,
}

impl<'de, T: WatchedItem> Deserialize<'de> for WatchEvent<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Event<T>(std::marker::PhantomData<T>);
        impl<'de, T: WatchedItem> Visitor<'de> for Event<T> {
            type Value = WatchEvent<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event of a watch, its type before its object")
            }

            /// An apiserver writes the type first (`metav1.WatchEvent`), so the object need not be
            /// kept until its type is known.
            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let kind = match all.next_entry::<String, String>()? {
                    Some((key, kind)) if key == "type" => kind,
                    _ => return Err(A::Error::custom("an event does not begin with its type")),
                };
                if all.next_key::<String>()?.as_deref() != Some("object") {
                    return Err(A::Error::custom("an event has no object after its type"));
                }
                let event = match kind.as_str() {
                    "ADDED" | "MODIFIED" => WatchEvent::Set(all.next_value()?),
                    "DELETED" => WatchEvent::Gone(all.next_value()?),
                    "BOOKMARK" => {
                        let bookmark: Bookmark = all.next_value()?;
                        WatchEvent::Bookmark(bookmark.metadata.resource_version)
                    }
                    "ERROR" => WatchEvent::Failed(Box::new(all.next_value()?)),
                    _ => return Err(A::Error::custom("an event of an unknown type")),
                };
                match all.next_key::<String>()? {
                    None => Ok(event),
                    Some(_) => Err(A::Error::custom("an event has a third member")),
                }
            }
        }
        deserializer.deserialize_map(Event(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests;
