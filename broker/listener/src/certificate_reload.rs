//! Replaces the serving certificate of a listener when its source changes. If the new one is
//! invalid, the old one stays active.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::reason::Reason;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::certificate_source::{
    CertificateContent, CertificateRead, CertificateSource, ReadSecret, ServingCertificateError,
};
use crate::discovery_authority::{DiscoveryAuthorityMismatch, verified_authority};
use crate::metrics::ListenerMetrics;
use crate::serving_certificate::{Requirements, ServingCertificate};

/// The least time between two reads, however often the source changes.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);

/// The pause after a read that failed: the watch would report the same change again at once.
const AFTER_UNREAD: Duration = Duration::from_secs(10);

/// Whether the state of the source is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceRead {
    Yes,
    No,
}

/// The certificate of one listener and its reloads; a clone shares both.
#[derive(Clone)]
pub(crate) struct CertificateReload {
    listener: &'static str,
    source: Arc<dyn CertificateSource>,
    requirements: Requirements,
    metrics: Arc<dyn ListenerMetrics>,
    tls: RustlsConfig,
    last: Arc<Mutex<LastRead>>,
    authority: watch::Sender<Option<Vec<u8>>>,
}

/// What was read last, so that each change is used and reported once.
struct LastRead {
    /// The version of the Secret, if there was one.
    version: Option<String>,
    content: CertificateContent,
    /// Why nothing could be read since.
    error: Option<ServingCertificateError>,
    /// Why the CA certificates beside the certificate are not published.
    mismatch: Option<DiscoveryAuthorityMismatch>,
}

impl CertificateReload {
    /// Reads and checks the certificate for the first time.
    pub(crate) async fn start(
        listener: &'static str,
        source: Arc<dyn CertificateSource>,
        requirements: Requirements,
        metrics: Arc<dyn ListenerMetrics>,
    ) -> Result<Self, ServingCertificateError> {
        let CertificateRead {
            content,
            secret,
            read_at,
        } = source.read_certificate().await;
        let content = content?;
        let certificate = ServingCertificate::load_checked(&content, &requirements, read_at)?;
        metrics.serving_certificate(listener, certificate.not_after.as_second());
        let authority = verified_authority(&content, &requirements, read_at);
        let reload = Self {
            listener,
            source,
            requirements,
            metrics,
            tls: RustlsConfig::from_config(certificate.config),
            last: Arc::new(Mutex::new(LastRead {
                version: secret.as_ref().map(|secret| secret.version.clone()),
                content,
                error: None,
                mismatch: None,
            })),
            authority: watch::Sender::new(None),
        };
        reload.publish_authority(authority, secret.as_ref()).await;
        Ok(reload)
    }

    /// The TLS configuration, which follows the reloads.
    pub(crate) fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    /// `ca.crt` of the Secret that the certificate in use is from, or beside its file.
    pub(crate) fn authority(&self) -> watch::Receiver<Option<Vec<u8>>> {
        self.authority.subscribe()
    }

    /// Reloads until the task is dropped: when the source changes, and on each item of
    /// `reload_signal`.
    pub(crate) async fn run_reload(self, reload_signal: impl Stream<Item = ()>) {
        // Without a sender, no signal can come.
        let mut reload_signal = pin!(reload_signal.chain(stream::pending()));
        loop {
            let version = self.last.lock().version.clone();
            tokio::select! {
                () = self.source.wait_for_change(version.as_deref()) => {}
                _ = reload_signal.next() => {}
            }
            let pause = match self.reload_certificate().await {
                SourceRead::Yes => MIN_READ_INTERVAL,
                SourceRead::No => AFTER_UNREAD,
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn reload_certificate(&self) -> SourceRead {
        let CertificateRead {
            content,
            secret,
            read_at,
        } = self.source.read_certificate().await;
        match content {
            // A failed read is no change of the certificate.
            Err(error) if error.is_unread() => {
                tracing::debug!(%error, "a serving certificate could not be read again");
                return SourceRead::No;
            }
            Err(error) => {
                let is_new = {
                    let mut last = self.last.lock();
                    last.version = secret.as_ref().map(|secret| secret.version.clone());
                    last.error.replace(error.clone()).as_ref() != Some(&error)
                };
                if is_new {
                    self.report_failure(secret.as_ref(), &error).await;
                }
            }
            Ok(content) => self.use_content(content, secret, read_at).await,
        }
        SourceRead::Yes
    }

    async fn use_content(
        &self,
        content: CertificateContent,
        secret: Option<ReadSecret>,
        read_at: Timestamp,
    ) {
        let is_known = {
            let mut last = self.last.lock();
            last.version = secret.as_ref().map(|secret| secret.version.clone());
            last.error = None;
            last.content.is_same(&content)
        };
        let checked = ServingCertificate::load_checked(&content, &self.requirements, read_at);
        if checked.is_ok() {
            // The CA bundle can change alone, as when a second CA is announced.
            let authority = verified_authority(&content, &self.requirements, read_at);
            self.publish_authority(authority, secret.as_ref()).await;
        }
        if is_known {
            return;
        }
        match checked {
            Ok(certificate) => {
                self.tls.reload_from_config(certificate.config);
                let not_after = certificate.not_after.as_second();
                self.metrics.serving_certificate(self.listener, not_after);
                self.metrics
                    .serving_certificate_reloaded(self.listener, true);
                tracing::info!(
                    listener = self.listener,
                    certificate = content.certificate_at,
                    "the serving certificate was reloaded"
                );
            }
            Err(error) => self.report_failure(secret.as_ref(), &error).await,
        }
        self.last.lock().content = content;
    }

    /// Publishes the CA certificates, or reports once that they do not verify the certificate.
    async fn publish_authority(
        &self,
        authority: Result<Option<Vec<u8>>, DiscoveryAuthorityMismatch>,
        secret: Option<&ReadSecret>,
    ) {
        let (authority, mismatch) = match authority {
            Ok(authority) => (authority, None),
            Err(mismatch) => (None, Some(mismatch)),
        };
        self.authority.send_if_modified(|published| {
            let changed = *published != authority;
            *published = authority;
            changed
        });
        let before = std::mem::replace(&mut self.last.lock().mismatch, mismatch.clone());
        if let Some(mismatch) = mismatch.filter(|mismatch| before.as_ref() != Some(mismatch)) {
            tracing::warn!(
                reason = %Reason::DiscoveryAuthorityMismatch, listener = self.listener, %mismatch,
                "the CA certificates beside the serving certificate are not published"
            );
            let finding = Finding::failed(Reason::DiscoveryAuthorityMismatch, mismatch.message());
            self.source.report_finding(secret, &finding).await;
        }
    }

    /// Reports that the old certificate stays.
    async fn report_failure(&self, secret: Option<&ReadSecret>, error: &ServingCertificateError) {
        self.metrics
            .serving_certificate_reloaded(self.listener, false);
        tracing::error!(
            reason = %Reason::ServingCertificateInvalid, listener = self.listener, %error,
            "the changed serving certificate cannot be used; the old one stays"
        );
        let finding = Finding::failed(Reason::ServingCertificateInvalid, error.message());
        self.source.report_finding(secret, &finding).await;
    }
}
