use reqwest::Response;
use tokio::time::Instant;

use super::*;

async fn jwks(hub: &EmbeddedHub) -> reqwest::Result<Response> {
    let url = format!("{}/openid/v1/jwks", hub.url());
    https(hub.ca_pem()).get(url).send().await
}

async fn minted(hub: &EmbeddedHub) -> serde_json::Value {
    hub.add_service_account("ci", "deployer");
    let url = format!(
        "{}/api/v1/namespaces/ci/serviceaccounts/deployer/token",
        hub.url()
    );
    let answer = https(hub.ca_pem())
        .post(url)
        .bearer_auth(hub.broker_token().expose_secret())
        .body(r#"{"spec":{"audiences":["target-a"],"expirationSeconds":3600}}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201);
    let answer: serde_json::Value = answer.json().await.unwrap();
    opened(answer["status"]["token"].as_str().unwrap())["claims"].clone()
}

#[tokio::test]
async fn a_status_with_retry_after_until_it_is_cleared() {
    let hub = hub().await;
    let fault = Fault::Status {
        code: 429,
        retry_after: Some(Duration::from_secs(7)),
    };
    hub.set_fault(Route::Jwks, fault);
    let answer = jwks(&hub).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "7");
    let status: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(status["kind"], "Status");
    hub.clear_faults();
    assert_eq!(jwks(&hub).await.unwrap().status(), 200);
    assert_eq!(hub.requests(Route::Jwks), 2);
    assert_eq!(hub.requests(Route::Discovery), 0);
}

#[tokio::test]
async fn a_counted_fault_ends_by_itself() {
    let hub = hub().await;
    let fault = Fault::Status {
        code: 503,
        retry_after: None,
    };
    hub.set_fault_for(Route::Jwks, fault, 1);
    assert_eq!(jwks(&hub).await.unwrap().status(), 503);
    assert_eq!(jwks(&hub).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_closed_connection_gives_no_answer() {
    let hub = hub().await;
    hub.set_fault(Route::Jwks, Fault::CloseConnection);
    assert!(jwks(&hub).await.is_err());
}

#[tokio::test]
async fn garbage_and_oversize_arrive_whole() {
    let hub = hub().await;
    let fault = Fault::Garbage {
        body: b"<html>".to_vec(),
        content_type: "text/html".to_owned(),
    };
    hub.set_fault(Route::Jwks, fault);
    let answer = jwks(&hub).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/html");
    assert_eq!(answer.bytes().await.unwrap().as_ref(), b"<html>");

    hub.set_fault(Route::Jwks, Fault::Oversize(3_000_000));
    let body = jwks(&hub).await.unwrap().bytes().await.unwrap();
    assert_eq!(body.len(), 3_000_000);
    let keys: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn slowness_is_slow() {
    let hub = hub().await;
    hub.set_fault(Route::Jwks, Fault::Delay(Duration::from_millis(300)));
    let start = Instant::now();
    assert_eq!(jwks(&hub).await.unwrap().status(), 200);
    assert!(start.elapsed() >= Duration::from_millis(300));

    hub.set_fault(Route::Jwks, Fault::ByteASecond);
    let mut answer = jwks(&hub).await.unwrap();
    let first = soon(answer.chunk()).await.unwrap().unwrap();
    assert_eq!(first.as_ref(), b"{");
}

#[tokio::test]
async fn token_requests_can_answer_with_the_wrong_token() {
    let hub = hub().await;
    hub.set_fault(Route::TokenRequest, Fault::WrongServiceAccount);
    assert_eq!(
        minted(&hub).await["sub"],
        "system:serviceaccount:ci:deployer-other"
    );
    hub.set_fault(Route::TokenRequest, Fault::WrongAudience);
    assert_ne!(minted(&hub).await["aud"][0], "target-a");
    hub.set_fault(Route::TokenRequest, Fault::ShortLife);
    let short = minted(&hub).await;
    assert_eq!(
        short["exp"].as_i64().unwrap() - short["iat"].as_i64().unwrap(),
        60
    );
    hub.clear_faults();
    assert_eq!(minted(&hub).await["aud"][0], "target-a");
}
