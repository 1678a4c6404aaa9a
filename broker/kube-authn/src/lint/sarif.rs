//! Prints findings as SARIF 2.1.0, for code hosts.

use serde_json::{Value, json};

use super::{Finding, Severity};
use crate::Code;

/// Converts the findings of one file. `uri` is the file's name, relative to the checkout; `version`
/// is the tool's version.
#[must_use]
pub fn to_sarif(findings: &[Finding], uri: &str, version: &str) -> Value {
    let mut codes: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|code| sarif_rule(*code)).collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| sarif_result(finding, uri, &codes))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "keyferry", "version": version, "rules": rules}},
            "results": results,
        }],
    })
}

fn sarif_rule(code: Code) -> Value {
    json!({
        "id": code.name(),
        "shortDescription": {"text": code.cause()},
        "help": {"text": code.fix()},
    })
}

fn sarif_result(finding: &Finding, uri: &str, codes: &[Code]) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let mut region = json!({"startLine": finding.line.unwrap_or(1)});
    if let Some(column) = finding.column {
        region["startColumn"] = column.into();
    }
    let mut location = json!({"physicalLocation": {
        "artifactLocation": {"uri": uri},
        "region": region,
    }});
    if let (Some(location), false) = (location.as_object_mut(), finding.path.is_empty()) {
        location.insert(
            "logicalLocations".to_owned(),
            json!([{"fullyQualifiedName": finding.path}]),
        );
    }
    json!({
        "ruleId": finding.code.name(),
        "ruleIndex": codes.iter().position(|code| *code == finding.code),
        "level": level,
        "message": {"text": format!("{} Fix: {}.", to_sentence(&finding.message), finding.fix)},
        "locations": [location],
    })
}

fn to_sentence(message: &str) -> String {
    if message.ends_with('.') {
        message.to_owned()
    } else {
        format!("{message}.")
    }
}
