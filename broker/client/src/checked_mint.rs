//! Issues a token with the user's own rights on the hub. It gets the same checks as a token that
//! the server mints: one audience, and never one that the hub itself accepts.

use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::self_subject_review;
use keyferry_hub::client::{ClientError, HubAccess, HubClient};
use keyferry_hub::forbidden::ForbiddenCause;
use keyferry_hub::ports::HubError;
use keyferry_hub::token_request::TokenRequest;
use keyferry_keys::jwt::UnverifiedJwt;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

/// The shortest lifetime that an apiserver issues.
const MINTED_LIFETIME: Duration = Duration::from_secs(600);

/// Why no token is issued.
#[derive(Debug, thiserror::Error)]
pub enum CheckedMintError {
    /// The audience is one of the hub's own.
    #[error(
        "{0:?} is an audience of the hub's own API, so the token would be a credential of the hub"
    )]
    AudienceIsHubs(String),
    /// The hub issued a token for other audiences than requested.
    #[error("the hub issued a token for other audiences than {0:?}; it was dropped")]
    OtherAudiences(String),
    /// The hub refused or could not be reached.
    #[error("{0}")]
    Hub(#[from] HubError),
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl CheckedMintError {
    /// Whether the user lacks the right to create the token. That says nothing of the
    /// ServiceAccount.
    pub fn is_missing_right(&self) -> bool {
        matches!(self, Self::Hub(HubError::Forbidden(forbidden))
            if *forbidden.cause() == ForbiddenCause::MissingRight)
    }

    /// Returns the stable reason code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::AudienceIsHubs(_) => Reason::AudienceIsHubs,
            Self::OtherAudiences(_) => Reason::MintMismatch,
            Self::Hub(error) => error.mint_reason(),
            Self::Client(_) => Reason::HubUnreachable,
        }
    }
}

/// Issues a token of 10 minutes for `account`.
///
/// # Errors
/// [`CheckedMintError`]. If a token was issued anyway, it was sent to no other server than the hub.
pub async fn mint_checked(
    hub: &HubAccess,
    account: &ServiceAccount,
    audience: &Audience,
) -> Result<SecretString, CheckedMintError> {
    let is_hubs = || CheckedMintError::AudienceIsHubs(audience.to_string());
    let config = hub.config().await?;
    let client = HubClient::new(config.clone())?;
    // An apiserver without --api-audiences accepts tokens for its issuer. Knowing the issuer avoids
    // issuing such a token.
    if issuer_of(&client).await.as_deref() == Some(audience.as_str()) {
        return Err(is_hubs());
    }
    let answer = TokenRequest {
        account,
        uid: None,
        audience,
        lifetime: MINTED_LIFETIME,
    }
    .send(&client)
    .await?;
    if !is_for(&answer.token, audience) {
        return Err(CheckedMintError::OtherAudiences(audience.to_string()));
    }
    if opens_the_hub(config, &answer.token).await? {
        Err(is_hubs())
    } else {
        Ok(answer.token)
    }
}

/// An issuer's discovery document, reduced to its name.
#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: Option<String>,
}

/// Returns the issuer of a cluster, if the user may read it.
pub async fn issuer_of(client: &HubClient) -> Option<String> {
    let document: DiscoveryDocument = client
        .get_object(DISCOVERY_PATH, "discovery document")
        .await
        .ok()?;
    document.issuer
}

/// Returns the issuer of the hub, if it can be connected to and the user may read it.
pub(crate) async fn issuer_of_hub(hub: &HubAccess) -> Option<String> {
    issuer_of(&hub.client().await.ok()?).await
}

/// Whether the hub accepts the token as its own. Needs no right but the token itself.
///
/// # Errors
/// The answer could not be determined.
pub(crate) async fn opens_the_hub(
    mut config: kube::Config,
    token: &SecretString,
) -> Result<bool, CheckedMintError> {
    let token = SecretString::from(token.expose_secret().to_owned());
    config.auth_info = kube::config::AuthInfo {
        token: Some(token),
        ..kube::config::AuthInfo::default()
    };
    let client = HubClient::new(config)?;
    let answer: Result<Value, HubError> = client
        .create(
            self_subject_review::REVIEW_PATH,
            &self_subject_review::review_request(),
            self_subject_review::REVIEW_KIND,
        )
        .await;
    match answer {
        // The apiserver answers Forbidden only to a user that it has authenticated.
        Ok(_) | Err(HubError::Forbidden(_)) => Ok(true),
        Err(HubError::Unauthenticated(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_for(token: &SecretString, audience: &Audience) -> bool {
    let Ok(jwt) = UnverifiedJwt::parse(token.expose_secret()) else {
        return false;
    };
    match jwt.claims().get("aud") {
        Some(Value::String(one)) => one == audience.as_str(),
        Some(Value::Array(all)) => {
            matches!(all.as_slice(), [Value::String(one)] if one == audience.as_str())
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::name::{Namespace, ObjectName};
    use keyferry_testing::{EmbeddedHub, HubOptions};

    use super::*;

    #[tokio::test]
    async fn a_token_that_the_hub_takes_for_its_own_is_given_to_nobody() {
        let hub = EmbeddedHub::start(HubOptions::default()).await.unwrap();
        hub.add_service_account("tenant-a", "reconciler");
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, hub.kubeconfig().expose_secret()).unwrap();
        let access = HubAccess {
            kubeconfig: Some(kubeconfig),
            ..HubAccess::default()
        };
        let account = ServiceAccount {
            namespace: Namespace::new("tenant-a").unwrap(),
            name: ObjectName::new("reconciler").unwrap(),
        };
        let ask = async |audience: &str| {
            mint_checked(&access, &account, &Audience::new(audience).unwrap()).await
        };
        let token = ask("https://prod.example.com").await.unwrap();
        assert!(is_for(
            &token,
            &Audience::new("https://prod.example.com").unwrap()
        ));
        let refused = ask(hub.issuer()).await.unwrap_err();
        assert!(
            matches!(refused, CheckedMintError::AudienceIsHubs(_)),
            "{refused}"
        );
        // Where the discovery document cannot be read, the hub is tested by sending it the token.
        let own = hub
            .token(
                "tenant-a",
                "reconciler",
                hub.issuer(),
                Duration::from_secs(600),
            )
            .unwrap();
        assert!(
            opens_the_hub(access.config().await.unwrap(), &own)
                .await
                .unwrap()
        );
        assert!(
            !opens_the_hub(access.config().await.unwrap(), &token)
                .await
                .unwrap()
        );
    }
}
