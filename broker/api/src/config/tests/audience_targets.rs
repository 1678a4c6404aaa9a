//! Targets that are not clusters: an audience without an address.

use super::{GOOD, mistakes_of, read, target};
use crate::config::{Probe, TargetKind};

const VAULT: &str = "---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata:
  name: vault
spec:
  kind: Audience
  audience: https://vault.example.com
  allow:
    - namespaces: [tenant-a]
      serviceAccounts: [reconciler]
      deliveries: [HTTP]
";

fn with(from: &str, to: &str) -> String {
    assert_eq!(VAULT.matches(from).count(), 1, "{from}");
    format!("{GOOD}{}", VAULT.replace(from, to))
}

#[test]
fn an_audience_has_no_address_and_nothing_is_sent_to_it() {
    let policy = read(&format!("{GOOD}{VAULT}")).unwrap().policy;
    let vault = target(&policy, "vault");
    assert_eq!(
        (vault.kind, vault.probe),
        (TargetKind::Audience, Probe::Off)
    );
    assert_eq!((vault.is_cluster(), vault.address.as_str()), (false, ""));
    let prod = target(&policy, "prod");
    assert!(prod.is_cluster() && prod.address.starts_with("https://"));
}

#[test]
fn a_cluster_has_an_address() {
    let mistakes = mistakes_of(&with("  kind: Audience\n", ""));
    assert!(
        mistakes.iter().any(|mistake| mistake.path == "spec.address"
            && mistake.fix.contains("kind: Audience")),
        "{mistakes:?}"
    );
    let unknown = mistakes_of(&with("kind: Audience", "kind: Registry"));
    assert!(unknown.iter().any(|mistake| mistake.path == "spec.kind"));
}

#[test]
fn fields_and_deliveries_of_a_cluster_are_refused() {
    for (line, path) in [
        ("address: https://vault.example.com", "spec.address"),
        ("tlsServerName: vault.example.com", "spec.tlsServerName"),
        ("proxyURL: http://proxy.example.com:80", "spec.proxyURL"),
        ("certSecretRef: {name: ca}", "spec.certSecretRef"),
        ("caBundle: '-----BEGIN CERTIFICATE-----'", "spec.caBundle"),
        ("targetIssuer: https://i.example.com", "spec.targetIssuer"),
    ] {
        let text = with(
            "  kind: Audience\n",
            &format!("  kind: Audience\n  {line}\n"),
        );
        let mistakes = mistakes_of(&text);
        assert!(
            matches!(mistakes.as_slice(), [only] if only.path == path),
            "{line}: {mistakes:?}"
        );
    }
    for deliveries in ["[HTTP, Exec]", "[FluxConfigMap]", "[KubeConfigSecret]"] {
        let mistakes = mistakes_of(&with("[HTTP]", deliveries));
        assert!(
            mistakes
                .iter()
                .any(|mistake| mistake.path == "spec.allow[0].deliveries"),
            "{deliveries}: {mistakes:?}"
        );
    }
    let unstated = mistakes_of(&with("      deliveries: [HTTP]\n", ""));
    assert_eq!(
        unstated.len(),
        1,
        "the default leads to clusters: {unstated:?}"
    );
    // The hub's apiserver adds the default, Report.
    for probe in ["\"Off\"", "Report"] {
        let with_probe = with(
            "  kind: Audience\n",
            &format!("  kind: Audience\n  probe: {probe}\n"),
        );
        let policy = read(&with_probe).unwrap().policy;
        assert_eq!(target(&policy, "vault").probe, Probe::Off);
    }
}
