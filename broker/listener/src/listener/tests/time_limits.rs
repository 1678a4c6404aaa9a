//! Connections on which a client does nothing useful end: it reads no response, or sends no request.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{LONG_TIMEOUT, SHORT, TIMES, plain};
use crate::connection::Times;

/// Simulates a client that keeps sending requests and never reads: the responses fill the buffers
/// of both ends.
#[tokio::test]
async fn answers_that_nobody_reads_end_the_connection() {
    let stage = plain(Times {
        progress: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let requests = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
    stream.write_all(requests.as_bytes()).await.unwrap();
    stage.ended("unread").await;
    drop(stream);
}

#[tokio::test]
async fn nor_does_it_help_to_read_a_byte_now_and_then() {
    let stage = plain(Times {
        progress: SHORT,
        ..TIMES
    });
    let (mut reading, mut writing) = TcpStream::connect(stage.address)
        .await
        .unwrap()
        .into_split();
    writing
        .write_all(
            "GET /big HTTP/1.1\r\nHost: a\r\n\r\n"
                .repeat(3000)
                .as_bytes(),
        )
        .await
        .unwrap();
    let trickle = tokio::spawn(async move {
        let mut byte = [0];
        while reading.read_exact(&mut byte).await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    stage.ended("unread").await;
    trickle.abort();
}

/// Speaks HTTP/2 by hand: the client's streams have no window, or one byte of it, and its
/// connection is busy all the time.
#[tokio::test]
async fn a_stream_without_window_ends_the_connection() {
    for window in [0, 1] {
        let stage = plain(Times {
            progress: SHORT,
            ..TIMES
        });
        let (mut reading, mut writing) = TcpStream::connect(stage.address)
            .await
            .unwrap()
            .into_split();
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        begin.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, window]));
        begin.extend(frame(4, 1, 0, &[]));
        // GET http://a/small, from the static table.
        begin.extend(frame(1, 5, 1, b"\x82\x86\x04\x06/small\x01\x01a"));
        writing.write_all(&begin).await.unwrap();
        let pings = tokio::spawn(async move {
            while writing
                .write_all(&frame(6, 0, 0, b"pingping"))
                .await
                .is_ok()
            {
                tokio::time::sleep(SHORT / 10).await;
            }
        });
        let answers = tokio::spawn(async move {
            let mut all = Vec::new();
            let _ = reading.read_to_end(&mut all).await;
            all
        });
        stage.ended("unread").await;
        let all = answers.await.unwrap();
        assert!(
            all.windows(5).any(|kind| kind == [1, 4, 0, 0, 0]),
            "the head of an answer came: {all:?}"
        );
        pings.await.unwrap();
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test]
async fn a_client_without_a_request_is_left() {
    let stage = plain(Times {
        first_byte: SHORT,
        ..TIMES
    });
    let stream = TcpStream::connect(stage.address).await.unwrap();
    stage.ended("silent").await;
    drop(stream);

    // A head that never ends, sent one byte at a time by a client that could still switch to
    // HTTP/2.
    let stage = plain(Times {
        idle: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(b"PRI * HT").await.unwrap();
    stage.ended("idle").await;
}

/// Sends the HTTP/2 preface and then nothing: the library itself sets no limit on waiting for a
/// request.
#[tokio::test]
async fn a_preface_is_no_request() {
    let stage = plain(Times {
        head: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stage.ended("silent").await;
}

/// PRIORITY frames have no effect and are read as fast as they arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_keeps_the_socket_full_is_left() {
    let stage = plain(Times {
        idle: SHORT * 2,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let flood = frame(2, 0, 1, &[0, 0, 0, 0, 1]).repeat(64 * 1024);
    let flood = tokio::spawn(async move { while stream.write_all(&flood).await.is_ok() {} });
    stage.ended("idle").await;
    tokio::time::timeout(LONG_TIMEOUT / 2, flood)
        .await
        .unwrap()
        .unwrap();
}
