//! What tenants write into their objects takes no memory, however much it is. In a process of its
//! own, because it measures the memory of the whole process.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::authorise::HubView;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::watch;
use keyferry_platform::clock::SystemClock;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How far the peak of the process may grow.
const MAX_GROWTH_KIB: u64 = 32 * 1024;

/// How the hub takes the limit of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    Kept,
    Ignored,
}

/// A hub with large ServiceAccounts, and the limits that it was asked for.
struct LargeHub {
    limits: Limits,
    asked: Mutex<Vec<usize>>,
    event: String,
}

fn item(name: &str) -> String {
    format!(
        r#"{{"kind":"ServiceAccount","metadata":{{"name":"{name}","namespace":"tenant-a","uid":"u","resourceVersion":"7","finalizers":["a/b"#
    )
}

fn finalizers() -> String {
    r#"","c/d"#.repeat(1_000_000 / 6)
}

impl Limits {
    /// The objects of the list. Each has 1 MB of finalizers.
    fn objects(self) -> usize {
        match self {
            Self::Kept => 30,
            Self::Ignored => 200,
        }
    }
}

impl LargeHub {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => return,
            }
        }
        let request = String::from_utf8(request).unwrap();
        let number = |key: &str| {
            let (_, rest) = request.split_once(&format!("{key}="))?;
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            rest.get(..digits)?.parse::<usize>().ok()
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes()).await;
        if request.contains("watch=true") {
            let begin = format!(r#"{{"type":"ADDED","object":{}"#, item(&self.event));
            sent = stream.write_all(begin.as_bytes()).await;
            for _ in 0..20 {
                if sent.is_ok() {
                    sent = stream.write_all(finalizers().as_bytes()).await;
                }
            }
            if sent.is_ok() && stream.write_all(b"\"]}}}\n").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            return;
        }
        let limit = number("limit").unwrap();
        self.asked.lock().push(limit);
        let (from, objects) = (
            number("continue").unwrap_or_default(),
            self.limits.objects(),
        );
        let to = match self.limits {
            Limits::Kept => objects.min(from + limit),
            Limits::Ignored => objects,
        };
        let next = if to < objects {
            to.to_string()
        } else {
            String::new()
        };
        let begin = format!(
            r#"{{"kind":"List","metadata":{{"resourceVersion":"9","continue":"{next}"}},"items":["#
        );
        if sent.is_ok() {
            sent = stream.write_all(begin.as_bytes()).await;
        }
        let long = finalizers();
        for index in from..to {
            let comma = if index > from { "," } else { "" };
            let name = format!("account-{index}");
            for part in [comma, &item(&name), &long, "\"]}}"] {
                if sent.is_ok() {
                    sent = stream.write_all(part.as_bytes()).await;
                }
            }
        }
        if sent.is_ok() {
            let _ = stream.write_all(b"]}").await;
            let _ = stream.shutdown().await;
        }
    }

    async fn start(limits: Limits) -> (Arc<Self>, kube::Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hub = Arc::new(Self {
            limits,
            asked: Mutex::default(),
            event: "from-an-event".to_owned(),
        });
        let served = Arc::clone(&hub);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&served).serve(stream));
            }
        });
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        (hub, watch::watch_client(config).unwrap())
    }
}

fn account(name: &str) -> ServiceAccount {
    ServiceAccount {
        namespace: Namespace::new("tenant-a").unwrap(),
        name: ObjectName::new(name).unwrap(),
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

async fn follows_within_its_memory(limits: Limits) -> Vec<usize> {
    let (hub, client) = LargeHub::start(limits).await;
    let live = Arc::new(LiveObjects::default());
    let clock = Arc::new(SystemClock::start());
    let before = peak_kib();
    let task = tokio::spawn(watch::service_accounts(client, Arc::clone(&live), clock));
    // The event of 20 MB comes after the whole list.
    let is_there = |name: &str| live.service_account(&account(name)).is_some();
    let waiting = async {
        while !is_there("from-an-event") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), waiting)
        .await
        .unwrap();
    assert!(is_there("account-0") && is_there(&format!("account-{}", limits.objects() - 1)));
    let growth = peak_kib() - before;
    task.abort();
    assert!(growth < MAX_GROWTH_KIB, "the peak grew by {growth} KiB");
    hub.asked.lock().clone()
}

#[tokio::test]
async fn a_list_of_200_mb_takes_no_memory() {
    let asked = follows_within_its_memory(Limits::Ignored).await;
    assert_eq!(asked, [100, 25, 6, 1]);
    let asked = follows_within_its_memory(Limits::Kept).await;
    assert_eq!(asked.get(..4), Some([100, 25, 6, 6].as_slice()));
}
