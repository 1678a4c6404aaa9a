//! Sends requests on both surfaces, and checks the properties of every refusal and every issuance.

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Answer, World, claims, token_requests};
use serde_json::{Value, json};

/// The answers of the two surfaces to one caller.
pub(crate) struct Both {
    pub(crate) exchange: Answer,
    pub(crate) kubeconfig: Answer,
}

pub(crate) async fn ask(world: &World, token: &str, access: &str) -> Result<Both, TestError> {
    let (namespace, name) = access.split_once('/').ok_or("an access has two names")?;
    let exchange = world.broker().exchange(token, access).await?;
    let kubeconfig = world.broker().kubeconfig_of(token, namespace, name).await?;
    Ok(Both {
        exchange,
        kubeconfig,
    })
}

/// Everything by which a client can tell responses apart: all but the request ID and the time.
pub(crate) fn observable_response(answer: &Answer) -> (u16, Vec<(String, String)>, &str) {
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| *name != "x-request-id" && *name != "date");
    let headers = headers.map(|(name, value)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    });
    (answer.status, headers.collect(), &answer.body)
}

/// Asks on both surfaces. Both must refuse in the form for this kind of reason, each with one audit
/// record that contains the true reason.
pub(crate) async fn denied(world: &World, token: &str, access: &str, reason: &str) -> TestResult {
    let answers = ask(world, token, access).await?;
    let about_caller = reason.starts_with("Caller");
    let (exchange, kubeconfig) = if about_caller {
        (
            (400, "invalid_request", "the subject_token was not accepted"),
            (401, "invalid_token", "the bearer token was not accepted"),
        )
    } else {
        let exchange = (
            400,
            "invalid_target",
            "the audience names no access that this caller may use",
        );
        (
            exchange,
            (403, "access_denied", "this caller may use no such access"),
        )
    };
    for (answer, (status, error, description), route) in [
        (&answers.exchange, exchange, "exchange"),
        (&answers.kubeconfig, kubeconfig, "kubeconfig"),
    ] {
        let body = format!("{{\"error\":\"{error}\",\"error_description\":\"{description}\"}}");
        assert_eq!(
            (answer.status, &answer.body),
            (status, &body),
            "{access}, which should be refused for {reason}"
        );
        let challenge = answer
            .headers
            .get("www-authenticate")
            .and_then(|value| value.to_str().ok());
        assert_eq!(
            challenge,
            (status == 401).then_some("Bearer error=\"invalid_token\"")
        );
        assert!(
            !answer.headers.contains_key("retry-after"),
            "asking again is no help"
        );
        let record = world.broker().audit_of(&answer.request_id)?;
        assert_eq!(
            (&record["decision"], &record["reason"]),
            (&json!("denied"), &json!(reason)),
            "{record}"
        );
        assert_eq!(
            (&record["route"], &record["access"]),
            (&json!(route), &json!(access)),
            "{record}"
        );
        assert_eq!(record["tokenId"], Value::Null, "{record}");
    }
    not_written_down(world, token)
}

/// Checks that both surfaces issue a token of this ServiceAccount.
pub(crate) async fn granted(
    world: &World,
    token: &str,
    access: &str,
    account: &str,
) -> Result<String, TestError> {
    let answers = ask(world, token, access).await?;
    assert_eq!(
        answers.kubeconfig.status, 200,
        "{access}: {}",
        answers.kubeconfig.body
    );
    let handed_out = answers.exchange.token()?;
    let subject = format!("system:serviceaccount:{}", account.replace('/', ":"));
    assert_eq!(claims(&handed_out)?["sub"], subject);
    assert!(
        answers.kubeconfig.body.contains(&handed_out),
        "the kubeconfig holds the cached token"
    );
    for answer in [&answers.exchange, &answers.kubeconfig] {
        let record = world.broker().audit_of(&answer.request_id)?;
        assert_eq!(
            (&record["decision"], &record["serviceAccount"]),
            (&json!("granted"), &json!(account)),
            "{record}"
        );
    }
    not_written_down(world, token)?;
    not_written_down(world, &handed_out)?;
    Ok(handed_out)
}

fn not_written_down(world: &World, token: &str) -> TestResult {
    let signature = token.rsplit('.').next().unwrap_or_default();
    let written = [
        world.broker().log()?,
        format!("{:?}", world.broker().audit()?),
    ];
    for needle in [token, signature]
        .into_iter()
        .filter(|needle| needle.len() > 20)
    {
        assert!(
            written.iter().all(|text| !text.contains(needle)),
            "a token is in the log or in the audit log"
        );
    }
    Ok(())
}

/// Checks that the hub received no TokenRequest for the ServiceAccounts of this namespace.
pub(crate) fn nothing_minted(hub: &ControlPlane, namespace: &str) -> TestResult {
    assert_eq!(
        token_requests(hub, namespace)?,
        0,
        "TokenRequests in {namespace}"
    );
    Ok(())
}
