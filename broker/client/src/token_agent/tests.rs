#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use keyferry_api::moment::Moment;
use keyferry_api::name::AccessName;
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::received_kubeconfig::ReceivedKubeconfig;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::Random;
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

use super::{AgentUpdateError, TokenAgent, retry_pause, run_rounds, token_expiry, write_files};
use crate::ClientError;
use crate::token_directory::{Rights, TokenDirectory, read_token};

const START: i64 = 1_790_000_000;

/// A clock that follows tokio's paused clock.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        let mono = self.0.elapsed();
        Moment {
            wall: Timestamp::from_second(START)
                .unwrap()
                .checked_add(mono)
                .unwrap(),
            mono,
        }
    }
}

/// Returns another number each time.
struct Counting(Mutex<u8>);

impl Random for Counting {
    fn fill_bytes(&self, bytes: &mut [u8]) -> bool {
        let mut count = self.0.lock().unwrap();
        *count = count.wrapping_add(37);
        bytes.fill(*count);
        true
    }
}

fn token(minted: i64, life: i64) -> SecretString {
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let claims = part(format!(r#"{{"exp":{}}}"#, minted + life));
    format!(
        "{}.{claims}.{}",
        part(r#"{"alg":"ES256"}"#.to_owned()),
        part("signature".to_owned())
    )
    .into()
}

fn received(token: SecretString, ca: Option<&str>) -> ReceivedKubeconfig {
    let cluster = serde_json::json!({ "name": "prod", "server": "https://prod.example.com" });
    let mut cluster: PublicCluster = serde_json::from_value(cluster).unwrap();
    cluster.certificate_authority_data = ca.map(|pem| STANDARD.encode(pem));
    ReceivedKubeconfig { cluster, token }
}

fn setup() -> (TempDir, PathBuf, TokenAgent) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let parts = TokenAgent {
        access: AccessName::parse("tenant-a/prod").unwrap(),
        directory: TokenDirectory::open_directory(
            &path,
            &[],
            Rights {
                mode: 0o600,
                group: None,
            },
        )
        .unwrap(),
        clock: Arc::new(PausedClock(tokio::time::Instant::now())),
        random: Arc::new(Counting(Mutex::new(0))),
    };
    (folder, path, parts)
}

fn text(path: &Path, name: &str) -> String {
    std::fs::read_to_string(path.join(name)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_round_writes_what_a_client_needs() {
    let (_folder, path, parts) = setup();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(
        write_files(&parts, received(token(START, 600), Some(pem)))
            .unwrap()
            .written
    );
    assert_eq!(text(&path, "token"), token(START, 600).expose_secret());
    assert_eq!(
        (
            text(&path, "ca.crt").as_str(),
            text(&path, "namespace").as_str()
        ),
        (pem, "tenant-a")
    );
    let document = text(&path, "kubeconfig");
    assert!(
        document.contains("'./token'")
            && document.contains("'./ca.crt'")
            && !document.contains("eyJ"),
        "{document}"
    );
    assert!(
        !write_files(&parts, received(token(START, 600), Some(pem)))
            .unwrap()
            .written
    );
    // A target without its own CA.
    write_files(&parts, received(token(START, 700), None)).unwrap();
    assert!(!path.join("ca.crt").exists() && !text(&path, "kubeconfig").contains("ca.crt"));
    // An expired token does not replace a valid one.
    assert!(matches!(
        write_files(&parts, received(token(START - 600, 600), None)),
        Err(AgentUpdateError::Expiry)
    ));
    assert_eq!(text(&path, "token"), token(START, 700).expose_secret());
}

/// A server that renews its ten-minute tokens as Keyferry does, and is away for a while.
#[tokio::test(start_paused = true)]
async fn the_token_that_is_there_has_two_minutes_to_go_whatever_the_server_does() {
    let (_folder, path, parts) = setup();
    let started = tokio::time::Instant::now();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let failed = Arc::new(Mutex::new(0));
    let (count, failures) = (Arc::clone(&asked), Arc::clone(&failed));
    let fetch = async move || {
        let now = i64::try_from(started.elapsed().as_secs()).unwrap();
        count.lock().unwrap().push(now);
        // Away for 40 s of every half hour, from the moment when it has a new token.
        if (410..450).contains(&(now % 1800)) {
            return Err(ClientError::Server {
                server: "https://k".to_owned(),
                problem: "away".to_owned(),
                fix: None,
            });
        }
        Ok(received(token(START + now - now % 410, 600), None))
    };
    let report = move |_: &AccessName, round: &Result<super::AgentUpdate, AgentUpdateError>| {
        *failures.lock().unwrap() += u32::from(round.is_err())
    };
    let agent = run_rounds(parts, fetch, &report);
    let watch = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        while started.elapsed() < Duration::from_secs(6 * 3600) {
            let ends = token_expiry(&read_token(&path).unwrap())
                .unwrap()
                .as_second();
            let left = ends - START - i64::try_from(started.elapsed().as_secs()).unwrap();
            assert!(
                left >= 120,
                "{left} s are left after {:?}",
                started.elapsed()
            );
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    tokio::select! {
        () = agent => unreachable!("it never ends by itself"),
        () = watch => {}
    }
    let asked = asked.lock().unwrap().len();
    assert!(*failed.lock().unwrap() > 0, "the server was away");
    // 21,600 s are 53 of its tokens, with a few requests for each.
    assert!(
        (53..250).contains(&asked),
        "the server was asked {asked} times"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_written_stays_when_the_server_is_gone_for_good() {
    let (_folder, path, parts) = setup();
    write_files(&parts, received(token(START, 600), None)).unwrap();
    let asked = Mutex::new(0_u32);
    let fetch = async || {
        *asked.lock().unwrap() += 1;
        Err::<ReceivedKubeconfig, _>(ClientError::Server {
            server: "https://k".to_owned(),
            problem: "gone".to_owned(),
            fix: None,
        })
    };
    let report = |_: &AccessName, _: &Result<super::AgentUpdate, AgentUpdateError>| {};
    let _ =
        tokio::time::timeout(Duration::from_secs(3600), run_rounds(parts, fetch, &report)).await;
    assert_eq!(text(&path, "token"), token(START, 600).expose_secret());
    let asked = *asked.lock().unwrap();
    assert!(
        (60..200).contains(&asked),
        "it asks on, and not all the time: {asked}"
    );
}

#[test]
fn pauses_grow_to_a_minute() {
    let seconds = |failures, jitter| retry_pause(failures, jitter).as_secs_f64();
    assert_eq!(
        [
            seconds(1, 0.0),
            seconds(2, 0.0),
            seconds(3, 0.0),
            seconds(7, 0.0),
            seconds(u32::MAX, 0.0)
        ],
        [1.0, 2.0, 4.0, 60.0, 60.0]
    );
    assert_eq!(seconds(7, 1.0), 30.0);
    assert!(retry_pause(0, 9.0) >= Duration::from_millis(500));
}
