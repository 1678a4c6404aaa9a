//! Callers that exchange without a pause, and a reader of the AudiencePairing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::{Broker, exchange_at};
use tokio::task::JoinHandle;

pub(super) const PAIRING: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";
const PAUSE: Duration = Duration::from_millis(20);

/// Callers of one replica.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    /// Starts a caller for each token and access.
    pub(crate) fn start(broker: &Broker, callers: Vec<(String, String)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let callers = callers.into_iter().map(|(token, access)| {
            let (http, api, stop) = (broker.http().clone(), broker.api_url(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut count, mut failed) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match exchange_at(&http, &api, &token, &access).await {
                        Ok(answer) if answer.status == 200 => {}
                        Ok(answer) => {
                            failed.push(format!("{access}: {} {}", answer.status, answer.body))
                        }
                        Err(error) => failed.push(format!("{access}: {error:?}")),
                    }
                    count += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                (count, failed)
            })
        });
        let callers = callers.collect();
        Self { stop, callers }
    }

    /// Ends it; none of its exchanges may have failed. Returns how many there were.
    pub(crate) async fn stop(self) -> Result<usize, TestError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = 0;
        for caller in self.callers {
            let (count, failed) = caller.await?;
            if let [first, ..] = failed.as_slice() {
                return Err(
                    format!("{} of {count} failed, the first: {first}", failed.len()).into(),
                );
            }
            all += count;
        }
        Ok(all)
    }
}

/// Reads the AudiencePairing again and again.
pub(super) struct PairingWatch {
    stop: Arc<AtomicBool>,
    reader: JoinHandle<(usize, Vec<String>)>,
}

impl PairingWatch {
    pub(super) fn start(hub: &Arc<ControlPlane>, audiences: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (hub, stopped) = (Arc::clone(hub), Arc::clone(&stop));
        let reader = tokio::spawn(async move {
            let (mut count, mut missing) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                match hub.admin().get(PAIRING).await {
                    Ok(object) => {
                        count += 1;
                        let lacks = |audience: &&String| object["pairs"].get(audience).is_none();
                        missing.extend(audiences.iter().filter(lacks).cloned());
                    }
                    Err(error) => missing.push(error.to_string()),
                }
                tokio::time::sleep(PAUSE).await;
            }
            (count, missing)
        });
        Self { stop, reader }
    }

    /// Ends it; each reading must have held every audience. Returns how many there were.
    pub(super) async fn stop(self) -> Result<usize, TestError> {
        self.stop.store(true, Ordering::Relaxed);
        let (count, missing) = self.reader.await?;
        match missing.first() {
            Some(first) => Err(format!("{} of {count} lack {first}", missing.len()).into()),
            None => Ok(count),
        }
    }
}
