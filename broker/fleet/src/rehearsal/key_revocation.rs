//! `keyferry revoke`: replicas stop publishing a key, and targets are made to forget it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, ObjectName};

use super::delivered::{DeliveredToken, check_statuses, live_tokens_of};
use super::draft::{Draft, NeededFacts, Refused};
use super::key_removal::leave_unknown;
use super::scene::Scene;
use super::timing::{
    MINT_FAILURE_LIFETIME, POD_TOKEN_USE, REPLICA_SPREAD, UNTIL_REVOKED_TOKEN_REPLACED,
    until_forgotten,
};
use super::window::{Window, after, printed};
use super::{CallerClass, SafeMoment};
use crate::facts::{Answer, KeyLife, KeyState, TargetFacts};

/// What signs in the place of the revoked key.
enum Successor<'a> {
    /// An active key.
    Active,
    /// A key that is active from then on.
    From(Timestamp),
    /// A published key that was not seen to sign. The hub may sign with it, or with the revoked one.
    Unseen(&'a KeyLife),
    /// None: the hub signs with the revoked key.
    Missing,
}

/// The key with this kid is revoked at the begin.
pub(super) fn rehearse_key_revocation(scene: &Scene<'_>, kid: &ForeignText) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(
        scene,
        &[
            NeededFacts::Accesses,
            NeededFacts::Targets,
            NeededFacts::Journal,
        ],
    );
    draft.check_scope(scene, "which tokens of other namespaces the key signed");
    check_statuses(scene, &mut draft, true);
    let tokens = live_tokens_of(scene, kid);
    if scene.key(kid).is_none() {
        leave_unknown(&mut draft, kid);
        return draft;
    }
    draft.add_milestone(
        "every replica publishes the key no more, and issues no token of it",
        scene.at,
        Some(scene.after(REPLICA_SPREAD)),
    );
    add_targets(scene, &mut draft, &tokens);
    if scene.fleet.keys.journal_read {
        let successor = successor_of(scene, kid);
        refuse_callers(scene, &mut draft, &successor);
        refuse_readers(scene, &mut draft, &tokens, &successor);
        decide_end(scene, &mut draft, kid, &successor, tokens.len());
    } else {
        draft.answer = format!(
            "which key signs is not known; delivered tokens of key {kid} that are known: {}",
            tokens.len()
        );
    }
    draft.refuse(
        Refused::callers(
            CallerClass::KeptCopy,
            "SignatureInvalid",
            "a token of the key that a caller fetched before is not rewritten",
        ),
        None,
        Window::between(scene.at, Some(scene.after(POD_TOKEN_USE))),
    );
    write_runbook(scene, &mut draft, kid, &tokens);
    draft
}

fn successor_of<'a>(scene: &Scene<'a>, kid: &ForeignText) -> Successor<'a> {
    let signing = scene.signing_key().filter(|key| key.kid != *kid);
    if let Some(key) = signing {
        return match key.active_at {
            Some(active_at) if active_at > scene.at => Successor::From(active_at),
            _ => Successor::Active,
        };
    }
    let unseen = scene.unseen_key().filter(|key| key.kid != *kid);
    unseen.map_or(Successor::Missing, Successor::Unseen)
}

/// Until when each target accepts tokens of the key.
fn add_targets(scene: &Scene<'_>, draft: &mut Draft, tokens: &[DeliveredToken<'_>]) {
    let forgotten = scene.after(until_forgotten(scene.parameters.max_age));
    for target in scene
        .trusting_targets()
        .filter(|target| scene.trusts_hub_keys(target))
    {
        let needs_it = tokens
            .iter()
            .any(|token| token.access.target == target.name);
        let latest = match target.reachable {
            Answer::Yes => Some(forgotten),
            Answer::No { .. } | Answer::Unknown { .. } => {
                leave_reload_open(draft, target);
                None
            }
        };
        let tokens = if needs_it {
            "its delivered tokens"
        } else {
            "tokens"
        };
        draft.add_milestone_at(
            Some(target.name.clone()),
            format!("it accepts {tokens} of the key no more"),
            scene.at,
            latest,
        );
    }
}

fn leave_reload_open(draft: &mut Draft, target: &TargetFacts) {
    let why = match &target.reachable {
        Answer::No { message, .. } => format!("it does not answer: {message}"),
        Answer::Unknown { why } => format!("whether it answers is not known: {why}"),
        Answer::Yes => return,
    };
    draft.leave_open(
        format!("when target {} forgets the key", target.name),
        why,
        format!(
            "change the bytes of its AuthenticationConfiguration, or give keyferry revoke a \
             --witness of {}",
            target.name
        ),
    );
}

fn refuse_callers(scene: &Scene<'_>, draft: &mut Draft, successor: &Successor<'_>) {
    let own_tokens_end = match successor {
        Successor::Unseen(_) | Successor::Missing => None,
        Successor::Active | Successor::From(_) => Some(scene.after(POD_TOKEN_USE)),
    };
    draft.refuse(
        Refused::callers(
            CallerClass::AnyCaller,
            "CallerRejected",
            "the caller's own token has the revoked key, until its kubelet or a restart of its Pod \
             replaces it",
        ),
        None,
        Window::between(scene.at, own_tokens_end),
    );
    if let Successor::From(active_at)
    | Successor::Unseen(KeyLife {
        active_at: Some(active_at),
        ..
    }) = successor
        && *active_at > scene.at
    {
        draft.refuse(
            Refused::callers(
                CallerClass::AnyCaller,
                "KeySettling",
                "the key that signs now is not active yet, and tokens of the revoked one are not \
                 issued",
            ),
            None,
            Window::between(scene.at, Some(after(*active_at, MINT_FAILURE_LIFETIME))),
        );
    }
    let (why, certain) = match successor {
        Successor::Active | Successor::From(_) => return,
        Successor::Unseen(_) => (
            "the hub was not seen to sign with another key than the revoked one",
            None,
        ),
        Successor::Missing => (
            "the hub still signs with the revoked key",
            Some(Window::since(
                scene.after(REPLICA_SPREAD + MINT_FAILURE_LIFETIME),
            )),
        ),
    };
    draft.refuse(
        Refused::callers(CallerClass::AnyCaller, "KeyRevoked", why),
        certain,
        Some(Window::since(scene.at)),
    );
}

/// Readers of objects whose token the key signed, until the object is rewritten.
fn refuse_readers(
    scene: &Scene<'_>,
    draft: &mut Draft,
    tokens: &[DeliveredToken<'_>],
    successor: &Successor<'_>,
) {
    let replaced = match successor {
        Successor::Active => Some(scene.after(UNTIL_REVOKED_TOKEN_REPLACED)),
        Successor::From(active_at) => Some(after(
            scene.at.max(*active_at),
            UNTIL_REVOKED_TOKEN_REPLACED,
        )),
        Successor::Unseen(_) | Successor::Missing => None,
    };
    let forgotten = scene.after(until_forgotten(scene.parameters.max_age));
    for token in tokens {
        let is_reached = scene
            .target(&token.access.target)
            .is_some_and(|target| target.reachable == Answer::Yes);
        // Nothing replaces the token while the hub signs with the key itself.
        let is_missing = matches!(successor, Successor::Missing);
        let certain = (is_missing && is_reached).then(|| Window::since(forgotten));
        let why = format!("the token in {} has the revoked key", token.label());
        draft.refuse(
            token.readers("SignatureInvalid", why),
            certain,
            Window::between(scene.at, replaced),
        );
    }
}

fn decide_end(
    scene: &Scene<'_>,
    draft: &mut Draft,
    kid: &ForeignText,
    successor: &Successor<'_>,
    count: usize,
) {
    let replaced = match successor {
        Successor::Missing => {
            draft.answer = format!(
                "the hub signs with key {kid}: no caller gets a token until it signs with another"
            );
            return;
        }
        Successor::Unseen(unseen) => {
            draft.leave_open_which_signs(unseen);
            draft.answer = format!(
                "key {kid} is the last that was seen to sign; if the hub signs with it still, no \
                 caller gets a token until it signs with another"
            );
            return;
        }
        Successor::Active => scene.after(UNTIL_REVOKED_TOKEN_REPLACED),
        Successor::From(active_at) => after(scene.at.max(*active_at), UNTIL_REVOKED_TOKEN_REPLACED),
    };
    draft.add_milestone(
        "each delivered token of the key is replaced",
        scene.at,
        Some(replaced),
    );
    let forgotten = scene.after(until_forgotten(scene.parameters.max_age));
    draft.answer = format!(
        "targets that answer forget key {kid} by {}; delivered tokens of it, replaced by {}: {count}",
        printed(forgotten),
        printed(replaced)
    );
    if !draft.is_open() {
        draft.earliest_safe = Some(SafeMoment {
            at: replaced.max(forgotten),
            step: "rely on its refusal, once `keyferry revoke` has proven it".to_owned(),
        });
    }
}

fn write_runbook(
    scene: &Scene<'_>,
    draft: &mut Draft,
    kid: &ForeignText,
    tokens: &[DeliveredToken<'_>],
) {
    // The first access of each target whose delivered token the key signed.
    let by_target: BTreeMap<&ObjectName, &AccessName> = tokens
        .iter()
        .rev()
        .map(|token| (&token.access.target, &token.access.name))
        .collect();
    let is_signing = scene
        .key(kid)
        .is_some_and(|key| key.state == KeyState::Signs);
    for (target, access) in &by_target {
        if is_signing {
            draft.add_step(
                format!("while the hub signs with the key, fetch a witness for target {target}"),
                Some(format!("keyferry token {access} > token-of-{target}")),
                format!("a token whose header names {kid}"),
            );
        } else {
            draft.add_step(
                format!(
                    "write a token of the key for target {target} into token-of-{target}, such as \
                     that in the object of {access}"
                ),
                None,
                format!("a token whose header names {kid}"),
            );
        }
    }
    if is_signing {
        draft.add_step(
            "let the hub sign with another key first",
            Some("keyferry rehearse key-rotation --publish-first".to_owned()),
            "the order of the steps, and from when the new key may sign",
        );
    }
    let witnesses = by_target
        .keys()
        .map(|target| format!("--witness token-of-{target}"));
    draft.add_step(
        "revoke it",
        Some(
            std::iter::once(format!("keyferry revoke --kid {kid}"))
                .chain(witnesses)
                .collect::<Vec<_>>()
                .join(" "),
        ),
        "each target refuses its witness, and each object is rewritten; exit code 0",
    );
    draft.add_step(
        "where a line says NOT PROVEN, change the bytes of that target's \
         AuthenticationConfiguration, and run it again",
        None,
        "no line says NOT PROVEN",
    );
}
