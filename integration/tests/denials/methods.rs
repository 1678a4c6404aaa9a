//! Other methods than those that there are.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use reqwest::{Certificate, Client, Method};

/// A method that is not taken is answered in whole, HEAD without a body, under HTTP/1.1 and HTTP/2.
pub(crate) async fn a_method_that_is_not_taken(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let ca = Certificate::from_pem(&std::fs::read(broker.ca_path())?)?;
    let builder = || Client::builder().no_proxy().tls_certs_only([ca.clone()]);
    let routes = [
        ("/v1/token", "POST", [Method::GET, Method::HEAD, Method::PUT]),
        ("/v1/namespaces/methods/accesses/mine/kubeconfig", "GET", [Method::POST, Method::HEAD, Method::DELETE]),
    ];
    for client in [builder().http1_only().build()?, builder().http2_prior_knowledge().build()?] {
        for (path, allowed, methods) in &routes {
            for method in methods {
                let answer = client.request(method.clone(), format!("{}{path}", broker.api_url())).send().await?;
                let said = answer.headers().get("allow").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
                assert_eq!((answer.status().as_u16(), said.as_str()), (405, *allowed), "{method} {path}");
                let body = answer.text().await.map_err(|error| format!("{method} {path}: {error}"))?;
                assert_eq!(body.is_empty(), *method == Method::HEAD, "{method} {path}: {body}");
            }
        }
    }
    Ok(())
}
