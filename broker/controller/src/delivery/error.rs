//! Why an object cannot be reconciled.

use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_hub::forbidden::ForbiddenCause;
use keyferry_hub::ports::HubError;

/// Why an object cannot be reconciled.
pub(super) struct DeliveryError {
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl DeliveryError {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The same obstacle, which is checked again after this time.
    pub(super) fn with_retry_after(self, pause: impl Into<Option<Duration>>) -> Self {
        Self {
            retry_after: pause.into(),
            ..self
        }
    }

    /// Whether the obstacle may pass without a change that Keyferry would notice.
    pub(super) fn is_transient(&self) -> bool {
        !matches!(
            self.reason,
            Reason::CertificateDenied
                | Reason::FluxCredentialDiffers
                | Reason::IssuerCollision
                | Reason::NotExpressible
                | Reason::TargetSuspended
        )
    }
}

impl From<HubError> for DeliveryError {
    /// Explains the hub's refusal of an object. Exceeded quotas and terminating namespaces answer
    /// 403 as well.
    fn from(error: HubError) -> Self {
        let reason = match &error {
            HubError::Forbidden(forbidden) => match forbidden.cause() {
                ForbiddenCause::QuotaExceeded => Reason::QuotaExceeded,
                ForbiddenCause::NamespaceTerminating => Reason::NamespaceTerminating,
                ForbiddenCause::AdmissionPolicy(_) | ForbiddenCause::Admission => {
                    Reason::DeliveryFailed
                }
                ForbiddenCause::MissingRight => Reason::DeliveryForbidden,
            },
            HubError::Unreachable(_) | HubError::Overloaded(_) | HubError::Busy => {
                Reason::HubUnreachable
            }
            HubError::TooLarge => Reason::ObjectTooLarge,
            _ => Reason::DeliveryFailed,
        };
        let fix = match reason {
            Reason::DeliveryForbidden => {
                "; bind the ClusterRole keyferry-minter to Keyferry's ServiceAccount in this \
                 namespace"
            }
            Reason::ObjectTooLarge => {
                "; delete the object, or take out of it what others than Keyferry wrote"
            }
            _ => "",
        };
        Self::new(reason, format!("{error}{fix}"))
    }
}
