//! Methods and paths that Keyferry does not serve.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, Broker, TENANT, World, caller_token};
use reqwest::{Certificate, Client, Method};
use serde_json::json;

/// An unsupported method gets a complete response, HEAD without a body, under HTTP/1.1 and HTTP/2.
pub(crate) async fn a_method_that_is_not_taken(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let routes = [
        (
            "/v1/token",
            "POST",
            [Method::GET, Method::HEAD, Method::PUT],
        ),
        (
            "/v1/namespaces/methods/accesses/mine/kubeconfig",
            "GET",
            [Method::POST, Method::HEAD, Method::DELETE],
        ),
    ];
    for client in of_both_versions(broker)? {
        for (path, allowed, methods) in &routes {
            for method in methods {
                let answer = client
                    .request(method.clone(), format!("{}{path}", broker.api_url()))
                    .send()
                    .await?;
                let said = answer
                    .headers()
                    .get("allow")
                    .and_then(|value| value.to_str().ok())
                    .unwrap_or_default()
                    .to_owned();
                assert_eq!(
                    (answer.status().as_u16(), said.as_str()),
                    (405, *allowed),
                    "{method} {path}"
                );
                let body = answer
                    .text()
                    .await
                    .map_err(|error| format!("{method} {path}: {error}"))?;
                assert_eq!(
                    body.is_empty(),
                    *method == Method::HEAD,
                    "{method} {path}: {body}"
                );
            }
        }
    }
    Ok(())
}

/// A form that is granted at the path of the exchange is not granted at a similar path, and a query
/// is refused.
pub(crate) async fn a_path_that_is_nearly_right(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt\
         &subject_token={caller}&audience={TENANT}%2Fa"
    );
    let paths = [
        ("/v1/token", 200),
        ("/v1/token/", 404),
        ("//v1/token", 404),
        ("/v1//token", 404),
        ("/v1/%74oken", 404),
        ("/V1/token", 404),
        ("/v1/token;a=b", 404),
        ("/v1/token%3Fa=b", 404),
        ("/v1/token?a=b", 400),
    ];
    for client in of_both_versions(broker)? {
        for (path, expected) in paths {
            let request = client.post(format!("{}{path}", broker.api_url()));
            let request = request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(form.clone());
            let answer = request.send().await?;
            assert_eq!(answer.status().as_u16(), expected, "{path}");
            let id = answer
                .headers()
                .get("x-request-id")
                .and_then(|id| id.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            assert_eq!(
                answer.text().await?.contains("access_token"),
                expected == 200,
                "{path}"
            );
            if expected != 404 {
                assert_eq!(
                    broker.audit_of(&id)?["decision"],
                    json!(if expected == 200 { "granted" } else { "denied" }),
                    "{path}"
                );
            }
        }
    }
    Ok(())
}

fn of_both_versions(broker: &Broker) -> Result<[Client; 2], TestError> {
    let ca = Certificate::from_pem(&std::fs::read(broker.ca_path())?)?;
    let builder = || Client::builder().no_proxy().tls_certs_only([ca.clone()]);
    Ok([
        builder().http1_only().build()?,
        builder().http2_prior_knowledge().build()?,
    ])
}
