//! Keys that a newer hub may serve, and their effect on verifiers that would get them unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;

use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::hub::PublishedHub;
use super::verdicts::{Program, ask, by_library};

/// An odd member of a key set.
#[derive(Clone, Copy, Debug)]
enum Oddity {
    /// An ML-DSA key (RFC 9964), which kube-apiserver's main branch can sign with.
    Akp,
    /// A key for key agreement.
    X25519,
    /// A key on a curve that Kubernetes does not sign with.
    Secp256k1,
    /// An invalid certificate chain.
    Chain,
}

const ALL: [Oddity; 4] = [
    Oddity::Akp,
    Oddity::X25519,
    Oddity::Secp256k1,
    Oddity::Chain,
];

impl Oddity {
    fn add_to(self, set: &mut Value) {
        let Some(keys) = set["keys"].as_array_mut() else {
            return;
        };
        let (x, y) = (
            "WKn-ZIGevcwGIyyrzFoZNBdaq9_TsqzGl96oc0CWuis",
            "y77t-RvAHRKTsSGdIYUfweuOvwrvDD-Q3Hv5J0fSKbE",
        );
        match self {
            Self::Akp => {
                keys.insert(0, json!({ "kty": "AKP", "alg": "ML-DSA-44", "use": "sig", "kid": "post-quantum", "pub": "q".repeat(1750) }));
            }
            Self::X25519 => {
                keys.push(json!({ "kty": "OKP", "crv": "X25519", "kid": "x", "x": "hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo" }));
            }
            Self::Secp256k1 => keys.push(json!({ "kty": "EC", "crv": "secp256k1", "alg": "ES256K", "kid": "k1", "x": x, "y": y })),
            Self::Chain => keys.iter_mut().filter(|key| key["kty"] == "RSA").for_each(|key| {
                key["x5c"] = json!(["bm90IGEgY2VydGlmaWNhdGU="]);
            }),
        }
    }

    /// The verifiers that then reject tokens of the hub's sound keys.
    /// docs/development/conformance.md has the same list.
    fn breaks(self) -> BTreeSet<&'static str> {
        // kube-apiserver up to 1.37 verifies with the last two.
        let old_go = [
            "go-jose v3 v3.0.0",
            "go-jose v3 v3.0.5",
            "go-jose v4 v4.1.8",
            "go-jose v2 v2.6.3",
            "go-oidc v2 v2.3.0",
            "go-oidc v2 v2.5.0",
        ];
        let further: &[&str] = match self {
            Self::Akp => &["jwx v3 v3.0.0", "jwx v3 v3.3.0", "authlib 1.9.9"],
            Self::X25519 => &[],
            Self::Secp256k1 => &[
                "go-jose v4 v4.0.3",
                "go-oidc v3 v3.11.0",
                "jwx v3 v3.0.0",
                "jwx v3 v3.3.0",
                "joserfc 1.8.0",
                "Nimbus JOSE+JWT 10.5",
            ],
            Self::Chain => &[
                "go-jose v4 v4.0.3",
                "go-oidc v3 v3.11.0",
                "go-oidc v3 v3.21.0",
                "jwx v3 v3.3.0",
                "Nimbus JOSE+JWT 10.5",
                "jose4j 0.9.6",
            ],
        };
        old_go.into_iter().chain(further.iter().copied()).collect()
    }
}

/// Adds all oddities.
pub(super) fn add_to(set: &mut Value) {
    ALL.iter().for_each(|oddity| oddity.add_to(set));
}

/// The same hub without Keyferry. Because of one key that they need not know, these verifiers drop
/// the whole set, and with it every token.
pub(super) async fn a_hubs_own_set_would_break_some(hub: Arc<PublishedHub>) -> TestResult {
    let server = DocumentServer::start(&hub.ca).await?;
    let tokens: Vec<&str> = hub.good.iter().map(String::as_str).collect();
    let programs = [
        Program::Go(Part::GoVerifiers),
        Program::Go(Part::OlderGoVerifiers),
        Program::Other(Client::PythonVerifiers),
        Program::Other(Client::JavaScriptVerifiers),
        Program::Other(Client::JavaVerifiers),
    ];
    for oddity in ALL {
        let mut upstream = hub.sound.clone();
        oddity.add_to(&mut upstream);
        let origin = format!("{}/{oddity:?}", server.url());
        server.put(&format!("/{oddity:?}/keys"), &upstream);
        let document = json!({
            "issuer": hub.issuer,
            "jwks_uri": format!("{origin}/keys"),
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "ES384"],
        });
        server.put(
            &format!("/{oddity:?}/.well-known/openid-configuration"),
            &document,
        );
        let mut broken = BTreeSet::new();
        for program in programs {
            let verdicts = ask(&hub, program, &origin, &tokens).await?;
            for (library, verdicts) in by_library(program, verdicts, tokens.len())? {
                if verdicts.iter().any(|verdict| verdict.refused.is_some()) {
                    broken.insert(library);
                }
            }
        }
        assert_eq!(
            broken,
            oddity.breaks().into_iter().map(str::to_owned).collect(),
            "{oddity:?}"
        );
    }
    Ok(())
}
