//! The lives of the hub's signing keys: from the journal, or from the tokens that deliveries wrote.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;

use super::Judgement;
use crate::facts::{AccessFacts, KeyFacts, KeyLife, KeyState};
use crate::gap::ACCESSES;
use crate::keys_document::ListedKey;

/// The delivered tokens of one key.
#[derive(Clone, Copy, Debug, Default)]
struct LiveTokens {
    count: usize,
    last_ends: Option<Timestamp>,
}

impl Judgement<'_> {
    /// Describes the keys of the hub's issuer.
    pub(super) fn key_facts(&self, accesses: &[AccessFacts]) -> KeyFacts {
        let live = self.live_tokens(accesses);
        let Some(document) = &self.snapshot.keys else {
            let mut keys: Vec<KeyLife> = live
                .iter()
                .map(|(kid, tokens)| self.with_tokens(key_of_tokens(kid), Some(tokens)))
                .collect();
            keys.sort_by_key(|key| std::cmp::Reverse(key.last_token_ends));
            return KeyFacts {
                issuer: self.hub_issuer(),
                journal_read: false,
                keys,
            };
        };
        let revoked = |kid: &str| document.revoked.iter().find(|it| it.kid == kid);
        let listed = document.keys.iter().map(|key| {
            let life = KeyLife {
                revoked_at: revoked(&key.kid).map(|it| it.at),
                ..self.key_of_journal(key)
            };
            self.with_tokens(life, live.get(&key.kid))
        });
        let is_listed = |kid: &str| document.keys.iter().any(|key| key.kid == kid);
        let others = document.revoked.iter().filter(|it| !is_listed(&it.kid));
        let others = others.map(|it| {
            let life = KeyLife {
                revoked_at: Some(it.at),
                ..key_of_tokens(&it.kid)
            };
            self.with_tokens(life, live.get(&it.kid))
        });
        let mut keys: Vec<KeyLife> = listed.chain(others).collect();
        for key in &mut keys {
            if key.revoked_at.is_some() {
                key.state = KeyState::Revoked;
            }
        }
        keys.sort_by_key(|key| std::cmp::Reverse(key.published_at.or(key.revoked_at)));
        KeyFacts {
            issuer: document.issuer.as_deref().map(ForeignText::new),
            journal_read: true,
            keys,
        }
    }

    fn key_of_journal(&self, key: &ListedKey) -> KeyLife {
        let lives = key.tokens_until.is_some_and(|until| until > self.now);
        let state = match (key.withdrawn_at, key.signs.as_str()) {
            (Some(_), _) | (None, "before") if lives => KeyState::Verifies,
            (Some(_), _) | (None, "before") => KeyState::Retired,
            _ if key.active_at.is_some_and(|at| at > self.now) => KeyState::Activating,
            (None, "lastSeen") => KeyState::Signs,
            (None, _) => KeyState::Active,
        };
        KeyLife {
            algorithm: key.algorithm.as_deref().map(ForeignText::new),
            state,
            published_at: key.published_at,
            active_at: key.active_at,
            signs_since: key.signs_since,
            withdrawn_at: key.withdrawn_at,
            safe_to_remove_at: key.remove_after,
            last_token_ends: key.tokens_until,
            ..key_of_tokens(&key.kid)
        }
    }

    /// Adds what statuses say of a key's tokens. None is counted if not all statuses were read.
    fn with_tokens(&self, key: KeyLife, tokens: Option<&LiveTokens>) -> KeyLife {
        let tokens = tokens.copied().unwrap_or_default();
        let knows_all = self.snapshot.is_whole(ACCESSES) && self.snapshot.tenant.is_none();
        KeyLife {
            live_tokens: knows_all.then_some(tokens.count),
            last_token_ends: key.last_token_ends.max(tokens.last_ends),
            ..key
        }
    }

    /// Counts the delivered tokens that live, by the hub's keys. Keys of a managed issuer are not
    /// the hub's.
    fn live_tokens(&self, accesses: &[AccessFacts]) -> BTreeMap<String, LiveTokens> {
        let mut live: BTreeMap<String, LiveTokens> = BTreeMap::new();
        for access in accesses {
            let target = self.snapshot.targets.get(&access.target);
            if target.is_some_and(|target| target.view.spec.has_managed_issuer()) {
                continue;
            }
            for delivery in &access.deliveries {
                let lives = delivery.expires_at.is_some_and(|at| at > self.now);
                if let (Some(kid), true) = (&delivery.key_id, lives) {
                    let tokens = live.entry(kid.to_string()).or_default();
                    tokens.count += 1;
                    tokens.last_ends = tokens.last_ends.max(delivery.expires_at);
                }
            }
        }
        live
    }

    /// The issuer that a target of the hub's issuer has to trust.
    fn hub_issuer(&self) -> Option<ForeignText> {
        let targets = self.snapshot.targets.values();
        let mut of_hub = targets.filter(|target| !target.view.spec.has_managed_issuer());
        of_hub.find_map(|target| {
            let status = target.view.status.as_ref()?;
            status.issuer.as_deref().map(ForeignText::new)
        })
    }
}

/// A key of which nothing but its name is known.
fn key_of_tokens(kid: &str) -> KeyLife {
    KeyLife {
        kid: ForeignText::new(kid),
        algorithm: None,
        state: KeyState::NotKnown,
        published_at: None,
        active_at: None,
        signs_since: None,
        signs_until: None,
        withdrawn_at: None,
        revoked_at: None,
        safe_to_remove_at: None,
        live_tokens: None,
        last_token_ends: None,
    }
}
