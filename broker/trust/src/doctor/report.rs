//! A diagnosis as JSON, in a form that stays.

use serde::Serialize;

use super::{Cause, Diagnosis, Hop, Status, Verdict};

/// The form of [`Report`]. Fields may be added to it; none changes its meaning.
pub const SCHEMA: &str = "keyferry.dev/doctor/v1";

/// What there was to know the target by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// The network alone.
    Network,
    /// Its AuthenticationConfiguration.
    Configuration,
    /// Somebody's rights there.
    TargetKubeconfig,
}

/// What doctor prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was started from.
    pub start: String,
    /// What there was to know the target by; the network always.
    pub modes: Vec<Mode>,
    /// The whole in a word.
    pub verdict: Verdict,
    /// The first broken hop, where the verdict is `Broken`.
    pub broken: Option<ReportedHop>,
    /// Every hop, in the order of the way.
    pub hops: Vec<ReportedHop>,
    /// The commands that would find out, or show, more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// A hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedHop {
    /// Which.
    pub hop: Hop,
    /// How it stands.
    pub status: Status,
    /// Why, where it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cause>,
    /// What was seen.
    pub detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<&'static str>,
}

impl Report {
    /// Of a diagnosis. Characters that could speak to a terminal are taken out of what others said.
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
                fix: finding.cause.map(Cause::fix),
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
    keyferry_core::foreign_text::one_line(text, 1000)
}
