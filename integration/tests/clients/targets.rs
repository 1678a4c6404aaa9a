//! Tests `keyferry targets`.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, AUDIENCE_B, TENANT, World, shipped};
use serde_json::{Value, json};

use super::command::{keyferry, succeeded};

pub(crate) async fn targets_lists_what_the_file_allows(world: Arc<World>) -> TestResult {
    let config = world.broker().config().display().to_string();
    let table = succeeded(keyferry(&world, &["targets", "--config", &config], &[]).await?)?;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let (a, b) = (world.target_a().url(), world.target_b().url());
    let expected = [
        vec![
            "NAMESPACE",
            "ACCESS",
            "SERVICEACCOUNT",
            "TARGET",
            "ADDRESS",
            "AUDIENCE",
            "DELIVERIES",
            "ALLOWED",
        ],
        vec![
            TENANT,
            "a",
            ACCOUNT,
            "target-a",
            &a,
            AUDIENCE_A,
            "Exec,HTTP",
            "yes",
        ],
        vec![
            TENANT,
            "b",
            ACCOUNT,
            "target-b",
            &b,
            AUDIENCE_B,
            "Exec,HTTP",
            "no",
        ],
    ];
    assert_eq!(rows, expected);
    let list = succeeded(
        keyferry(
            &world,
            &["targets", "--config", &config, "-n", TENANT, "-o", "json"],
            &[],
        )
        .await?,
    )?;
    let list: Value = serde_json::from_str(&list)?;
    let first = json!({
        "namespace": TENANT, "access": "a", "serviceAccount": ACCOUNT, "target": "target-a",
        "address": a, "audience": AUDIENCE_A, "deliveries": ["Exec", "HTTP"], "allowed": "yes",
    });
    assert_eq!((list.as_array().map(Vec::len), &list[0]), (Some(2), &first));
    let none = succeeded(
        keyferry(
            &world,
            &["targets", "--config", &config, "-n", "nobody", "-o", "json"],
            &[],
        )
        .await?,
    )?;
    assert_eq!(serde_json::from_str::<Value>(&none)?, json!([]));
    let example = shipped("examples/in-cluster/config.yaml")
        .display()
        .to_string();
    assert!(
        succeeded(keyferry(&world, &["targets", "--config", &example], &[]).await?)?
            .contains("https://prod.example.com")
    );
    Ok(())
}
