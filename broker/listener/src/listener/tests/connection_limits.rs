//! The limits on connections, handshakes and streams, and what they leave to other addresses.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{SHORT, TIMES, client_config, plain, plain_above_the_rate, plain_of, tls};
use crate::connection::Times;
use crate::gate::MAX_PAUSE;
use crate::listener::Bounds;

#[tokio::test]
async fn the_health_listener_keeps_room_for_others_than_one_address() {
    let stage = plain(TIMES);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(TcpStream::connect(stage.address).await.unwrap());
    }
    stage.until("health refused: address_limit", 8).await;
    stage.until("health open", 32).await;
}

/// Its later requests are read later, by the rate after the burst. A slow machine takes longer still.
#[tokio::test]
async fn a_source_that_sends_without_a_pause_is_read_from_at_a_rate() {
    let stage = plain(TIMES);
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut answer = [0; 1024];
    for _ in 0..400 {
        let request = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut length = 0;
        while !answer[..length].ends_with(b"document") {
            length += stream.read(&mut answer[length..]).await.unwrap();
        }
    }
    assert!(begun.elapsed() >= std::time::Duration::from_millis(280));
}

/// A read of the socket brings them all, and later ones are served later all the same.
#[tokio::test]
async fn requests_that_arrive_together_are_served_at_the_same_rate() {
    let stage = plain(TIMES);
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let begun = tokio::time::Instant::now();
    let requests = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n".repeat(399);
    let last = "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let all = requests + last;
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 400);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(280));
}

/// The pause begins when the response is there, or a form that comes after its head would wait for it.
#[tokio::test]
async fn the_body_of_a_request_above_the_rate_is_read_at_once() {
    let stage = plain_above_the_rate();
    let paused = stage.metrics.count("health paused");
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let begun = tokio::time::Instant::now();
    stream
        .write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
        .await
        .unwrap();
    // The head is counted before the body is sent.
    stage.until("health paused", paused + 1).await;
    stream.write_all(b"form").await.unwrap();
    let mut answer = [0; 1024];
    let mut length = 0;
    while !answer[..length].ends_with(b"form") {
        length += stream.read(&mut answer[length..]).await.unwrap();
    }
    assert!(begun.elapsed() < MAX_PAUSE / 2, "{:?}", begun.elapsed());
    // The next request on this connection waits.
    stream
        .write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let next = tokio::time::timeout(MAX_PAUSE / 4, stream.read(&mut answer)).await;
    assert!(next.is_err(), "{next:?}");
}

/// Checks the token API's stream limit in its SETTINGS, and which sources have limits of their own.
#[tokio::test]
async fn the_token_api_takes_few_streams_and_each_address_is_a_source() {
    let stage = plain_of(Bounds {
        times: TIMES,
        ..Bounds::TOKENS
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!((head[..2].to_vec(), head[3]), (vec![0, 0], 4));
    let mut settings = vec![0; head[2].into()];
    stream.read_exact(&mut settings).await.unwrap();
    assert!(
        settings
            .chunks(6)
            .any(|setting| setting == [0, 3, 0, 0, 0, 32]),
        "{settings:?}"
    );
    let each =
        [Bounds::TOKENS, Bounds::DOCUMENTS, Bounds::HEALTH].map(|bounds| bounds.each_address);
    assert_eq!(each, [true, false, true]);
}

#[tokio::test]
async fn half_open_connections_of_one_address_keep_nobody_else_out() {
    let stage = tls(
        Bounds {
            connections: 4,
            handshakes: 8,
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        4,
    )
    .await;
    let mut half_open = Vec::new();
    for _ in 0..20 {
        half_open.push(TcpStream::connect(stage.address).await.unwrap());
    }
    stage.until("discovery refused: address_limit", 16).await;
    assert_eq!(stage.get_from([127, 0, 0, 2]).await.unwrap(), 200);
    assert!(
        stage.get_from([127, 0, 0, 1]).await.is_err(),
        "it has as many as it may have"
    );
    drop(half_open);
    stage.until("discovery refused: handshake_failed", 4).await;
    assert_eq!(stage.get_from([127, 0, 0, 1]).await.unwrap(), 200);
}

#[tokio::test]
async fn handshakes_take_no_place_of_a_connection_and_have_a_deadline() {
    let stage = tls(
        Bounds {
            connections: 1,
            handshakes: 3,
            times: Times {
                handshake: SHORT * 4,
                ..TIMES
            },
            ..Bounds::DOCUMENTS
        },
        0,
    )
    .await;
    let mut half_open = Vec::new();
    for _ in 0..2 {
        half_open.push(TcpStream::connect(stage.address).await.unwrap());
    }
    assert_eq!(
        stage.get_from([127, 0, 0, 1]).await.unwrap(),
        200,
        "two of three are half open, and none is a connection"
    );
    stage.until("discovery refused: handshake_failed", 2).await;
    for mut stream in half_open {
        let mut byte = [0];
        assert!(
            matches!(stream.read(&mut byte).await, Ok(0) | Err(_)),
            "it was closed"
        );
    }
}

#[tokio::test]
async fn a_source_that_holds_all_it_may_is_not_counted_for_another() {
    let stage = tls(
        Bounds {
            connections: 8,
            handshakes: 8,
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        2,
    )
    .await;
    let mut held = Vec::new();
    for last in 2..5 {
        for _ in 0..2 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, last], 0).into()).unwrap();
            held.push(socket.connect(stage.address).await.unwrap());
        }
    }
    assert_eq!(stage.get_from([127, 0, 0, 9]).await.unwrap(), 200);
}

/// Uses the shipped limits, with times that end nothing meanwhile. One address opens 2,048
/// connections, keeps sending requests on each that it gets, and reads nothing.
#[tokio::test]
async fn two_thousand_stalled_connections_of_one_address_shut_no_discovery() {
    let stage = tls(
        Bounds {
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        256,
    )
    .await;
    let (address, config) = (
        stage.address,
        client_config(&stage.ca_pem, &rustls::version::TLS13).unwrap(),
    );
    let stalled = tokio::task::spawn_blocking(move || {
        let requests = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50);
        let stall = |socket: std::net::TcpStream| {
            let mut client = rustls::ClientConnection::new(
                Arc::clone(&config),
                ServerName::try_from("127.0.0.1").unwrap(),
            )
            .unwrap();
            let mut socket = socket;
            while client.is_handshaking() {
                client.complete_io(&mut socket).ok()?;
            }
            std::io::Write::write_all(&mut client.writer(), requests.as_bytes()).unwrap();
            while client.wants_write() {
                client.write_tls(&mut socket).ok()?;
            }
            Some(socket)
        };
        let sockets: Vec<_> = (0..2048)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        sockets.into_iter().filter_map(stall).collect::<Vec<_>>()
    });
    let stalled = stalled.await.unwrap();
    assert_eq!(
        stalled.len(),
        256,
        "each connection that is admitted stalls"
    );
    stage.until("discovery refused: address_limit", 1792).await;
    assert_eq!(stage.get_from([127, 0, 0, 2]).await.unwrap(), 200);
    drop(stalled);
}
