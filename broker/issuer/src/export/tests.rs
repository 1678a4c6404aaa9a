#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use keyferry_hub::ports::{EndpointAnswer, IssuerDocuments, UpstreamDocuments};
use keyferry_platform::clock::SystemClock;

use super::*;
use crate::publication::{KeyRecords, Publisher, PublisherParts};

const MAX_AGE: Duration = Duration::from_secs(60);

/// A hub that publishes these keys, by kid.
struct Hub(&'static str, &'static [&'static str]);

impl IssuerDocuments for Hub {
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>> {
        let keys: Vec<serde_json::Value> = self.1.iter().map(|kid| key(kid)).collect();
        let metadata = serde_json::json!({ "issuer": self.0, "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks" }).to_string();
        let jwks = serde_json::json!({ "keys": keys }).to_string();
        let documents = Ok(UpstreamDocuments {
            metadata: metadata.into_bytes(),
            jwks: jwks.into_bytes(),
        });
        Box::pin(async move {
            vec![EndpointAnswer {
                endpoint: "hub".to_owned(),
                documents,
            }]
        })
    }
}

/// Uses the base point of P-256 (SEC 2, 2.4.2), which is as good as any other point.
fn key(kid: &str) -> serde_json::Value {
    let coordinate = |hex: &str| {
        let bytes: Vec<u8> = (0..32)
            .map(|index| u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap())
            .collect();
        URL_SAFE_NO_PAD.encode(bytes)
    };
    serde_json::json!({
        "kty": "EC", "crv": "P-256", "kid": kid,
        "x": coordinate("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
        "y": coordinate("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
    })
}

fn public_url() -> PublicUrl {
    PublicUrl::new("https://keys.example.com").unwrap()
}

async fn published(hub: Hub) -> Arc<Published> {
    let publisher = Publisher::new(PublisherParts {
        source: Arc::new(hub),
        public_url: public_url(),
        pinned: None,
        activation_delay: keyferry_api::lifetime::activation_delay(MAX_AGE),
        records: KeyRecords::none(),
        clock: Arc::new(SystemClock::start()),
        metrics: keyferry_platform::metrics::Metrics::default(),
    });
    publisher.refresh().await.unwrap();
    publisher.reader().current().unwrap()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(one)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(folder).unwrap().display().to_string();
                contents.insert(name, std::fs::read(&entry).unwrap());
            }
        }
    }
    contents
}

#[tokio::test]
async fn the_files_are_what_the_server_serves_and_the_manifest_describes_them() {
    let folder = tempfile::tempdir().unwrap();
    let published = published(Hub("https://hub.example.com", &["one"])).await;
    let export = Export::open(folder.path()).unwrap();
    let changed = export
        .write(&published, &public_url(), MAX_AGE, &ExportScope::default())
        .unwrap();
    assert_eq!(
        changed,
        [
            "openid/v1/jwks",
            ".well-known/openid-configuration",
            "manifest.json"
        ],
        "in this order"
    );
    let files = files(folder.path());
    assert_eq!(files.len(), 3, "nothing is left over: {:?}", files.keys());
    assert_eq!(files["openid/v1/jwks"], published.jwks.bytes);
    assert_eq!(
        files[".well-known/openid-configuration"],
        published.metadata.bytes
    );
    let manifest: Manifest = serde_json::from_slice(&files[MANIFEST_FILE]).unwrap();
    assert_eq!(
        (manifest.issuer.as_str(), manifest.public_url.as_str()),
        ("https://hub.example.com", "https://keys.example.com")
    );
    for (file, kind) in manifest
        .files
        .iter()
        .zip(["application/jwk-set+json", "application/json"])
    {
        assert_eq!(
            (file.content_type.as_str(), file.cache_control.as_str()),
            (kind, "public, max-age=60")
        );
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &files[&file.path]);
        assert_eq!(
            file.sha256,
            digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        );
    }
    assert!(
        export
            .write(&published, &public_url(), MAX_AGE, &ExportScope::default())
            .unwrap()
            .is_empty(),
        "the same bytes are not written again"
    );
}

#[tokio::test]
async fn only_what_changed_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let export = Export::open(folder.path()).unwrap();
    export
        .write(
            &*published(Hub("https://hub.example.com", &["one"])).await,
            &public_url(),
            MAX_AGE,
            &ExportScope::default(),
        )
        .unwrap();
    let more = published(Hub("https://hub.example.com", &["one", "two"])).await;
    assert_eq!(
        export
            .write(&more, &public_url(), MAX_AGE, &ExportScope::default())
            .unwrap(),
        ["openid/v1/jwks", "manifest.json"]
    );
}

#[tokio::test]
async fn another_issuer_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let export = Export::open(folder.path()).unwrap();
    export
        .write(
            &*published(Hub("https://hub.example.com", &["one"])).await,
            &public_url(),
            MAX_AGE,
            &ExportScope::default(),
        )
        .unwrap();
    let before = files(folder.path());
    let other = published(Hub("https://other.example.com", &["two"])).await;
    let error = export
        .write(&other, &public_url(), MAX_AGE, &ExportScope::default())
        .unwrap_err();
    assert!(matches!(error, ExportError::OtherIssuer { .. }), "{error}");
    assert_eq!(files(folder.path()), before);
    std::fs::write(folder.path().join(MANIFEST_FILE), "{}").unwrap();
    assert!(matches!(
        export.write(&other, &public_url(), MAX_AGE, &ExportScope::default()),
        Err(ExportError::Manifest)
    ));
}

#[tokio::test]
async fn links_are_replaced_and_never_followed() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::fs::create_dir_all(folder.path().join("openid/v1")).unwrap();
    symlink(&victim, folder.path().join("openid/v1/jwks")).unwrap();
    symlink(&victim, folder.path().join(".keyferry-export-unfinished")).unwrap();
    let export = Export::open(folder.path()).unwrap();
    let published = published(Hub("https://hub.example.com", &["one"])).await;
    export
        .write(&published, &public_url(), MAX_AGE, &ExportScope::default())
        .unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let jwks = folder.path().join("openid/v1/jwks");
    assert!(!jwks.is_symlink() && std::fs::read(jwks).unwrap() == published.jwks.bytes);

    let other = tempfile::tempdir().unwrap();
    symlink(outside.path(), other.path().join("openid")).unwrap();
    let error = Export::open(other.path())
        .unwrap()
        .write(&published, &public_url(), MAX_AGE, &ExportScope::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("writing openid/v1/jwks in the export folder: "),
        "{error}"
    );
    assert_eq!(
        files(outside.path()).len(),
        1,
        "nothing is made behind the link"
    );
}

#[tokio::test]
async fn one_export_writes_at_a_time_and_what_a_killed_one_left_is_no_matter() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join(".keyferry-export-unfinished"),
        "half of a",
    )
    .unwrap();
    let export = Export::open(folder.path()).unwrap();
    assert!(matches!(
        Export::open(folder.path()),
        Err(ExportError::Busy(_))
    ));
    export
        .write(
            &*published(Hub("https://hub.example.com", &["one"])).await,
            &public_url(),
            MAX_AGE,
            &ExportScope::default(),
        )
        .unwrap();
    assert_eq!(files(folder.path()).len(), 3);
    drop(export);
    Export::open(folder.path()).unwrap();
}

#[tokio::test]
async fn managed_issuers_are_beside_the_hubs_and_named_in_the_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let published = published(Hub("https://hub.example.com", &["one"])).await;
    let documents = |text: &str| {
        Arc::new(OwnDocuments {
            keys: published.keys.clone(),
            metadata: Document::new(format!("{text} metadata").into_bytes()),
            jwks: Document::new(format!("{text} keys").into_bytes()),
        })
    };
    let managed = ["prod", "staging.eu"].map(|target| ManagedIssuerFiles {
        target: ObjectName::new(target).unwrap(),
        issuer: Issuer::new(format!("https://keys.example.com/issuers/{target}")).unwrap(),
        documents: documents(target),
    });
    let scope = ExportScope {
        managed: managed.to_vec(),
        ..ExportScope::default()
    };
    let export = Export::open(folder.path()).unwrap();
    let changed = export
        .write(&published, &public_url(), MAX_AGE, &scope)
        .unwrap();
    let paths = [
        "openid/v1/jwks",
        ".well-known/openid-configuration",
        "issuers/prod/openid/v1/jwks",
        "issuers/prod/.well-known/openid-configuration",
        "issuers/staging.eu/openid/v1/jwks",
        "issuers/staging.eu/.well-known/openid-configuration",
        "manifest.json",
    ];
    assert_eq!(changed, paths, "keys before the document that names them");
    let files = files(folder.path());
    assert_eq!(files["issuers/prod/openid/v1/jwks"], b"prod keys");
    let manifest: Manifest = serde_json::from_slice(&files[MANIFEST_FILE]).unwrap();
    let issuers: Vec<Option<&str>> = manifest
        .files
        .iter()
        .map(|file| file.issuer.as_deref())
        .collect();
    let prod = Some("https://keys.example.com/issuers/prod");
    assert_eq!(issuers.get(..4), Some([None, None, prod, prod].as_slice()));
    assert_eq!(
        export
            .write(&published, &public_url(), MAX_AGE, &scope)
            .unwrap(),
        Vec::<String>::new(),
        "the same bytes are not written again"
    );
}

/// Each hub has its own folder and its own path below one origin.
#[tokio::test]
async fn several_hubs_are_published_by_path() {
    for (hub, prefix) in [("a", "/hubs/a"), ("b", "/hubs/b")] {
        let folder = tempfile::tempdir().unwrap();
        let issuer = format!("https://keys.example.com/hubs/{hub}");
        let published = published(Hub(issuer.clone().leak(), &["one"])).await;
        let scope = ExportScope {
            prefix: prefix.to_owned(),
            ..ExportScope::default()
        };
        let export = Export::open(folder.path()).unwrap();
        export
            .write(&published, &public_url(), MAX_AGE, &scope)
            .unwrap();
        let files = files(folder.path());
        let document: serde_json::Value =
            serde_json::from_slice(&files[".well-known/openid-configuration"]).unwrap();
        assert_eq!(document["issuer"], issuer);
        assert_eq!(document["jwks_uri"], format!("{issuer}/openid/v1/jwks"));
        assert_eq!(files["openid/v1/jwks"], published.jwks.bytes);
        let manifest: Manifest = serde_json::from_slice(&files[MANIFEST_FILE]).unwrap();
        assert_eq!(
            (manifest.public_url, manifest.issuer),
            (issuer.clone(), issuer)
        );
    }
}
