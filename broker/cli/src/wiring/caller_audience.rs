//! The checks of callerAudience and of externalIssuers before the token API opens.

use std::time::Duration;

use keyferry_api::config::{ServerConfiguration, same_issuer};
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_hub::live::LiveObjects;
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::publication::PublicationReader;

use super::ServeError;

/// The pause between attempts while the hub is unreachable.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the hub, then checks that callers' tokens are not credentials of the hub.
pub(super) async fn check_caller_audience(
    guard: &AudienceGuard,
    server: &ServerConfiguration,
    live: &LiveObjects,
    published: &PublicationReader,
) -> Result<(), ServeError> {
    loop {
        if live.is_complete()
            && let Some(current) = published.current()
        {
            check_external_issuers(server, &current.issuer)?;
            match guard.check_audience(&server.caller_audience).await {
                Ok(()) => return Ok(()),
                Err(Reason::HubUnreachable) => {}
                // The token API stays closed; the published documents need none of this.
                Err(
                    reason @ (Reason::KeyNotPublished | Reason::KeyRevoked | Reason::ClockSkew),
                ) => {
                    tracing::warn!(%reason, "the token API waits: the hub's token for the canary \
                        cannot be used");
                }
                Err(Reason::AudienceIsHubs) => {
                    return Err(ServeError::CallerAudienceIsHubs(
                        server.caller_audience.to_string(),
                    ));
                }
                Err(reason) => return Err(ServeError::CallerAudienceUnchecked(reason)),
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Refuses an external issuer that is the hub's, which is known only once the hub has answered if
/// the configuration does not pin it.
fn check_external_issuers(server: &ServerConfiguration, hub: &Issuer) -> Result<(), ServeError> {
    server
        .external_issuers
        .iter()
        .find(|external| same_issuer(external.url.as_str(), hub.as_str()))
        .map_or(Ok(()), |external| {
            Err(ServeError::ExternalIssuerIsHubs(external.url.to_string()))
        })
}
