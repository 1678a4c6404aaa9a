//! What a relying party that is no Kubernetes cluster needs to trust a hub: values, and no file or
//! RBAC of a cluster.

use keyferry_api::issuer::discovery_url;

use super::inputs;
use super::known_hub::KnownHub;
use super::target_rules::TargetRules;
use super::{Printed, TrustArgs};
use crate::command_error::CommandError;

/// Renders the values that the relying party compares.
///
/// # Errors
/// A value is missing, or a flag is for a cluster.
pub(super) fn print(args: &TrustArgs, known: &KnownHub) -> Result<Printed, CommandError> {
    let of_cluster =
        args.merge.is_some() || args.parts.output_dir.is_some() || args.shape.asks_for_rbac();
    if of_cluster {
        return Err(CommandError::with_fix(
            "the target is a relying party and no Kubernetes cluster, so it has no file, RBAC or \
             folder of files",
            "leave out --merge, --output-dir, --bind, --bind-role and --flux-service-account",
        ));
    }
    let given = inputs::read(args, Some(known))?;
    Ok(Printed {
        text: given.entries.iter().map(text).collect(),
        files: Vec::new(),
        notes: given.notes,
    })
}

fn text(rules: &TargetRules) -> String {
    let default = discovery_url(&rules.issuer);
    // A relying party has no role, so this is one audience.
    let audiences: Vec<&str> = rules.audiences.iter().map(|one| &*one.audience).collect();
    let accounts = rules.audiences.iter().flat_map(|one| &one.allow);
    let subjects: String = accounts
        .map(|account| format!("  {}\n", account.username()))
        .collect();
    let authority = rules
        .certificate_authority
        .as_deref()
        .map_or_else(String::new, |pem| {
            format!("CA certificates of the documents' server:\n{pem}")
        });
    format!(
        "issuer (compare iss exactly): {}\ndiscovery document: {}\naudience (compare aud exactly): \
         {}\nsubjects (compare sub exactly):\n{subjects}{authority}",
        rules.issuer,
        rules.discovery_url.as_deref().unwrap_or(&default),
        audiences.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::target_rules::AudienceRules;
    use super::*;

    #[test]
    fn a_relying_party_gets_values_and_no_file_of_a_cluster() {
        let rules = TargetRules {
            issuer: "https://hub.example.com".to_owned(),
            discovery_url: None,
            certificate_authority: None,
            prefix: "hub:".to_owned(),
            audiences: vec![AudienceRules {
                target: "vault".to_owned(),
                audience: "https://vault".to_owned(),
                role: None,
                allow: crate::args::names::service_account("tenant-a/reconciler")
                    .into_iter()
                    .collect(),
                max_lifetime: Duration::from_secs(3600),
            }],
        };
        let text = text(&rules);
        for wanted in [
            "https://hub.example.com/.well-known/openid-configuration",
            "https://vault",
            "  system:serviceaccount:tenant-a:reconciler\n",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("AuthenticationConfiguration") && !text.contains("hub:"));
    }
}
