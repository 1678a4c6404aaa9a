#![allow(clippy::unwrap_used)]

use super::*;

fn hub() -> HubNetworks {
    HubNetworks {
        services: vec![
            "10.96.0.0/16".parse().unwrap(),
            "fd10::/112".parse().unwrap(),
        ],
        apiservers: vec!["192.168.7.10".parse().unwrap()],
    }
}

fn rules(allowed: &[&str], refused: &[&str]) -> AddressRules {
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    AddressRules {
        allowed: networks(allowed),
        refused: networks(refused),
    }
}

fn behind_proxy(rules: &AddressRules, host: &str) -> Option<RefusedAddress> {
    let refused = rules.check_behind_proxy(host, &hub()).err()?;
    Some(refused.kind)
}

/// Addresses in every form that leads somewhere else than to a target.
const REFUSED: [(&str, RefusedAddress); 65] = {
    use RefusedAddress::{
        HubApiserver, HubNetwork, LinkLocal, Loopback, Metadata, NoHost, Unspecified,
    };
    [
        ("127.0.0.1", Loopback),
        ("127.0.0.2", Loopback),
        ("127.255.255.254", Loopback),
        ("::1", Loopback),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:7f00:1", Loopback),
        ("::127.0.0.1", Loopback),
        ("::ffff:0:127.0.0.1", Loopback),
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b:1::127.0.0.1", Loopback),
        ("64:ff9b:1:ffff::127.0.0.1", Loopback),
        ("2002:7f00:1::", Loopback),
        ("2002:7f00:1::1", Loopback),
        ("2001:0:1:2:3:4:80ff:fffe", Loopback),
        ("2001:db8::5efe:127.0.0.1", Loopback),
        ("2001:db8::200:5efe:127.0.0.1", Loopback),
        ("0.0.0.0", Unspecified),
        ("0.0.0.1", Unspecified),
        ("0.255.255.255", Unspecified),
        ("::", Unspecified),
        ("::2", Unspecified),
        ("::0.1.0.0", Unspecified),
        ("::ffff:0.0.0.0", Unspecified),
        ("64:ff9b::", Unspecified),
        ("169.254.169.254", LinkLocal),
        ("169.254.170.2", LinkLocal),
        ("169.254.0.1", LinkLocal),
        ("169.254.255.255", LinkLocal),
        ("::ffff:169.254.169.254", LinkLocal),
        ("::ffff:a9fe:a9fe", LinkLocal),
        ("::169.254.169.254", LinkLocal),
        ("64:ff9b::a9fe:a9fe", LinkLocal),
        ("64:ff9b:1::a9fe:a9fe", LinkLocal),
        ("2002:a9fe:a9fe::1", LinkLocal),
        ("2001:0:1:2:3:4:5601:5601", LinkLocal),
        ("2001:db8::5efe:a9fe:a9fe", LinkLocal),
        ("fe80::1", LinkLocal),
        ("fe80::a9fe:a9fe", LinkLocal),
        ("febf::1", LinkLocal),
        ("168.63.129.16", Metadata),
        ("::ffff:168.63.129.16", Metadata),
        ("2002:a83f:8110::1", Metadata),
        ("2001:0:1:2:3:4:57c0:7eef", Metadata),
        ("100.100.100.200", Metadata),
        ("64:ff9b::100.100.100.200", Metadata),
        ("192.0.0.192", Metadata),
        ("fd00:ec2::254", Metadata),
        ("fd00:ec2::23", Metadata),
        ("fd20:ce::254", Metadata),
        ("224.0.0.1", NoHost),
        ("239.255.255.255", NoHost),
        ("240.0.0.1", NoHost),
        ("255.255.255.255", NoHost),
        ("::ffff:224.0.0.1", NoHost),
        ("ff02::1", NoHost),
        ("ff0e::1", NoHost),
        ("10.96.0.1", HubNetwork),
        ("10.96.255.255", HubNetwork),
        ("::ffff:10.96.0.1", HubNetwork),
        ("64:ff9b::10.96.0.1", HubNetwork),
        ("fd10::1", HubNetwork),
        ("10.244.3.4", HubNetwork),
        ("::ffff:10.244.3.4", HubNetwork),
        ("192.168.7.10", HubApiserver),
        ("::ffff:192.168.7.10", HubApiserver),
    ]
};

#[test]
fn what_is_no_target_is_refused_in_every_form() {
    let rules = rules(&[], &["10.244.0.0/16"]);
    for (address, kind) in REFUSED {
        let parsed = address.parse().unwrap();
        assert_eq!(rules.refusal_of(parsed, &hub()), Some(kind), "{address}");
        assert_eq!(
            behind_proxy(&rules, address),
            Some(kind),
            "{address} behind a proxy"
        );
    }
}

#[test]
fn targets_in_private_and_public_networks_are_not() {
    for address in [
        "10.0.0.1",
        "10.95.255.255",
        "10.97.0.0",
        "172.16.0.1",
        "192.168.7.11",
        "100.64.0.1",
        "1.1.1.1",
        "128.0.0.1",
        "126.255.255.255",
        "223.255.255.255",
        "169.253.255.255",
        "169.255.0.0",
        "2606:4700::1111",
        "fd00::1",
        "fc00::a9fe:a9fe",
        "fec0::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "64:ff9b::8.8.8.8",
    ] {
        let found = rules(&[], &[]).refusal_of(address.parse().unwrap(), &hub());
        assert_eq!(found, None, "{address}");
    }
}

#[test]
fn what_the_admin_allows_is_allowed_in_every_form_and_nothing_else_is() {
    let rules = rules(&["127.0.0.0/8", "10.96.3.0/24"], &["10.96.3.7/32"]);
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "10.96.3.4", "10.96.3.7"] {
        let found = rules.refusal_of(address.parse().unwrap(), &hub());
        assert_eq!(found, None, "{address}");
    }
    for address in ["::1", "10.96.4.4", "169.254.169.254"] {
        let found = rules.refusal_of(address.parse().unwrap(), &hub());
        assert!(found.is_some(), "{address}");
    }
}

#[test]
fn a_name_behind_a_proxy_is_refused_only_if_it_is_the_proxys_host() {
    let none = rules(&[], &[]);
    for host in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "[::1]",
        "127.0.0.1.",
    ] {
        let found = behind_proxy(&none, host);
        assert_eq!(found, Some(RefusedAddress::Loopback), "{host}");
    }
    for host in ["prod.example.com", "localhost.example.com", "notlocalhost"] {
        assert_eq!(behind_proxy(&none, host), None, "{host}");
    }
    let allowed = rules(&["127.0.0.0/8"], &[]);
    assert_eq!(behind_proxy(&allowed, "localhost"), None);
}

#[test]
fn a_refusal_names_the_network_that_would_allow_it_and_no_network_of_clouds() {
    let rules = rules(&[], &["10.244.0.0/16"]);
    for (address, network) in [
        ("127.0.0.1", Some("127.0.0.0/8")),
        ("127.9.9.9", Some("127.0.0.0/8")),
        ("::ffff:127.0.0.1", Some("127.0.0.0/8")),
        ("::1", Some("::1/128")),
        ("10.96.0.1", Some("10.96.0.1/32")),
        ("64:ff9b::10.96.0.1", Some("10.96.0.1/32")),
        ("10.244.3.4", Some("10.244.3.4/32")),
        ("192.168.7.10", Some("192.168.7.10/32")),
        ("fd10::1", Some("fd10::1/128")),
        ("169.254.169.254", None),
        ("168.63.129.16", None),
        ("0.0.0.0", None),
        ("224.0.0.1", None),
    ] {
        let refused = rules
            .check_addresses([address.parse().unwrap()], &hub())
            .unwrap_err();
        let network = network.map(|text| text.parse::<IpNet>().unwrap());
        assert_eq!(refused.network(), network, "{address}");
        assert_eq!(
            refused.to_string().contains("--allow-target-cidr"),
            network.is_some(),
            "{refused}"
        );
        // What the message suggests must really allow the address.
        if let Some(network) = network {
            let allowing = AddressRules {
                allowed: Arc::from([network]),
                ..rules.clone()
            };
            assert_eq!(allowing.check_addresses([refused.address], &hub()), Ok(()));
        }
    }
    let said = |address: &str| {
        let refused = rules.check_addresses([address.parse().unwrap()], &hub());
        refused.unwrap_err().to_string()
    };
    assert_eq!(
        said("::1"),
        "::1, a loopback address, so nothing was sent; if it is right, --allow-target-cidr ::1/128 \
         allows it"
    );
    assert_eq!(
        said("169.254.169.254"),
        "169.254.169.254, a link-local address, so nothing was sent"
    );
}
