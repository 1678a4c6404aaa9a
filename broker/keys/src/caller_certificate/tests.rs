#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::service_account::Uid;
use rustls_pki_types::CertificateDer;

use super::{
    AuthorityKeys, CallerAuthority, CallerCertificateError, CallerCertificateRule,
    CallerCertificateRules, CertifiedCaller, ChainTooLarge, PresentedChain,
};
use crate::testing::client_certificates::{Authorities, Outcome, TestAuthority, URI, table, valid};

fn now() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().unwrap()
}

fn identify(
    rules: &[CallerCertificateRule],
    chain: &PresentedChain,
    now: Timestamp,
) -> Result<CertifiedCaller, CallerCertificateError> {
    CallerCertificateRules::new(rules.to_vec()).identify_caller(chain, now)
}

fn second(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

#[test]
fn every_certificate_of_the_table_gets_its_outcome() {
    let authorities = Authorities::new(now());
    let rules = authorities.rules();
    let cases = table(&authorities, now());
    assert!(cases.len() >= 90, "{} cases", cases.len());
    for case in cases {
        let outcome = PresentedChain::new(&case.certificate.chain)
            .map(|chain| identify(&rules, &chain, now()));
        match (case.outcome, outcome) {
            (Outcome::Accepted, Ok(Ok(caller))) => {
                assert_eq!(
                    caller.identity().account.to_string(),
                    "tenant-a/reconciler",
                    "{}",
                    case.name
                );
                assert_eq!(caller.certificate().uri, URI, "{}", case.name);
                assert_eq!(caller.certificate().authority.len(), 64, "{}", case.name);
            }
            (Outcome::Refused(wanted) | Outcome::RefusedWithoutTls(wanted), Ok(Err(found))) => {
                assert_eq!(found, wanted, "{}", case.name)
            }
            // TLS refuses these; the verifier does not depend on it, except for the proof of the
            // key.
            (Outcome::NoHandshake, Err(ChainTooLarge)) => {}
            (Outcome::NoHandshake, Ok(Err(_))) => {}
            (Outcome::NoHandshake, Ok(Ok(_))) if case.name == "the key of another certificate" => {}
            (wanted, found) => panic!("{}: wanted {wanted:?}, found {found:?}", case.name),
        }
    }
}

#[test]
fn validity_counts_to_the_second() {
    let authorities = Authorities::new(now());
    let rules = authorities.rules();
    let certificate = authorities.first.issue(URI, |params| {
        valid(params, now(), -60, 60);
    });
    let chain = PresentedChain::new(&certificate.chain).unwrap();
    let at = |time| identify(&rules, &chain, time).map(|_| ());
    use CallerCertificateError as E;
    assert_eq!(at(now() - second(61)), Err(E::NotYetValid));
    assert_eq!(at(now() - second(60)), Ok(()));
    assert_eq!(at(now() + second(60)), Ok(()));
    assert_eq!(
        at(now() + SignedDuration::from_millis(60_999)),
        Ok(()),
        "notAfter includes its second"
    );
    assert_eq!(at(now() + second(61)), Err(E::Expired));
}

#[test]
fn an_expired_authority_accepts_nothing() {
    let mut authorities = Authorities::new(now());
    authorities.first = TestAuthority::new("callers", now(), |params| {
        valid(params, now(), -60, 60);
    });
    let rules = authorities.rules();
    let certificate = authorities.first.issue(URI, |_| {});
    let chain = PresentedChain::new(&certificate.chain).unwrap();
    assert!(identify(&rules, &chain, now() + second(60)).is_ok());
    assert_eq!(
        identify(&rules, &chain, now() + second(61)).unwrap_err(),
        CallerCertificateError::OtherAuthority
    );
}

#[test]
fn a_rule_without_its_authority_accepts_nothing() {
    let authorities = Authorities::new(now());
    let mut rules = authorities.rules();
    rules[0].authority = None;
    let chain = PresentedChain::new(&authorities.first.issue(URI, |_| {}).chain).unwrap();
    assert_eq!(
        identify(&rules, &chain, now()).unwrap_err(),
        CallerCertificateError::OtherAuthority
    );
    assert!(identify(&[], &chain, now()).is_err());
}

/// Two rules may name one URI, as while callers move to another CA. They must mean one account.
#[test]
fn rules_that_disagree_accept_nothing() {
    let authorities = Authorities::new(now());
    let mut rules = authorities.rules();
    let mut twin = rules[0].clone();
    rules.push(twin.clone());
    let chain = PresentedChain::new(&authorities.first.issue(URI, |_| {}).chain).unwrap();
    assert!(identify(&rules, &chain, now()).is_ok());
    twin.identity.uid = Uid::new("another").unwrap();
    rules.push(twin.clone());
    assert_eq!(
        identify(&rules, &chain, now()).unwrap_err(),
        CallerCertificateError::SeveralAccounts
    );
    twin.authority = Some(Arc::new(authorities.second.as_configured()));
    rules.pop();
    rules.push(twin);
    let caller = identify(&rules, &chain, now()).unwrap();
    assert_eq!(caller.identity().uid.as_str(), "uid-reconciler");
    let moved = PresentedChain::new(&authorities.second.issue(URI, |_| {}).chain).unwrap();
    let caller = identify(&rules, &moved, now()).unwrap();
    assert_eq!(caller.identity().uid.as_str(), "another");
}

/// A rule is found whatever stands beside it, and stands for an identity of any type.
#[test]
fn each_uri_finds_its_own_rule_among_many() {
    let authorities = Authorities::new(now());
    let authority = Some(Arc::new(authorities.first.as_configured()));
    let uri = |number: usize| format!("spiffe://example.com/cluster/{number}");
    let rules = (0..500).rev().map(|number| CallerCertificateRule {
        uri: uri(number),
        identity: number,
        authority: authority.clone(),
        refused_keys: None,
    });
    let rules = CallerCertificateRules::new(rules.collect());
    for number in [0, 1, 9, 10, 250, 499] {
        let certificate = authorities.first.issue(&uri(number), |_| {});
        let chain = PresentedChain::new(&certificate.chain).unwrap();
        let caller = rules.identify_caller(&chain, now()).unwrap();
        assert_eq!(*caller.identity(), number);
    }
    for other in ["a:b", "spiffe://example.com/cluster/500", "z:z"] {
        let chain = PresentedChain::new(&authorities.first.issue(other, |_| {}).chain).unwrap();
        let refused = rules.identify_caller(&chain, now()).unwrap_err();
        assert_eq!(refused, CallerCertificateError::OtherUri, "{other}");
    }
}

#[test]
fn both_authorities_of_a_bundle_count_during_a_rotation() {
    let authorities = Authorities::new(now());
    let next = TestAuthority::new("next callers", now(), |_| {});
    let pem = format!("{}{}", authorities.first.pem(), next.pem());
    let mut rules = authorities.rules();
    rules[0].authority = Some(Arc::new(
        CallerAuthority::from_pem(pem.as_bytes(), now()).unwrap(),
    ));
    let of = |authority: &TestAuthority| {
        let chain = PresentedChain::new(&authority.issue(URI, |_| {}).chain).unwrap();
        identify(&rules, &chain, now()).map(|caller| caller.certificate().authority.clone())
    };
    let (old, new) = (of(&authorities.first).unwrap(), of(&next).unwrap());
    assert_ne!(old, new);
    assert!(of(&authorities.second).is_err());
}

/// The CA of callers signed the other CA's key: all that the other one signs leads to it.
#[test]
fn a_chain_over_a_refused_ca_is_refused() {
    let authorities = Authorities::new(now());
    let mut rules = authorities.rules();
    let hub = TestAuthority::new("hub clients", now(), |_| {});
    let crossed = hub.cross_signed_by(&authorities.first, "hub clients");
    let lower = crossed.intermediate("below the hub's", |_| {});
    let other = authorities.first.intermediate("other", |_| {});
    let of = |rules: &[_], authority: &TestAuthority| {
        let chain = PresentedChain::new(&authority.issue(URI, |_| {}).chain).unwrap();
        identify(rules, &chain, now()).map(|_| ())
    };
    for authority in [&crossed, &lower, &other, &authorities.first] {
        assert_eq!(of(&rules, authority), Ok(()));
    }
    let keys = AuthorityKeys::from_pem(hub.pem().as_bytes()).unwrap();
    rules[0].refused_keys = Some(Arc::new(keys));
    for authority in [&crossed, &lower] {
        assert_eq!(
            of(&rules, authority),
            Err(CallerCertificateError::OtherAuthority)
        );
    }
    for authority in [&other, &authorities.first] {
        assert_eq!(of(&rules, authority), Ok(()));
    }
    let keys = AuthorityKeys::from_pem(authorities.first.pem().as_bytes()).unwrap();
    rules[0].refused_keys = Some(Arc::new(keys));
    assert!(of(&rules, &authorities.first).is_err());
}

#[test]
fn a_ca_that_was_issued_again_with_its_key_is_the_same() {
    let authority = TestAuthority::new("callers", now(), |_| {});
    let keys = AuthorityKeys::from_pem(authority.pem().as_bytes()).unwrap();
    assert!(authority.as_configured().has_any_key_of(&keys));
    let other = TestAuthority::new("callers", now(), |_| {});
    assert!(!other.as_configured().has_any_key_of(&keys));
    let both = format!("{}\n{}", other.pem(), authority.pem());
    let keys = AuthorityKeys::from_pem(both.as_bytes()).unwrap();
    assert!(authority.as_configured().has_any_key_of(&keys));
    assert_eq!(
        AuthorityKeys::from_pem(b""),
        Some(AuthorityKeys::default()),
        "a hub may have no client CA"
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(AuthorityKeys::from_pem(broken.as_bytes()), None);
}

#[test]
fn what_cannot_be_a_callers_ca_is_refused_with_a_fix() {
    let good = TestAuthority::new("callers", now(), |_| {});
    let leaf = good.issue(URI, |_| {});
    let nine: String = (0..9)
        .map(|_| {
            TestAuthority::new("callers", now(), |_| {})
                .pem()
                .to_owned()
        })
        .collect();
    let (leaf_pem, _) = {
        let text = leaf.to_pem();
        let end = text.find("-----BEGIN PRIVATE").unwrap();
        (text[..end].to_owned(), ())
    };
    for (pem, wanted) in [
        (String::new(), "is empty"),
        ("text".to_owned(), "is not PEM"),
        (leaf_pem, "is no CA"),
        (nine, "holds 9 certificates"),
    ] {
        let error = CallerAuthority::from_pem(pem.as_bytes(), now()).unwrap_err();
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
        assert!(!error.fix().is_empty());
    }
    let later = now() + second(86_400 * 4000);
    let error = CallerAuthority::from_pem(good.pem().as_bytes(), later).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn a_chain_is_small() {
    let der = |bytes: usize| CertificateDer::from(vec![0; bytes]);
    assert_eq!(PresentedChain::new(&[]), Err(ChainTooLarge));
    assert!(PresentedChain::new(&[der(1), der(1), der(1), der(1)]).is_ok());
    assert!(PresentedChain::new(&vec![der(1); 5]).is_err());
    assert!(PresentedChain::new(&[der(8192)]).is_ok());
    assert!(PresentedChain::new(&[der(8192), der(1)]).is_err());
}
