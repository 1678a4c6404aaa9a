//! A diagnosis as JSON in a stable format.

use serde::Serialize;

use super::{Cause, Diagnosis, Hop, Status, Verdict};

/// The version of the [`Report`] format. Fields may be added; existing ones keep their meaning.
const SCHEMA: &str = "keyferry.dev/doctor/v1";

/// A source of information about the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// Only what the network shows.
    Network,
    /// The target's AuthenticationConfiguration.
    Configuration,
    /// A kubeconfig with rights at the target.
    TargetKubeconfig,
}

/// The JSON output of doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Always `keyferry.dev/doctor/v1`.
    pub schema: &'static str,
    /// The object that the diagnosis starts from.
    pub start: String,
    /// The sources of information about the target; the network is always one.
    pub modes: Vec<Mode>,
    /// The overall result.
    pub verdict: Verdict,
    /// The first broken hop, if the verdict is `Broken`.
    pub broken: Option<ReportedHop>,
    /// Every hop, in order.
    pub hops: Vec<ReportedHop>,
    /// Commands that would find out, or show, more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// The result of one hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedHop {
    /// The hop that was examined.
    pub hop: Hop,
    /// Whether the hop works.
    pub status: Status,
    /// The cause, if the hop does not simply work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cause>,
    /// What was observed.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<&'static str>,
}

impl Report {
    /// Builds the report of a diagnosis. It removes characters from foreign texts that could
    /// control a terminal.
    #[must_use]
    pub fn of(start: &str, modes: Vec<Mode>, diagnosis: &Diagnosis) -> Self {
        let hops: Vec<ReportedHop> = diagnosis
            .findings
            .iter()
            .map(|finding| ReportedHop {
                hop: finding.hop,
                status: finding.status,
                reason: finding.cause,
                detail: plain(&finding.detail),
                fix: finding.fix.or(finding.cause.map(Cause::fix)),
            })
            .collect();
        let broken = hops
            .iter()
            .find(|hop| Some(hop.hop) == diagnosis.broken)
            .cloned();
        Self {
            schema: SCHEMA,
            start: start.to_owned(),
            modes,
            verdict: diagnosis.verdict,
            broken,
            hops,
            next: Vec::new(),
        }
    }
}

fn plain(text: &str) -> String {
    keyferry_api::foreign_text::one_line(text, 1000)
}
