//! Ten thousand cold callers with a hundred tokens want one key at once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future;
use keyferry_testing::Route;
use serde::{Deserialize, Serialize};

use crate::harness::answer_time::AnswerTime;
use crate::harness::load_process::{self, LoadProcess};
use crate::harness::stage::{self, SELF, Stage, TENANT};
use crate::harness::{Outcome, block_on, process};

/// The argument that makes this binary run the stampede.
pub const STAMPEDE: &str = "--send-stampede";

/// The number of tokens, and of connections: each token has its own connection.
const TOKENS: usize = 100;
/// The number of callers with one token: as many as one HTTP/2 connection may have in progress.
const CALLERS: usize = 100;

/// The result of the stampede.
pub struct Stampede {
    /// The number of requests that were sent.
    pub callers: usize,
    /// The number of different tokens.
    pub tokens: usize,
    /// The number of responses by status.
    pub answers: BTreeMap<u16, u64>,
    /// TokenRequests that reached the hub.
    pub token_requests: u64,
    /// TokenReviews that reached the hub.
    pub token_reviews: u64,
    /// The response times. The last one is the duration of the whole stampede.
    pub time: AnswerTime,
}

#[derive(Deserialize, Serialize)]
struct Order {
    url: String,
    ca_pem: String,
    forms: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct Came {
    answers: BTreeMap<u16, u64>,
    time: AnswerTime,
}

/// Sends the requests from a child process, and counts at the hub.
pub async fn measure(stage: &Stage) -> Outcome<Stampede> {
    // The canary checks the audience once an hour. Make it do so before the counting begins.
    stage
        .exchange(
            &stage.ground.client()?,
            stage.ground.form(TENANT, SELF, "warm")?,
        )
        .await?;
    let forms = (0..TOKENS)
        .map(|_| stage.ground.form(TENANT, "crowd", "stampede"))
        .collect::<Outcome<Vec<String>>>()?;
    let order = Order {
        url: stage.token_url(),
        ca_pem: stage.ground.ca_pem.clone(),
        forms,
    };
    let hub = &stage.ground.hub;
    let (minted, reviewed) = (
        hub.requests(Route::TokenRequest),
        hub.requests(Route::TokenReview),
    );
    let came: Came = LoadProcess::start(STAMPEDE, &order).await?.result().await?;
    Ok(Stampede {
        callers: TOKENS * CALLERS,
        tokens: TOKENS,
        answers: came.answers,
        token_requests: hub.requests(Route::TokenRequest) - minted,
        token_reviews: hub.requests(Route::TokenReview) - reviewed,
        time: came.time,
    })
}

/// Runs the child's side.
pub fn main() -> Outcome<()> {
    let order: Order = load_process::read_order()?;
    load_process::write_result(&block_on(send(&order))?)
}

async fn send(order: &Order) -> Outcome<Came> {
    let clients: Vec<reqwest::Client> = order
        .forms
        .iter()
        .map(|_| stage::client(&order.ca_pem))
        .collect::<Outcome<_>>()?;
    // Connect beforehand with a request that causes no call to the hub, because the stampede does
    // not measure handshakes.
    for client in &clients {
        client.get(&order.url).send().await?.bytes().await?;
    }
    let begin = process::now();
    let mut asks = Vec::new();
    for (client, form) in clients.iter().zip(&order.forms) {
        asks.extend((0..CALLERS).map(|_| ask(client, &order.url, form)));
    }
    let mut answers = BTreeMap::new();
    let mut times: Vec<Duration> = Vec::new();
    for (status, at) in future::try_join_all(asks).await? {
        *answers.entry(status).or_default() += 1;
        times.push(at - begin);
    }
    Ok(Came {
        answers,
        time: AnswerTime::of(times),
    })
}

async fn ask(
    client: &reqwest::Client,
    url: &str,
    form: &str,
) -> Outcome<(u16, std::time::Instant)> {
    let request = client
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.to_owned());
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    answer.bytes().await?;
    Ok((status, process::now()))
}
