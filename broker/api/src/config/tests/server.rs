//! What a ServerConfiguration reads to, and how it affects the targets.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{GOOD, mistakes_of, read, read_with, target};
use crate::config::{
    ConfigError, HubEndpoint, ListenerOverrides, ManagedIssuers, MetricsAuthentication, Overrides,
    TlsFiles, TlsSource, TlsVersion, TokenIssuer,
};
use crate::name::{Namespace, ObjectName};

#[test]
fn the_server_has_its_defaults() {
    let server = read(GOOD).unwrap().server;
    assert_eq!(server.hub_name, "hub");
    assert_eq!(
        server.public_url.to_string(),
        "https://keyferry.example.com"
    );
    assert_eq!(server.caller_audience.as_str(), "keyferry.dev");
    assert_eq!(
        server.cluster_resource_namespace.as_str(),
        "keyferry-system"
    );
    assert_eq!(server.canary_service_account.as_str(), "keyferry-canary");
    assert_eq!(server.hub_issuer, None);
    assert_eq!(server.discovery.address.to_string(), "0.0.0.0:8443");
    assert_eq!(server.api.address.to_string(), "0.0.0.0:9443");
    assert_eq!(server.health_address.to_string(), "127.0.0.1:8080");
    let files = |name: &str| {
        TlsSource::Files(TlsFiles {
            certificate: format!("/tls/{name}.crt").into(),
            key: format!("/tls/{name}.key").into(),
        })
    };
    assert_eq!(server.discovery.tls, files("tls"));
    assert_eq!(server.api.tls, files("api"));
    assert_eq!(
        [server.discovery.min_version, server.api.min_version],
        [TlsVersion::V1_3; 2]
    );
    assert_eq!(server.discovery_http_address, None);
    assert_eq!(
        (server.max_age, server.max_stale_authorization),
        (Duration::from_secs(60), Duration::from_secs(300))
    );
    assert!(!server.require_pod_bound);
    assert_eq!(server.client_certificates, []);
    assert_eq!(server.audit_file, None);
    assert_eq!(
        server.managed_issuers,
        ManagedIssuers {
            enabled: false,
            rotate_every: Duration::from_secs(720 * 3600)
        }
    );
}

#[test]
fn the_server_takes_what_is_written() {
    let written = "hubName: hub\nmetadata: {name: keyferry}\ncallerAudience: keys\nclusterResourceNamespace: keys\ncanaryServiceAccount: bird\n\
        hub: {issuer: 'https://hub.example.com', endpoints: ['https://10.0.0.2:6443', 'https://[fd00::1]:6443/']}\nhealth: {address: '[::1]:1'}\nmaxStaleAuthorization: 0s\nrequirePodBound: yes\n\
        audit: {file: /audit.log, maxSize: 100}\n";
    let text = GOOD.replace("hubName: hub\n", written).replace(
        "discovery:\n",
        "discovery:\n  address: 10.0.0.1:1\n  maxAge: 2m\n",
    );
    let configuration = read(&text).unwrap();
    let server = configuration.server;
    assert_eq!(
        (
            server.caller_audience.as_str(),
            server.cluster_resource_namespace.as_str()
        ),
        ("keys", "keys")
    );
    assert_eq!(server.canary_service_account.as_str(), "bird");
    assert_eq!(
        server.hub_issuer.unwrap().as_str(),
        "https://hub.example.com"
    );
    let endpoints: Vec<&str> = server
        .hub_endpoints
        .iter()
        .map(HubEndpoint::as_str)
        .collect();
    assert_eq!(
        endpoints,
        ["https://10.0.0.2:6443", "https://[fd00::1]:6443"]
    );
    assert_eq!(server.discovery.address.to_string(), "10.0.0.1:1");
    assert_eq!(server.health_address.to_string(), "[::1]:1");
    assert_eq!(
        (server.max_age, server.max_stale_authorization),
        (Duration::from_secs(120), Duration::ZERO)
    );
    assert!(server.require_pod_bound);
    let audit_file = server.audit_file.unwrap();
    assert_eq!(audit_file.path.to_str(), Some("/audit.log"));
    let rotation = audit_file.rotation.unwrap();
    assert_eq!(
        (rotation.max_size, rotation.max_backups.get()),
        (100 * 1024 * 1024, 8)
    );
    assert_eq!(
        configuration.policy.own_namespace,
        Some(Namespace::new("keys").unwrap())
    );
}

/// Without a listener's section.
fn without_listeners() -> String {
    GOOD.replace(
        "discovery:\n  tls:\n    certFile: /tls/tls.crt\n    keyFile: /tls/tls.key\n",
        "",
    )
    .replace(
        "api:\n  tls:\n    certFile: /tls/api.crt\n    keyFile: /tls/api.key\n",
        "",
    )
}

fn secret(name: &str) -> ObjectName {
    ObjectName::new(name).unwrap()
}

#[test]
fn a_listeners_certificate_can_be_in_a_secret() {
    let written = "discovery:\n  httpAddress: ':8081'\n  tls: {secretName: documents, minVersion: '1.2'}\n\
        api:\n  tls: {secretName: tokens, minVersion: '1.3'}\n";
    let text = without_listeners().replace("hubName: hub\n", &format!("hubName: hub\n{written}"));
    let server = read(&text).unwrap().server;
    assert_eq!(server.discovery.tls, TlsSource::Secret(secret("documents")));
    assert_eq!(server.discovery.min_version, TlsVersion::V1_2);
    assert_eq!(
        server.discovery_http_address,
        Some("0.0.0.0:8081".parse().unwrap())
    );
    assert_eq!(server.api.tls, TlsSource::Secret(secret("tokens")));
    assert_eq!(server.api.min_version, TlsVersion::V1_3);
}

#[test]
fn metrics_have_a_listener_of_their_own_if_it_has_an_address() {
    assert_eq!(read(GOOD).unwrap().server.metrics, None);
    let read_lines = |lines: &str| {
        let text = GOOD.replace("hubName: hub\n", &format!("hubName: hub\n{lines}"));
        read(&text).unwrap().server.metrics
    };
    let written = "metrics:\n  address: ':8444'\n  tls: {secretName: metrics-tls}\n";
    let metrics = read_lines(written).unwrap();
    assert_eq!(metrics.listener.address.to_string(), "0.0.0.0:8444");
    assert_eq!(
        metrics.listener.tls,
        TlsSource::Secret(secret("metrics-tls"))
    );
    assert_eq!(
        metrics.listener.connections_per_address,
        NonZeroU32::new(32)
    );
    assert_eq!(metrics.authentication, MetricsAuthentication::TokenReview);
    let open = read_lines(&format!("{written}  authentication: None\n")).unwrap();
    assert_eq!(open.authentication, MetricsAuthentication::None);

    let overrides = Overrides {
        listeners: ListenerOverrides {
            tls_secret: Some(secret("shared")),
            metrics_address: Some("10.0.0.1:5".parse().unwrap()),
            ..ListenerOverrides::default()
        },
        ..Overrides::default()
    };
    let given = read_with(GOOD, overrides).unwrap().server.metrics.unwrap();
    assert_eq!(given.listener.address.to_string(), "10.0.0.1:5");
    assert_eq!(given.listener.tls, TlsSource::Secret(secret("shared")));
}

#[test]
fn flags_go_before_the_files_listeners() {
    let read_given = |text: &str, listeners: &ListenerOverrides| {
        let overrides = Overrides {
            listeners: listeners.clone(),
            ..Overrides::default()
        };
        read_with(text, overrides).map(|configuration| configuration.server)
    };
    let all = ListenerOverrides {
        tls_secret: Some(secret("shared")),
        api_tls_secret: Some(secret("tokens")),
        api_address: Some("10.0.0.1:1".parse().unwrap()),
        discovery_address: Some("10.0.0.1:2".parse().unwrap()),
        discovery_http_address: Some("10.0.0.1:3".parse().unwrap()),
        health_address: Some("10.0.0.1:4".parse().unwrap()),
        ..ListenerOverrides::default()
    };
    for text in [GOOD, &without_listeners()] {
        let server = read_given(text, &all).unwrap();
        assert_eq!(server.api.tls, TlsSource::Secret(secret("tokens")));
        assert_eq!(server.discovery.tls, TlsSource::Secret(secret("shared")));
        let addresses = [
            server.api.address,
            server.discovery.address,
            server.discovery_http_address.unwrap(),
            server.health_address,
        ];
        assert_eq!(
            addresses.map(|address| address.to_string()),
            ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"]
        );
    }
    // A flag for one listener says nothing about the other.
    let one = ListenerOverrides {
        discovery_tls_secret: Some(secret("documents")),
        ..ListenerOverrides::default()
    };
    let ConfigError { mistakes } = read_given(&without_listeners(), &one).unwrap_err();
    let paths: Vec<&str> = mistakes
        .iter()
        .map(|mistake| mistake.path.as_str())
        .collect();
    assert_eq!(paths, ["api.tls"]);
    // A reader of the file does not know the server's flags.
    let server = read_with(&without_listeners(), Overrides::of_a_reader())
        .unwrap()
        .server;
    assert_eq!(
        [server.api.tls, server.discovery.tls],
        [TlsSource::Unset, TlsSource::Unset]
    );
}

#[test]
fn a_flag_goes_before_the_files_namespace() {
    let given = Namespace::new("elsewhere").unwrap();
    let overrides = Overrides {
        cluster_resource_namespace: Some(given.clone()),
        ..Overrides::default()
    };
    let configuration = read_with(GOOD, overrides).unwrap();
    assert_eq!(
        (
            &configuration.server.cluster_resource_namespace,
            &configuration.policy.own_namespace
        ),
        (&given, &Some(given.clone()))
    );
}

#[test]
fn managed_issuers_are_enabled_by_the_file_or_before_it() {
    let enabled = |setting: &str, overrides| {
        let text = GOOD
            .replace("hubName: hub\n", &format!("hubName: hub\n{setting}"))
            .replace("issuer: Hub", "issuer: Keyferry");
        read_with(
            &text,
            Overrides {
                enable_managed_issuers: overrides,
                ..Overrides::default()
            },
        )
    };
    let configuration =
        enabled("managedIssuers: {enabled: true, rotateEvery: 48h}\n", None).unwrap();
    assert_eq!(
        configuration.server.managed_issuers,
        ManagedIssuers {
            enabled: true,
            rotate_every: Duration::from_secs(48 * 3600)
        }
    );
    assert_eq!(
        target(&configuration.policy, "staging").issuer,
        TokenIssuer::Keyferry
    );
    assert_eq!(
        target(&configuration.policy, "prod").issuer,
        TokenIssuer::Hub
    );
    assert!(enabled("", Some(true)).is_ok());
    for (setting, overrides) in [
        ("", None),
        ("managedIssuers: {enabled: true}\n", Some(false)),
        ("managedIssuers: {}\n", None),
    ] {
        let ConfigError { mistakes } = enabled(setting, overrides).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{mistakes:?}")
        };
        assert_eq!(
            (mistake.object.as_str(), mistake.path.as_str()),
            ("TargetCluster/staging", "spec.issuer")
        );
    }
}

#[test]
fn an_managed_issuer_is_the_targets_and_nobody_elses() {
    let mistake = |from: &str, to: &str| {
        let text = GOOD
            .replace("issuer: Hub", "issuer: Keyferry")
            .replace(from, to);
        let ConfigError { mistakes } = read_with(&text, Overrides::of_a_reader()).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{mistakes:?}")
        };
        mistake.path.clone()
    };
    let own = "targetIssuer: https://keyferry.example.com/issuers/staging";
    assert_eq!(
        mistake("targetIssuer: https://issuer.staging.example.com", own),
        "spec.targetIssuer"
    );
    assert_eq!(
        mistake(
            "name: staging\n  labels",
            &format!("name: {}\n  labels", ["a"; 120].join("."))
        ),
        "metadata.name"
    );
    assert_eq!(
        mistake("audience: staging", "audience: keyferry.dev/inert"),
        "spec.audience"
    );
}

#[test]
fn a_long_max_age_needs_long_lifetimes() {
    let text = GOOD.replace("discovery:\n", "discovery:\n  maxAge: 1h\n");
    let mistakes = mistakes_of(&text);
    assert!(
        mistakes
            .iter()
            .all(|mistake| mistake.path == "spec.tokenLifetime.default" && mistake.line > 0),
        "{mistakes:?}"
    );
    let told: Vec<&str> = mistakes
        .iter()
        .map(|mistake| mistake.object.as_str())
        .collect();
    assert_eq!(told, ["TargetCluster/prod", "TargetCluster/staging"]);
    assert!(
        mistakes[0].problem.contains("1h1m") && mistakes[0].fix.contains("2h4m20s"),
        "{mistakes:?}"
    );
    let longer = text
        .replace("default: 30m", "default: 4h")
        .replace("max: 2h", "max: 12h");
    let longer = longer.replace(
        "  audience: https://prod.example.com\n",
        "  audience: https://prod.example.com\n  tokenLifetime: {default: 4h}\n",
    );
    assert!(read(&longer).is_ok(), "{:?}", read(&longer).err());
}
