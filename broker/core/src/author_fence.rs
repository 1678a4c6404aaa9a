//! Whether the admission policy that checks authors is in force.

use serde_json::Value;

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the admission policy keyferry-author {0}")]
pub struct AuthorFenceGap(&'static str);

/// Interim.
///
/// # Errors
/// [`AuthorFenceGap`].
pub fn check(policy: &Value, binding: &Value) -> Result<(), AuthorFenceGap> {
    if policy["spec"]["validations"].as_array().is_none_or(Vec::is_empty) {
        return Err(AuthorFenceGap("is not there"));
    }
    if !binding["spec"]["validationActions"].to_string().contains("Deny") {
        return Err(AuthorFenceGap("is not bound"));
    }
    Ok(())
}
