//! The comparisons of one target, from what was read of it.

use std::path::Path;

use keyferry_client::target_trust::LoadedTrust;
use keyferry_fleet::facts::Comparison;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::fetched::{Fetched, HttpResponse};
use keyferry_kube_authn::lint::{Published, PublishedDocuments};
use keyferry_kube_authn::prediction::hash_of;

use crate::inner_file;
use crate::trust::DesiredTrust;

/// The first releases whose metrics show the hash of the file, and of the key set.
const SHOWS_FILE: Minor = Minor::V1_34;
const SHOWS_KEYS: Minor = Minor::V1_35;

/// The AuthenticationConfiguration against what it should be.
pub(super) fn file_row(
    desired: Result<&DesiredTrust, &Comparison>,
    file: Option<&str>,
    minor: Minor,
) -> Comparison {
    let Some(file) = file else {
        return Comparison::not_compared("its AuthenticationConfiguration is not at hand");
    };
    match (
        desired,
        inner_file::only(file.as_bytes(), Path::new("its file")),
    ) {
        (Err(unknown), _) => unknown.clone(),
        (Ok(_), Err(error)) => Comparison::not_compared(error.to_string()),
        (Ok(desired), Ok(inner)) => desired.compare(&inner.bytes, minor),
    }
}

/// Whether the target has loaded exactly the file that `keyferry trust` prints for it.
pub(super) fn is_printed(
    desired: Result<&DesiredTrust, &Comparison>,
    loaded: Result<&LoadedTrust, &Comparison>,
    minor: Minor,
) -> bool {
    let (Ok(desired), Ok(loaded)) = (desired, loaded) else {
        return false;
    };
    let printed = hash_of(desired.file(minor).as_bytes());
    loaded.file.hashes.contains(&printed)
}

/// The file that the target has loaded against the one at hand.
pub(super) fn loaded_row(
    desired: Result<&DesiredTrust, &Comparison>,
    file: Option<&str>,
    loaded: Result<&LoadedTrust, &Comparison>,
    minor: Minor,
) -> Comparison {
    let shown = match loaded {
        Ok(shown) => shown,
        Err(why) => return why.clone(),
    };
    if let Some(at) = shown.file.reload_failed {
        return Comparison::of_differences([format!(
            "it could not load its file at {at}, and runs with an earlier one"
        )]);
    }
    if shown.file.hashes.is_empty() {
        return not_shown("the hash of its file", minor, SHOWS_FILE);
    }
    let inner = file.map(|file| inner_file::only(file.as_bytes(), Path::new("its file")));
    match inner {
        None if is_printed(desired, loaded, minor) => Comparison::Matches,
        None => Comparison::not_compared("its AuthenticationConfiguration is not at hand"),
        Some(Err(error)) => Comparison::not_compared(error.to_string()),
        Some(Ok(inner)) => differing_hash("file", &shown.file.hashes, &hash_of(&inner.bytes)),
    }
}

/// The keys that the target has read against the published ones, of each issuer of its file.
pub(super) fn keys_row<'a>(
    desired: Result<&DesiredTrust, &Comparison>,
    published: impl Fn(PublishedDocuments) -> Option<&'a Published>,
    loaded: Result<&LoadedTrust, &Comparison>,
    minor: Minor,
) -> Comparison {
    let (desired, loaded) = match (desired, loaded) {
        (Ok(desired), Ok(loaded)) => (desired, loaded),
        (_, Err(why)) | (Err(why), _) => return why.clone(),
    };
    let mut rows: Vec<(&str, Comparison)> = desired
        .issuers()
        .map(|(issuer, documents)| {
            let key_sets = loaded.key_sets.get(issuer).map(Vec::as_slice);
            let key_sets = key_sets.unwrap_or_default();
            let row = keys_of_issuer(published(documents), key_sets, minor);
            (issuer, row)
        })
        .collect();
    if let [(_, only)] = rows.as_mut_slice() {
        return std::mem::replace(only, Comparison::Matches);
    }
    let mut differences = Vec::new();
    let mut not_compared = None;
    for (issuer, row) in rows {
        match row {
            Comparison::Matches => {}
            Comparison::Differs { differences: own } => {
                differences.extend(own.iter().map(|it| format!("issuer {issuer}: {it}")));
            }
            Comparison::NotCompared { why } => {
                not_compared.get_or_insert(format!("issuer {issuer}: {why}"));
            }
        }
    }
    match not_compared {
        Some(why) if differences.is_empty() => Comparison::not_compared(why),
        _ => Comparison::of_differences(differences),
    }
}

fn keys_of_issuer(published: Option<&Published>, key_sets: &[String], minor: Minor) -> Comparison {
    if key_sets.is_empty() {
        return not_shown("the hash of the keys that it fetched", minor, SHOWS_KEYS);
    }
    match published.map(|documents| (&documents.discovery, &documents.keys)) {
        Some((_, Fetched::Response(HttpResponse { status: 200, body }))) => {
            differing_hash("keys", key_sets, &hash_of(body))
        }
        Some((Fetched::Response(HttpResponse { status: 200, .. }), keys)) => unread(keys),
        Some((discovery, _)) => unread(discovery),
        None => unread(&Fetched::NotTried),
    }
}

fn unread(fetched: &Fetched) -> Comparison {
    let why = match fetched {
        Fetched::NotTried => "their place is not known".to_owned(),
        Fetched::Unreachable(how) | Fetched::Untrusted(how) | Fetched::AddressRefused(how) => {
            how.clone()
        }
        Fetched::Response(HttpResponse { status, .. }) => format!("status {status}"),
    };
    Comparison::not_compared(format!("the published keys could not be read: {why}"))
}

/// What a release before `since` never shows, and a later one not yet.
fn not_shown(what: &str, minor: Minor, since: Minor) -> Comparison {
    Comparison::not_compared(match minor < since {
        true => format!("Kubernetes {minor} does not show {what}; {since} does"),
        false => format!("its metrics do not show {what}"),
    })
}

fn differing_hash(what: &str, has: &[String], should: &String) -> Comparison {
    let differs = !has.contains(should);
    Comparison::of_differences(differs.then(|| {
        format!(
            "it has loaded {what} with {}, which should be {should}",
            has.join(" and ")
        )
    }))
}
