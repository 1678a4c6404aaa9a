//! Artifacts that CI systems sign without a key, by a private Sigstore whose trusted root the
//! allowlist names.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::flux::{condition, until_ready};
use keyferry_integration::private_sigstore::KeylessSignature;
use keyferry_integration::rest::RestError;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use serde_json::{Value, json};

use super::fleet::{D2, config_map, oci_repository, secret};
use crate::shipped_fleet::refused;

const TENANT: &str = "tenant-b";
pub(super) const TRUSTED_ROOT: &str = "sigstore-trusted-root";
/// An identity that the allowlist of the example admits.
const ISSUER: &str = "https://token.actions.githubusercontent.com";
const SUBJECT: &str =
    "https://github.com/example/apps/.github/workflows/release-artifact.yaml@refs/tags/v1.2.3";
/// The line of the example that names the Secret.
const ALLOWLIST: &str = "policies/flux-allowlist.yaml";
const COMMENTED: &str = "  # trustedRootSecret: sigstore-trusted-root\n";
const NAMED: &str = "  trustedRootSecret: sigstore-trusted-root\n";
const MINUTE: Duration = Duration::from_secs(60);

/// An artifact that Flux refuses.
struct Refused {
    name: &'static str,
    issuer: &'static str,
    subject: &'static str,
    /// A part of Flux's message.
    message: &'static str,
}

/// Artifacts that the trusted Sigstore signed for other identities.
const OF_OTHERS: [Refused; 6] = [
    Refused {
        name: "another-workflow",
        issuer: ISSUER,
        subject: "https://github.com/example/apps/.github/workflows/test.yaml@refs/tags/v1.2.3",
        message: "expected SAN value to match regex",
    },
    Refused {
        name: "a-branch",
        issuer: ISSUER,
        subject: "https://github.com/example/apps/.github/workflows/release-artifact.yaml@refs/heads/v1",
        message: "expected SAN value to match regex",
    },
    Refused {
        name: "another-repository",
        issuer: ISSUER,
        subject: "https://github.com/other/apps/.github/workflows/release-artifact.yaml@refs/tags/v1.2.3",
        message: "expected SAN value to match regex",
    },
    Refused {
        name: "a-subject-that-ends-alike",
        issuer: ISSUER,
        subject: "https://other.example/?https://github.com/example/apps/.github/workflows/release-artifact.yaml@refs/tags/v1.2.3",
        message: "expected SAN value to match regex",
    },
    Refused {
        name: "another-issuer",
        issuer: "https://gitlab.example.com",
        subject: SUBJECT,
        message: "expected issuer value to match regex",
    },
    Refused {
        name: "an-issuer-that-goes-on",
        issuer: "https://token.actions.githubusercontent.com.other.example",
        subject: SUBJECT,
        message: "expected issuer value to match regex",
    },
];

/// Other faults, with the right identity.
const UNSIGNED: &str = "unsigned";
const UNTRUSTED: &str = "another-sigstore";
const COPIED: &str = "a-copied-signature";
const RIGHT: &str = "right";
/// A source that is only tried at the admission policy.
const TRIAL: &str = "trial";

pub(crate) async fn decides_by_identity_and_trusted_root(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let digests = publish_all(&d2).await?;
    let digest = |name: &str| {
        let found = digests.iter().find(|(one, _)| *one == name);
        found.map_or("", |(_, digest)| digest.as_str())
    };
    let [root, other] = sign_all(&d2, digest).await?;
    trust(&d2, &root).await?;
    let result = check_all(&d2, digest, &other).await;
    let ended = withdraw_trust(&d2).await;
    result.and(ended)
}

/// All cases.
fn names() -> impl Iterator<Item = &'static str> {
    let others = OF_OTHERS.iter().map(|one| one.name);
    others.chain([UNSIGNED, UNTRUSTED, COPIED, RIGHT])
}

/// Pushes an artifact for each case; returns the digests by case.
async fn publish_all(d2: &D2) -> Result<Vec<(&'static str, String)>, TestError> {
    let mut digests = Vec::new();
    for name in names() {
        let files = [(
            "case.yaml".to_owned(),
            super::tenants::one_config_map(TENANT, name),
        )];
        let digest = d2.registry.push(&repository(name), &files).await?;
        d2.registry
            .tag(&repository(name), &digest, "latest")
            .await?;
        digests.push((name, digest));
    }
    Ok(digests)
}

/// Signs all artifacts but one; returns the trusted roots of the Sigstore that the hub shall trust,
/// and of the other one.
async fn sign_all<'a>(d2: &D2, digest: impl Fn(&str) -> &'a str) -> Result<[String; 2], TestError> {
    let mut names: Vec<&str> = OF_OTHERS.iter().map(|one| one.name).collect();
    let mut signatures: Vec<_> = OF_OTHERS
        .iter()
        .map(|one| KeylessSignature {
            digest: digest(one.name),
            issuer: one.issuer,
            subject: one.subject,
        })
        .collect();
    let by_the_right = |name| KeylessSignature {
        digest: digest(name),
        issuer: ISSUER,
        subject: SUBJECT,
    };
    // The last one is of the artifact RIGHT, attached to another artifact.
    names.extend([RIGHT, COPIED]);
    signatures.extend([by_the_right(RIGHT), by_the_right(RIGHT)]);
    let trusted = d2.private_sigstore(&signatures).await?;
    for (name, bundle) in names.into_iter().zip(trusted.bundles()) {
        d2.registry
            .attach(&repository(name), digest(name), bundle)
            .await?;
    }
    let other = d2.private_sigstore(&[by_the_right(UNTRUSTED)]).await?;
    for bundle in other.bundles() {
        d2.registry
            .attach(&repository(UNTRUSTED), digest(UNTRUSTED), bundle)
            .await?;
    }
    Ok([trusted.trusted_root(), other.trusted_root()])
}

/// Names the private Sigstore, as the README says.
async fn trust(d2: &D2, root: &str) -> TestResult {
    secret(&d2.hub, TENANT, TRUSTED_ROOT, "trusted_root.json", root).await?;
    d2.commit(ALLOWLIST, COMMENTED, NAMED).await?;
    until_admitted(d2, Some(TRUSTED_ROOT)).await?;
    // A tenant's own Sigstore would certify any identity, and public Sigstore is not this one.
    for other in [Some("mine"), Some(""), None] {
        let object = source(d2, TRIAL, other).await?;
        let answer = d2.hub.admin().create(&dry_run(), &object).await;
        refused(
            answer,
            "spec.verify of a tenant source",
            &format!("{other:?}"),
        )?;
    }
    Ok(())
}

async fn withdraw_trust(d2: &D2) -> TestResult {
    for name in names() {
        let path = oci_repository(TENANT, &format!("keyless-{name}"));
        d2.hub.admin().delete(&path).await?;
    }
    d2.commit(ALLOWLIST, NAMED, COMMENTED).await?;
    until_admitted(d2, None).await
}

async fn check_all<'a>(d2: &D2, digest: impl Fn(&str) -> &'a str, other_root: &str) -> TestResult {
    let path = verified(d2, RIGHT).await?;
    let object = until_ready(&d2.hub, &path).await?;
    let result = condition(&object, "SourceVerified");
    assert_eq!(result["status"], "True", "{result}");
    let revision = object["status"]["artifact"]["revision"].as_str();
    assert!(
        revision.is_some_and(|revision| revision.contains(digest(RIGHT))),
        "{object}"
    );
    let others = OF_OTHERS.iter().map(|one| (one.name, one.message));
    for (name, message) in others.chain([
        (UNSIGNED, "no signatures found"),
        (UNTRUSTED, "failed to verify log inclusion"),
        (
            COPIED,
            "artifact digest does not match any digest in statement",
        ),
    ]) {
        let path = verified(d2, name).await?;
        until_refused(d2, &path, message).await?;
    }
    // The Secret decides which Sigstore is trusted.
    let key = "trusted_root.json";
    secret(&d2.hub, TENANT, TRUSTED_ROOT, key, other_root).await?;
    let path = oci_repository(TENANT, &format!("keyless-{UNTRUSTED}"));
    // After failures source-controller waits longer each time.
    let now = json!({ "reconcile.fluxcd.io/requestedAt": "the other root" });
    let change = json!({ "metadata": { "annotations": now } });
    d2.hub.admin().patch(&path, &change).await?;
    until_ready(&d2.hub, &path).await?;
    Ok(())
}

/// Creates the source of a case; returns its path.
async fn verified(d2: &D2, name: &str) -> Result<String, TestError> {
    let path = oci_repository(TENANT, &format!("keyless-{name}"));
    let object = source(d2, name, Some(TRUSTED_ROOT)).await?;
    d2.hub.admin().apply(&path, &object).await?;
    Ok(path)
}

async fn until_refused(d2: &D2, path: &str, message: &str) -> TestResult {
    // The verification is tried again, so the message is there in every round.
    let refused = |object: &Value| {
        let (verified, ready) = (
            condition(object, "SourceVerified"),
            condition(object, "Ready"),
        );
        let said = verified["message"].as_str().unwrap_or_default();
        verified["status"] == "False"
            && verified["reason"] == "VerificationError"
            && ready["status"] == "False"
            && said.contains("using provider 'cosign keyless'")
            && said.contains(message)
    };
    let object = until_object(d2.hub.admin(), path, message, MINUTE, refused).await?;
    assert!(object["status"]["artifact"].is_null(), "{object}");
    Ok(())
}

/// Waits until the admission policy admits a source with this trusted root.
async fn until_admitted(d2: &D2, root: Option<&str>) -> TestResult {
    let object = source(d2, TRIAL, root).await?;
    let what = format!("a source with the trusted root {root:?} is admitted");
    until(&what, MINUTE, || async {
        match d2.hub.admin().create(&dry_run(), &object).await {
            Ok(_) => Ok(true),
            Err(RestError::Status {
                status: 422 | 403, ..
            }) => Ok(false),
            Err(other) => Err(other.into()),
        }
    })
    .await
}

/// The source of a case, with the identity of the allowlist.
async fn source(d2: &D2, name: &str, root: Option<&str>) -> Result<Value, TestError> {
    let allowlist = config_map("flux-system", "flux-allowlist");
    let allowlist = d2.hub.admin().get(&allowlist).await?;
    let mut verify = json!({
        "provider": "cosign",
        "matchOIDCIdentity": [{
            "issuer": allowlist["data"]["oidcIssuer"], "subject": allowlist["data"]["oidcSubject"],
        }],
    });
    if let Some(root) = root {
        verify["trustedRootSecretRef"] = json!({ "name": root });
    }
    Ok(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": { "name": format!("keyless-{name}") },
        "spec": {
            "interval": "3s",
            "url": format!("oci://{}/{}", d2.addresses.registry, repository(name)),
            "ref": { "tag": "latest" },
            "verify": verify,
        },
    }))
}

fn repository(name: &str) -> String {
    format!("fleet/{TENANT}/keyless-{name}")
}

fn dry_run() -> String {
    format!(
        "{}?dryRun=All",
        oci_repository(TENANT, "").trim_end_matches('/')
    )
}
