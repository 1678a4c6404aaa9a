//! The hub's apiservers drop the public part of a key.
//!
//! Keyferry keeps a key published while a token that it issued may live. The hub itself refuses the
//! key's tokens at once, also those of callers.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;

use super::delivered::{DeliveredToken, check_statuses, live_tokens_of};
use super::draft::{Draft, NeededFacts, Refused};
use super::scene::Scene;
use super::timing::{POD_TOKEN_USE, UNTIL_REFUSED};
use super::window::{Window, after, printed};
use super::{CallerClass, SafeMoment};
use crate::facts::{KeyLife, KeyState};

/// The key with this kid leaves the hub at the begin.
pub(super) fn rehearse_key_removal(scene: &Scene<'_>, kid: &ForeignText) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Accesses, NeededFacts::Journal]);
    draft.check_scope(scene, "which tokens of other namespaces need the key");
    check_statuses(scene, &mut draft, true);
    let tokens = live_tokens_of(scene, kid);
    add_live_tokens(&mut draft, &tokens, scene.at);
    match scene.key(kid) {
        None => {
            leave_unknown(&mut draft, kid);
            return draft;
        }
        Some(key) if key.withdrawn_at.is_some() => {
            draft.answer = format!(
                "the hub has dropped key {} already; Keyferry keeps it published for delivered \
                 tokens of it that live: {}",
                key.kid,
                tokens.len()
            );
        }
        Some(key) if key.state == KeyState::Signs => refuse_while_it_signs(scene, &mut draft, key),
        Some(key) => decide_safe_moment(scene, &mut draft, key, &tokens),
    }
    write_runbook(&mut draft, kid);
    draft
}

/// A key that neither the journal nor a status names.
pub(super) fn leave_unknown(draft: &mut Draft, kid: &ForeignText) {
    draft.leave_open(
        format!("key {kid}"),
        "neither the key journal nor a status that was read names it",
        "keyferry keys lists the kids",
    );
    draft.answer = format!("key {kid} is not known");
}

/// Each token of the key lives on: Keyferry keeps the key published. Who serves the keys without
/// the journal does not.
fn add_live_tokens(draft: &mut Draft, tokens: &[DeliveredToken<'_>], at: Timestamp) {
    for token in tokens {
        let why = format!(
            "the token in {} needs the key until {}; a target that reads the keys from a copy \
             without the key journal forgets it",
            token.label(),
            printed(token.expires_at)
        );
        draft.refuse(
            token.readers("SignatureInvalid", why),
            None,
            Window::between(at, Some(after(token.expires_at, UNTIL_REFUSED))),
        );
    }
}

fn refuse_while_it_signs(scene: &Scene<'_>, draft: &mut Draft, key: &KeyLife) {
    let unseen = scene.unseen_key();
    let certain = Window::since(scene.after(UNTIL_REFUSED));
    draft.refuse(
        Refused::callers(
            CallerClass::AnyCaller,
            "CallerRejected",
            "the hub signs callers' tokens with the key, and refuses them",
        ),
        unseen.is_none().then_some(certain),
        Some(Window::since(scene.at)),
    );
    draft.refuse_own_token(Some(Window::since(scene.at)));
    draft.answer = match unseen {
        None => format!(
            "key {} signs: without it the hub refuses its own tokens; rotate first",
            key.kid
        ),
        Some(unseen) => {
            draft.leave_open_which_signs(unseen);
            format!(
                "key {} is the last that was seen to sign, and key {} may sign already: see first \
                 that it does",
                key.kid, unseen.kid
            )
        }
    };
}

fn decide_safe_moment(
    scene: &Scene<'_>,
    draft: &mut Draft,
    key: &KeyLife,
    tokens: &[DeliveredToken<'_>],
) {
    let successor = scene.signing_key().and_then(|signing| signing.signs_since);
    let last_end = tokens.iter().map(|token| token.expires_at).max();
    // The kubelet replaces a Pod's token within a day, so by then no caller has one of this key.
    let pods = successor.map(|since| after(since, POD_TOKEN_USE));
    draft.refuse(
        Refused::callers(
            CallerClass::AnyCaller,
            "CallerRejected",
            "the hub refuses a caller's token that this key signed",
        ),
        None,
        Window::between(scene.at, pods),
    );
    draft.refuse_own_token(Window::between(scene.at, pods));
    draft.assume("no Pod of the hub has a token that lives a year: --service-account-extend-token-expiration=false, or none needs the hub");
    let (Some(safe), Some(pods)) = (key.safe_to_remove_at, pods) else {
        draft.leave_open(
            format!("from when key {} is safe to remove", key.kid),
            "no newer key was seen to sign, or this one never was",
            "rotate first: keyferry rehearse key-rotation --publish-first",
        );
        draft.answer = not_before(key, last_end);
        return;
    };
    if draft.is_open() {
        draft.answer = not_before(key, last_end.max(Some(safe)));
        return;
    }
    let at = safe
        .max(pods)
        .max(last_end.map_or(safe, |end| after(end, UNTIL_REFUSED)));
    draft.answer = format!(
        "key {} is safe to remove from {} on; delivered tokens of it that live: {}",
        key.kid,
        printed(at),
        tokens.len()
    );
    draft.earliest_safe = Some(SafeMoment {
        at,
        step: format!("remove key {} from the hub", key.kid),
    });
}

fn not_before(key: &KeyLife, last_end: Option<Timestamp>) -> String {
    match last_end {
        Some(end) => format!(
            "it is not known from when key {} is safe to remove, but not before {}",
            key.kid,
            printed(end)
        ),
        None => format!(
            "it is not known from when key {} is safe to remove",
            key.kid
        ),
    }
}

fn write_runbook(draft: &mut Draft, kid: &ForeignText) {
    draft.add_step(
        "see that a newer key signs",
        Some("keyferry keys".to_owned()),
        format!("{kid} says `before` under SIGNS and `now` under SAFE TO REMOVE"),
    );
    draft.add_step(
        "remove its --service-account-key-file from every apiserver of the hub; restart one at a \
         time",
        Some(
            "kubectl --server https://APISERVER:6443 create token keyferry-canary -n \
             keyferry-system --audience keyferry.dev/inert --duration 10m"
                .to_owned(),
        ),
        "each apiserver mints before the next one restarts",
    );
    draft.add_step(
        "see that Keyferry withdraws it",
        Some("keyferry keys".to_owned()),
        format!("{kid} is withdrawn after two minutes at most, and gone once no token needs it"),
    );
}
