#![allow(clippy::unwrap_used)]

mod requests;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request};
use insta::assert_snapshot;
use jiff::Timestamp;
use keyferry_fleet::facts::Fleet;
use keyferry_listener::LocalService;
use keyferry_pages::testing::sample_fleet;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::random::SystemRandomness;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::current_facts::{CurrentFacts, JudgeFleet, ReadFleet};
use super::viewer::IDLE_LIMIT;
use super::*;
use crate::command_error::CommandError;

/// A made-up fleet, whose facts do not change with time.
struct FixedFleet(Fleet);

impl JudgeFleet for FixedFleet {
    fn judge_fleet(&self, now: Timestamp) -> Fleet {
        let mut fleet = self.0.clone();
        fleet.reading.judged_at = now;
        fleet
    }
}

/// What the next readings give; after them, the made-up fleet. It counts them.
#[derive(Clone, Default)]
struct PreparedReader {
    failures: Arc<Mutex<Vec<CommandError>>>,
    readings: Arc<Mutex<u32>>,
    duration: Arc<Mutex<Duration>>,
}

impl ReadFleet for PreparedReader {
    fn read_fleet(&self) -> BoxFuture<'_, Result<Arc<dyn JudgeFleet>, CommandError>> {
        Box::pin(async move {
            *self.readings.lock().unwrap() += 1;
            let duration = *self.duration.lock().unwrap();
            tokio::time::sleep(duration).await;
            match self.failures.lock().unwrap().pop() {
                Some(error) => Err(error),
                None => Ok(Arc::new(FixedFleet(sample_fleet())) as Arc<dyn JudgeFleet>),
            }
        })
    }
}

async fn viewer(port: u16, reader: &PreparedReader) -> Arc<Viewer> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let facts = CurrentFacts::read_first(Box::new(reader.clone()), clock);
    let facts = facts.await.unwrap();
    Arc::new(Viewer::new(port, facts, &SystemRandomness::default()).unwrap())
}

/// A viewer on a real socket, which ends when it is dropped.
struct RunningViewer {
    address: SocketAddr,
    viewer: Arc<Viewer>,
    _stop: oneshot::Sender<()>,
}

impl RunningViewer {
    async fn start() -> Self {
        Self::with_reader(&PreparedReader::default()).await
    }

    async fn with_reader(reader: &PreparedReader) -> Self {
        let listener = PlainListener::bind_loopback(Arc::new(NoMetrics)).unwrap();
        let address = listener.address().unwrap();
        assert!(address.ip().is_loopback(), "{address}");
        let viewer = viewer(address.port(), reader).await;
        let (sender, receiver) = oneshot::channel();
        let stop = async move { drop(receiver.await) };
        tokio::spawn(serve_viewer(listener, Arc::clone(&viewer), stop));
        Self {
            address,
            viewer,
            _stop: sender,
        }
    }

    /// The path of the one-time link.
    fn link_path(&self) -> String {
        let link = self.viewer.link();
        let path = link.strip_prefix(&format!("http://{}", self.address));
        path.unwrap().to_owned()
    }

    /// Opens the link and returns `/SESSION`.
    async fn open_session(&self) -> String {
        let answer = self.get(&self.link_path()).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let location = answer.header("location").unwrap();
        location.strip_suffix("/fleet").unwrap().to_owned()
    }

    async fn get(&self, path: &str) -> RawAnswer {
        let host = self.address;
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
            .await
    }

    /// Sends these bytes, and reads until the viewer closes the connection.
    async fn send(&self, request: &str) -> RawAnswer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
        // A request that is refused early may meet a closed socket.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        RawAnswer::of(&String::from_utf8_lossy(&bytes))
    }
}

#[derive(Debug)]
struct RawAnswer {
    status: u16,
    head: String,
    body: String,
}

impl RawAnswer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Self {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_headers_that_keep_it_to_its_reader() {
    let running = RunningViewer::start().await;
    let session = running.open_session().await;
    let shown = |answer: &RawAnswer| {
        let mut lines: Vec<&str> = answer.head.lines().skip(1).collect();
        let varies = ["date:", "content-length:", "content-security-policy:"];
        lines.retain(|line| !varies.iter().any(|name| line.starts_with(name)));
        lines.sort_unstable();
        format!("{}\n{}", answer.status, lines.join("\n"))
    };
    let page = running.get(&format!("{session}/fleet")).await;
    assert!(page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    assert!(!page.body.contains("<script"), "{}", page.body);
    let refused = running.get("/").await;
    let policy = keyferry_pages::viewer_content_security_policy();
    for answer in [&page, &refused] {
        assert_eq!(
            answer.header("content-security-policy"),
            Some(policy.as_str())
        );
    }
    assert_snapshot!("headers-of-a-page", shown(&page));
    assert_snapshot!("headers-of-a-refusal", shown(&refused));
    assert_snapshot!("text-of-a-refusal", refused.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_get_that_is_answered_uses_the_link_up() {
    let running = RunningViewer::start().await;
    let link = running.link_path();
    let host = running.address;
    for (request, status) in [
        (format!("HEAD {link} HTTP/1.1\r\nHost: {host}\r\n\r\n"), 405),
        (format!("POST {link} HTTP/1.1\r\nHost: {host}\r\n\r\n"), 405),
        (
            format!("GET {link} HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            403,
        ),
        (
            format!("GET {link} HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Dest: image\r\n\r\n"),
            403,
        ),
        (
            format!(
                "GET {}0 HTTP/1.1\r\nHost: {host}\r\n\r\n",
                &link[..link.len() - 1]
            ),
            404,
        ),
        (format!("GET {link} HTTP/1.1\r\nHost: {host}\r\n\r\n"), 303),
        (format!("GET {link} HTTP/1.1\r\nHost: {host}\r\n\r\n"), 410),
        (format!("GET {link} HTTP/1.1\r\nHost: {host}\r\n\r\n"), 410),
    ] {
        // The last digit of the code may be the 0 of the wrong one.
        if !(status == 404 && link.ends_with('0')) {
            assert_eq!(running.send(&request).await.status, status, "{request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_openings_at_once_one_gets_the_session() {
    let running = RunningViewer::start().await;
    let link = running.link_path();
    let openings = (0..20).map(|_| running.get(&link));
    let statuses: Vec<u16> = futures::future::join_all(openings)
        .await
        .iter()
        .map(|answer| answer.status)
        .collect();
    let opened = statuses.iter().filter(|status| **status == 303).count();
    assert_eq!(opened, 1, "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [303, 410].contains(status)),
        "{statuses:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_viewers_have_their_own_ports_links_and_sessions() {
    let (first, second) = (RunningViewer::start().await, RunningViewer::start().await);
    assert_ne!(first.address, second.address);
    assert_eq!(second.get(&first.link_path()).await.status, 404);
    let session = first.open_session().await;
    assert_eq!(second.get(&format!("{session}/fleet")).await.status, 404);
    let own = second.open_session().await;
    assert_eq!(second.get(&format!("{own}/fleet")).await.status, 200);
    assert_eq!(first.get(&format!("{session}/fleet")).await.status, 200);
}

fn get(viewer: &Viewer, path: &str) -> Request<()> {
    let link = viewer.link();
    let authority = link.split('/').nth(2).unwrap();
    Request::builder()
        .method(Method::GET)
        .uri(path)
        .header("host", authority)
        .body(())
        .unwrap()
}

/// Opens the link without a socket, and returns `/SESSION`.
async fn session_of(viewer: &Viewer) -> String {
    let link = viewer.link();
    let path = link.splitn(4, '/').nth(3).unwrap();
    let opened = viewer
        .answer_request(get(viewer, &format!("/{path}")))
        .await;
    let location = opened.headers()["location"].to_str().unwrap();
    location.strip_suffix("/fleet").unwrap().to_owned()
}

async fn status(viewer: &Viewer, path: &str) -> u16 {
    viewer
        .answer_request(get(viewer, path))
        .await
        .status()
        .as_u16()
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_a_request_of_its_reader_ends_it() {
    let viewer = viewer(1, &PreparedReader::default()).await;
    let session = session_of(&viewer).await;
    let idle = {
        let viewer = Arc::clone(&viewer);
        tokio::spawn(async move { viewer.until_idle().await })
    };
    let almost = IDLE_LIMIT - Duration::from_secs(1);
    tokio::time::sleep(almost).await;
    assert_eq!(status(&viewer, &format!("{session}/fleet")).await, 200);
    tokio::time::sleep(almost).await;
    assert!(!idle.is_finished(), "a page of the session keeps it alive");
    for path in ["/", "/open/a", "/a/fleet"] {
        assert_eq!(status(&viewer, path).await, 404);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(idle.is_finished(), "requests without the session do not");
}

#[tokio::test(start_paused = true)]
async fn the_fleet_is_read_again_at_most_every_five_seconds_and_once_at_a_time() {
    let reader = PreparedReader::default();
    *reader.duration.lock().unwrap() = Duration::from_secs(3);
    let viewer = viewer(1, &reader).await;
    let session = session_of(&viewer).await;
    let read_again = format!("{session}/{}", keyferry_pages::READ_AGAIN_PATH);
    let readings = || *reader.readings.lock().unwrap();
    assert_eq!(status(&viewer, &read_again).await, 303);
    assert_eq!(readings(), 1, "the first reading began 3 s ago");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let both = futures::join!(status(&viewer, &read_again), status(&viewer, &read_again));
    assert_eq!((both, readings()), ((303, 303), 2), "one at a time");
    assert_eq!((status(&viewer, &read_again).await, readings()), (303, 2));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((status(&viewer, &read_again).await, readings()), (303, 3));
    let to = viewer
        .answer_request(get(&viewer, &format!("{read_again}?then=target%2Fprod")))
        .await;
    assert_eq!(to.headers()["location"], format!("{session}/target/prod"));
    let out = viewer
        .answer_request(get(
            &viewer,
            &format!("{read_again}?then=%2F%2Fevil.example"),
        ))
        .await;
    assert_eq!(out.headers()["location"], format!("{session}/fleet"));
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_fails_keeps_the_last_facts_and_says_so() {
    let reader = PreparedReader::default();
    let viewer = viewer(1, &reader).await;
    let session = session_of(&viewer).await;
    let read_again = format!("{session}/{}", keyferry_pages::READ_AGAIN_PATH);
    let page = async || {
        let answer = viewer
            .answer_request(get(&viewer, &format!("{session}/fleet")))
            .await;
        assert_eq!(answer.status(), 200);
        answer.into_body()
    };
    const CAUSE: &str = "the hub is &lt;b&gt;gone";
    let failure = CommandError::with_fix("the hub is <b>gone", "wait for it");
    reader.failures.lock().unwrap().push(failure);
    assert!(!page().await.contains(CAUSE));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(status(&viewer, &read_again).await, 303);
    let failed = page().await;
    assert!(
        failed.contains(CAUSE) && failed.contains("wait for it"),
        "{failed}"
    );
    assert!(
        failed.contains(sample_fleet().targets[0].name.as_str()),
        "{failed}"
    );
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(status(&viewer, &read_again).await, 303);
    assert!(!page().await.contains(CAUSE), "the next reading was good");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_answering_ends_the_reading_and_not_the_viewer() {
    let reader = PreparedReader::default();
    let viewer = viewer(1, &reader).await;
    let session = session_of(&viewer).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    *reader.duration.lock().unwrap() = Duration::from_secs(3600);
    let began = tokio::time::Instant::now();
    let read_again = format!("{session}/{}", keyferry_pages::READ_AGAIN_PATH);
    assert_eq!(status(&viewer, &read_again).await, 303);
    assert_eq!(began.elapsed().as_secs(), 60);
    let page = viewer
        .answer_request(get(&viewer, &format!("{session}/fleet")))
        .await;
    assert!(
        page.body().contains("it took longer than 60 s"),
        "{}",
        page.body()
    );
}

#[tokio::test]
async fn a_first_reading_that_fails_is_an_error() {
    let reader = PreparedReader::default();
    reader
        .failures
        .lock()
        .unwrap()
        .push(CommandError::new("no hub"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let failed = CurrentFacts::read_first(Box::new(reader), clock)
        .await
        .err();
    assert_eq!(failed, Some(CommandError::new("no hub")));
}
