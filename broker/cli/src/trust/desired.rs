//! The trust that a target should have of a hub, for comparisons with what it has.

use keyferry_api::issuer::discovery_url;
use keyferry_api::name::ObjectName;
use keyferry_api::service_account::ServiceAccount;
use keyferry_fleet::facts::Comparison;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::lint::PublishedDocuments;

use super::diff::{self, DiffProblem};
use super::inputs::{self, TrustInputs};
use super::known_hub::KnownHub;
use super::{TrustArgs, file};
use crate::command_error::CommandError;

/// What a target should trust, as `keyferry trust` prints it without further flags.
pub(crate) struct DesiredTrust(TrustInputs);

impl DesiredTrust {
    /// Returns what the objects and settings of a hub say of a target.
    ///
    /// # Errors
    /// What they do not say.
    pub(crate) fn of_target(target: &ObjectName, known: &KnownHub) -> Result<Self, CommandError> {
        let args = TrustArgs {
            target: Some(target.to_string()),
            ..TrustArgs::default()
        };
        Ok(Self(inputs::read(&args, Some(known))?))
    }

    /// The issuers that the target should trust, each with where it should read the keys. They are
    /// several if the roles of the cluster have managed issuers.
    pub(crate) fn issuers(&self) -> impl Iterator<Item = (&str, PublishedDocuments)> {
        self.0.entries.iter().map(|rules| {
            let url = rules.discovery_url.clone();
            let documents = PublishedDocuments {
                discovery_url: url.unwrap_or_else(|| discovery_url(&rules.issuer)),
                certificate_authority: rules.certificate_authority.clone(),
            };
            (rules.issuer.as_str(), documents)
        })
    }

    /// The user that the target should name for a ServiceAccount of the hub.
    pub(crate) fn user_of(&self, account: &ServiceAccount) -> String {
        format!("{}{}", self.0.prefix, account.username())
    }

    /// The file that `keyferry trust` prints for a target that trusts nothing else.
    pub(crate) fn file(&self, minor: Minor) -> String {
        file(&self.0.text(), minor)
    }

    /// Compares a target's AuthenticationConfiguration, by the values that its apiserver reads.
    pub(crate) fn compare(&self, file: &[u8], minor: Minor) -> Comparison {
        match diff::compare(file, &self.0, minor) {
            Ok(compared) if compared.differences.is_empty() && !compared.notes.is_empty() => {
                let notes = compared.notes.join("; ");
                Comparison::not_compared(format!("the rest matches, but {notes}"))
            }
            Ok(compared) => Comparison::of_differences(compared.differences),
            Err(problem @ DiffProblem::Expected(_)) => {
                Comparison::not_compared(problem.to_string())
            }
            // The target refuses such a file.
            Err(problem) => Comparison::of_differences([problem.to_string()]),
        }
    }
}
