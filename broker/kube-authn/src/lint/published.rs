//! Checks what the issuers of a file publish, as seen from this machine. This finds what a target
//! could not use before the target has the file.

use serde_json::Value;

use super::finding::{Finding, Severity, make_finding};
use crate::certificate::go_releases;
use crate::config::{self, Issuer};
use crate::fetched::{Fetched, HttpResponse};
use crate::keys::{InsteadOfKeys, KeySet, KeySetFault, PublishedSecret};
use crate::prediction::well_known;
use crate::{Code, Minor};

/// How the program that fetched a document names an address to which nothing is sent.
const ADDRESS_REFUSED: &str = "TargetAddressRefused";
/// The longest part of a foreign text that is shown.
const MAX_SHOWN_CHARS: usize = 200;

/// The location of the documents of one entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedDocuments {
    /// The discovery document's URL, always https.
    pub discovery_url: String,
    /// `issuer.certificateAuthority`, PEM; `None` if the machine's root certificates apply.
    pub certificate_authority: Option<String>,
}

/// The documents of one entry's issuer, as far as they could be fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// The result of fetching the discovery document.
    pub discovery: Fetched,
    /// The result of fetching its [`jwks_uri`], if that may be fetched.
    pub keys: Fetched,
}

/// Returns the place of every entry, in the file's order; `None` if its discovery URL is not https.
/// Empty if the apiserver would not load the file.
#[must_use]
pub fn document_places(bytes: &[u8], minor: Minor) -> Vec<Option<PublishedDocuments>> {
    let Ok(loaded) = config::load_configuration(bytes, minor) else {
        return Vec::new();
    };
    loaded
        .configuration
        .jwt
        .iter()
        .map(|jwt| documents_of(&jwt.issuer))
        .collect()
}

fn documents_of(issuer: &Issuer) -> Option<PublishedDocuments> {
    let discovery_url = discovery_url(issuer);
    discovery_url
        .starts_with("https://")
        .then(|| PublishedDocuments {
            discovery_url,
            certificate_authority: Some(issuer.certificate_authority.clone())
                .filter(|pem| !pem.trim().is_empty()),
        })
}

/// Returns the URL of the keys in a discovery document if it is https; nothing else is fetched.
#[must_use]
pub fn jwks_uri(document: &Fetched) -> Option<String> {
    let Fetched::Response(HttpResponse { status: 200, body }) = document else {
        return None;
    };
    let document: Value = serde_json::from_slice(body).ok()?;
    document
        .get("jwks_uri")?
        .as_str()
        .filter(|uri| uri.starts_with("https://"))
        .map(str::to_owned)
}

/// Says that this machine did not read a document, which proves nothing about the target.
pub fn not_read(at: &str, how: &str) -> String {
    format!("{at} was not read from here: {ADDRESS_REFUSED}: {how}")
}

/// Finds faults in what an issuer publishes.
pub(super) fn find_published_faults(
    issuer: &Issuer,
    published: &Published,
    minor: Minor,
    path: &str,
    findings: &mut Vec<Finding>,
) {
    let field = if issuer.discovery_url.is_empty() {
        "url"
    } else {
        "discoveryURL"
    };
    let mut check = PublishedCheck {
        issuer,
        path: format!("{path}.issuer.{field}"),
        findings,
    };
    if let Some(keys_url) = check.check_discovery(&published.discovery) {
        check.check_keys(&keys_url, &published.keys, minor);
    }
}

/// The check of what one issuer publishes, with the findings so far.
struct PublishedCheck<'a> {
    issuer: &'a Issuer,
    /// The field that names the discovery document.
    path: String,
    findings: &'a mut Vec<Finding>,
}

impl PublishedCheck<'_> {
    fn push(&mut self, code: Code, severity: Severity, text: String) {
        self.findings
            .push(make_finding(code, severity, &self.path, text));
    }

    /// Says with which CA certificates a server was not trusted. A forgotten certificateAuthority
    /// is more likely than a target that lacks this machine's root certificates.
    fn trusted_roots(&self) -> &'static str {
        if self.issuer.certificate_authority.trim().is_empty() {
            ", with this machine's root certificates, because the file has no \
             certificateAuthority; add the CA of that server"
        } else {
            ", with certificateAuthority"
        }
    }

    /// Checks the discovery document, and returns the URL of the keys if a target would read them.
    fn check_discovery(&mut self, fetched: &Fetched) -> Option<String> {
        let body = self.check_discovery_fetched(fetched)?;
        let document_url = discovery_url(self.issuer);
        let Ok(document) = serde_json::from_slice::<Value>(body) else {
            self.push(
                Code::DiscoveryMalformed,
                Severity::Error,
                format!("{document_url} is not JSON"),
            );
            return None;
        };
        let text = |name: &str| {
            document
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        if text("issuer") != self.issuer.url {
            let (theirs, ours) = (shorten_text(text("issuer")), &self.issuer.url);
            self.push(
                Code::DiscoveryIssuerDiffers,
                Severity::Error,
                format!("{document_url} is the document of {theirs:?}, but issuer.url is {ours:?}"),
            );
            return None;
        }
        let at = shorten_text(text("jwks_uri"));
        if at.is_empty() {
            self.push(
                Code::DiscoveryMalformed,
                Severity::Error,
                format!("{document_url} has no jwks_uri"),
            );
            return None;
        }
        if !at.starts_with("https://") {
            self.push(
                Code::KeysNotHttps,
                Severity::Error,
                format!("jwks_uri of {document_url} is {at:?}"),
            );
            return None;
        }
        Some(at)
    }

    /// Returns the discovery document, if its server was trusted and serves it.
    fn check_discovery_fetched<'d>(&mut self, fetched: &'d Fetched) -> Option<&'d [u8]> {
        let document_url = discovery_url(self.issuer);
        match fetched {
            Fetched::NotTried => {}
            Fetched::Unreachable(how) => self.push(
                Code::DiscoveryUnreachable,
                Severity::Warning,
                format!("{document_url}, from here: {how}"),
            ),
            Fetched::Untrusted(how) => self.push(
                Code::DiscoveryUntrusted,
                Severity::Error,
                format!("{document_url}: {how}{}", self.trusted_roots()),
            ),
            Fetched::AddressRefused(how) => self.push(
                Code::DiscoveryUnreachable,
                Severity::Warning,
                not_read(&document_url, how),
            ),
            Fetched::Response(HttpResponse { status: 200, body }) => return Some(body),
            Fetched::Response(HttpResponse { status, .. }) => {
                let code = if matches!(status, 401 | 403) {
                    Code::DiscoveryForbidden
                } else {
                    Code::DiscoveryNotServed
                };
                self.push(
                    code,
                    Severity::Error,
                    format!("{document_url} answers anonymous requests with status {status}"),
                );
            }
        }
        None
    }

    fn check_keys(&mut self, at: &str, fetched: &Fetched, minor: Minor) {
        match fetched {
            Fetched::NotTried => {}
            Fetched::Unreachable(how) => self.push(
                Code::KeysUnreachable,
                Severity::Warning,
                format!("{at}, from here: {how}"),
            ),
            Fetched::Untrusted(how) => self.push(
                Code::KeysUntrusted,
                Severity::Error,
                format!("{at}: {how}{}", self.trusted_roots()),
            ),
            Fetched::AddressRefused(how) => {
                self.push(Code::KeysUnreachable, Severity::Warning, not_read(at, how));
            }
            Fetched::Response(HttpResponse { status: 200, body }) => {
                self.check_key_set(at, body, minor);
            }
            Fetched::Response(HttpResponse { status, .. }) => self.push(
                Code::KeysNotServed,
                Severity::Error,
                format!("{at} answers anonymous requests with status {status}"),
            ),
        }
    }

    fn check_key_set(&mut self, at: &str, body: &[u8], minor: Minor) {
        match KeySet::read(body, go_releases(minor)) {
            Ok(set) if set.is_empty() => {
                let instead = set.instead_of_keys().map(InsteadOfKeys::advice);
                let text = instead.map_or(at.to_owned(), |instead| format!("{at}: {instead}"));
                self.push(Code::KeysEmpty, Severity::Error, text);
            }
            Ok(set) => {
                if let Some(PublishedSecret { index, kind }) = set.published_secret() {
                    self.push(
                        Code::PrivateKeyPublished,
                        Severity::Error,
                        format!("{at}: keys[{index}] is {kind}"),
                    );
                }
                if set.verifies_nothing() {
                    let text = format!(
                        "{at}: none of its {} key(s) is a public RSA or EC key",
                        set.len()
                    );
                    self.push(Code::KeysUnusable, Severity::Error, text);
                }
            }
            Err(KeySetFault::Undecodable(reason)) => self.push(
                Code::KeySetUndecodable,
                Severity::Error,
                format!("{at}: {reason}"),
            ),
            Err(KeySetFault::Undetermined(why)) => {
                self.push(why.code, Severity::Warning, format!("{at}: {}", why.reason))
            }
        }
    }
}

fn discovery_url(issuer: &Issuer) -> String {
    if issuer.discovery_url.is_empty() {
        well_known(&issuer.url)
    } else {
        issuer.discovery_url.clone()
    }
}

fn shorten_text(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::lint::{lint_file, lint_published};

    const FILE: &str = "apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://hub/, audiences: [a]}
  claimValidationRules: [{expression: 'claims.exp - claims.iat <= 60 && claims.aud.size() == 1'}]
  claimMappings: {username: {claim: sub, prefix: 'h:'}}
anonymous: {enabled: false}
";
    const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

    fn fetched_response(status: u16, body: &str) -> Fetched {
        Fetched::Response(HttpResponse {
            status,
            body: body.as_bytes().to_vec(),
        })
    }

    fn published_findings(
        file: &str,
        discovery: Fetched,
        keys: Fetched,
    ) -> Vec<(Code, Severity, String, Option<u64>)> {
        let findings = lint_published(
            file.as_bytes(),
            Minor::V1_33,
            &[],
            &[Published { discovery, keys }],
        );
        findings
            .into_iter()
            .map(|found| (found.code, found.severity, found.path, found.line))
            .collect()
    }

    fn document(jwks_uri: &str) -> Fetched {
        fetched_response(
            200,
            &format!(r#"{{"issuer":"https://hub/","jwks_uri":"{jwks_uri}"}}"#),
        )
    }

    #[test]
    fn what_a_target_could_not_use_is_found() {
        let (here, gone) = (document("https://hub/keys"), || {
            Fetched::Unreachable("gone".to_owned())
        });
        let untrusted = || Fetched::Untrusted("unknown".to_owned());
        let none = Fetched::NotTried;
        let cases = [
            (
                gone(),
                none.clone(),
                Code::DiscoveryUnreachable,
                Severity::Warning,
            ),
            (
                untrusted(),
                none.clone(),
                Code::DiscoveryUntrusted,
                Severity::Error,
            ),
            (
                fetched_response(401, ""),
                none.clone(),
                Code::DiscoveryForbidden,
                Severity::Error,
            ),
            (
                fetched_response(404, ""),
                none.clone(),
                Code::DiscoveryNotServed,
                Severity::Error,
            ),
            (
                fetched_response(200, "<html>"),
                none.clone(),
                Code::DiscoveryMalformed,
                Severity::Error,
            ),
            (
                fetched_response(200, r#"{"issuer":"https://hub"}"#),
                none.clone(),
                Code::DiscoveryIssuerDiffers,
                Severity::Error,
            ),
            (
                fetched_response(200, r#"{"issuer":"https://hub/"}"#),
                none.clone(),
                Code::DiscoveryMalformed,
                Severity::Error,
            ),
            (
                document("http://hub/keys"),
                none.clone(),
                Code::KeysNotHttps,
                Severity::Error,
            ),
            (
                here.clone(),
                gone(),
                Code::KeysUnreachable,
                Severity::Warning,
            ),
            (
                here.clone(),
                untrusted(),
                Code::KeysUntrusted,
                Severity::Error,
            ),
            (
                here.clone(),
                fetched_response(403, ""),
                Code::KeysNotServed,
                Severity::Error,
            ),
            (
                here.clone(),
                fetched_response(200, "no"),
                Code::KeySetUndecodable,
                Severity::Error,
            ),
            (
                here.clone(),
                fetched_response(200, r#"{"keys":[]}"#),
                Code::KeysEmpty,
                Severity::Error,
            ),
        ];
        for (discovery, keys, code, severity) in cases {
            assert_eq!(
                published_findings(FILE, discovery, keys),
                [(code, severity, "jwt[0].issuer.url".to_owned(), Some(4))]
            );
        }
        assert_eq!(
            published_findings(FILE, here.clone(), fetched_response(200, KEYS)),
            []
        );
        assert_eq!(published_findings(FILE, none.clone(), none), []);
    }

    /// Both were silent: the apiserver reads such a set, and then refuses every token, or the world
    /// can sign.
    #[test]
    fn private_keys_and_sets_that_verify_nothing_are_errors() {
        const PUBLIC: &str = r#""kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM""#;
        const SECRET: &str = "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE";
        const EDWARDS: &str =
            r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let private = format!(r#"{{{PUBLIC},"d":"{SECRET}"}}"#);
        let half = format!(r#"{{{PUBLIC},"q":"{SECRET}"}}"#);
        let symmetric = format!(r#"{{"kty":"oct","k":"{SECRET}"}}"#);
        let of_keys = |keys: &[&str]| {
            let body = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
            let published = Published {
                discovery: document("https://hub/keys"),
                keys: fetched_response(200, &body),
            };
            lint_published(FILE.as_bytes(), Minor::V1_33, &[], &[published])
        };
        let public = format!("{{{PUBLIC}}}");
        let (secret, unusable) = (Code::PrivateKeyPublished, Code::KeysUnusable);
        for (keys, codes, says) in [
            (
                vec![&*public, &*private],
                vec![secret],
                "keys[1] is a private EC key",
            ),
            (vec![&*half], vec![secret], "keys[0] is a private EC key"),
            (
                vec![&*private],
                vec![secret, unusable],
                "keys[0] is a private EC key",
            ),
            (
                vec![&*symmetric],
                vec![secret, unusable],
                "keys[0] is a symmetric key",
            ),
            (
                vec![EDWARDS],
                vec![unusable],
                "none of its 1 key(s) is a public RSA",
            ),
            (vec![EDWARDS, &*public], vec![], ""),
        ] {
            let findings = of_keys(&keys);
            let found: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
            assert_eq!(found, codes, "{keys:?}");
            let texts: Vec<&str> = findings
                .iter()
                .map(|found| found.message.as_str())
                .collect();
            assert!(texts.concat().contains(says), "{texts:?}");
            assert!(!texts.concat().contains(SECRET), "{texts:?}");
            assert!(
                findings
                    .iter()
                    .all(|found| found.severity == Severity::Error)
            );
        }
    }

    #[test]
    fn distrust_says_by_which_authority() {
        let pem = rcgen::generate_simple_self_signed(["a".to_owned()])
            .unwrap()
            .cert
            .pem();
        let file = FILE.replace(
            "audiences: [a]",
            &format!("discoveryURL: https://d, certificateAuthority: {pem:?}, audiences: [a]"),
        );
        let found = published_findings(
            &file,
            Fetched::Untrusted("unknown".to_owned()),
            Fetched::NotTried,
        );
        assert_eq!(
            found,
            [(
                Code::DiscoveryUntrusted,
                Severity::Error,
                "jwt[0].issuer.discoveryURL".to_owned(),
                Some(4)
            )]
        );
        let place = document_places(file.as_bytes(), Minor::V1_33)[0]
            .clone()
            .unwrap();
        assert_eq!(
            (place.discovery_url.as_str(), place.certificate_authority),
            ("https://d", Some(pem))
        );
    }

    #[test]
    fn only_https_is_fetched() {
        assert_eq!(
            jwks_uri(&document("https://hub/keys")).as_deref(),
            Some("https://hub/keys")
        );
        assert_eq!(jwks_uri(&document("http://hub/keys")), None);
        assert_eq!(
            jwks_uri(&fetched_response(404, r#"{"jwks_uri":"https://hub/keys"}"#)),
            None
        );
        let place = document_places(FILE.as_bytes(), Minor::V1_33)[0]
            .clone()
            .unwrap();
        assert_eq!(
            place,
            PublishedDocuments {
                discovery_url: "https://hub/.well-known/openid-configuration".to_owned(),
                certificate_authority: None
            }
        );
        assert_eq!(
            document_places(
                FILE.replace("https://hub/", "file:///etc").as_bytes(),
                Minor::V1_33
            ),
            [None]
        );
        assert!(lint_file(FILE.as_bytes(), Minor::V1_33, &[]).is_empty());
    }
}
