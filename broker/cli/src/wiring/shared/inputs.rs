//! The fleet inputs' part of the server: the reads of credentials' Secrets, and the service.

use std::sync::Arc;

use keyferry_api::config::ServerConfiguration;
use keyferry_controller::input_credentials::{InputCredentialParts, run_input_credential_refresh};
use keyferry_hub::client::HubClient;
use keyferry_hub::input_components::InputComponents;
use keyferry_hub::input_credentials::{CredentialReader, CredentialWriter, KubeInputSecrets};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::config_file::InputCredentials;
use keyferry_platform::random::{Random, SystemRandomness};
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::inputs::{Inputs, InputsParts};
use tokio::sync::watch as watch_channel;
use tokio::task::JoinSet;

use super::Shared;
use crate::wiring::ServeError;

/// What the tasks of fleet inputs keep current.
pub(super) struct InputSources {
    components: Arc<InputComponents>,
    credentials: CredentialReader,
}

/// The dependencies of [`start_input_credentials`].
pub(super) struct StartParts<'a> {
    pub(super) server: &'a ServerConfiguration,
    pub(super) client: &'a HubClient,
    pub(super) components: Arc<InputComponents>,
    pub(super) credentials: watch_channel::Receiver<InputCredentials>,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) reload_signal: ReloadSignal,
    pub(super) background: &'a mut JoinSet<()>,
}

/// Starts to read the Secrets.
pub(super) fn start_input_credentials(parts: StartParts<'_>) -> Result<InputSources, ServeError> {
    let mut hash_key = [0; 32];
    if !SystemRandomness::default().fill_bytes(&mut hash_key) {
        return Err(ServeError::Random);
    }
    let namespace = parts.server.cluster_resource_namespace.clone();
    let writer = CredentialWriter::default();
    let credentials = writer.reader();
    let secrets = KubeInputSecrets::new(parts.client.clone(), namespace);
    parts
        .background
        .spawn(run_input_credential_refresh(InputCredentialParts {
            credentials: parts.credentials,
            secrets: Arc::new(secrets),
            writer,
            hash_key,
            max_stale: parts.server.max_stale_authorization,
            clock: Arc::clone(parts.clock),
            reload_signal: parts.reload_signal,
        }));
    Ok(InputSources {
        components: parts.components,
        credentials,
    })
}

impl Shared {
    /// Creates the service of fleet inputs, if they are enabled. The watches must be complete.
    pub(in crate::wiring) fn input_service(
        &self,
        audit: &Arc<dyn AuditSink>,
    ) -> Option<Arc<Inputs>> {
        let sources = self.input_sources.as_ref()?;
        Some(Arc::new(Inputs::new(InputsParts {
            fleet: self.fleet.clone(),
            live: Arc::clone(&self.live),
            components: Arc::clone(&sources.components),
            credentials: sources.credentials.clone(),
            hub_name: self.server.hub_name.clone(),
            requests_per_second: self.server.inputs.requests_per_second,
            max_stale: self.server.max_stale_authorization,
            clock: Arc::clone(&self.clock),
            audit: Arc::clone(audit),
            metrics: self.metrics.clone(),
        })))
    }
}
