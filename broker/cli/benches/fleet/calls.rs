//! Keyferry's calls to the hub, from the hub's audit log.

use std::collections::BTreeMap;

use keyferry_integration::control_plane::ControlPlane;
use serde_json::Value;

use super::plan::SHORT;
use crate::harness::Outcome;

/// Keyferry's account on the hub.
const ACCOUNT: &str = "system:serviceaccount:keyferry-system:keyferry";

/// One answered request to the hub.
#[derive(Clone, Debug)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// The resource, such as `secrets` or `serviceaccounts/token`; for a request without an object,
    /// its path.
    pub resource: String,
    /// The namespace of the object, if it has one.
    pub namespace: String,
    /// The name of the object, if the request contains it.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u64,
    /// The time of the request, in seconds since the epoch.
    pub at: f64,
}

/// The kind of load that a call causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read.
    Read,
    /// A write: the hub stores something.
    Write,
    /// A TokenRequest, TokenReview or SubjectAccessReview: nothing is stored.
    Token,
}

/// All calls so far.
pub fn so_far(plane: &ControlPlane) -> Outcome<Vec<Call>> {
    Ok(plane
        .audit_events()?
        .iter()
        .filter(|event| event["stage"] == "ResponseComplete")
        .filter_map(Call::of)
        .collect())
}

impl Call {
    fn of(event: &Value) -> Option<Self> {
        if event["user"]["username"] != ACCOUNT {
            return None;
        }
        let object = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = match (object["resource"].as_str(), object["subresource"].as_str()) {
            (Some(resource), Some(part)) => format!("{resource}/{part}"),
            (Some(resource), None) => resource.to_owned(),
            (None, _) => text(&event["requestURI"]),
        };
        let at: jiff::Timestamp = event["requestReceivedTimestamp"].as_str()?.parse().ok()?;
        Some(Self {
            verb: text(&event["verb"]),
            resource,
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            at: at.as_microsecond() as f64 / 1e6,
        })
    }

    /// The kind of load that the call causes.
    pub fn kind(&self) -> Kind {
        match self.verb.as_str() {
            "get" | "list" | "watch" => Kind::Read,
            _ if self.resource == "serviceaccounts/token" || self.resource.ends_with("reviews") => {
                Kind::Token
            }
            _ => Kind::Write,
        }
    }

    /// Whether the call is for the accesses with short-lived tokens.
    pub fn is_short_lived(&self) -> bool {
        self.namespace == SHORT
    }
}

/// The number of calls by kind, verb and resource, and how many of them the hub did not execute.
pub fn counted<'a>(
    calls: impl IntoIterator<Item = &'a Call>,
) -> BTreeMap<(Kind, String, String), (usize, usize)> {
    let mut counted: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for call in calls {
        let (all, failed) = counted
            .entry((call.kind(), call.resource.clone(), call.verb.clone()))
            .or_default();
        *all += 1;
        *failed += usize::from(call.code >= 400 && call.code != 404);
    }
    counted
}
