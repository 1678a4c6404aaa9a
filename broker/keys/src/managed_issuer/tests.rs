//! Key sets with a clock that the test moves.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::LazyLock;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::PublicUrl;
use keyferry_api::moment::Moment;
use keyferry_api::name::ObjectName;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use zeroize::Zeroizing;

use super::*;
use crate::bound_token::{self, MintAnswer, MintExpectation};
use crate::jwks::PublicKeySet;
use crate::jwt::BASE64URL;

mod simulation;
mod stored;

const WAIT: Duration = Duration::from_secs(120);
const POLICY: RotationPolicy = RotationPolicy {
    active_after: WAIT,
    every: Duration::from_secs(30 * 24 * 3600),
};
const DAY: u64 = 24 * 3600;

/// Enough keys for any test, made once.
static POOL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let make = || {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .unwrap()
            .as_ref()
            .to_vec()
    };
    (0..80).map(|_| make()).collect()
});

fn key(index: usize) -> PrivateKey {
    PrivateKey::from_pkcs8(Zeroizing::new(POOL[index].clone())).unwrap()
}

fn kid(index: usize) -> String {
    key(index).kid().to_owned()
}

/// Both clocks, this long after the test began.
fn at(seconds: u64) -> Moment {
    Moment {
        wall: Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap(),
        mono: Duration::from_secs(seconds),
    }
}

fn with_wall(now: Moment, shift: i64) -> Moment {
    Moment {
        wall: Timestamp::from_second(now.wall.as_second() + shift).unwrap(),
        ..now
    }
}

fn binding() -> Binding {
    let public_url = PublicUrl::new("https://keyferry.example.com").unwrap();
    let target = ObjectName::new("prod").unwrap();
    Binding {
        issuer: managed_issuer_url(&public_url, &target).unwrap(),
        target,
        audience: Audience::new("https://prod.example.com").unwrap(),
    }
}

fn first(now: Moment) -> KeySet {
    KeySet::initial_set(binding(), key(0), key(1), now)
}

fn reread_key_set(set: &KeySet) -> KeySet {
    read_key_set(write_key_set(set).as_bytes()).unwrap()
}

fn promoted(set: KeySet, fresh: usize, seen: &Sightings, now: Moment) -> KeySet {
    set.apply_change(
        ReadyChange::Promote {
            fresh: key(fresh),
            asked_for: None,
        },
        seen,
        now,
    )
}

#[test]
fn an_issuer_has_its_own_place_and_secret() {
    let Binding { issuer, target, .. } = binding();
    assert_eq!(issuer.as_str(), "https://keyferry.example.com/issuers/prod");
    assert_eq!(
        jwks_uri(&issuer),
        "https://keyferry.example.com/issuers/prod/openid/v1/jwks"
    );
    assert_eq!(
        secret_name(&target).unwrap().as_str(),
        "keyferry-issuer-prod"
    );
    assert!(
        secret_name(&ObjectName::new(vec!["a".repeat(60); 4].join(".")).unwrap()).is_err(),
        "no room for the prefix"
    );
}

#[test]
fn a_kid_is_what_kube_apiserver_would_make_of_the_key() {
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &POOL[0]).unwrap();
    let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki.as_ref());
    assert_eq!(kid(0), BASE64URL.encode(digest));
    assert!(
        crate::jwks::PublicKey::of_es256_point(&[4; 65]).is_none(),
        "no point of the curve"
    );
    assert_eq!(key(0).public().point(), pair.public_key().as_ref());
}

#[test]
fn a_private_key_does_not_print() {
    let printed = format!("{:?}", first(at(0)));
    let secret = BASE64URL.encode(&POOL[0][36..68]);
    assert!(
        !printed.contains("pkcs8") && !printed.contains(&secret) && printed.contains(&kid(0)),
        "{printed}"
    );
}

#[test]
fn a_first_set_is_activated_like_any_other() {
    let (set, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&set, "one", WAIT, at(1));
    assert!(!seen.is_active(&kid(0), at(119)));
    assert!(
        seen.is_active(&kid(0), at(120)),
        "by the stored time, for a key found at the start"
    );
    assert_eq!(due_change(&set, &seen, None, &POLICY, at(120)), None);
}

#[test]
fn keys_found_at_the_start_are_believed_and_later_ones_are_not() {
    let set = first(at(0));
    let mut found = Sightings::default();
    found.note_reading(&set, "one", WAIT, at(5000));
    assert!(
        found.is_active(&kid(0), at(5000)),
        "a restart costs no minute"
    );
    // Back-dated by a user who edits the Secret, or by a replica with a wrong clock.
    let mut forged = promoted(first(at(0)), 2, &found, at(5001));
    forged.current = CurrentKey {
        key: key(3),
        published_at: at(0).wall,
        signs_since: at(0).wall,
    };
    found.note_reading(&forged, "one", WAIT, at(5002));
    assert!(!found.is_active(&kid(3), at(5002 + 119)) && found.is_active(&kid(3), at(5002 + 120)));
}

#[test]
fn stored_times_ahead_of_the_clock_wait_no_longer_than_the_soak() {
    let (set, mut seen) = (
        first(with_wall(at(0), 10 * 365 * 86_400)),
        Sightings::default(),
    );
    seen.note_reading(&set, "one", WAIT, at(0));
    assert!(!seen.is_active(&kid(0), at(119)) && seen.is_active(&kid(0), at(120)));
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, at(121)),
        Some(Change::Promote),
        "a clock that was wrong stops no rotation for good"
    );
}

#[test]
fn a_rotation_is_due_by_schedule_and_by_hand() {
    let (set, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&set, "one", WAIT, at(0));
    let month = 30 * DAY;
    assert_eq!(due_change(&set, &seen, None, &POLICY, at(month - 1)), None);
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, at(month)),
        Some(Change::Promote)
    );
    assert_eq!(
        due_change(&set, &seen, Some("now"), &POLICY, at(119)),
        None,
        "the next key has not been published for long enough"
    );
    assert_eq!(
        due_change(&set, &seen, Some("now"), &POLICY, at(120)),
        Some(Change::Promote)
    );
    let change = ReadyChange::Promote {
        fresh: key(2),
        asked_for: Some("now".to_owned()),
    };
    let set = reread_key_set(&set.apply_change(change, &seen, at(120)));
    seen.note_reading(&set, "one", WAIT, at(121));
    assert_eq!(
        due_change(&set, &seen, Some("now"), &POLICY, at(1000)),
        None,
        "carried out once"
    );
    assert_eq!(
        due_change(&set, &seen, Some("again"), &POLICY, at(1000)),
        Some(Change::Promote)
    );
    assert_eq!(
        (set.current.key.kid(), set.next.key.kid()),
        (kid(1).as_str(), kid(2).as_str())
    );
    assert_eq!(set.current.signs_since, at(120).wall);
}

#[test]
fn a_restarted_replica_promotes_nothing_that_it_has_not_published_itself() {
    let (set, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&set, "one", WAIT, at(31 * DAY));
    assert!(seen.is_active(&kid(0), at(31 * DAY)));
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, at(31 * DAY + 119)),
        None
    );
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, at(31 * DAY + 120)),
        Some(Change::Promote)
    );
}

#[test]
fn a_superseded_key_stays_until_its_tokens_are_over_by_both_clocks() {
    let (set, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&set, "one", WAIT, at(0));
    let set = reread_key_set(&promoted(set, 2, &seen, at(200)));
    assert!(
        write_key_set(&set).contains(&kid(0))
            && !write_key_set(&set).contains(&BASE64URL.encode(&POOL[0])),
        "its private half is gone"
    );
    seen.note_reading(&set, "one", WAIT, at(201));
    let end = 201 + SUPERSEDED_KEY_RETENTION.as_secs();
    assert!(seen.published_keys().unwrap().get(&kid(0)).is_some());
    assert_eq!(due_change(&set, &seen, None, &POLICY, at(end - 1)), None);
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, with_wall(at(400), 40 * 86_400)),
        Some(Change::Promote),
        "by the wall clock alone"
    );
    assert!(
        !seen.is_over(&kid(0), with_wall(at(400), 40 * 86_400)),
        "not over: only one clock jumped"
    );
    assert!(
        !seen.is_over(&kid(0), with_wall(at(end), -10)),
        "not over: the wall clock was set back"
    );
    assert_eq!(
        due_change(&set, &seen, None, &POLICY, at(end)),
        Some(Change::Tidy)
    );
    let set = reread_key_set(&set.apply_change(ReadyChange::Tidy, &seen, at(end)));
    seen.note_reading(&set, "one", WAIT, at(end + 1));
    assert_eq!(set.previous, []);
    assert_eq!(seen.published_keys().unwrap().len(), 2);
}

#[test]
fn a_superseding_clock_that_was_behind_takes_no_key_away() {
    let (set, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&set, "one", WAIT, at(0));
    let set = promoted(
        set,
        2,
        &Sightings::default(),
        with_wall(at(200), -3 * 86_400),
    );
    seen.note_reading(&set, "one", WAIT, at(201));
    assert!(!seen.is_over(&kid(0), at(202)) && !seen.is_over(&kid(0), at(200 + DAY)));
    assert!(seen.is_over(&kid(0), at(201 + SUPERSEDED_KEY_RETENTION.as_secs())));
}

#[test]
fn a_set_that_was_rolled_back_gets_its_keys_back() {
    let (old, mut seen) = (first(at(0)), Sightings::default());
    seen.note_reading(&old, "one", WAIT, at(0));
    let set = reread_key_set(&promoted(reread_key_set(&old), 2, &seen, at(200)));
    let set = {
        seen.note_reading(&set, "one", WAIT, at(201));
        reread_key_set(&promoted(set, 3, &seen, at(400)))
    };
    seen.note_reading(&set, "one", WAIT, at(401));
    // Key 2 may have signed when the Secret is put back to what it was at first.
    seen.note_reading(&old, "one", WAIT, at(500));
    let published = seen.published_keys().unwrap();
    assert!(
        (0..4).all(|index| published.get(&kid(index)).is_some()),
        "nothing that was published goes"
    );
    assert_eq!(
        due_change(&old, &seen, None, &POLICY, at(500)),
        Some(Change::Tidy)
    );
    let healed = reread_key_set(&old.apply_change(ReadyChange::Tidy, &seen, at(500)));
    assert_eq!(healed.previous.len(), 2);
    let mut other = Sightings::default();
    other.note_reading(&healed, "one", WAIT, at(510));
    assert_eq!(
        other.published_keys().unwrap(),
        published,
        "a replica that starts now publishes the same"
    );
    seen.note_reading(&healed, "one", WAIT, at(511));
    assert_eq!(due_change(&healed, &seen, None, &POLICY, at(511)), None);
}

#[test]
fn a_set_that_was_deleted_is_gone_with_all_its_keys() {
    let mut seen = Sightings::default();
    seen.note_reading(&first(at(0)), "one", WAIT, at(0));
    let another = KeySet::initial_set(binding(), key(4), key(5), at(1000));
    seen.note_reading(&another, "two", WAIT, at(1000));
    let published = seen.published_keys().unwrap();
    assert_eq!(
        published.len(),
        2,
        "a stolen key is revoked by deleting the Secret"
    );
    assert!(published.get(&kid(0)).is_none());
    assert!(!seen.is_active(&kid(4), at(1119)) && seen.is_active(&kid(4), at(1120)));
}

#[test]
fn a_secret_edited_without_end_does_not_grow_what_is_published() {
    let mut seen = Sightings::default();
    for index in 0..MAX_PUBLISHED {
        let set = KeySet::initial_set(binding(), key(index), key(index + 1), at(0));
        seen.note_reading(&set, "one", WAIT, at(10 * index as u64));
        assert!(seen.published_keys().unwrap().get(&kid(index)).is_some());
    }
    assert!(seen.published_keys().unwrap().len() <= MAX_PUBLISHED);
}

#[test]
fn rotations_by_hand_wait_for_room() {
    let (mut set, mut seen, mut now) = (first(at(0)), Sightings::default(), 0);
    seen.note_reading(&set, "one", WAIT, at(now));
    for round in 0..MAX_PREVIOUS {
        now += WAIT.as_secs() + 1;
        let request = round.to_string();
        assert_eq!(
            due_change(&set, &seen, Some(&request), &POLICY, at(now)),
            Some(Change::Promote),
            "round {round}"
        );
        set = set.apply_change(
            ReadyChange::Promote {
                fresh: key(round + 2),
                asked_for: Some(request),
            },
            &seen,
            at(now),
        );
        set = reread_key_set(&set);
        seen.note_reading(&set, "one", WAIT, at(now));
    }
    assert_eq!(
        due_change(&set, &seen, Some("more"), &POLICY, at(now + 200)),
        None
    );
    let later = now + SUPERSEDED_KEY_RETENTION.as_secs();
    assert_eq!(
        due_change(&set, &seen, Some("more"), &POLICY, at(later)),
        Some(Change::Promote)
    );
}

#[test]
fn a_token_passes_the_checks_of_minted_ones() {
    let account =
        ServiceAccount::from_username("system:serviceaccount:tenant-a:reconciler").unwrap();
    let identity = ServiceAccountIdentity {
        account,
        uid: Uid::new("c7a1f2e0").unwrap(),
    };
    let lifetime = Duration::from_secs(3600);
    let token = ClaimsOfToken {
        identity: &identity,
        issued_at: at(0).wall,
        lifetime,
        id: [0xff; 16],
    };
    let input = signing_input(&binding(), &kid(0), &token);
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key(0).pkcs8()).unwrap();
    let signature = pair.sign(&SystemRandom::new(), input.as_bytes()).unwrap();
    let compact = format!("{input}.{}", BASE64URL.encode(signature));
    let keys = PublicKeySet::from_keys([key(0).public().clone()]).unwrap();
    let Binding {
        issuer, audience, ..
    } = binding();
    let expected = MintExpectation {
        issuer: &issuer,
        keys: &keys,
        service_account: &identity,
        audience: &audience,
        lifetime,
    };
    let answer = || MintAnswer {
        token: compact.clone().into(),
        expires_at: at(3600).wall,
    };
    let checked = bound_token::check_minted(answer(), &expected, at(0)).unwrap();
    assert_eq!(
        (checked.token_id(), checked.lifetime()),
        ("ffffffff-ffff-4fff-bfff-ffffffffffff", lifetime)
    );
    let other = PublicKeySet::from_keys([key(1).public().clone()]).unwrap();
    assert!(
        bound_token::check_minted(
            answer(),
            &MintExpectation {
                keys: &other,
                ..expected
            },
            at(0)
        )
        .is_err()
    );
    // A second, independent implementation reads the key set as we print it and believes the
    // signature.
    let jwk: serde_json::Value = serde_json::from_slice(&keys.to_bytes()).unwrap();
    let jwk = josekit::jwk::Jwk::from_map(jwk["keys"][0].as_object().unwrap().clone()).unwrap();
    let verifier = josekit::jws::ES256.verifier_from_jwk(&jwk).unwrap();
    let (payload, header) = josekit::jws::deserialize_compact(&compact, &verifier).unwrap();
    assert_eq!(header.key_id(), Some(kid(0).as_str()));
    let claims: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(
        claims["aud"],
        serde_json::json!(["https://prod.example.com"])
    );
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["uid"], "c7a1f2e0");
}
