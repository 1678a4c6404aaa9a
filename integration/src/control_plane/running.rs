//! Starts the processes of a control plane in order and stops them in reverse.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{ATTEMPTS, ControlPlane, ControlPlaneError};
use crate::apiserver::Flags;
use crate::controller_manager;
use crate::parts::Part;
use crate::process::{Process, ProcessError, ProcessSpec, Signal, larger_heap};
use crate::readiness::wait_until_ready;

const READY_WITHIN: Duration = Duration::from_secs(180);
const CONTROLLERS_WITHIN: Duration = Duration::from_secs(90);
const GRACE: Duration = Duration::from_secs(15);

/// The processes that run now. Rust drops the fields in this order.
#[derive(Debug, Default)]
pub(super) struct Running {
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
}

impl Running {
    pub(super) async fn stop(&mut self) -> Result<(), ControlPlaneError> {
        // The controller manager has nothing to flush, and exits with an error when its server
        // stops first.
        if let Some(process) = self.controller_manager.take() {
            process.kill().await?;
        }
        if let Some(process) = self.apiserver.take() {
            process.stop(GRACE).await?;
        }
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> Result<(), ControlPlaneError> {
        let both = [self.controller_manager.take(), self.apiserver.take()];
        for process in both.into_iter().flatten() {
            process.kill().await?;
        }
        Ok(())
    }

    pub(super) async fn suspend(&self) -> Result<(), ControlPlaneError> {
        Ok(self.apiserver()?.suspend().await?)
    }

    pub(super) async fn resume(&self) -> Result<(), ControlPlaneError> {
        Ok(self.apiserver()?.signal(Signal::Continue).await?)
    }

    fn apiserver(&self) -> Result<&Process, ProcessError> {
        self.apiserver.as_ref().ok_or_else(|| ProcessError::Exited {
            name: "kube-apiserver".to_owned(),
        })
    }
}

impl ControlPlane {
    /// Starts the processes and waits until they work.
    pub(super) async fn run(&self) -> Result<(), ControlPlaneError> {
        let mut running = self.running.lock().await;
        let program = self.parts.locate(Part::ApiServer(self.minor())).await?;
        let mut apiserver = self
            .spawn("kube-apiserver", program, self.apiserver_arguments().await)
            .await?;
        let ready = format!("{}/readyz", self.url());
        wait_until_ready(
            &format!("kube-apiserver {}", self.spec.name),
            &mut apiserver,
            self.admin.http(),
            &ready,
            READY_WITHIN,
        )
        .await?;
        running.apiserver = Some(apiserver);
        if self.spec.controller_manager {
            running.controller_manager = Some(self.run_controller_manager().await?);
        }
        Ok(())
    }

    /// As [`Self::run`], for a port that clients already know. If another process has the port,
    /// only waiting helps.
    pub(super) async fn run_on_kept_port(&self) -> Result<(), ControlPlaneError> {
        let mut attempt = 1;
        loop {
            match self.run().await {
                Err(error) if error.lost_port() && attempt < ATTEMPTS => {
                    eprintln!("{}: port {} is taken, again", self.spec.name, self.port);
                    attempt += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                other => return other,
            }
        }
    }

    async fn apiserver_arguments(&self) -> Vec<OsString> {
        let signing = self.signing.lock().await;
        Flags {
            etcd_url: &self.etcd_url,
            etcd_prefix: &format!(
                "/{}",
                self.spec.replica_of.as_ref().unwrap_or(&self.spec.name)
            ),
            port: self.port,
            ca: &self.ca,
            serving: &self.serving,
            issuers: &signing.issuers,
            jwks_uri: self.spec.jwks_uri.as_deref(),
            api_audiences: &self.spec.api_audiences,
            signing_key: &signing.signing_key,
            further_keys: &signing.further_keys,
            authentication_config: self.authentication_config.as_deref(),
            audit: self.audit.as_ref(),
            extra: &self.spec.extra_args,
        }
        .arguments()
    }

    async fn run_controller_manager(&self) -> Result<Process, ControlPlaneError> {
        let program = self.parts.locate(Part::ControllerManager).await?;
        let signing_key = self.signing.lock().await.signing_key.clone();
        let arguments =
            controller_manager::arguments(&self.admin_kubeconfig, &self.ca, &signing_key);
        let process = self
            .spawn("kube-controller-manager", program, arguments)
            .await?;
        // It serves no port to probe, so its first work counts as its readiness.
        let deadline = Instant::now() + CONTROLLERS_WITHIN;
        let path = "/api/v1/namespaces/default/serviceaccounts/default";
        while self.admin.get(path).await.is_err() {
            if Instant::now() >= deadline {
                return Err(ControlPlaneError::ControllersIdle {
                    name: self.spec.name.clone(),
                    seconds: CONTROLLERS_WITHIN.as_secs(),
                    log: process.logs_tail(25),
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(process)
    }

    async fn spawn(
        &self,
        binary: &str,
        program: PathBuf,
        args: Vec<OsString>,
    ) -> Result<Process, ControlPlaneError> {
        let log = self.folder.join(format!("{binary}.log"));
        // Keep the log of the previous run, but do not read it as this run's log.
        let _ = std::fs::rename(&log, log.with_extension("log.before"));
        Ok(Process::spawn(&ProcessSpec {
            name: format!("{binary} {}", self.spec.name),
            program,
            args,
            env: vec![larger_heap()],
            log,
        })
        .await?)
    }
}
