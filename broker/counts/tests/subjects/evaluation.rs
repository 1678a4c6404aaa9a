//! What `keyferry verify` does with a file and a token, and the one signature check in it.

use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use jiff::Timestamp;
use keyferry_issuer::testing::{ISSUER, SmallWorld};
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Union, verify_token};
use keyferry_platform::clock::Clock;
use secrecy::ExposeSecret;

/// The shipped file of a target that trusts two hubs.
const FILE: &str = include_str!("../../../../auth-configs/several-hubs.yaml");

/// A file, a token that it accepts, and the keys.
pub struct Evaluation {
    file: String,
    token: String,
    keys: Vec<u8>,
    now: Timestamp,
    compiled: Compiled,
    read_keys: Keys,
}

impl Evaluation {
    /// Signs the token, and compiles the file.
    pub fn new(world: &SmallWorld) -> Self {
        let audience = "https://prod.example.com";
        let lifetime = Duration::from_secs(3600);
        let token = world
            .hub
            .token("tenant-a", "reconciler", audience, lifetime)
            .unwrap();
        let published = world.publisher.reader().current().unwrap();
        let keys = published.jwks.bytes.to_vec();
        let file = FILE.replace("https://hub-eu.keyferry.test", ISSUER);
        Self {
            compiled: compile(&file),
            read_keys: Keys::for_all(&keys),
            file,
            token: token.expose_secret().to_owned(),
            keys,
            now: world.clock.now().wall,
        }
    }

    /// Judges the token by the compiled file.
    pub fn evaluate_token(&self) -> bool {
        self.evaluate(&self.compiled, &self.read_keys)
    }

    /// Reads and compiles the file, reads the keys, and judges the token.
    pub fn verify_from_file(&self) -> bool {
        self.evaluate(&compile(&self.file), &Keys::for_all(&self.keys))
    }

    fn evaluate(&self, compiled: &Compiled, keys: &Keys) -> bool {
        let token = Token::read(self.token.as_bytes()).unwrap();
        matches!(
            verify_token(compiled, &token, keys, self.now).union(),
            Union::Accepted(_)
        )
    }

    /// The token's signature check alone, with nothing left to decode.
    pub fn signature_check(&self) -> impl Fn() -> bool + use<> {
        let document: serde_json::Value = serde_json::from_slice(&self.keys).unwrap();
        let key = &document["keys"][0];
        let coordinate = |name: &str| decode(key[name].as_str().unwrap());
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let (signed, signature) = self.token.rsplit_once('.').unwrap();
        let (signed, signature) = (signed.to_owned(), decode(signature));
        move || {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point);
            key.verify(signed.as_bytes(), &signature).is_ok()
        }
    }
}

fn compile(file: &str) -> Compiled {
    let minor = Minor::V1_36;
    let Ok(loaded) = load_configuration(file.as_bytes(), minor) else {
        panic!("a shipped file is not loaded");
    };
    validate_configuration(&loaded.configuration, minor, &[]).unwrap()
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(text)
        .unwrap()
}
