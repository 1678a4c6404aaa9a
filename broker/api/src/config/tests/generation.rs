//! The generation of an object changes with its spec, and with nothing else.

use super::{GOOD, access, edited, read, target};

#[test]
fn a_generation_is_the_spec_without_its_layout() {
    let before = read(GOOD).unwrap().policy;
    let reformatted = GOOD
        .replace(
            "  tokenLifetime:\n    default: 30m\n    max: 2h\n",
            "  # how long\n  tokenLifetime: {\"max\": '2h', default: \"30m\"} # so\n",
        )
        .replace("  labels: {team: platform}\n", "")
        .replace(
            "  certSecretRef:\n    name: staging-ca\n  audience: staging\n",
            "  audience: staging\n\n  certSecretRef:\n        name: staging-ca\n",
        )
        .replace("  callers: [notifier]\n", "  callers:\n  - notifier\n");
    assert_ne!(reformatted, GOOD);
    let after = read(&reformatted).unwrap().policy;
    for name in ["prod", "staging"] {
        assert_eq!(
            target(&before, name).generation,
            target(&after, name).generation,
            "{name}"
        );
    }
    for name in ["tenant-a/prod", "tenant-a/staging"] {
        assert_eq!(
            access(&before, name).generation,
            access(&after, name).generation,
            "{name}"
        );
    }
    assert_ne!(
        target(&before, "prod").generation,
        target(&before, "staging").generation
    );
}

#[test]
fn a_generation_changes_with_every_field() {
    let before = read(GOOD).unwrap().policy;
    for (from, to) in [
        ("staging.example.com/k8s", "staging2.example.com/k8s"),
        (
            "tlsServerName: kubernetes.default.svc",
            "tlsServerName: kubernetes.default",
        ),
        ("proxyURL: socks5", "proxyURL: http"),
        ("  proxyURL: socks5://proxy.example.com:1080\n", ""),
        ("name: staging-ca", "name: staging-ca2"),
        ("audience: staging", "audience: staging2"),
        ("  issuer: Hub\n", ""),
        ("issuer.staging.example.com", "issuer.staging.example.org"),
        ("default: 30m", "default: 31m"),
        ("max: 2h", "max: 3h"),
        ("  suspend: true\n  allow:", "  suspend: false\n  allow:"),
        (
            "access.keyferry.dev/staging: allowed",
            "access.keyferry.dev/staging: denied",
        ),
        ("operator: NotIn", "operator: In"),
        ("values: [tenant-z]", "values: [tenant-y]"),
        (
            "serviceAccounts: [reconciler]\n      deliveries",
            "serviceAccounts: [reconciler2]\n      deliveries",
        ),
        ("[HTTP, ArgoCDSecret]", "[HTTP]"),
    ] {
        let after = read(&edited(from, to)).unwrap().policy;
        assert_ne!(
            target(&before, "staging").generation,
            target(&after, "staging").generation,
            "{from}"
        );
        assert_eq!(
            target(&before, "prod").generation,
            target(&after, "prod").generation,
            "{from}"
        );
        assert_eq!(
            access(&before, "tenant-a/staging").generation,
            access(&after, "tenant-a/staging").generation,
            "{from}"
        );
    }
    for (from, to) in [
        (
            "    name: staging\n  serviceAccountName",
            "    name: prod\n  serviceAccountName",
        ),
        (
            "serviceAccountName: reconciler\n  callers",
            "serviceAccountName: other\n  callers",
        ),
        ("callers: [notifier]", "callers: [other]"),
        ("name: on-request", "name: asked"),
        ("type: HTTP", "type: Exec"),
        ("deletionPolicy: Drain", "deletionPolicy: Immediate"),
        ("probe: Report", "probe: Off"),
        (
            "probe: Report\n  suspend: true",
            "probe: Report\n  suspend: false",
        ),
    ] {
        let from_text = from.replace("probe: Off", "probe: \"Off\"");
        let after = read(&edited(
            &from_text,
            &to.replace("probe: Off", "probe: \"Off\""),
        ))
        .unwrap()
        .policy;
        assert_ne!(
            access(&before, "tenant-a/staging").generation,
            access(&after, "tenant-a/staging").generation,
            "{from}"
        );
        assert_eq!(
            access(&before, "tenant-a/prod").generation,
            access(&after, "tenant-a/prod").generation,
            "{from}"
        );
    }
}
