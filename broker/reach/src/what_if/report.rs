//! What a change does, as a document for programs: `keyferry.dev/what-if/v1`.

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use serde::Serialize;

use super::{Comparison, WayChange};
use crate::doors;
use crate::report::{ASSUMPTIONS, ReportedHop, UndecidedFact, hop, undecided};
use crate::world::ChangedObject;

/// The version of the document: `schema` of [`WhatIfReport`].
pub const REPORT_SCHEMA: &str = "keyferry.dev/what-if/v1";

/// What a change does.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfReport {
    /// [`REPORT_SCHEMA`].
    pub schema: &'static str,
    /// The version of the closed list of doors.
    pub doors: u32,
    /// What every answer assumes.
    pub assumptions: [&'static str; 7],
    /// The ways that appear and disappear.
    pub ways: Vec<WhatIfWay>,
    /// Whether there are more ways than were kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_ways: bool,
    /// The deliveries that break.
    pub broken_deliveries: Vec<WhatIfDelivery>,
    /// What of the change is not judged, each with its reason.
    pub not_judged: Vec<UnjudgedObject>,
}

/// Ways of one subject to one target by one door.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfWay {
    /// `appears` or `disappears`.
    pub change: &'static str,
    /// `yes`, or `undetermined` if it only may.
    pub answer: &'static str,
    /// The kind of the subject.
    pub kind: &'static str,
    /// The name of the subject.
    pub subject: ForeignText,
    /// The target; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectName>,
    /// The door that the subject opens; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<u8>,
    /// The users at the target.
    pub users: Vec<ForeignText>,
    /// What users that could be reached before gain or lose at the target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<ForeignText>,
    /// The steps on the hub of one of the ways.
    pub way: Vec<ReportedHop>,
    /// What would decide it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<UndecidedFact>,
    /// The object that opens or closes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ForeignText>,
    /// Where that object is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<ObjectLocation>,
    /// Whether a list of expected ways has it.
    pub is_allowed: bool,
}

/// Where an object is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectLocation {
    /// The file.
    pub file: ForeignText,
    /// The line at which the object begins, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// A delivery that breaks.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfDelivery {
    /// The access, as NAMESPACE/NAME.
    pub access: ForeignText,
    /// The name of the delivery.
    pub delivery: ForeignText,
    /// `yes`, or `undetermined` if it only may.
    pub answer: &'static str,
    /// Why.
    pub why: ForeignText,
}

/// An object of the change whose effect is not judged.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnjudgedObject {
    /// What it is.
    pub object: ForeignText,
    /// Why.
    pub why: ForeignText,
}

impl WhatIfReport {
    /// The document about a comparison. `locate` says where an object is written.
    pub fn of(
        comparison: &Comparison,
        not_judged: &[(String, String)],
        locate: impl Fn(&ChangedObject) -> Option<ObjectLocation>,
    ) -> Self {
        let word = |is_certain: bool| if is_certain { "yes" } else { "undetermined" };
        let texts = |texts: &std::collections::BTreeSet<String>| {
            texts.iter().map(|text| ForeignText::new(text)).collect()
        };
        let way = |change: &WayChange| WhatIfWay {
            change: if change.appears {
                "appears"
            } else {
                "disappears"
            },
            answer: word(change.is_certain),
            kind: change.subject.kind(),
            subject: ForeignText::new(&change.subject.name()),
            target: change.target.clone(),
            door: change.door,
            users: texts(&change.users),
            rights: texts(&change.rights),
            way: change.way.iter().map(hop).collect(),
            undecided: change.doubts.iter().map(undecided).collect(),
            object: change
                .object
                .as_ref()
                .map(|it| ForeignText::new(&it.to_string())),
            location: change.object.as_ref().and_then(&locate),
            is_allowed: false,
        };
        Self {
            schema: REPORT_SCHEMA,
            doors: doors::VERSION,
            assumptions: ASSUMPTIONS,
            ways: comparison.ways.iter().map(way).collect(),
            has_more_ways: comparison.has_more,
            broken_deliveries: comparison
                .broken
                .iter()
                .map(|broken| WhatIfDelivery {
                    access: ForeignText::new(&broken.access.to_string()),
                    delivery: ForeignText::new(&broken.delivery),
                    answer: word(broken.is_certain),
                    why: ForeignText::new(&broken.why),
                })
                .collect(),
            not_judged: not_judged
                .iter()
                .map(|(object, why)| UnjudgedObject {
                    object: ForeignText::new(object),
                    why: ForeignText::new(why),
                })
                .collect(),
        }
    }

    /// Whether anything of it is not known.
    pub fn has_undetermined(&self) -> bool {
        let is_open = |answer: &str| answer == "undetermined";
        self.has_more_ways
            || !self.not_judged.is_empty()
            || self.ways.iter().any(|way| is_open(way.answer))
            || self.broken_deliveries.iter().any(|it| is_open(it.answer))
    }
}
