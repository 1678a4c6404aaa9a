//! A hub that sends objects of any size from little memory, and counts the requests for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyferry_hub::client::HubClient;
use keyferry_hub::watch::{WatchClient, watch_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The largest object that etcd takes.
pub(crate) const LARGEST_OBJECT: usize = 1536 * 1024;

/// An object as JSON, with one part that is repeated.
#[derive(Clone)]
pub(crate) struct LargeObject {
    pub(crate) begin: String,
    pub(crate) filler: Arc<str>,
    pub(crate) times: usize,
    pub(crate) end: &'static str,
}

impl LargeObject {
    /// An object as large as etcd takes one.
    pub(crate) fn largest(begin: String, filler: &str, end: &'static str) -> Self {
        Self::of_size(LARGEST_OBJECT, begin, filler, end)
    }

    /// An object of this many bytes.
    pub(crate) fn of_size(bytes: usize, begin: String, filler: &str, end: &'static str) -> Self {
        // Some KiB at once, so that the hub does not write small pieces.
        let filler = filler.repeat(8192 / filler.len() + 1);
        Self {
            times: (bytes - begin.len()) / filler.len(),
            begin,
            filler: filler.into(),
            end,
        }
    }

    /// The object as text.
    pub(crate) fn to_text(&self) -> String {
        format!(
            "{}{}{}",
            self.begin,
            self.filler.repeat(self.times),
            self.end
        )
    }

    async fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(self.begin.as_bytes()).await?;
        for _ in 0..self.times {
            stream.write_all(self.filler.as_bytes()).await?;
        }
        stream.write_all(self.end.as_bytes()).await
    }
}

/// The hub: what it has at each path, a list or an object.
pub(crate) struct LargeHub {
    url: String,
    requests: Arc<AtomicUsize>,
}

/// What is at a path.
pub(crate) enum Stored {
    Object(LargeObject),
    List(Vec<LargeObject>),
}

impl LargeHub {
    pub(crate) async fn start(stored: Vec<(String, Stored)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let (stored, counted) = (Arc::new(BTreeMap::from_iter(stored)), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (stored, counted) = (Arc::clone(&stored), Arc::clone(&counted));
                tokio::spawn(async move {
                    // A client that has read enough hangs up.
                    let _ = serve_request(stream, &stored, &counted).await;
                });
            }
        });
        Self { url, requests }
    }

    fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(self.url.parse().unwrap());
        config.default_retry = false;
        config
    }

    pub(crate) fn watch_client(&self) -> WatchClient {
        watch_client(self.config()).unwrap()
    }

    pub(crate) fn client(&self) -> HubClient {
        HubClient::new(self.config()).unwrap()
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn serve_request(
    mut stream: TcpStream,
    stored: &BTreeMap<String, Stored>,
    counted: &AtomicUsize,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    counted.fetch_add(1, Ordering::Relaxed);
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
        )
        .await?;
    if query.contains("watch=true") {
        tokio::time::sleep(Duration::from_secs(600)).await;
        return Ok(());
    }
    match stored.get(path).unwrap() {
        Stored::Object(object) => object.send(&mut stream).await?,
        Stored::List(objects) => send_page(&mut stream, objects, query).await?,
    }
    stream.shutdown().await
}

async fn send_page(
    stream: &mut TcpStream,
    objects: &[LargeObject],
    query: &str,
) -> std::io::Result<()> {
    let number = |key: &str| {
        let mut terms = query.split('&').filter_map(|term| term.split_once('='));
        terms
            .find(|(name, _)| *name == key)?
            .1
            .parse::<usize>()
            .ok()
    };
    let from = number("continue").unwrap_or_default();
    let to = objects.len().min(from + number("limit").unwrap());
    let next = if to < objects.len() {
        to.to_string()
    } else {
        String::new()
    };
    let begin = format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"{next}"}},"items":["#);
    stream.write_all(begin.as_bytes()).await?;
    for (index, object) in objects.iter().enumerate().take(to).skip(from) {
        if index > from {
            stream.write_all(b",").await?;
        }
        object.send(stream).await?;
    }
    stream.write_all(b"]}").await
}
