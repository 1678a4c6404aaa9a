//! What another party wrote changes no tag, whatever it is.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_fleet::facts::{
    AccessFacts, Answer, Comparison, Finding, Fleet, KeyLife, ReadFailure, Source, TargetFacts,
};
use serde_json::Value;

use super::PATHS;
use super::layout::skeleton;
use crate::testing::{refused_list, sample_fleet};
use crate::{viewer_page, whole_file};

const HARMLESS: &str = "harmless text";

/// Text that would be markup, an attribute, a link, an entity or another line if it were let through.
const CORPUS: [&str; 16] = [
    "<script>alert(1)</script>",
    "</title></style><script src=//evil.example></script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "\"><a href=\"javascript:alert(1)\">x</a>",
    "javascript:alert(1)",
    "https://evil.example/",
    "data:text/html,<b>x</b>",
    "&lt;b&gt;&#60;script&#62;&amp;",
    "<!-- --><![CDATA[ ]]>",
    "]]><meta http-equiv=\"refresh\" content=\"0\"> style=\"x\"",
    "a\nb\r\nfix: c\u{2028}d",
    "\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}",
    "{{7*7}}${7*7}<%= 7*7 %>`x`\0\\",
];

#[test]
fn foreign_text_changes_no_tag() {
    let mut fleet = sample_fleet();
    fleet.gaps = vec![refused_list("pods", "who reads tokens")];
    fleet.reading.failed = Some(ReadFailure {
        at: fleet.reading.read_at,
        message: ForeignText::new("x"),
        fix: "x".to_owned(),
    });
    replace_texts(&mut fleet, HARMLESS);
    assert_eq!(
        other_texts(&serde_json::to_value(&fleet).unwrap()),
        [""; 0],
        "replace them too"
    );
    let harmless = pages(&fleet, HARMLESS);
    for hostile in CORPUS {
        replace_texts(&mut fleet, hostile);
        for ((name, page), (_, expected)) in pages(&fleet, hostile).iter().zip(&harmless) {
            assert_eq!(
                skeleton(page),
                skeleton(expected),
                "{name} with {hostile:?}"
            );
            assert!(
                !page.contains("href=\"http") && !page.contains("href=\"javascript"),
                "{name}"
            );
            let hidden = [
                '\r', '\u{2028}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\0',
            ];
            assert!(!page.contains(hidden), "{name} with {hostile:?}");
        }
    }
}

/// The words that Keyferry itself writes into the facts.
const OWN_WORDS: [&str; 17] = [
    "keyferry.dev/fleet/v1",
    "Unknown",
    "Broken",
    "Attention",
    "Ready",
    "notCompared",
    "Refused",
    "Token",
    "ClientCertificate",
    "TargetCertificateAuthority",
    "DiscoveryCertificateAuthority",
    "ServingCertificate",
    "Signs",
    "Verifies",
    "Active",
    "Retired",
    "Revoked",
];

/// The texts of the facts that are neither replaced nor checked names, times and words of Keyferry.
fn other_texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => {
            let is_checked = AccessName::parse(text).is_ok()
                || ObjectName::new(text).is_ok()
                || text.parse::<Timestamp>().is_ok();
            let is_other = text != HARMLESS && !is_checked && !OWN_WORDS.contains(&text.as_str());
            if is_other { vec![text] } else { Vec::new() }
        }
        Value::Array(values) => values.iter().flat_map(other_texts).collect(),
        Value::Object(fields) => fields.values().flat_map(other_texts).collect(),
        _ => Vec::new(),
    }
}

/// All pages, also with the text as a search, as a name and as a path.
fn pages(fleet: &Fleet, text: &str) -> Vec<(String, String)> {
    let query: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut pages: Vec<(String, String)> = PATHS
        .iter()
        .map(|path| ((*path).to_owned(), viewer_page(fleet, path, "").html))
        .collect();
    let search = format!("q=zzz{query}&state=ready");
    pages.push((
        "search".to_owned(),
        viewer_page(fleet, "fleet", &search).html,
    ));
    pages.push((
        "search of tenants".to_owned(),
        viewer_page(fleet, "tenants", &search).html,
    ));
    // A slash leads to another folder, and so to links with more dots, not to other tags.
    pages.push((
        "a target".to_owned(),
        viewer_page(fleet, &format!("target/{text}"), "").html,
    ));
    pages.push(("a path".to_owned(), viewer_page(fleet, text, "").html));
    pages.push(("the file".to_owned(), whole_file(fleet)));
    pages
}

fn replace_texts(fleet: &mut Fleet, text: &str) {
    let foreign = || ForeignText::new(text);
    fleet.reading.source = Source::Hub { server: foreign() };
    fleet.reading.user = Some(foreign());
    if let Some(failure) = &mut fleet.reading.failed {
        failure.message = foreign();
        failure.fix = text.to_owned();
    }
    for gap in &mut fleet.gaps {
        gap.message = foreign();
        (gap.resource, gap.hides, gap.fix) = (text.to_owned(), text.to_owned(), text.to_owned());
    }
    for target in &mut fleet.targets {
        replace_target(target, text);
    }
    for access in &mut fleet.accesses {
        replace_access(access, text);
    }
    for ending in fleet.endings.iter_mut().chain(&mut fleet.runway) {
        ending.place = foreign();
    }
    replace_option(&mut fleet.keys.issuer, text);
    for key in &mut fleet.keys.keys {
        replace_key(key, text);
    }
    fleet.denials.source = Some(text.to_owned());
    for group in &mut fleet.denials.groups {
        (group.reason, group.namespace) = (foreign(), foreign());
    }
    for denial in &mut fleet.denials.newest {
        denial.reason = foreign();
        (denial.cause, denial.fix) = (text.to_owned(), text.to_owned());
        for field in [&mut denial.caller, &mut denial.access, &mut denial.target] {
            replace_option(field, text);
        }
    }
}

fn replace_option(field: &mut Option<ForeignText>, text: &str) {
    if field.is_some() {
        *field = Some(ForeignText::new(text));
    }
}

fn replace_target(target: &mut TargetFacts, text: &str) {
    let foreign = || ForeignText::new(text);
    for field in [
        &mut target.address,
        &mut target.audience,
        &mut target.issuer,
        &mut target.reason,
    ] {
        *field = Some(foreign());
    }
    target.cause = foreign();
    target.certificate_authority.source = foreign();
    target.next_command = Some(text.to_owned());
    for answer in [
        &mut target.reachable,
        &mut target.file_active,
        &mut target.keys_read,
    ] {
        replace_answer(answer, text);
    }
    replace_findings(&mut target.findings, text);
    for rule in &mut target.allow {
        rule.namespaces = foreign();
        rule.service_accounts.fill(foreign());
        rule.deliveries.fill(foreign());
    }
    if let Some(trust) = &mut target.trust {
        for comparison in [
            &mut trust.file,
            &mut trust.loaded_file,
            &mut trust.keys,
            &mut trust.behaviour,
        ] {
            match comparison {
                Comparison::Matches => {}
                Comparison::Differs { differences } => differences.fill(foreign()),
                Comparison::NotCompared { why } => *why = text.to_owned(),
            }
        }
    }
}

fn replace_access(access: &mut AccessFacts, text: &str) {
    let foreign = || ForeignText::new(text);
    access.callers.fill(foreign());
    access.user = Some(foreign());
    access.cause = foreign();
    access.reason = Some(foreign());
    replace_answer(&mut access.accepted, text);
    replace_findings(&mut access.findings, text);
    for delivery in &mut access.deliveries {
        delivery.delivery_type = foreign();
        for field in [
            &mut delivery.object,
            &mut delivery.reason,
            &mut delivery.key_id,
        ] {
            *field = Some(foreign());
        }
    }
}

fn replace_answer(answer: &mut Answer, text: &str) {
    match answer {
        Answer::Yes => {}
        Answer::No { reason, message } => {
            (*reason, *message) = (ForeignText::new(text), ForeignText::new(text));
        }
        Answer::Unknown { why } => *why = ForeignText::new(text),
    }
}

fn replace_findings(findings: &mut [Finding], text: &str) {
    for finding in findings {
        for field in [
            &mut finding.condition,
            &mut finding.reason,
            &mut finding.message,
        ] {
            *field = ForeignText::new(text);
        }
    }
}

fn replace_key(key: &mut KeyLife, text: &str) {
    key.kid = ForeignText::new(text);
    replace_option(&mut key.algorithm, text);
}
