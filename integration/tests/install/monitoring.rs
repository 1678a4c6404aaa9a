//! Checks the shipped alert rules and the dashboard's queries with Prometheus' own parser.

use std::process::Stdio;
use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use serde_json::Value;
use tokio::process::Command;

use super::setup::Hubs;

pub(crate) async fn prometheus_reads_the_rules(hubs: Arc<Hubs>) -> TestResult {
    let object: Value = serde_saphyr::from_str(&std::fs::read_to_string(shipped(
        "examples/monitoring/prometheus-rule.yaml",
    ))?)?;
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(shipped(
        "examples/monitoring/dashboard.json",
    ))?)?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    // Grafana's own variables are durations.
    let queries: Vec<String> = targets
        .filter_map(|target| target["expr"].as_str())
        .map(|query| {
            query
                .replace("$__rate_interval", "1m")
                .replace("$__range", "1h")
        })
        .collect();
    let rules = object["spec"]["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["rules"].as_array())
        .flatten()
        .count();
    // The YAML reader accepts JSON.
    let (good, said) = judged(&hubs, &object["spec"].to_string(), &queries).await?;
    assert!(good && rules > 10 && queries.len() > 10, "{said}");
    assert_eq!(
        said,
        format!("{rules} rules, {} expressions\n", queries.len())
    );

    let broken = object["spec"]
        .to_string()
        .replace("absent(keyferry_build_info)", "absent(keyferry_build_info");
    let (good, said) = judged(&hubs, &broken, &queries).await?;
    assert!(
        !good && said.contains("KeyferryAbsent"),
        "a rule that cannot be read is found: {said}"
    );
    let (good, said) = judged(
        &hubs,
        &object["spec"].to_string(),
        &["rate(keyferry_requests_total)".to_owned()],
    )
    .await?;
    assert!(
        !good && said.contains("range vector"),
        "a query of the wrong type is found: {said}"
    );
    Ok(())
}

async fn judged(hubs: &Hubs, rules: &str, queries: &[String]) -> Result<(bool, String), TestError> {
    let (rules_file, queries_file) = (
        hubs.fleet().folder().join("rules.yaml"),
        hubs.fleet().folder().join("queries.txt"),
    );
    std::fs::write(&rules_file, rules)?;
    std::fs::write(&queries_file, queries.join("\n"))?;
    let program = hubs.fleet().parts().locate(Part::PrometheusRules).await?;
    let output = Command::new(program)
        .args([&rules_file, &queries_file])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((output.status.success(), said))
}
