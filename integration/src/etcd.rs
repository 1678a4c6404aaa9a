//! One etcd for all control planes of a fleet, each with its own key prefix.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::http_client::plain_client;
use crate::parts::{Part, PartError, Parts};
use crate::ports::free_port;
use crate::process::{Process, ProcessError, ProcessSpec, Signal, larger_heap, tail_of_file};
use crate::readiness::{NotReady, wait_until_ready};
use crate::rest::RestError;

const READY_WITHIN: Duration = Duration::from_secs(90);
const ATTEMPTS: usize = 3;

/// Why etcd did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The binary is unavailable.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The process did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It did not answer.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The client that checks readiness could not be created.
    #[error(transparent)]
    Client(#[from] RestError),
    /// No free port.
    #[error("find a free port for etcd: {0}")]
    Port(std::io::Error),
}

/// A running etcd, plain HTTP on loopback, without fsync.
#[derive(Debug)]
pub struct Etcd {
    url: String,
    log: PathBuf,
    /// What starts it, and starts it again.
    spec: ProcessSpec,
    process: Mutex<Option<Process>>,
}

impl Etcd {
    /// Starts etcd with its data in `<folder>/etcd`.
    pub async fn start(parts: &Parts, folder: &Path) -> Result<Self, EtcdError> {
        let program = parts.locate(Part::Etcd).await?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&program, folder).await {
                Err(EtcdError::NotReady(reason)) if reason.lost_port() && attempt < ATTEMPTS => {
                    eprintln!("etcd lost the race for its port, trying another");
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// The client URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The end of its log.
    pub fn logs_tail(&self, lines: usize) -> String {
        tail_of_file(&self.log, lines)
    }

    /// Suspends it: connections stay open, but requests get no response.
    pub async fn suspend(&self) -> Result<(), EtcdError> {
        match &*self.process.lock().await {
            Some(process) => Ok(process.suspend().await?),
            None => Ok(()),
        }
    }

    /// Resumes it after [`Self::suspend`].
    pub async fn resume(&self) -> Result<(), EtcdError> {
        match &*self.process.lock().await {
            Some(process) => Ok(process.signal(Signal::Continue).await?),
            None => Ok(()),
        }
    }

    /// Kills it. Its data remain for [`Self::start_again`].
    pub async fn kill(&self) -> Result<(), EtcdError> {
        match self.process.lock().await.take() {
            Some(process) => Ok(process.kill().await?),
            None => Ok(()),
        }
    }

    /// Starts it with the same data at the same URL, after [`Self::kill`].
    pub async fn start_again(&self) -> Result<(), EtcdError> {
        let process = run(&self.spec, &self.url).await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }

    async fn start_once(program: &Path, folder: &Path) -> Result<Self, EtcdError> {
        let url = format!("http://127.0.0.1:{}", free_port().map_err(EtcdError::Port)?);
        let peer = format!("http://127.0.0.1:{}", free_port().map_err(EtcdError::Port)?);
        let log = folder.join("etcd.log");
        let data = folder.join("etcd");
        // Remove the files of an attempt that lost its port, so that they are not read as this
        // one's.
        let _ = std::fs::remove_file(&log);
        let _ = std::fs::remove_dir_all(&data);
        let spec = ProcessSpec {
            name: "etcd".to_owned(),
            program: program.to_owned(),
            args: vec![
                "--name=fleet".into(),
                format!("--data-dir={}", data.display()).into(),
                format!("--listen-client-urls={url}").into(),
                format!("--advertise-client-urls={url}").into(),
                format!("--listen-peer-urls={peer}").into(),
                format!("--initial-advertise-peer-urls={peer}").into(),
                format!("--initial-cluster=fleet={peer}").into(),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
            env: vec![larger_heap()],
            log: log.clone(),
        };
        let process = run(&spec, &url).await?;
        Ok(Self {
            url,
            log,
            spec,
            process: Mutex::new(Some(process)),
        })
    }
}

/// Starts the process and waits until it is ready.
async fn run(spec: &ProcessSpec, url: &str) -> Result<Process, EtcdError> {
    let mut process = Process::spawn(spec).await?;
    let (client, ready) = (plain_client()?, format!("{url}/readyz"));
    wait_until_ready("etcd", &mut process, &client, &ready, READY_WITHIN).await?;
    Ok(process)
}
