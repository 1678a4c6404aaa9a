//! The values of flags that both forms of onboarding take.

use keyferry_api::config::DeliveryType;

use crate::onboarding::objects::Author;

/// A text names no delivery.
#[derive(Debug, thiserror::Error)]
#[error("write one of {}", names())]
pub(crate) struct DeliveryError;

fn names() -> String {
    DeliveryType::ALL
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Parses the name of a delivery type.
pub(crate) fn delivery(text: &str) -> Result<DeliveryType, DeliveryError> {
    DeliveryType::ALL
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, delivery)| *delivery)
        .ok_or(DeliveryError)
}

/// A text names no author.
#[derive(Debug, thiserror::Error)]
#[error("write a user name, group:NAME, or system:serviceaccount:NAMESPACE:NAME")]
pub(crate) struct AuthorError;

/// Parses the author of a TargetAccess.
pub(crate) fn author(text: &str) -> Result<Author, AuthorError> {
    Author::parse(text).ok_or(AuthorError)
}
