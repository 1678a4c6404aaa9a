#![allow(clippy::unwrap_used)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::name::ObjectName;
use proptest::prelude::*;

use super::{ClaimedCluster, OtherCluster, PublicCluster};

fn pem(bytes: &[u8]) -> String {
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        STANDARD.encode(bytes)
    )
}

fn target() -> PublicCluster {
    PublicCluster {
        name: ObjectName::new("prod").unwrap(),
        server: "https://prod.example.com:6443/k8s".to_owned(),
        certificate_authority_data: Some(STANDARD.encode(pem(b"old") + &pem(b"new"))),
        tls_server_name: Some("kubernetes".to_owned()),
        proxy_url: Some("http://proxy.example.com:3128".to_owned()),
    }
}

fn claimed() -> ClaimedCluster {
    ClaimedCluster {
        server: "https://prod.example.com:6443/k8s".to_owned(),
        tls_server_name: "kubernetes".to_owned(),
        insecure_skip_tls_verify: false,
        certificate_authority_data: STANDARD.encode(pem(b"old") + &pem(b"new")),
        proxy_url: "http://proxy.example.com:3128".to_owned(),
    }
}

#[test]
fn the_target_itself_is_let_through() {
    assert_eq!(target().is_what(&claimed()), Ok(()));
    assert_eq!(
        target().is_what(&ClaimedCluster {
            server: "https://prod.example.com:6443/k8s/".to_owned(),
            ..claimed()
        }),
        Ok(())
    );
    let fewer = ClaimedCluster {
        certificate_authority_data: STANDARD.encode(pem(b"new").replace('\n', "\r\n")),
        ..claimed()
    };
    assert_eq!(
        target().is_what(&fewer),
        Ok(()),
        "one CA of two is less trust, not more"
    );
    let plain = PublicCluster {
        certificate_authority_data: None,
        tls_server_name: None,
        proxy_url: None,
        ..target()
    };
    assert_eq!(
        plain.is_what(&ClaimedCluster {
            server: plain.server.clone(),
            ..ClaimedCluster::default()
        }),
        Ok(())
    );
}

#[test]
fn whatever_else_could_get_the_token_is_refused() {
    let is = |change: &dyn Fn(&mut ClaimedCluster)| {
        let mut other = claimed();
        change(&mut other);
        target().is_what(&other).unwrap_err()
    };
    for server in [
        "",
        "https://evil.example",
        "https://prod.example.com:6443",
        "https://prod.example.com:6443/k8s//",
        "HTTPS://prod.example.com:6443/k8s",
    ] {
        assert_eq!(
            is(&|it| it.server = server.to_owned()),
            OtherCluster::Server,
            "{server}"
        );
    }
    assert_eq!(
        is(&|it| it.tls_server_name = String::new()),
        OtherCluster::TlsServerName
    );
    assert_eq!(
        is(&|it| it.tls_server_name = "evil".to_owned()),
        OtherCluster::TlsServerName
    );
    assert_eq!(is(&|it| it.proxy_url = String::new()), OtherCluster::Proxy);
    assert_eq!(
        is(&|it| it.proxy_url = "http://evil.example:3128".to_owned()),
        OtherCluster::Proxy
    );
    assert_eq!(
        is(&|it| it.insecure_skip_tls_verify = true),
        OtherCluster::Insecure
    );
    assert_eq!(
        is(&|it| it.certificate_authority_data = String::new()),
        OtherCluster::AuthorityMissing
    );
    let with = |text: String| STANDARD.encode(text);
    assert_eq!(
        is(&|it| it.certificate_authority_data = with(pem(b"evil"))),
        OtherCluster::AuthorityOther
    );
    assert_eq!(
        is(&|it| it.certificate_authority_data = with(pem(b"old") + &pem(b"evil"))),
        OtherCluster::AuthorityOther
    );
    let system = PublicCluster {
        certificate_authority_data: None,
        ..target()
    };
    assert_eq!(
        system.is_what(&claimed()).unwrap_err(),
        OtherCluster::AuthorityOther
    );
}

#[test]
fn a_bundle_that_readers_could_read_differently_is_refused() {
    let (good, evil) = (pem(b"old"), pem(b"evil"));
    for text in [
        format!("comment\n{good}"),
        format!(
            "{good}{}",
            evil.replace("BEGIN CERTIFICATE", "BEGIN TRUSTED CERTIFICATE")
        ),
        format!("{good}{}", evil.replace('\n', " \n")),
        format!("{good}{}", evil.replace("-----BEGIN", " -----BEGIN")),
        good.replace("-----END CERTIFICATE-----\n", ""),
        format!("-----BEGIN CERTIFICATE-----\n{good}"),
        good.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nX: y\n\n"),
        good.replace("CERTIFICATE", "X509 CERTIFICATE"),
    ] {
        let other = ClaimedCluster {
            certificate_authority_data: STANDARD.encode(&text),
            ..claimed()
        };
        assert_eq!(
            target().is_what(&other).unwrap_err(),
            OtherCluster::AuthorityForm,
            "{text}"
        );
    }
    for data in ["%", "AAAA", "LS0t"] {
        let other = ClaimedCluster {
            certificate_authority_data: data.to_owned(),
            ..claimed()
        };
        assert_eq!(
            target().is_what(&other).unwrap_err(),
            OtherCluster::AuthorityForm,
            "{data}"
        );
    }
}

#[test]
fn what_a_server_sends_follows_the_rules_of_a_target() {
    assert_eq!(target().check_received(), Ok(target()));
    let wrong: [(&str, PublicCluster); 5] = [
        (
            "server",
            PublicCluster {
                server: "http://prod.example.com".to_owned(),
                ..target()
            },
        ),
        (
            "server",
            PublicCluster {
                server: "https://u:p@prod.example.com".to_owned(),
                ..target()
            },
        ),
        (
            "tls-server-name",
            PublicCluster {
                tls_server_name: Some("*".to_owned()),
                ..target()
            },
        ),
        (
            "proxy-url",
            PublicCluster {
                proxy_url: Some("http://u:p@proxy:1".to_owned()),
                ..target()
            },
        ),
        (
            "certificate-authority-data",
            PublicCluster {
                certificate_authority_data: Some("AAAA".to_owned()),
                ..target()
            },
        ),
    ];
    for (member, cluster) in wrong {
        assert_eq!(cluster.check_received().unwrap_err().0, member);
    }
    let json = serde_json::to_string(&target()).unwrap();
    assert_eq!(
        serde_json::from_str::<PublicCluster>(&json).unwrap(),
        target()
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(data in ".{0,200}", server in ".{0,60}") {
        let other = ClaimedCluster { certificate_authority_data: data, server, ..claimed() };
        prop_assert!(target().is_what(&other).is_err());
    }
}
