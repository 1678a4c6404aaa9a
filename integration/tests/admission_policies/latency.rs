//! Measures the cost of the pairing policy for a TokenRequest: with 10 audiences, with those of 300
//! targets that have three roles each, and without policies. Each audience has 21 pairs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};

use super::stage::{
    ADMISSION, AUDIENCE, Stage, admission_policy, apply, denied_by, mint, until, until_in_force,
    write_pairing,
};

const REQUESTS: usize = 200;
const FEW: usize = 10;
const MANY: usize = 1200;

pub(super) async fn measured(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let (few, _) = listed_times(hub, FEW).await?;
        let (listed, last) = listed_times(hub, MANY).await?;
        let (admin, last) = (hub.admin(), last.as_str());
        let plain = times(hub, &[]).await?;
        for binding in ["keyferry-pairing", "keyferry-pairing-closed"] {
            admin
                .delete(&format!(
                    "{ADMISSION}/validatingadmissionpolicybindings/{binding}"
                ))
                .await?;
        }
        until("the policy lets go", || async {
            mint(admin, "tenant-a", "other", &[AUDIENCE]).await.is_ok()
        })
        .await?;
        let without = times(hub, &[last]).await?;
        eprintln!(
            "TokenRequest on {}, p50 and p99 of {REQUESTS}: {} without the pairing, {} for a listed \
             audience among {FEW}, {} among {MANY}, {} for the hub's own among {MANY}",
            hub.minor().git_version(),
            percentiles(&without),
            percentiles(&few),
            percentiles(&listed),
            percentiles(&plain),
        );
        apply(hub, &admission_policy("pairing-binding")).await?;
        write_pairing(hub, &[]).await?;
        until_in_force(hub).await?;
        // A generous limit on the fastest tenth, which other load on the machine does not disturb.
        // A design with one parameter object for each target would exceed it on every request.
        // Since 1.37 kube-apiserver itself takes longer for a large parameter object: some 25 ms for
        // this one, the largest that etcd takes.
        let further = if hub.minor() >= Minor::V1_37 { 60 } else { 5 };
        let (listed, without) = (listed[REQUESTS / 10], without[REQUESTS / 10]);
        assert!(
            listed < without * 2 + Duration::from_millis(further),
            "{listed:?} against {without:?} on {}",
            hub.name()
        );
    }
    Ok(())
}

/// The durations for a listed audience among so many, and that audience.
async fn listed_times(
    hub: &ControlPlane,
    count: usize,
) -> Result<(Vec<Duration>, String), TestError> {
    let audiences: Vec<String> = (0..count)
        .map(|number| format!("https://of-{count}-target-{number:04}.keyferry.test"))
        .collect();
    write_pairing(hub, &audiences).await?;
    let last = audiences.last().cloned().unwrap_or_default();
    until("the pairing is seen", || async {
        denied_by(
            mint(hub.admin(), "tenant-a", "other", &[&last]).await,
            "keyferry-pairing",
        )
    })
    .await?;
    Ok((times(hub, &[&last]).await?, last))
}

/// The durations of some requests, the fastest first.
async fn times(hub: &ControlPlane, audiences: &[&str]) -> Result<Vec<Duration>, TestError> {
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let started = Instant::now();
        mint(hub.admin(), "tenant-a", "reconciler", audiences).await?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// The median and the 99th percentile.
fn percentiles(times: &[Duration]) -> String {
    let ms = |index: usize| times[index].as_secs_f64() * 1000.0;
    format!(
        "{:.1} and {:.1} ms",
        ms(REQUESTS / 2),
        ms(REQUESTS * 99 / 100)
    )
}
