//! What a process uses, and whether that grows.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::TestError;

use crate::chaos::stage::Stage;

/// One sample: a number of each of [`KINDS`], in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage([u64; 5]);

/// What is sampled, and by how much its median may grow from the second third to the last: a share in
/// percent, and an absolute amount for small numbers. The allocator gives memory back late, and a
/// sample meets some connections or none.
const KINDS: [(&str, u64, u64); 5] = [
    ("resident memory in KiB", 5, 4096),
    ("descriptors", 5, 8),
    ("threads", 0, 2),
    ("tasks", 5, 8),
    ("metric series", 0, 4),
];

impl Usage {
    /// That of the server now.
    pub(super) async fn of(stage: &Stage) -> Result<Self, TestError> {
        let folder = format!("/proc/{}", stage.server_id()?);
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        let number = |name: &str| -> Result<u64, TestError> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            Ok(word.ok_or_else(|| format!("no {name}"))?.parse()?)
        };
        let descriptors = std::fs::read_dir(format!("{folder}/fd"))?.count();
        let url = format!("{}/metrics", stage.world.broker.health_url());
        let text = plain_client()?.get(url).send().await?.text().await?;
        let tasks = text
            .lines()
            .find_map(|line| line.strip_prefix("keyferry_tasks "))
            .ok_or("no keyferry_tasks")?;
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        Ok(Self([
            number("VmRSS:")?,
            u64::try_from(descriptors)?,
            number("Threads:")?,
            tasks.parse()?,
            u64::try_from(series)?,
        ]))
    }
}

/// What has grown beyond its bound.
pub(super) fn growth(samples: &[Usage]) -> Vec<String> {
    let mut grown = Vec::new();
    for (index, (kind, percent, amount)) in KINDS.into_iter().enumerate() {
        let [_, second, last] = medians(samples, index);
        let bound = second + (second * percent / 100).max(amount);
        if last > bound {
            grown.push(format!(
                "{kind}: from {second} to {last}, more than {bound}"
            ));
        }
    }
    grown
}

/// The medians of each third, with the date.
pub(super) fn table(samples: &[Usage], time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let mut text = format!("{}, {minutes} minutes\n", Timestamp::now().strftime("%F"));
    text.push_str("| | first third | second third | last third | may grow by |\n");
    text.push_str("|---|---|---|---|---|\n");
    for (index, (kind, percent, amount)) in KINDS.into_iter().enumerate() {
        let [first, second, last] = medians(samples, index);
        let _ = writeln!(
            text,
            "| {kind} | {first} | {second} | {last} | {percent} %, or {amount} |"
        );
    }
    text
}

fn medians(samples: &[Usage], index: usize) -> [u64; 3] {
    let third = samples.len().div_ceil(3).max(1);
    [0, 1, 2].map(|number| {
        let part = samples.iter().skip(number * third).take(third);
        let mut values: Vec<u64> = part.map(|Usage(values)| values[index]).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    })
}
