//! Reports what a missing admission policy of the hub means for one target. This blocks nothing; it
//! informs readers of the target.

use keyferry_api::condition::Finding;
use keyferry_api::config::{AllowRule, TargetCluster, TokenIssuer};
use keyferry_api::reason::Reason;
use keyferry_hub::admission_policy::AdmissionPolicyReader;

use crate::audience_pairing::UnlistedAudiences;

/// Returns a finding if nothing on the hub reserves the target's audience for its grants. This does
/// not matter for a target that trusts a managed issuer.
pub(super) fn others_may_mint(
    pairing: &AdmissionPolicyReader,
    unlisted: &UnlistedAudiences,
    target: &TargetCluster,
) -> Option<Finding> {
    let not_listed = || {
        unlisted
            .reason_for(&target.audience)
            .map(|why| format!("the AudiencePairing does not list it, because {why}"))
    };
    let gap = pairing
        .missing_part()
        .or_else(not_listed)
        .filter(|_| target.issuer == TokenIssuer::Hub)?;
    let message = format!(
        "anyone who may create tokens on the hub can get one for this target's audience, bypassing \
         allow[]: {gap}"
    );
    Some(Finding::problem(Reason::PairingUnprotected, message))
}

/// Returns a finding if another admission policy of the hub is missing, differs, or does not know
/// the hub's audiences. It names all such policies, since they affect every target.
pub(super) fn policies_are_incomplete(policies: &[AdmissionPolicyReader]) -> Option<Finding> {
    let gaps: Vec<String> = policies
        .iter()
        .filter_map(AdmissionPolicyReader::missing_part)
        .collect();
    if gaps.is_empty() {
        return None;
    }
    let message: String = format!(
        "{}; keyferry admission-policies --check names each",
        gaps.join("; ")
    )
    .chars()
    .take(1000)
    .collect();
    Some(Finding::problem(Reason::AdmissionPolicyIncomplete, message))
}

/// Returns a finding if a selector of the target uses labels that no active admission policy
/// protects.
pub(super) fn others_may_be_selected(
    labels: &AdmissionPolicyReader,
    target: &TargetCluster,
) -> Option<Finding> {
    let gap = labels
        .missing_part()
        .filter(|_| target.allow.iter().any(AllowRule::needs_guarded_labels))?;
    let message = format!(
        "a namespaceSelector of allow[] uses labels that anyone who may edit a namespace can set: \
         {gap}"
    );
    Some(Finding::problem(Reason::LabelsUnprotected, message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config;
    use keyferry_api::reason::Reason;
    use keyferry_core::admission_policy;
    use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};

    use super::*;

    fn target(further: &str) -> TargetCluster {
        let text = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.com\n\
             managedIssuers: {{enabled: true}}\n\
             discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\nspec:\n  \
             address: https://prod.example.com\n  audience: prod\n{further}"
        );
        config::read(&text)
            .unwrap()
            .policy
            .targets
            .into_values()
            .next()
            .unwrap()
    }

    fn allowing(namespaces: &str) -> TargetCluster {
        target(&format!(
            "  allow: [{{{namespaces}, serviceAccounts: [a]}}]\n"
        ))
    }

    #[test]
    fn a_missing_pairing_concerns_who_trusts_the_hubs_issuer() {
        let admission_policy = AdmissionPolicyWriter::for_pairing_policy();
        let of = |target: &TargetCluster| {
            others_may_mint(
                &admission_policy.reader(),
                &UnlistedAudiences::default(),
                target,
            )
            .map(|finding| (finding.is_true(), finding.reason))
        };
        assert_eq!(of(&target("")), None, "nobody has looked yet");
        admission_policy.set_state(Standing::Gap("it is gone".to_owned()));
        assert_eq!(of(&target("")), Some((true, Reason::PairingUnprotected)));
        assert_eq!(of(&target("  issuer: Keyferry\n")), None);
        admission_policy.set_state(Standing::Active);
        assert_eq!(of(&target("")), None);
    }

    #[test]
    fn an_audience_that_is_not_listed_is_open_to_others() {
        let (admission_policy, unlisted) = (
            AdmissionPolicyWriter::for_pairing_policy(),
            UnlistedAudiences::default(),
        );
        admission_policy.set_state(Standing::Active);
        unlisted.set([("prod".to_owned(), "it is the hub's issuer".to_owned())].into());
        let finding = others_may_mint(&admission_policy.reader(), &unlisted, &target("")).unwrap();
        assert!(
            finding
                .message
                .contains("does not list it, because it is the hub's issuer"),
            "{}",
            finding.message
        );
        assert!(
            others_may_mint(
                &admission_policy.reader(),
                &unlisted,
                &target("  issuer: Keyferry\n")
            )
            .is_none()
        );
        unlisted.set([("other".to_owned(), "it is the hub's issuer".to_owned())].into());
        assert!(others_may_mint(&admission_policy.reader(), &unlisted, &target("")).is_none());
    }

    #[test]
    fn every_incomplete_policy_is_named() {
        let writers = [
            admission_policy::RETARGET_POLICY,
            admission_policy::OWN_ACCOUNT,
            admission_policy::KEPT_POLICY,
        ]
        .map(AdmissionPolicyWriter::for_policy);
        let readers = writers.each_ref().map(AdmissionPolicyWriter::reader);
        assert!(
            policies_are_incomplete(&readers).is_none(),
            "nobody has looked yet"
        );
        for (writer, standing) in writers.iter().zip([
            Standing::Gap("one".to_owned()),
            Standing::Active,
            Standing::Gap("two".to_owned()),
        ]) {
            writer.set_state(standing);
        }
        let finding = policies_are_incomplete(&readers).unwrap();
        assert_eq!(
            (finding.is_true(), finding.reason),
            (true, Reason::AdmissionPolicyIncomplete)
        );
        assert!(
            finding.message.starts_with("one; two; "),
            "{}",
            finding.message
        );
    }

    #[test]
    fn missing_guards_of_labels_concern_who_goes_by_them() {
        let admission_policy = AdmissionPolicyWriter::for_labels_policy();
        admission_policy.set_state(Standing::Gap("it is gone".to_owned()));
        let of = |namespaces: &str| {
            others_may_be_selected(&admission_policy.reader(), &allowing(namespaces))
                .map(|finding| finding.reason)
        };
        assert_eq!(of("namespaces: [a]"), None);
        assert_eq!(
            of("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}"),
            None,
            "the apiserver itself sets this one"
        );
        assert_eq!(
            of("namespaceSelector: {matchLabels: {access.keyferry.dev/team: a}}"),
            Some(Reason::LabelsUnprotected)
        );
        let mixed = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}, \
                     matchExpressions: [{key: access.keyferry.dev/out, operator: DoesNotExist}]}";
        assert_eq!(of(mixed), Some(Reason::LabelsUnprotected));
        admission_policy.set_state(Standing::Active);
        assert_eq!(
            others_may_be_selected(
                &admission_policy.reader(),
                &allowing("namespaceSelector: {matchLabels: {access.keyferry.dev/team: a}}")
            ),
            None
        );
    }
}
