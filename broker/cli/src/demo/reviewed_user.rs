//! Who an apiserver of the demo says the bearer of a token is.

use keyferry_client::doctor::impersonated_user::ImpersonatedUser;
use keyferry_core::self_subject_review::{self, SelfSubjectReview, UserInfo};
use keyferry_platform::https_client::HttpsClientBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::DemoError;
use super::screen::Screen;
use super::stage::Stage;

/// Why the target did not return a user.
pub(super) struct NoUser {
    pub(super) status: u16,
    pub(super) message: String,
}

/// Asks the target who the token's bearer is, or who it is when it impersonates.
pub(super) async fn self_subject_review(
    stage: &Stage,
    token: &SecretString,
    impersonated: Option<&ImpersonatedUser>,
) -> Result<Result<UserInfo, NoUser>, DemoError> {
    let (ca_pem, url) = (stage.target.ca_pem(), stage.target.url());
    let (status, answer) = review(ca_pem, url, token, "the target", impersonated).await?;
    Ok(match status {
        201 => {
            let review = SelfSubjectReview::deserialize(answer)
                .map_err(|_| DemoError::Unexpected("the target named no user"))?;
            Ok(review.status.user_info)
        }
        _ => Err(NoUser {
            status,
            message: answer["message"].as_str().unwrap_or_default().to_owned(),
        }),
    })
}

/// Shows whom the target sees.
pub(super) fn show_user(screen: &Screen, user: &UserInfo) -> Result<(), DemoError> {
    screen.outcome("201 the target sees this user:")?;
    screen.facts(&[
        ("username", user.username.clone()),
        ("groups", user.groups.join(", ")),
    ])?;
    Ok(())
}

/// The status with which the hub answers the bearer of the token.
pub(super) async fn hub_status(stage: &Stage, token: &SecretString) -> Result<u16, DemoError> {
    Ok(
        review(stage.hub.ca_pem(), stage.hub.url(), token, "the hub", None)
            .await?
            .0,
    )
}

async fn review(
    ca_pem: &str,
    url: &str,
    token: &SecretString,
    server: &'static str,
    impersonated: Option<&ImpersonatedUser>,
) -> Result<(u16, Value), DemoError> {
    let failed = |_| DemoError::Call(server);
    let http = HttpsClientBuilder::new(std::time::Duration::from_secs(10))
        .trusting_only(ca_pem.as_bytes())
        .and_then(HttpsClientBuilder::build)
        .map_err(|_| DemoError::Call(server))?;
    let mut request = http
        .post(format!("{url}{}", self_subject_review::REVIEW_PATH))
        .bearer_auth(token.expose_secret())
        .json(&self_subject_review::review_request());
    let headers = impersonated.map(ImpersonatedUser::headers);
    for (name, value) in headers.into_iter().flatten() {
        request = request.header(name, value.as_bytes());
    }
    let answer = request.send().await.map_err(failed)?;
    let status = answer.status().as_u16();
    Ok((status, answer.json().await.unwrap_or_default()))
}
