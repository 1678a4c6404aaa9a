//! Records the result of every reconcile of a Kustomization by a watch, so that none is missed
//! between two reads.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::condition;
use crate::control_plane::ControlPlane;
use crate::runner::TestError;

const SUCCEEDED: &str = "ReconciliationSucceeded";

/// A running watch of one Kustomization. Dropping it ends it.
#[derive(Debug)]
pub struct Attempts {
    observed: Arc<Mutex<Seen>>,
    watching: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The current sum of `status.history[].totalReconciliations`.
    reconciled: u64,
    /// Every message that reported a failed reconcile.
    failures: Vec<String>,
    /// Why the watch ended.
    ended: Option<String>,
}

impl Attempts {
    /// Starts to watch the Kustomization of this namespace and name on the hub.
    ///
    /// # Errors
    /// The hub does not start a watch.
    pub async fn watch(hub: &ControlPlane, namespace: &str, name: &str) -> Result<Self, TestError> {
        let path = format!(
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{namespace}/kustomizations\
             ?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds=900"
        );
        let mut answer = hub
            .admin()
            .request(Method::GET, &path)
            .send()
            .await?
            .error_for_status()?;
        let observed = Arc::new(Mutex::new(Seen::default()));
        let writes = Arc::clone(&observed);
        let watching = tokio::spawn(async move {
            let mut unread = Vec::new();
            let why = loop {
                match answer.chunk().await {
                    Ok(Some(chunk)) => unread.extend_from_slice(&chunk),
                    Ok(None) => break "the hub ended it".to_owned(),
                    Err(error) => break error.without_url().to_string(),
                }
                while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = unread.drain(..=end).collect();
                    lock_observed(&writes).take(&serde_json::from_slice(&line).unwrap_or_default());
                }
            };
            lock_observed(&writes).ended = Some(why);
        });
        Ok(Self { observed, watching })
    }

    /// The number of reconciles so far, if all of them succeeded.
    ///
    /// # Errors
    /// A reconcile failed (with its message), or the watch has ended, so the result is unknown.
    pub fn succeeded(&self) -> Result<u64, TestError> {
        let seen = lock_observed(&self.observed);
        if let Some(why) = &seen.ended {
            return Err(format!("the watch of a Kustomization is over: {why}").into());
        }
        match seen.failures.as_slice() {
            [] => Ok(seen.reconciled),
            failures => Err(format!("reconciles failed: {failures:?}").into()),
        }
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Seen {
    fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        if !matches!(kind, "ADDED" | "MODIFIED") {
            self.failures.push(format!(
                "the watch said {kind:?}: {}",
                event["object"]["message"]
            ));
            return;
        }
        let object = &event["object"];
        let ready = condition(object, "Ready");
        if ready["status"] == "False" {
            self.failures.push(format!(
                "Ready=False {}: {}",
                ready["reason"], ready["message"]
            ));
        }
        let history = || object["status"]["history"].as_array().into_iter().flatten();
        for other in history().filter(|attempt| attempt["lastReconciledStatus"] != SUCCEEDED) {
            self.failures.push(format!("history: {other}"));
        }
        self.reconciled = history()
            .filter_map(|attempt| attempt["totalReconciliations"].as_u64())
            .sum();
    }
}

fn lock_observed(seen: &Mutex<Seen>) -> parking_lot::MutexGuard<'_, Seen> {
    seen.lock()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, ready: &str, last: &str) -> Value {
        json!({ "type": kind, "object": { "status": {
            "conditions": [{ "type": "Ready", "status": ready }],
            "history": [
                { "lastReconciledStatus": last, "totalReconciliations": 2 },
                { "lastReconciledStatus": SUCCEEDED, "totalReconciliations": 3 },
            ],
        } } })
    }

    #[test]
    fn every_kind_of_failure_is_kept() {
        let mut observed = Seen::default();
        for (kind, ready) in [("ADDED", "Unknown"), ("MODIFIED", "True")] {
            observed.take(&event(kind, ready, SUCCEEDED));
        }
        assert_eq!(
            (observed.reconciled, observed.failures.len()),
            (5, 0),
            "{observed:?}"
        );
        for bad in [
            event("MODIFIED", "False", SUCCEEDED),
            event("MODIFIED", "True", "ReconciliationFailed"),
            event("ERROR", "True", SUCCEEDED),
        ] {
            let before = observed.failures.len();
            observed.take(&bad);
            assert_eq!(observed.failures.len(), before + 1, "{observed:?}");
        }
        observed.take(&event("MODIFIED", "True", SUCCEEDED));
        assert_eq!(
            observed.failures.len(),
            3,
            "what failed once is not forgotten"
        );
    }
}
