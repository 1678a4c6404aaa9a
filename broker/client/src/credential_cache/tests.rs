#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::{CacheFolderProblem, CacheKey, CachedToken, CredentialCache, MAX_ENTRY_BYTES};

fn now() -> Timestamp {
    "2026-08-01T10:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + seconds).unwrap()
}

/// A token that expires after this many seconds; nothing verifies it here.
fn token(seconds: i64) -> String {
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"exp":{}}}"#, now().as_second() + seconds);
    format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256"}"#.to_owned()),
        part(claims),
        part("signature".to_owned())
    )
}

fn cached(seconds: i64) -> CachedToken {
    CachedToken {
        token: token(seconds).into(),
        expiration: after(seconds - 60),
    }
}

fn setup() -> (TempDir, CredentialCache, CacheKey, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = CredentialCache::open(&path).unwrap();
    let key = CacheKey::of_parts(&[Some(b"a")]);
    let file = path.join(&key.0);
    cache.put_token(&key, &cached(600), now()).unwrap();
    assert!(cache.get_token(&key, now()).is_some());
    (folder, cache, key, file)
}

#[test]
fn what_was_put_comes_back_until_ten_seconds_before_its_end() {
    let (_folder, cache, key, file) = setup();
    assert_eq!(
        cache.get_token(&key, now()).unwrap().token.expose_secret(),
        token(600)
    );
    assert_eq!(cache.get_token(&key, now()).unwrap().expiration, after(540));
    assert!(cache.get_token(&key, after(530)).is_some());
    assert!(cache.get_token(&key, after(531)).is_none());
    assert!(
        cache
            .get_token(&CacheKey::of_parts(&[Some(b"b")]), now())
            .is_none()
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(
        std::fs::metadata(file.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o700
    );
    cache.put_token(&key, &cached(900), now()).unwrap();
    assert_eq!(
        cache.get_token(&key, now()).unwrap().expiration,
        after(840),
        "a later one takes its place"
    );
    assert_eq!(
        std::fs::read_dir(file.parent().unwrap()).unwrap().count(),
        1,
        "nothing unfinished is left"
    );
}

#[test]
fn a_file_that_others_could_have_written_or_read_is_a_miss() {
    let (_folder, cache, key, file) = setup();
    for mode in [0o644, 0o660, 0o700, 0o400] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(cache.get_token(&key, now()).is_none(), "{mode:o}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = file.with_extension("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(
        cache.get_token(&key, now()).is_none(),
        "a link is not followed"
    );
    cache.put_token(&key, &cached(600), now()).unwrap();
    assert!(
        !std::fs::symlink_metadata(&file).unwrap().is_symlink(),
        "but replaced"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(
        cache.get_token(&key, now()).is_none()
            && cache.put_token(&key, &cached(600), now()).is_err()
    );
    std::fs::remove_dir(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(
        cache.get_token(&key, now()).is_none(),
        "a pipe does not hold it up"
    );
}

#[test]
fn hostile_content_is_a_miss() {
    let (_folder, cache, key, file) = setup();
    let good = std::fs::read_to_string(&file).unwrap();
    let other = CacheKey::of_parts(&[Some(b"b")]);
    for text in [
        String::new(),
        good.get(..good.len() / 2).unwrap().to_owned(),
        good.replace(&key.0, &other.0),
        good.replace("\"token\":\"", "\"token\":\"\\u001b[2J"),
        good.replace("\"token\":\"", "\"token\":\"x\",\"token\":\""),
        good.replace("\"expiration\":", "\"expiration\":\"\",\"was\":"),
        "[".repeat(10_000),
        format!("{good}{}", " ".repeat(MAX_ENTRY_BYTES)),
    ] {
        assert_ne!(text, good);
        std::fs::write(&file, &text).unwrap();
        assert!(cache.get_token(&key, now()).is_none(), "{text}");
    }
    // An expiry later than the token's own is ignored.
    std::fs::write(
        &file,
        good.replace(
            &after(540).as_second().to_string(),
            &after(90_000).as_second().to_string(),
        ),
    )
    .unwrap();
    assert_eq!(cache.get_token(&key, now()).unwrap().expiration, after(540));
}

#[test]
fn a_folder_that_others_can_enter_is_not_used() {
    let (_folder, _cache, key, file) = setup();
    let folder = file.parent().unwrap();
    for mode in [0o755, 0o750, 0o777, 0o1777] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = CredentialCache::open(folder).err().unwrap();
        assert!(
            matches!(error.problem, CacheFolderProblem::OpenToOthers),
            "{mode:o}"
        );
    }
    let link = folder.with_extension("link");
    symlink(folder, &link).unwrap();
    assert!(CredentialCache::open(&link).is_err());
    assert!(CredentialCache::open(&file).is_err(), "a file {}", key.0);
    assert!(
        CredentialCache::open(std::path::Path::new("/proc/keyferry")).is_err(),
        "where nothing can be made"
    );
}

#[test]
fn one_process_at_a_time_holds_the_lock() {
    let (_folder, cache, key, file) = setup();
    let entry_lock = cache.lock_entry(&key).unwrap();
    assert!(
        cache
            .lock_entry(&CacheKey::of_parts(&[Some(b"b")]))
            .is_some(),
        "another key is another lock"
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            CredentialCache::open(file.parent().unwrap())
                .unwrap()
                .lock_entry(&key)
                .is_some()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiter.is_finished());
        drop(entry_lock);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn no_two_lists_of_parts_are_one_key() {
    let keys = [
        CacheKey::of_parts(&[]),
        CacheKey::of_parts(&[None]),
        CacheKey::of_parts(&[Some(b"")]),
        CacheKey::of_parts(&[Some(b"ab"), Some(b"c")]),
        CacheKey::of_parts(&[Some(b"a"), Some(b"bc")]),
        CacheKey::of_parts(&[Some(b"abc"), None]),
        CacheKey::of_parts(&[None, Some(b"abc")]),
    ];
    for (index, key) in keys.iter().enumerate() {
        assert!(
            keys.iter().skip(index + 1).all(|other| other != key),
            "{index}"
        );
    }
}
