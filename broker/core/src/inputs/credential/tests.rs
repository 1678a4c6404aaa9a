use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::config::{InputCredential, InputProof, InputScope};
use keyferry_api::name::{ClusterDns, Namespace, ObjectName};
use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::{
    CredentialBook, CredentialHashes, CredentialSecretError, InputCaller, InputPath, InputToken,
};
use crate::inputs::presented::PresentedCredential;

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn days(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

fn dns(text: &str) -> ClusterDns {
    ClusterDns::new(text).unwrap()
}

fn credential(name: &str, scope: InputScope) -> Arc<InputCredential> {
    let name = ObjectName::new(name).unwrap();
    Arc::new(InputCredential {
        proof: InputProof::Token(name.clone()),
        name,
        scope,
    })
}

fn hashes(entries: &[(&str, String)]) -> Result<CredentialHashes, CredentialSecretError> {
    let entries: BTreeMap<&str, String> = entries.iter().cloned().collect();
    let (hashes, fault) = CredentialHashes::read(|key| entries.get(key).cloned(), now())?;
    fault.map_or(Ok(hashes), Err)
}

fn token(byte: u8) -> InputToken {
    InputToken::of(&[byte; 32])
}

fn bearer(token: &InputToken) -> PresentedCredential {
    let header = format!("Bearer {}", token.secret().expose_secret());
    PresentedCredential::read([header.as_bytes()].into_iter()).unwrap()
}

fn basic(user: &str, token: &InputToken) -> PresentedCredential {
    let pair = format!("{user}:{}", token.secret().expose_secret());
    let header = format!("Basic {}", STANDARD.encode(pair));
    PresentedCredential::read([header.as_bytes()].into_iter()).unwrap()
}

fn of(byte: u8) -> CredentialHashes {
    hashes(&[("sha256", token(byte).sha256())]).unwrap()
}

/// Two clusters, a namespace and an admin, with tokens 1 to 4.
fn book() -> CredentialBook {
    let all = [
        (
            credential("a", InputScope::Cluster(dns("a.example.com"))),
            of(1),
        ),
        (
            credential("b", InputScope::Cluster(dns("b.example.com"))),
            of(2),
        ),
        (
            credential(
                "team",
                InputScope::Namespace(Namespace::new("tenant-a").unwrap()),
            ),
            of(3),
        ),
        (credential("admin", InputScope::Admin), of(4)),
    ];
    let (book, shared) = CredentialBook::new(&[9; 32], all);
    assert_eq!(shared, []);
    book
}

fn paths() -> [InputPath; 4] {
    let namespace = |name| InputPath::Namespace(Namespace::new(name).unwrap());
    [
        InputPath::Cluster(dns("a.example.com")),
        InputPath::Cluster(dns("b.example.com")),
        namespace("tenant-a"),
        namespace("tenant-b"),
    ]
}

fn readable(caller: &InputCaller) -> [bool; 4] {
    paths().map(|path| caller.may_read(&path))
}

#[test]
fn each_credential_reads_its_own_and_admin_reads_all() {
    let book = book();
    let wanted = [
        (1, "a", [true, false, false, false]),
        (2, "b", [false, true, false, false]),
        (3, "team", [false, false, true, false]),
        (4, "admin", [true, true, true, true]),
    ];
    for (byte, name, reads) in wanted {
        for presented in [bearer(&token(byte)), basic(name, &token(byte))] {
            let caller = book.verify(&presented, now()).unwrap();
            assert_eq!((caller.name().as_str(), readable(&caller)), (name, reads));
        }
        // The token of one credential under the name of another.
        for other in ["a", "b", "team", "admin", "", "A"]
            .iter()
            .filter(|other| **other != name)
        {
            assert!(
                book.verify(&basic(other, &token(byte)), now()).is_none(),
                "{other}"
            );
        }
    }
    assert!(book.verify(&bearer(&token(5)), now()).is_none());
}

#[test]
fn a_rotated_token_is_accepted_until_its_time_and_admin_and_read_rotate_apart() {
    let rotated = |new: u8, old: u8, until: Timestamp| {
        hashes(&[
            ("sha256", token(new).sha256()),
            ("sha256-previous", token(old).sha256()),
            ("previous-until", until.to_string()),
        ])
        .unwrap()
    };
    let read = credential("a", InputScope::Cluster(dns("a.example.com")));
    let admin = credential("admin", InputScope::Admin);
    let (book, _) = CredentialBook::new(
        &[9; 32],
        [
            (read, rotated(10, 1, days(1))),
            (admin, rotated(40, 4, days(7))),
        ],
    );
    let verified = |byte, at| {
        let caller = book.verify(&bearer(&token(byte)), at)?;
        Some(caller.name().to_string())
    };
    let name = |name: &str| Some(name.to_owned());
    for at in [now(), days(8)] {
        assert_eq!(
            (verified(10, at), verified(40, at)),
            (name("a"), name("admin"))
        );
    }
    assert_eq!(
        (verified(1, now()), verified(4, now())),
        (name("a"), name("admin"))
    );
    assert_eq!(
        (verified(1, days(1)), verified(4, days(1))),
        (None, name("admin"))
    );
    assert_eq!(verified(4, days(7)), None);
}

#[test]
fn a_token_of_two_credentials_is_accepted_for_neither() {
    let all = [
        (
            credential("a", InputScope::Cluster(dns("a.example.com"))),
            of(1),
        ),
        (credential("admin", InputScope::Admin), of(1)),
        (
            credential("b", InputScope::Cluster(dns("b.example.com"))),
            of(2),
        ),
    ];
    let (book, shared) = CredentialBook::new(&[9; 32], all);
    let shared: Vec<&str> = shared.iter().map(ObjectName::as_str).collect();
    assert_eq!(shared, ["a", "admin"]);
    assert!(book.verify(&bearer(&token(1)), now()).is_none());
    assert!(book.verify(&bearer(&token(2)), now()).is_some());
}

#[test]
fn a_secret_has_a_hash_and_a_previous_one_for_seven_days_at_most() {
    let (one, two) = (token(1).sha256(), token(2).sha256());
    assert!(hashes(&[("sha256", format!(" {}\n", one.to_uppercase()))]).is_ok());
    for wrong in [
        String::new(),
        "a".repeat(63),
        "g".repeat(64),
        "é".repeat(32),
        "+f".repeat(32),
    ] {
        assert_eq!(
            hashes(&[("sha256", wrong)]),
            Err(CredentialSecretError::Hash)
        );
    }
    assert_eq!(hashes(&[]), Err(CredentialSecretError::Hash));
    let with = |previous: &str, until: &str| {
        hashes(&[
            ("sha256", one.clone()),
            ("sha256-previous", previous.to_owned()),
            ("previous-until", until.to_owned()),
        ])
    };
    assert!(with(&two, &days(7).to_string()).is_ok());
    let late = (days(7) + SignedDuration::from_secs(1)).to_string();
    assert_eq!(with(&two, &late), Err(CredentialSecretError::TooLong));
    assert_eq!(
        with("x", &days(1).to_string()),
        Err(CredentialSecretError::Previous)
    );
    assert_eq!(with(&two, "tomorrow"), Err(CredentialSecretError::Previous));
    let alone = hashes(&[("sha256", one), ("sha256-previous", two)]);
    assert_eq!(alone, Err(CredentialSecretError::Previous));
}

#[test]
fn a_token_has_256_random_bits_and_no_other_form() {
    let made = token(7);
    let text = made.secret().expose_secret();
    assert!(InputToken::parse(text).is_some() && text.starts_with("keyferry-inputs-"));
    assert_eq!(made.sha256().len(), 64);
    for wrong in [
        "hunter2".to_owned(),
        text.replace("inputs", "input"),
        format!("{text}A"),
        text[..text.len() - 1].to_owned(),
        format!("{}é", &text[..text.len() - 2]),
    ] {
        assert!(InputToken::parse(&wrong).is_none(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_secret_ends(current in ".{0,70}", previous in ".{0,70}", until in ".{0,30}") {
        let _ = hashes(&[("sha256", current), ("sha256-previous", previous), ("previous-until", until)]);
    }
}
