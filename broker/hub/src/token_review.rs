//! TokenReview (authentication.k8s.io/v1).

use std::collections::BTreeMap;

use keyferry_api::audience::Audience;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::client::HubClient;
use crate::ports::HubError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    audiences: Option<[&'a str; 1]>,
}

#[derive(Deserialize)]
struct TokenReviewResponse {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    audiences: Vec<String>,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Asks the hub which user a token belongs to. Without an audience, asks whether the token is valid
/// for the hub itself.
///
/// # Errors
/// [`HubError`]. A token that the hub rejects is a result, not an error.
pub(super) async fn create_token_review(
    client: &HubClient,
    token: &SecretString,
    audience: Option<&Audience>,
) -> Result<TokenReviewAnswer, HubError> {
    let spec = Spec {
        token: token.expose_secret(),
        audiences: audience.map(|audience| [audience.as_str()]),
    };
    let review = TokenReview {
        api_version: "authentication.k8s.io/v1",
        kind: "TokenReview",
        spec,
    };
    let answer: TokenReviewResponse = client
        .create(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            &review,
            "TokenReview",
        )
        .await?;
    let Status {
        authenticated,
        audiences,
        user:
            User {
                username,
                uid,
                groups,
                extra,
            },
    } = answer.status;
    Ok(TokenReviewAnswer {
        authenticated,
        audiences,
        user: ReviewedUser {
            username,
            uid,
            groups,
            extra,
        },
    })
}
