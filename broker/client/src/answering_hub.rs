//! A hub for unit tests that gives prepared answers.
#![allow(clippy::unwrap_used)]

use keyferry_hub::client::HubClient;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A hub that answers the first requests with these documents, each on a connection of its own,
/// and closes all others without an answer.
pub(crate) async fn hub(answers: Vec<Value>) -> HubClient {
    let mut answers = answers.into_iter();
    hub_of(move |_| answers.next()).await
}

/// A hub that answers the head of each request with what `answer` makes of it.
pub(crate) async fn hub_of(
    mut answer: impl FnMut(&str) -> Option<Value> + Send + 'static,
) -> HubClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => break,
                }
            }
            if let Some(answer) = answer(&String::from_utf8_lossy(&request)) {
                let body = answer.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    HubClient::new(config).unwrap()
}
