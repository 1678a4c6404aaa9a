//! The new ways as SARIF 2.1.0, for code hosts.

use keyferry_reach::what_if::{WhatIfReport, WhatIfWay};
use serde::Serialize;

use super::text::{door_words, hop_words, target_words};

/// A code host shows up to 5,000 results of a run.
const MAX_RESULTS: usize = 4_999;
const RULE: &str = "new-access";
const PERHAPS_RULE: &str = "perhaps-new-access";

/// The log of one run.
#[derive(Serialize)]
pub(super) struct SarifLog {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [SarifRun; 1],
}

#[derive(Serialize)]
struct SarifRun {
    tool: SarifTool,
    invocations: [SarifInvocation; 1],
    results: Vec<SarifResult>,
}

#[derive(Serialize)]
struct SarifTool {
    driver: SarifDriver,
}

#[derive(Serialize)]
struct SarifDriver {
    name: &'static str,
    version: &'static str,
    rules: [SarifRule; 2],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifRule {
    id: &'static str,
    short_description: SarifMessage,
}

#[derive(Serialize)]
struct SarifMessage {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifInvocation {
    execution_successful: bool,
    tool_execution_notifications: Vec<SarifNotification>,
}

#[derive(Serialize)]
struct SarifNotification {
    level: &'static str,
    message: SarifMessage,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: &'static str,
    level: &'static str,
    message: SarifMessage,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<SarifLocation>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifLocation {
    physical_location: SarifFile,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifFile {
    artifact_location: SarifUri,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<SarifRegion>,
}

#[derive(Serialize)]
struct SarifUri {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifRegion {
    start_line: usize,
}

impl SarifLog {
    /// One result for each new way that is not expected.
    pub(super) fn of(report: &WhatIfReport) -> Self {
        let is_new = |way: &&WhatIfWay| way.change == "appears" && !way.is_allowed;
        let ways: Vec<&WhatIfWay> = report.ways.iter().filter(is_new).collect();
        let mut notes = Vec::new();
        if ways.len() > MAX_RESULTS || report.has_more_ways {
            let shown = ways.len().min(MAX_RESULTS);
            notes.push(notification(format!(
                "there are more new ways than the {shown} results"
            )));
        }
        notes.extend(report.not_judged.iter().map(|unjudged| {
            notification(format!("not judged: {}: {}", unjudged.object, unjudged.why))
        }));
        let rule = |id, text: &str| SarifRule {
            id,
            short_description: message(text),
        };
        Self {
            schema: "https://json.schemastore.org/sarif-2.1.0.json",
            version: "2.1.0",
            runs: [SarifRun {
                tool: SarifTool {
                    driver: SarifDriver {
                        name: "keyferry",
                        version: env!("CARGO_PKG_VERSION"),
                        rules: [
                            rule(RULE, "The change opens a way to a target"),
                            rule(PERHAPS_RULE, "The change may open a way to a target"),
                        ],
                    },
                },
                invocations: [SarifInvocation {
                    execution_successful: true,
                    tool_execution_notifications: notes,
                }],
                results: ways.into_iter().take(MAX_RESULTS).map(result).collect(),
            }],
        }
    }
}

fn result(way: &WhatIfWay) -> SarifResult {
    let is_certain = way.answer == "yes";
    let users: Vec<String> = way.users.iter().map(ToString::to_string).collect();
    let rights: Vec<String> = way.rights.iter().map(ToString::to_string).collect();
    let hops: Vec<String> = way.way.iter().map(hop_words).collect();
    let doubts: Vec<String> = way
        .undecided
        .iter()
        .map(|it| it.description.to_string())
        .collect();
    let mut text = format!(
        "{} {} {} {} by {}",
        way.kind,
        way.subject,
        if is_certain {
            "gets a way to"
        } else {
            "may get a way to"
        },
        target_words(way),
        door_words(way.door)
    );
    for (word, texts) in [
        ("as", users),
        ("with", rights),
        ("by way of", hops),
        ("unless known:", doubts),
    ] {
        if !texts.is_empty() {
            text.push_str(&format!("; {word} {}", texts.join(", ")));
        }
    }
    let location = way.location.iter().map(|location| SarifLocation {
        physical_location: SarifFile {
            artifact_location: SarifUri {
                uri: uri(&location.file.to_string()),
            },
            region: location.line.map(|start_line| SarifRegion { start_line }),
        },
    });
    SarifResult {
        rule_id: if is_certain { RULE } else { PERHAPS_RULE },
        level: if is_certain { "error" } else { "warning" },
        message: message(&text),
        locations: location.collect(),
    }
}

fn notification(text: String) -> SarifNotification {
    SarifNotification {
        level: "note",
        message: message(&text),
    }
}

/// A message in which no text of others is a link: SARIF reads `[text](target)`.
fn message(text: &str) -> SarifMessage {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('[', "\\[")
        .replace(']', "\\]");
    SarifMessage { text: escaped }
}

/// A path as a relative URI.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
