//! What a kubeconfig of a target lets Keyferry read of it.

use keyferry_api::name::ObjectName;
use keyferry_client::checked_mint::issuer_of;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::doctor::at_target;
use keyferry_client::doctor::start::from_target;
use keyferry_client::doctor::target_calls::{ServerVersion, TargetCalls};
use keyferry_client::lenient::Lenient;
use keyferry_hub::client::{ClientError, HubAccess};
use keyferry_kube_authn::Minor;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::clock::SystemClock;

use crate::ui;

/// What the target's apiserver reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetFacts {
    /// Its Kubernetes release; `None` if it is not one that Keyferry knows.
    pub(crate) minor: Option<Minor>,
    /// The issuer of its own ServiceAccount tokens; `None` if the user may not read it.
    pub(crate) own_issuer: Option<String>,
}

/// Why the target could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetFactsError {
    /// The kubeconfig cannot be used.
    #[error("reading the target's kubeconfig: {0}")]
    Kubeconfig(#[from] ClientError),
    /// The target did not answer as expected.
    #[error("reading the target's version: {0}")]
    Call(String),
}

/// Asks the target's apiserver, with the user of the kubeconfig.
///
/// # Errors
/// [`TargetFactsError`].
pub(crate) async fn read(access: &HubAccess) -> Result<TargetFacts, TargetFactsError> {
    let client = access.client().await?;
    let Lenient(version): Lenient<ServerVersion> =
        client
            .get_object("/version", "version")
            .await
            .map_err(|error| TargetFactsError::Call(at_target(&error)))?;
    Ok(TargetFacts {
        minor: version.minor(),
        own_issuer: issuer_of(&client).await,
    })
}

/// Asks a listed target for its release, without credentials. `None` if it does not say, or may not
/// be asked.
pub(crate) async fn listed_release(
    hub: &HubAccess,
    source: &ConfigurationSource,
    target: &ObjectName,
    guard: &AddressGuard,
) -> Option<Minor> {
    let address = from_target(target.as_str(), source, hub).await.target?;
    match TargetCalls::new(&address, None, guard).await {
        Ok(calls) => calls.greet(&SystemClock::start()).await.minor,
        Err(error) => {
            ui::note(&error.to_string());
            None
        }
    }
}
