//! Measures the cost of the pairing policy for a TokenRequest: 1,000 audiences of 21 pairs each,
//! compared with no policies.

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

pub(super) async fn measured(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let audiences: Vec<String> = (0..1000)
            .map(|number| format!("https://target-{number:04}.keyferry.test"))
            .collect();
        write_pairing(hub, &audiences).await?;
        let (admin, last) = (hub.admin(), audiences[999].as_str());
        until("the pairing is seen", || async {
            denied_by(
                mint(admin, "tenant-a", "other", &[last]).await,
                "keyferry-pairing",
            )
        })
        .await?;
        let (listed, plain) = (times(hub, &[last]).await?, times(hub, &[]).await?);
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
            "TokenRequest on {}, p50 of {REQUESTS}: {:.2} ms without the pairing, {:.2} ms for a \
             listed audience among 1000 x 21 pairs, {:.2} ms for the hub's own",
            hub.minor().git_version(),
            ms(p50(&without)),
            ms(p50(&listed)),
            ms(p50(&plain)),
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

fn p50(times: &[Duration]) -> Duration {
    times[REQUESTS / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
