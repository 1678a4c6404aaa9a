//! Ten thousand callers with a hundred tokens want the same key at once, and no token for it is
//! cached.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait;
use keyferry_integration::world::{World, exchange_form};
use tokio::sync::watch;

use super::setup::{ACCOUNT, Behind, token_path};

/// The callers' tokens.
const TOKENS: usize = 100;
/// Connections with each token. The listener lets a connection carry 32 requests at once.
const CONNECTIONS: usize = 4;
/// Requests at once over each connection.
const EACH: usize = 25;
/// All requests.
const CROWD: usize = TOKENS * CONNECTIONS * EACH;
/// The duration of each of the three calls of a first mint. It is well below the deadline of a
/// call, because the machine is busy.
const DELAY: Duration = Duration::from_secs(2);

/// One caller over one HTTP/2 connection.
struct Caller {
    http: reqwest::Client,
    form: String,
}

/// Holds back the last byte of every request, so that all requests can be under way before one is
/// complete.
#[derive(Clone)]
struct Gate {
    open: watch::Sender<bool>,
    waiting: Arc<AtomicUsize>,
}

/// All requests are under way before the first of them is complete.
pub(super) async fn makes_one_token_request(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "crowd", 300, &["one"]).await?;
    let (callers, gate) = (crowd(&behind).await?, Gate::closed());
    let reviews = behind.token_reviews();
    slow_down(&behind);
    let open = async {
        gate.until_all_wait().await?;
        gate.open.send_replace(true);
        let opened = Instant::now();
        slow_down_the_last_review(&behind, reviews + 100).await?;
        Ok::<_, TestError>(opened)
    };
    let (ids, opened) = tokio::try_join!(all(&behind, &callers, &gate), open)?;
    eprintln!(
        "{} cold callers at once were answered in {:.1} s",
        ids.len(),
        opened.elapsed().as_secs_f32()
    );
    one_review_each(behind.token_reviews() - reviews, 100 + 1, opened.elapsed());
    one_mint_for_all(&world, &behind, &ids, 0)
}

/// The caller that started the mint disconnects while the hub works on it.
pub(super) async fn loses_its_first(world: Arc<World>) -> TestResult {
    let behind = Arc::new(Behind::start(&world, world.hub(), "headless", 300, &["one"]).await?);
    let (callers, gate) = (crowd(&behind).await?, Gate::closed());
    let leaver = caller(&behind).await?;
    let (reviews, canary) = (behind.token_reviews(), token_path("keyferry-canary"));
    let tried = behind.proxy.count(&Method::POST, &canary);
    // Held, not delayed: on a busy machine the answer could come before the first caller hangs up.
    // The first rule that matches counts.
    let (let_go, held) = watch::channel(false);
    let mint = token_path(ACCOUNT);
    behind
        .proxy
        .add(Rule::on(Method::POST, &mint, Fault::Hold(held)));
    slow_down(&behind);
    let begun = Instant::now();
    let begin_and_hang_up = async {
        gate.until_all_wait().await?;
        let first = tokio::spawn({
            let behind = Arc::clone(&behind);
            // Dropping the task drops the client, and its connection with it.
            async move {
                granted(&behind, &leaver, leaver.form.clone().into())
                    .await
                    .map(|_| ())
            }
        });
        until("the first caller's mint has begun", || {
            behind.proxy.count(&Method::POST, &canary) > tried
        })
        .await?;
        gate.open.send_replace(true);
        slow_down_the_last_review(&behind, reviews + 101).await?;
        until("the hub works on the TokenRequest", || {
            behind.token_requests() > 0
        })
        .await?;
        assert!(
            !first.is_finished(),
            "the first caller was answered before it could hang up"
        );
        first.abort();
        let_go.send_replace(true);
        Ok::<_, TestError>(())
    };
    let (ids, ()) = tokio::try_join!(all(&behind, &callers, &gate), begin_and_hang_up)?;
    one_review_each(behind.token_reviews() - reviews, 101 + 1, begun.elapsed());
    // The record is written before the answer is sent. So if the mint ends before Keyferry notices
    // that the first caller has gone, there is a record of its issuance too.
    one_mint_for_all(&world, &behind, &ids, 1)
}

/// The request IDs of all exchanges.
async fn all(behind: &Behind, callers: &[Caller], gate: &Gate) -> Result<Vec<String>, TestError> {
    try_join_all(
        callers
            .iter()
            .flat_map(|caller| (0..EACH).map(|_| granted(behind, caller, gate.body(&caller.form)))),
    )
    .await
}

impl Gate {
    fn closed() -> Self {
        Self {
            open: watch::Sender::new(false),
            waiting: Arc::default(),
        }
    }

    fn body(&self, form: &str) -> reqwest::Body {
        let (most, last) = form.split_at(form.len() - 1);
        let (most, last) = (Bytes::from(most.to_owned()), Bytes::from(last.to_owned()));
        let (mut open, waiting) = (self.open.subscribe(), Arc::clone(&self.waiting));
        let last = async move {
            waiting.fetch_add(1, Ordering::SeqCst);
            // The gate outlives every request.
            let _ = open.wait_for(|open| *open).await;
            last
        };
        let chunks = stream::once(async move { most }).chain(stream::once(last));
        reqwest::Body::wrap(StreamBody::new(
            chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))),
        ))
    }

    async fn until_all_wait(&self) -> TestResult {
        until("all requests are on their way", || {
            self.waiting.load(Ordering::SeqCst) == CROWD
        })
        .await
    }
}

fn slow_down(behind: &Behind) {
    behind.proxy.add(Rule::on(
        Method::POST,
        &token_path("keyferry-canary"),
        Fault::Delay(DELAY),
    ));
    behind.proxy.add(Rule::on(
        Method::POST,
        &token_path(ACCOUNT),
        Fault::Delay(DELAY),
    ));
}

/// Once all callers are reviewed, only the canary's token remains.
async fn slow_down_the_last_review(behind: &Behind, callers: u64) -> TestResult {
    until("all callers are reviewed", || {
        behind.token_reviews() >= callers
    })
    .await?;
    behind
        .proxy
        .add(Rule::on(Method::POST, "/tokenreviews", Fault::Delay(DELAY)));
    Ok(())
}

/// All callers. Only a few connect at once: four hundred handshakes at the same time take a busy
/// machine longer than the listener waits for one of them.
async fn crowd(behind: &Behind) -> Result<Vec<Caller>, TestError> {
    let of_one_token = stream::iter(0..TOKENS).map(async |_| {
        let form = form(behind).await?;
        try_join_all((0..CONNECTIONS).map(|_| connected(behind, form.clone()))).await
    });
    let all: Vec<Vec<Caller>> = of_one_token.buffer_unordered(4).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

async fn caller(behind: &Behind) -> Result<Caller, TestError> {
    connected(behind, form(behind).await?).await
}

/// The form of an exchange with a token of its own.
async fn form(behind: &Behind) -> Result<String, TestError> {
    let form = exchange_form(&behind.fresh_caller().await?, &behind.access("one"));
    let form: Vec<String> = form
        .iter()
        .map(|(key, value)| format!("{key}={}", value.replace(':', "%3A").replace('/', "%2F")))
        .collect();
    Ok(form.join("&"))
}

/// A caller whose connection is already open.
async fn connected(behind: &Behind, form: String) -> Result<Caller, TestError> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(behind.broker.ca_path())?)?;
    let http = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .tls_certs_only([ca])
        .build()?;
    assert_eq!(
        http.get(behind.broker.api_url()).send().await?.status(),
        404
    );
    Ok(Caller { http, form })
}

/// Exchanges with success, and returns the request ID.
async fn granted(
    behind: &Behind,
    caller: &Caller,
    body: reqwest::Body,
) -> Result<String, TestError> {
    let request = caller
        .http
        .post(format!("{}/v1/token", behind.broker.api_url()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body);
    let answer = request.send().await?;
    let id = answer
        .headers()
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let (status, body) = (answer.status(), answer.text().await?);
    if status != 200 {
        Err(format!("{status} {body}").into())
    } else {
        Ok(id)
    }
}

/// One review for each token and one for the canary's, repeated for each ten seconds, the time for
/// which a review is cached.
fn one_review_each(reviews: u64, tokens: u64, took: Duration) {
    let rounds = took.as_secs() / 10 + 1;
    assert!(
        (tokens..=tokens * rounds).contains(&reviews),
        "{reviews} reviews of {tokens} tokens in {took:?}"
    );
}

/// Checks that each answered request has one audit record, that at most `unanswered` others have one,
/// and that all have the token of one mint.
fn one_mint_for_all(
    world: &World,
    behind: &Behind,
    ids: &[String],
    unanswered: usize,
) -> TestResult {
    let granted: Vec<_> = behind
        .broker
        .audit()?
        .into_iter()
        .filter(|record| record["decision"] == "granted")
        .collect();
    let recorded: BTreeSet<&str> = granted
        .iter()
        .filter_map(|record| record["requestId"].as_str())
        .collect();
    assert_eq!(
        (ids.len(), recorded.len()),
        (CROWD, granted.len()),
        "one audit record for each issuance"
    );
    let answered: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    assert!(
        answered.len() == CROWD && answered.is_subset(&recorded),
        "every answer has its audit record"
    );
    assert!(
        recorded.len() <= CROWD + unanswered,
        "{} audit records",
        recorded.len()
    );
    let waited = granted
        .iter()
        .filter(|record| record["cache"] == "miss")
        .count();
    eprintln!("{waited} of them waited for the mint, the others found it done");
    assert!(waited >= CROWD / 4, "{waited} are no crowd");
    let token_ids: BTreeSet<&str> = granted
        .iter()
        .filter_map(|record| record["tokenId"].as_str())
        .collect();
    assert_eq!(token_ids.len(), 1, "all got the same token");

    // Count the hub's own records, not the proxy's or Keyferry's.
    let minted = world.hub().audit_events()?.into_iter().filter(|event| {
        let object = &event["objectRef"];
        event["verb"] == "create"
            && event["user"]["username"] == "system:serviceaccount:keyferry-system:keyferry"
            && object["subresource"] == "token"
            && object["namespace"] == behind.tenant.as_str()
            && object["name"] == ACCOUNT
    });
    assert_eq!(minted.count(), 1, "TokenRequests in the hub's audit log");
    assert_eq!(behind.token_requests(), 1);
    Ok(())
}

async fn until(what: &str, holds: impl Fn() -> bool) -> TestResult {
    let limit = Duration::from_secs(60);
    wait::until(what, limit, || std::future::ready(Ok(holds()))).await
}
