//! The steps of the demo. They show what each side sends, decoded and without signatures.

use keyferry_core::exchange::{GRANT_TYPE, TOKEN_TYPE_JWT};
use keyferry_core::self_subject_review::UserInfo;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_testing::{FetchedDocument, Outcome};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::reviewed_user::{NoUser, hub_status, self_subject_review, show_user};
use super::screen::Screen;
use super::stage::Stage;
use crate::demo::{DemoError, impersonation};

/// Runs all steps once. Returns the user that the target sees.
pub(super) async fn play(stage: &Stage, screen: &Screen) -> Result<UserInfo, DemoError> {
    show_callers_token(stage, screen)?;
    let token = exchange_at_keyferry(stage, screen).await?;
    let user = use_at_target(stage, screen, &token).await?;
    refuse_another_tenant(stage, screen).await?;
    refuse_at_hub(stage, screen, &token).await?;
    screen.step(
        6,
        "The workload acts as another user only if the target's RBAC allows it.",
    )?;
    impersonation::play(stage, screen, &token, &user.username).await?;
    Ok(user)
}

/// Shows the link to the pages about what has just happened.
pub(super) fn show_link(link: &str, screen: &Screen) -> Result<(), DemoError> {
    screen.step(
        7,
        "See it in a browser: the exchange, the refusal, and the life of the hub's key.",
    )?;
    screen.outcome(&format!("open {link}"))?;
    screen.wire("the link opens once; keyferry dashboard shows your own hub in the same way")?;
    Ok(())
}

fn show_callers_token(stage: &Stage, screen: &Screen) -> Result<(), DemoError> {
    screen.step(
        1,
        "The hub issues the workload a token that only Keyferry accepts.",
    )?;
    let workload = &stage.options.workload;
    screen.wire(&format!("TokenRequest for ServiceAccount {workload}"))?;
    show_token(screen, &stage.caller)
}

async fn exchange_at_keyferry(stage: &Stage, screen: &Screen) -> Result<SecretString, DemoError> {
    screen.step(2, "The workload exchanges it at Keyferry (RFC 8693).")?;
    let access = stage.access();
    screen.wire(&format!(
        "POST /v1/token  audience={access}  subject_token=(the token above)"
    ))?;
    let (status, answer) = exchange(stage, &stage.caller).await?;
    let token = answer["access_token"]
        .as_str()
        .map(|token| SecretString::from(token.to_owned()));
    let token = token.ok_or(DemoError::Unexpected("the exchange gave no token"))?;
    screen.outcome(&format!(
        "{status} token_type={} expires_in={}",
        text(&answer["token_type"]),
        answer["expires_in"]
    ))?;
    show_token(screen, &token)?;
    Ok(token)
}

/// Uses the token at the target. Returns the user there.
async fn use_at_target(
    stage: &Stage,
    screen: &Screen,
    token: &SecretString,
) -> Result<UserInfo, DemoError> {
    screen.step(
        3,
        "The target authenticates the workload with keys that it reads from Keyferry, not from the hub.",
    )?;
    let reviewed = self_subject_review(stage, token, None).await?;
    for fetch in stage.target.fetches() {
        let what = match fetch.document {
            FetchedDocument::Discovery => "provider metadata",
            FetchedDocument::Jwks => "key set",
        };
        let path = fetch
            .url
            .strip_prefix(&stage.discovery_url())
            .unwrap_or(&fetch.url);
        screen.wire(&format!("target -> Keyferry  GET {path}  ({what})"))?;
    }
    screen.wire("workload -> target  POST /apis/authentication.k8s.io/v1/selfsubjectreviews")?;
    match reviewed {
        Ok(user) => {
            show_user(screen, &user)?;
            Ok(user)
        }
        Err(NoUser { status, message }) => {
            let cause = last_refusal(stage).unwrap_or(message);
            screen.refusal(&format!("{status} {cause}"))?;
            Err(DemoError::Refused(cause))
        }
    }
}

async fn refuse_another_tenant(stage: &Stage, screen: &Screen) -> Result<(), DemoError> {
    screen.step(
        4,
        "Another tenant asks for the same access and gets nothing.",
    )?;
    screen.wire(&format!(
        "POST /v1/token  audience={}  subject_token=(a token of {})",
        stage.access(),
        stage.intruder_name()
    ))?;
    let (status, answer) = exchange(stage, &stage.foreign_caller).await?;
    screen.refusal(&format!(
        "{status} {}: {}",
        text(&answer["error"]),
        text(&answer["error_description"])
    ))?;
    screen.facts(&[("why, in the audit log only", last_reason(stage)?)])?;
    Ok(())
}

async fn refuse_at_hub(
    stage: &Stage,
    screen: &Screen,
    token: &SecretString,
) -> Result<(), DemoError> {
    screen.step(5, "The issued token is accepted only by its target.")?;
    screen.wire("workload -> hub  POST /apis/authentication.k8s.io/v1/selfsubjectreviews")?;
    let status = hub_status(stage, token).await?;
    screen.refusal(&format!(
        "{status} from the hub: the audience is the target's"
    ))?;
    Ok(())
}

/// The cause that the target would log for the last token that it refused.
fn last_refusal(stage: &Stage) -> Option<String> {
    let requests = stage.target.requests();
    requests
        .into_iter()
        .rev()
        .find_map(|request| match request.outcome {
            Outcome::Rejected { cause } => Some(cause),
            Outcome::Accepted { .. } => None,
        })
}

/// Suggests commands to try while the demo runs.
pub(super) fn try_next(stage: &Stage, screen: &Screen) -> Result<(), DemoError> {
    let file = |name: &str| stage.file(name).display().to_string();
    let server = format!(
        "--server {} --certificate-authority {} --token-file {}",
        stage.api_url(),
        file("ca.crt"),
        file("caller.token")
    );
    screen.line("\nThe demo runs until Ctrl-C. Try in another terminal:")?;
    screen.command(&format!(
        "keyferry targets --config {}",
        file("config.yaml")
    ))?;
    let access = stage.access();
    // The demo's clusters are on this machine, where a command connects to nothing by default.
    screen.command("export KEYFERRY_ALLOW_TARGET_CIDR=127.0.0.0/8")?;
    screen.command(&format!("keyferry doctor {access} {server}"))?;
    screen.command(&format!("keyferry token {access} {server}"))?;
    screen.command(&format!("keyferry kubeconfig {access} {server}"))?;
    screen.command(&format!(
        "keyferry exec {access} {server} -- kubectl auth whoami"
    ))?;
    screen.command(&format!(
        "keyferry token {access} --config {} --kubeconfig {}",
        file("config.yaml"),
        file("hub.kubeconfig")
    ))?;
    screen.command(&format!(
        "curl --cacert {} {}/openid/v1/jwks",
        file("ca.crt"),
        stage.discovery_url()
    ))?;
    screen.command(&format!("tail {}", file("audit.jsonl")))?;
    Ok(())
}

fn show_token(screen: &Screen, token: &SecretString) -> Result<(), DemoError> {
    let jwt = UnverifiedJwt::parse(token.expose_secret())
        .map_err(|_| DemoError::Unexpected("a token could not be decoded"))?;
    let claims = jwt.claims();
    let claim = |name: &str| claims.get(name).cloned().unwrap_or_default();
    let life = claim("exp")
        .as_i64()
        .zip(claim("iat").as_i64())
        .map(|(exp, iat)| exp - iat)
        .unwrap_or_default();
    screen.facts(&[
        ("alg", jwt.algorithm().as_str().to_owned()),
        ("iss", text(&claim("iss"))),
        ("sub", text(&claim("sub"))),
        ("aud", list(&claim("aud"))),
        ("life", format!("{life} s")),
    ])?;
    Ok(())
}

async fn exchange(stage: &Stage, subject: &SecretString) -> Result<(u16, Value), DemoError> {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", GRANT_TYPE)
        .append_pair("subject_token_type", TOKEN_TYPE_JWT)
        .append_pair("audience", &stage.access())
        .append_pair("subject_token", subject.expose_secret())
        .finish();
    let request = stage.http.post(format!("{}/v1/token", stage.api_url()));
    let request = request
        .header(
            reqwest::header::CONTENT_TYPE,
            "application/x-www-form-urlencoded",
        )
        .body(form);
    let answer = request
        .send()
        .await
        .map_err(|_| DemoError::Call("Keyferry"))?;
    let status = answer.status().as_u16();
    Ok((
        status,
        answer
            .json()
            .await
            .map_err(|_| DemoError::Call("Keyferry"))?,
    ))
}

fn last_reason(stage: &Stage) -> Result<String, DemoError> {
    let log = std::fs::read_to_string(stage.file("audit.jsonl"))?;
    let record: Option<Value> = log
        .lines()
        .next_back()
        .and_then(|line| serde_json::from_str(line).ok());
    let record = record.ok_or(DemoError::Unexpected("the audit log is empty"))?;
    Ok(format!(
        "{} {} {}",
        text(&record["decision"]),
        text(&record["reason"]),
        text(&record["caller"])
    ))
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn list(value: &Value) -> String {
    value.as_array().map_or_else(
        || text(value),
        |items| items.iter().map(text).collect::<Vec<_>>().join(", "),
    )
}
