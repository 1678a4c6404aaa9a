//! The disk of a replica is full, or the reader of its audit log stops reading.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::small_disk::SmallDisk;
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::RECONCILER;
use keyferry_integration::world::{Answer, Broker, caller_token};
use serde_json::{Value, json};
use tokio::process::Command;

use super::stage::{Stage, check_token};
use crate::deliveries::killed::recorded_tokens;
use crate::deliveries::tenant::Tenant;

/// A write may take two seconds. The rest is for a busy machine.
const REFUSED_WITHIN: Duration = Duration::from_secs(9);
const GRANTED_WITHIN: Duration = Duration::from_secs(30);
/// More answers than the rest of a page has room for records.
const RECORDS_IN_PAGE: usize = 50;

/// Audit log and state directory are on a disk that is full. Keyferry issues nothing and publishes as
/// ever, also after a kill and a start on the full disk. A record that did not fit does not damage
/// the first one after it.
pub(super) async fn a_full_disk_issues_nothing_and_tears_no_record(
    stage: Arc<Stage>,
) -> TestResult {
    let folder = stage.world.ground.folder().join("small-disk");
    let disk = SmallDisk::mount(&folder, 256).await?;
    let (audit, state) = (folder.join("audit.jsonl"), folder.join("state"));
    std::fs::create_dir(&state)?;
    let replica = stage
        .start_replica("full-disk", |spec| {
            spec.audited_to(&audit).with_state_in(&state)
        })
        .await?;
    let client = Client::of(&stage, "full-disk").await?;
    let mut issued = BTreeSet::from([client.until_issued(&replica).await?]);
    let documents = published(&replica).await?;

    disk.fill()?;
    for attempt in 0.. {
        assert!(attempt < RECORDS_IN_PAGE, "a full disk takes every record");
        match client.issued(&client.ask(&replica).await?)? {
            Some(id) => issued.insert(id),
            None => break,
        };
    }
    assert_eq!(published(&replica).await?, documents);
    let replica = replica
        .killed_and_started(stage.world.ground.binary())
        .await?;
    assert_eq!(published(&replica).await?, documents, "on a full disk");

    disk.free()?;
    issued.insert(client.until_issued(&replica).await?);
    let text = std::fs::read_to_string(&audit)?;
    let records = records_in(&text);
    let torn = text.lines().count() - records.len();
    eprintln!("{} records, and {torn} lines that are none", records.len());
    let recorded = recorded_tokens(&records);
    assert!(
        issued.is_subset(&recorded),
        "issued without a record:\n{text}"
    );
    let journal = std::fs::read(state.join("keys.json"))?;
    assert!(serde_json::from_slice::<Value>(&journal)?.is_object());
    replica.into_process().stop().await?;
    Ok(())
}

/// The audit log is a pipe that nobody reads. Refusals and documents go on, and every token that is
/// issued later is in what the reader gets.
pub(super) async fn a_blocked_audit_log_issues_nothing_until_it_is_read(
    stage: Arc<Stage>,
) -> TestResult {
    let path = stage.world.ground.folder().join("audit.pipe");
    let made = Command::new("mkfifo").arg(&path).status().await?;
    assert!(made.success(), "mkfifo: {made}");
    let mut pipe = Pipe::open(&path)?;
    let replica = stage
        .start_replica("blocked-log", |spec| spec.audited_to(&path))
        .await?;
    let client = Client::of(&stage, "blocked-log").await?;
    let mut issued = BTreeSet::from([client.until_issued(&replica).await?]);

    pipe.block()?;
    let documents = published(&replica).await?;
    let answer = client.ask(&replica).await?;
    assert_eq!(client.issued(&answer)?, None, "issued without a record");
    assert_eq!(published(&replica).await?, documents);
    let denied = replica
        .exchange(&client.caller, "blocked-log/absent")
        .await?;
    assert_eq!(denied.status, 400, "{}", denied.body);

    until("tokens are issued again", GRANTED_WITHIN, || {
        let read = pipe.read_available();
        let (client, replica) = (&client, &replica);
        async move {
            read?;
            let answer = client.ask(replica).await?;
            Ok(client.issued(&answer)?.is_some())
        }
    })
    .await?;
    issued.insert(client.until_issued(&replica).await?);
    pipe.read_available()?;
    let recorded = recorded_tokens(&records_in(&pipe.text()));
    assert!(issued.is_subset(&recorded), "{issued:?}: {recorded:?}");
    replica.into_process().stop().await?;
    Ok(())
}

/// A caller of an access of its own.
struct Client {
    access: String,
    caller: String,
}

impl Client {
    /// Declares the access in a new namespace of this name.
    async fn of(stage: &Stage, name: &str) -> Result<Self, TestError> {
        let tenant = Tenant::new(&stage.world, name, &["HTTP"]).await?;
        let http = json!({ "deliveries": [{ "name": "h", "type": "HTTP" }], "probe": "Off" });
        tenant.put_access_with("apps", http).await?;
        tenant.until_ready("apps").await?;
        Ok(Self {
            access: format!("{name}/apps"),
            caller: caller_token(&stage.world.hub, name, RECONCILER).await?,
        })
    }

    /// Exchanges once, in bounded time.
    async fn ask(&self, replica: &Broker) -> Result<Answer, TestError> {
        let begin = Instant::now();
        let answer = replica.exchange(&self.caller, &self.access).await?;
        let took = begin.elapsed();
        assert!(took < REFUSED_WITHIN, "answered after {took:?}");
        Ok(answer)
    }

    /// The ID of the token in an answer, or `None` for the refusal of an audit log that takes no
    /// record.
    fn issued(&self, answer: &Answer) -> Result<Option<String>, TestError> {
        if answer.status == 503 {
            let body = &answer.body;
            assert!(body.contains("temporarily_unavailable"), "{body}");
            assert!(!body.contains("eyJ"), "{}: a token in {body}", self.access);
            return Ok(None);
        }
        let (name, _) = self.access.split_once('/').ok_or("no access")?;
        let audience = format!("https://{name}.keyferry.test");
        Ok(Some(check_token(&answer.token()?, name, &audience)?))
    }

    /// Exchanges until a token is issued. Returns its ID.
    async fn until_issued(&self, replica: &Broker) -> Result<String, TestError> {
        let answer = replica.exchange_in_time(&self.caller, &self.access).await?;
        Ok(self.issued(&answer)?.ok_or("refused")?)
    }
}

/// The records of an audit log, without lines that are none.
fn records_in(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The published keys.
async fn published(replica: &Broker) -> Result<Vec<u8>, TestError> {
    let url = format!("{}/openid/v1/jwks", replica.discovery_url());
    let answer = replica.http().get(url).send().await?;
    assert_eq!(answer.status(), 200);
    Ok(answer.bytes().await?.to_vec())
}

/// Both ends of a named pipe.
struct Pipe {
    file: File,
    text: Vec<u8>,
}

impl Pipe {
    fn open(path: &Path) -> Result<Self, TestError> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(nonblocking)?)
            .open(path)?;
        let text = Vec::new();
        Ok(Self { file, text })
    }

    /// Fills it with empty lines.
    fn block(&mut self) -> TestResult {
        for chunk in [&[b'\n'; 4096][..], b"\n"] {
            loop {
                match self.file.write_all(chunk) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    written => written?,
                }
            }
        }
        Ok(())
    }

    fn read_available(&mut self) -> TestResult {
        match self.file.read_to_end(&mut self.text) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            read => Ok(read.map(drop)?),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}
