//! One target of a revocation, and whether it was proven to refuse what the revoked key signed.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_client::target_key_refresh::TargetRefresh;
use keyferry_core::target_address::RefusedDestination;
use keyferry_keys::jwt::{MAX_JWT_BYTES, UnverifiedJwt};
use keyferry_platform::target_probe::ProbeAnswer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::NotProven;
use crate::local_file::ReadError;

/// The fix that makes any kube-apiserver forget a key.
pub(super) const RELOAD: &str =
    "restart its kube-apiservers, or change a byte of its AuthenticationConfiguration";

/// A witness proves nothing. Nothing was revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WitnessError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file has no JWT.
    #[error("reading the witness {}: it is not a JWT; nothing was revoked", .0.display())]
    NotJwt(PathBuf),
    /// The token is not of the key to revoke.
    #[error("reading the witness {}: another key signed it; nothing was revoked", .0.display())]
    OtherKey(PathBuf),
    /// A target refuses an expired token anyway.
    #[error(
        "reading the witness {}: it expires before {until}, so a refusal would prove nothing; \
         nothing was revoked; fix: give one that lives longer, or none",
        path.display()
    )]
    ExpiresEarly { path: PathBuf, until: Timestamp },
    /// No target that trusts the hub has the token's audience.
    #[error(
        "reading the witness {}: no target that trusts the hub has its audience; nothing was \
         revoked; fix: give a token for a target, or none",
        .0.display()
    )]
    NoTarget(PathBuf),
    /// The target refuses the token before the revocation.
    #[error(
        "trying the witness {} at {target}: the target does not accept it, so a later refusal \
         would prove nothing; nothing was revoked; fix: give a token that the target accepts now, \
         or none",
        path.display()
    )]
    NotAccepted { path: PathBuf, target: String },
}

/// A token that the revoked key signed.
pub(super) struct Witness {
    path: PathBuf,
    token: SecretString,
    audiences: Value,
    expires: Option<i64>,
}

impl Witness {
    /// Reads a witness from a file.
    ///
    /// # Errors
    /// [`WitnessError`]: it is not a JWT of that key.
    pub(super) fn read(path: &Path, kid: &str) -> Result<Self, WitnessError> {
        let bytes = crate::local_file::read(path, "the witness", MAX_JWT_BYTES)?;
        let not_jwt = || WitnessError::NotJwt(path.to_owned());
        let text = String::from_utf8(bytes).map_err(|_| not_jwt())?;
        let token = SecretString::from(text.trim().to_owned());
        let jwt = UnverifiedJwt::parse(token.expose_secret()).map_err(|_| not_jwt())?;
        if jwt.kid() != Some(kid) {
            return Err(WitnessError::OtherKey(path.to_owned()));
        }
        let audiences = jwt.claims().get("aud").cloned().unwrap_or_default();
        let expires = jwt.claims().get("exp").and_then(Value::as_i64);
        Ok(Self {
            path: path.to_owned(),
            token,
            audiences,
            expires,
        })
    }

    pub(super) fn is_for(&self, audience: &Audience) -> bool {
        let audience = audience.as_str();
        let one_of = |all: &Vec<Value>| all.iter().any(|one| one.as_str() == Some(audience));
        self.audiences.as_str() == Some(audience) || self.audiences.as_array().is_some_and(one_of)
    }

    /// Checks that the token lives until `until`. A target refuses an expired token anyway, which
    /// would prove nothing.
    ///
    /// # Errors
    /// [`WitnessError::ExpiresEarly`].
    pub(super) fn outlives(&self, until: Timestamp) -> Result<(), WitnessError> {
        match self.expires {
            Some(expires) if expires > until.as_second() => Ok(()),
            _ => Err(WitnessError::ExpiresEarly {
                path: self.path.clone(),
                until,
            }),
        }
    }
}

/// Why the target cannot be contacted at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The TargetCluster is invalid.
    Mistakes,
    /// Its CA certificate is missing or cannot be used.
    Certificate,
    /// It is no cluster, so it has no address.
    NoCluster,
}

/// One target and what was observed of it.
pub(super) struct TargetCase {
    pub(super) name: String,
    pub(super) audience: Option<Audience>,
    target: Result<TargetRefresh, Obstacle>,
    pub(super) witness: Option<Witness>,
    /// Whether it accepted the witness before the revocation.
    accepted: bool,
    /// Whether it refused the witness after the revocation.
    refused: bool,
    /// Why it last did not respond.
    silent: Option<String>,
    /// Why nothing was sent to its address.
    address_refused: Option<RefusedDestination>,
    /// Whether it responded at a time when its cached keys could no longer be old ones, unless it
    /// cannot read new ones.
    answered_late: bool,
}

impl TargetCase {
    pub(super) fn new(
        name: String,
        audience: Option<Audience>,
        target: Result<TargetRefresh, Obstacle>,
    ) -> Self {
        Self {
            name,
            audience,
            target,
            witness: None,
            accepted: false,
            refused: false,
            silent: None,
            address_refused: None,
            answered_late: false,
        }
    }

    /// Tries the witness before the revocation.
    ///
    /// # Errors
    /// [`WitnessError::NotAccepted`]: a later refusal would prove nothing.
    pub(super) async fn try_before(&mut self, already_revoked: bool) -> Result<(), WitnessError> {
        let (Ok(target), Some(witness)) = (&self.target, &self.witness) else {
            return Ok(());
        };
        match target.probe_token(&witness.token).await {
            ProbeAnswer::Accepted(_) => self.accepted = true,
            ProbeAnswer::Unanswered(silence) => self.silent = Some(silence.text),
            ProbeAnswer::AddressRefused(refused) => self.address_refused = Some(refused),
            ProbeAnswer::Refused if already_revoked => {}
            ProbeAnswer::Refused => {
                return Err(WitnessError::NotAccepted {
                    path: witness.path.clone(),
                    target: self.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// Forces the target to reload the issuer's keys, and tries the witness again.
    pub(super) async fn force_refresh(&mut self, issuer: &Issuer, now: Timestamp, late: bool) {
        let (Ok(target), Some(audience)) = (&self.target, &self.audience) else {
            return;
        };
        // One DNS answer must not end the attempts: the holder of the stolen key may have forged it.
        self.address_refused = None;
        match target.refresh_keys(issuer, audience, now).await {
            ProbeAnswer::Refused => {
                (self.silent, self.answered_late) = (None, self.answered_late || late)
            }
            // Only something that does not verify tokens accepts a made-up one, so this is no
            // apiserver.
            ProbeAnswer::Accepted(_) => {
                self.silent = Some("it accepts a token that no issuer signed".to_owned());
            }
            ProbeAnswer::Unanswered(silence) => self.silent = Some(silence.text),
            ProbeAnswer::AddressRefused(refused) => self.address_refused = Some(refused),
        }
        if let Some(witness) = &self.witness {
            match target.probe_token(&witness.token).await {
                ProbeAnswer::Refused => self.refused = true,
                ProbeAnswer::Accepted(_) => self.refused = false,
                ProbeAnswer::Unanswered(silence) => self.silent = Some(silence.text),
                ProbeAnswer::AddressRefused(refused) => self.address_refused = Some(refused),
            }
        }
    }

    /// Whether it refused the witness after the revocation.
    pub(super) fn refuses_witness(&self) -> bool {
        self.refused
    }

    /// Whether further checks can bring no new result.
    pub(super) fn is_decided(&self) -> bool {
        self.target.is_err() || self.refused
    }

    /// Returns what was proven of the target.
    pub(super) fn outcome(&self) -> Result<&'static str, NotProven> {
        let not_proven = |why: String, fix: String| NotProven {
            name: format!("TargetCluster {}", self.name),
            why,
            fix,
        };
        match (&self.target, &self.witness) {
            (Err(Obstacle::Mistakes), _) => Err(not_proven(
                "it has mistakes, so it was not asked".to_owned(),
                format!(
                    "read its status and correct its spec, then run the command again; or {RELOAD}"
                ),
            )),
            (Err(Obstacle::Certificate), _) => Err(not_proven(
                "its CA certificate is missing or cannot be used, so it was not asked".to_owned(),
                format!(
                    "give it one, or the right to read its Secret, then run the command again; or \
                     {RELOAD}"
                ),
            )),
            (Err(Obstacle::NoCluster), _) => Err(not_proven(
                "it is no cluster (kind: Audience), so Keyferry sends nothing to it".to_owned(),
                "make its verifier reload the issuer's keys, and test there that it refuses a \
                 token that the revoked key signed"
                    .to_owned(),
            )),
            (Ok(_), Some(_)) if self.refused && self.accepted => {
                Ok("forgotten: it refuses the witness")
            }
            (Ok(_), Some(_)) if self.refused => Err(not_proven(
                "it refuses the witness, but was not seen to accept it before".to_owned(),
                format!("give a witness that it accepted, or {RELOAD}"),
            )),
            (Ok(_), _) if let Some(refused) = self.address_refused => Err(not_proven(
                format!(
                    "{}: its address, or its proxy's, is {refused}",
                    Reason::TargetAddressRefused.as_str()
                ),
                format!(
                    "correct its address, or allow its network, then run the command again; or \
                     {RELOAD}"
                ),
            )),
            (Ok(_), _) if self.silent.is_some() => Err(not_proven(
                format!(
                    "it was not reached: {}",
                    self.silent.clone().unwrap_or_default()
                ),
                format!("run the command again once it answers; or {RELOAD}"),
            )),
            (Ok(_), Some(_)) => Err(not_proven(
                "it STILL ACCEPTS the witness".to_owned(),
                RELOAD.to_owned(),
            )),
            (Ok(_), None) if self.answered_late => Err(not_proven(
                "it reloaded the keys, but no witness was given to test".to_owned(),
                format!(
                    "give --witness FILE, a token of that key for the target's audience; or \
                     {RELOAD}"
                ),
            )),
            (Ok(_), None) => Err(not_proven(
                "it was not asked for long enough".to_owned(),
                RELOAD.to_owned(),
            )),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use insta::assert_snapshot;
    use keyferry_platform::address_guard::AddressGuard;
    use keyferry_platform::clock::{Clock, SystemClock};
    use keyferry_platform::target_connection::TargetAddress;
    use keyferry_testing::{Authority, EmbeddedHub, EmbeddedTarget, HubOptions, TargetOptions};

    use super::*;

    const AUDIENCE: &str = "target-a";

    struct World {
        hub: EmbeddedHub,
        target: EmbeddedTarget,
        folder: tempfile::TempDir,
    }

    impl World {
        async fn start() -> Self {
            let ca = Authority::new("a CA of a test").unwrap();
            let hub = EmbeddedHub::start(HubOptions {
                discovery_ca: Some(ca.clone()),
                ..HubOptions::default()
            })
            .await
            .unwrap();
            hub.add_service_account("ci", "deployer");
            let options = TargetOptions {
                discovery_url: Some(hub.discovery_url()),
                allowed_subjects: vec!["system:serviceaccount:ci:deployer".to_owned()],
                ..TargetOptions::new(hub.issuer(), AUDIENCE, "hub:", ca.ca_pem())
            };
            let target = EmbeddedTarget::start(options).await.unwrap();
            Self {
                hub,
                target,
                folder: tempfile::tempdir().unwrap(),
            }
        }

        fn witness(&self, audience: &str) -> Witness {
            let token = self
                .hub
                .token("ci", "deployer", audience, Duration::from_secs(3600))
                .unwrap();
            let file = self.folder.path().join("witness");
            std::fs::write(&file, token.expose_secret()).unwrap();
            Witness::read(&file, &self.hub.signing_kid()).unwrap()
        }

        fn case(&self, witness: Option<Witness>) -> TargetCase {
            self.case_at(self.target.url(), witness)
        }

        fn case_at(&self, address: &str, witness: Option<Witness>) -> TargetCase {
            self.guarded_case(
                address,
                witness,
                keyferry_platform::testing::loopback_guard(),
            )
        }

        fn guarded_case(
            &self,
            address: &str,
            witness: Option<Witness>,
            guard: AddressGuard,
        ) -> TargetCase {
            let address = TargetAddress {
                url: address.to_owned(),
                ca_pem: Some(self.target.ca_pem().as_bytes().to_vec()),
                ..TargetAddress::default()
            };
            let mut case = TargetCase::new(
                "prod".to_owned(),
                Some(Audience::new(AUDIENCE).unwrap()),
                Ok(TargetRefresh::new(address, guard)),
            );
            case.witness = witness;
            case
        }

        /// Why the revocation is not proven, and the fix, as a person reads them.
        fn not_proven(&self, case: &TargetCase) -> String {
            let not_proven = case.outcome().unwrap_err();
            let text = format!(
                "{}: {}\nfix: {}\n",
                not_proven.name, not_proven.why, not_proven.fix
            );
            text.replace(self.target.url(), "https://TARGET")
        }

        async fn refresh(&self, case: &mut TargetCase, late: bool) {
            case.force_refresh(
                &Issuer::new(self.hub.issuer()).unwrap(),
                SystemClock::start().now().wall,
                late,
            )
            .await;
        }
    }

    #[tokio::test]
    async fn only_a_witness_that_was_accepted_and_is_refused_proves_it() {
        let world = World::start().await;
        let mut case = world.case(Some(world.witness(AUDIENCE)));
        case.try_before(false).await.unwrap();
        world.refresh(&mut case, true).await;
        assert!(!case.is_decided());
        assert_snapshot!("a-witness-that-is-still-accepted", world.not_proven(&case));
        let old = world.hub.signing_kid();
        world.hub.rotate_key().unwrap();
        world.hub.withdraw_key(&old).unwrap();
        world.target.reload().await;
        world.refresh(&mut case, true).await;
        assert_eq!(
            (case.outcome(), case.is_decided()),
            (Ok("forgotten: it refuses the witness"), true)
        );
    }

    #[tokio::test]
    async fn a_target_at_a_refused_address_is_not_proven_and_is_tried_again() {
        let world = World::start().await;
        let url = world.target.url().to_owned();
        let witness = Some(world.witness(AUDIENCE));
        let mut case = world.guarded_case(&url, witness, AddressGuard::default());
        case.try_before(false).await.unwrap();
        world.refresh(&mut case, true).await;
        // The next DNS answer may be the right one.
        assert!(!case.is_decided() && !case.refuses_witness());
        assert_snapshot!("a-refused-address", world.not_proven(&case));
    }

    #[tokio::test]
    async fn what_was_not_seen_is_not_proven() {
        let world = World::start().await;
        let mut without = world.case(None);
        world.refresh(&mut without, false).await;
        let mut shown = vec![world.not_proven(&without)];
        world.refresh(&mut without, true).await;
        shown.push(world.not_proven(&without));
        let mut nowhere = world.case_at("https://127.0.0.1:1", Some(world.witness(AUDIENCE)));
        nowhere.try_before(false).await.unwrap();
        world.refresh(&mut nowhere, true).await;
        shown.push(world.not_proven(&nowhere));
        let mut never = world.case(Some(world.witness("another")));
        assert!(matches!(
            never.try_before(false).await,
            Err(WitnessError::NotAccepted { .. })
        ));
        never.try_before(true).await.unwrap();
        world.refresh(&mut never, true).await;
        // A second run proves nothing by itself.
        shown.push(world.not_proven(&never));
        for obstacle in [
            Obstacle::Mistakes,
            Obstacle::Certificate,
            Obstacle::NoCluster,
        ] {
            let case = TargetCase::new("prod".to_owned(), None, Err(obstacle));
            assert!(case.is_decided());
            shown.push(world.not_proven(&case));
        }
        assert_snapshot!("what-was-not-seen", shown.join("\n"));
    }

    #[tokio::test]
    async fn a_witness_must_be_of_the_key_and_live_long_enough() {
        let world = World::start().await;
        let witness = world.witness(AUDIENCE);
        assert!(
            witness.is_for(&Audience::new(AUDIENCE).unwrap())
                && !witness.is_for(&Audience::new("another").unwrap())
        );
        let now = SystemClock::start().now().wall;
        witness.outlives(now).unwrap();
        assert!(matches!(
            witness.outlives(now + Duration::from_secs(7200)),
            Err(WitnessError::ExpiresEarly { .. })
        ));
        let file = world.folder.path().join("witness");
        assert!(matches!(
            Witness::read(&file, "another-key"),
            Err(WitnessError::OtherKey(_))
        ));
        std::fs::write(&file, "hello").unwrap();
        assert!(matches!(
            Witness::read(&file, "a"),
            Err(WitnessError::NotJwt(_))
        ));
    }
}
