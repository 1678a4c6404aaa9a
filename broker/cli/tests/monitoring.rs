//! The alert rules and the dashboard speak of series that there are, and send who is woken to a
//! text that there is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::ProbeCounts;
use keyferry_platform::metrics::{MetricDescription, Metrics, describe};
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// Every series once, as a scrape shows it: its sample names, each with its labels.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = Metrics::default();
    metrics.count_request("granted", Reason::Ready);
    metrics.count_mint(Ok(()));
    metrics.token_request_took(Duration::from_millis(3), true);
    metrics.token_review(true);
    metrics.access_review(true);
    metrics.issuer_read(Ok(1));
    metrics.report_published_keys(["kid"].into_iter(), "sha256:00", 1);
    metrics.unconfirmed_keys(0);
    metrics.key_alarm(Reason::HubKeyReplaced);
    metrics.own_keys_read(Ok(()));
    metrics.own_keys_written("rotate", true);
    let access = AccessName {
        namespace: Namespace::new("tenant-a").unwrap(),
        name: ObjectName::new("prod").unwrap(),
    };
    metrics.report_access(&access, true, Some(1));
    metrics.report_probe(&access, Some(true));
    metrics.report_target(&access.name, Some(true), Some(ProbeCounts::default()));
    metrics.admission_policy("keyferry-pairing", true);
    metrics.report_leadership(true, false);
    metrics.count_reload(true);
    metrics.hub_clock_skew(0);
    metrics.cached_tokens(0);
    metrics.running_tasks(0);
    metrics.connection_opened("api");
    metrics.connection_refused("api", "address_limit");
    metrics.connection_ended("api", "unread");
    metrics.connection_paused("api");
    metrics.serving_certificate("api", 1);
    metrics.serving_certificate_reloaded("api", true);
    metrics.caller_authority(1);
    metrics.caller_authority_reloaded(true);
    let text = metrics.exposition();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            (
                name.to_owned(),
                label_names(
                    rest.strip_prefix('{')
                        .and_then(|rest| rest.split('}').next())
                        .unwrap_or_default(),
                ),
            )
        })
        .collect()
}

/// The names in `a="x",b=~"y|z"`; no value here holds a comma.
fn label_names(text: &str) -> BTreeSet<String> {
    let names = text
        .split(',')
        .filter(|part| part.contains('"'))
        .map(|part| part.split(['=', '!']).next().unwrap_or_default().trim());
    names.map(str::to_owned).collect()
}

/// The rows of docs/reference/api.md for all metrics.
fn printed_table() -> String {
    let row = |metric: &MetricDescription| {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, labels) = (&metric.name, labels.join(", "));
        let separator = if labels.is_empty() { "" } else { " " };
        format!("| `{name}` |{separator}{labels} | {} |\n", metric.help)
    };
    let rows: String = describe().iter().map(row).collect();
    format!("| metric | labels | what it says |\n|---|---|---|\n{rows}")
}

#[test]
fn the_documented_metrics_are_printed_from_the_code() {
    let path = repository().join("docs/reference/api.md");
    let page = read("docs/reference/api.md");
    let start = page.find("| metric | labels |").unwrap();
    let end = page[start..]
        .find("\n\n")
        .map_or(page.len(), |end| start + end + 1);
    let wanted = format!("{}{}{}", &page[..start], printed_table(), &page[end..]);
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(path, wanted).unwrap();
        return;
    }
    assert!(
        page == wanted,
        "run: KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test monitoring"
    );
}

/// Each expression of the rules and of the dashboard, with where it stands.
fn expressions() -> Vec<(String, String)> {
    let rule: Value =
        serde_saphyr::from_str(&read("examples/monitoring/prometheus-rule.yaml")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rules = rule["spec"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let mut all: Vec<(String, String)> = rules
        .map(|rule| (text(&rule["alert"]), text(&rule["expr"])))
        .collect();
    let dashboard: Value =
        serde_json::from_str(&read("examples/monitoring/dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    for variable in dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|variable| variable["type"] == "query")
    {
        all.push((text(&variable["name"]), text(&variable["query"])));
    }
    all
}

/// The series in an expression, each with the labels of its selector.
fn used(expression: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    for rest in expression.split("keyferry_").skip(1) {
        let end = rest
            .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let selector = after
            .strip_prefix('{')
            .and_then(|after| after.split('}').next())
            .unwrap_or_default();
        found.push((format!("keyferry_{name}"), label_names(selector)));
    }
    found
}

#[test]
fn every_series_is_one_that_the_code_has() {
    let series = series();
    // What is described is what a scrape shows: otherwise `series` above lacks a call.
    for MetricDescription { name, labels, .. } in describe() {
        let shown = [name.clone(), format!("{name}_sum")];
        let shown = shown.iter().find_map(|name| series.get(name));
        let shown = shown.unwrap_or_else(|| panic!("{name} is described; let this test touch it"));
        let labels: BTreeSet<String> = labels.iter().map(|&label| label.to_owned()).collect();
        assert_eq!(*shown, labels, "{name}");
    }
    for name in series.keys() {
        let is_described = describe()
            .iter()
            .any(|metric| name == &metric.name || name.starts_with(&format!("{}_", metric.name)));
        assert!(is_described, "{name} is in no table");
    }
    let mut all_used = BTreeSet::new();
    for (place, expression) in expressions() {
        let used = used(&expression);
        assert!(
            !used.is_empty(),
            "{place}: no series of Keyferry in {expression}"
        );
        for (name, labels) in used {
            let known = series
                .get(&name)
                .unwrap_or_else(|| panic!("{place}: there is no series {name}"));
            let unknown: Vec<&String> = labels.difference(known).collect();
            assert!(
                unknown.is_empty(),
                "{place}: {name} has no label {unknown:?}, only {known:?}"
            );
            all_used.insert(name);
        }
    }
    assert!(all_used.len() > 15, "{all_used:?}");
}

#[test]
fn every_alert_leads_to_its_fix() {
    let rule: Value =
        serde_saphyr::from_str(&read("examples/monitoring/prometheus-rule.yaml")).unwrap();
    let anchors_of = |page: &str| -> BTreeSet<String> {
        read(page)
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(slug)
            .collect()
    };
    let anchors = BTreeMap::from(
        [
            "docs/reference/reason-codes.md",
            "docs/guides/troubleshooting.md",
        ]
        .map(|page| (page, anchors_of(page))),
    );
    let reasons: BTreeSet<String> = Reason::ALL
        .iter()
        .map(|reason| reason.as_str().to_owned())
        .collect();
    let mut names = BTreeSet::new();
    for rule in rule["spec"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        for annotation in ["summary", "description", "runbook_url"] {
            assert!(
                rule["annotations"][annotation]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{name} has no {annotation}"
            );
        }
        assert!(
            ["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{name}"
        );
        let (expression, url) = (
            rule["expr"].as_str().unwrap(),
            rule["annotations"]["runbook_url"].as_str().unwrap(),
        );
        let (page, anchor) = url.split_once('#').expect("an anchor");
        let page = page
            .strip_prefix("https://github.com/keyferry/keyferry/blob/main/")
            .expect("a page of the repository");
        if anchor.contains("{{") {
            // Every reason has a section, which another test holds; the expression must keep the
            // label.
            assert!(
                page == "docs/reference/reason-codes.md"
                    && anchor == "{{ $labels.reason | toLower }}"
                    && expression.contains("by (reason)"),
                "{name}: {anchor} of {expression}"
            );
        } else {
            assert!(
                anchors
                    .get(page)
                    .is_some_and(|anchors| anchors.contains(anchor)),
                "{name}: {page} has no #{anchor}"
            );
        }
        // A misspelt reason would never fire.
        for part in expression
            .split("reason")
            .skip(1)
            .filter(|part| part.starts_with(['=', '!']))
        {
            for reason in part.split('"').nth(1).unwrap().split('|') {
                assert!(
                    reasons.contains(reason),
                    "{name}: there is no reason {reason}"
                );
            }
        }
    }
    assert!(names.len() > 10, "{names:?}");
}

fn slug(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|character| character.is_alphanumeric() || " -".contains(*character))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[test]
fn panels_lie_beside_each_other() {
    let dashboard: Value =
        serde_json::from_str(&read("examples/monitoring/dashboard.json")).unwrap();
    let (mut taken, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(
            side("x") + side("w") <= 24 && ids.insert(panel["id"].as_u64()),
            "{}",
            panel["title"]
        );
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(
                    taken.insert((x, y)),
                    "{} lies on another panel",
                    panel["title"]
                );
            }
        }
    }
}
