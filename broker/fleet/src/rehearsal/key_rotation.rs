//! The hub gets a new signing key, published first or signing at once.
//!
//! Keyferry issues a token of the new key only once every target can know it. Tokens that a client
//! mints by itself have no such delay, so targets may refuse those.

use jiff::Timestamp;
use keyferry_api::lifetime;

use super::draft::{Draft, NeededFacts, Refused};
use super::scene::Scene;
use super::timing::{
    ACTIVATION_PATIENCE, CLOCK_TOLERANCE, HUB_RECOVERY, LEAST_UNTIL_PUBLISHED,
    MINT_FAILURE_LIFETIME, UNTIL_PUBLISHED, UNTIL_REFUSED, refetch_pause,
};
use super::window::{Window, after, before, printed};
use super::{CallerClass, SafeMoment};
use crate::facts::{AccessFacts, TargetFacts};

/// The public part is added at the begin, and signs once it is active.
pub(super) fn rehearse_publishing_first(scene: &Scene<'_>) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Journal]);
    let published = scene.after(LEAST_UNTIL_PUBLISHED);
    let published_by = scene.after(UNTIL_PUBLISHED + scene.replica_lag());
    let delay = scene.activation_delay();
    let signs = after(published_by, delay);
    draft.add_milestone("the new key is published", published, Some(published_by));
    draft.add_milestone(
        "the new key is active: every target knows it",
        after(published, delay),
        Some(signs),
    );
    add_old_key_end(scene, &mut draft, signs);
    draft.answer = format!(
        "no call is refused if the hub signs with the new key from {} on",
        printed(signs)
    );
    draft.earliest_safe = Some(SafeMoment {
        at: signs,
        step: "sign with the new key".to_owned(),
    });
    assume_rotation(scene, &mut draft);
    write_publishing_runbook(scene, &mut draft, signs);
    draft
}

/// The hub signs with a key from the begin on that was never published.
pub(super) fn rehearse_signing_at_once(scene: &Scene<'_>) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(
        scene,
        &[
            NeededFacts::Accesses,
            NeededFacts::Targets,
            NeededFacts::Journal,
        ],
    );
    let published_by = scene.after(UNTIL_PUBLISHED + scene.replica_lag());
    let delay = scene.activation_delay();
    draft.add_milestone("the new key is published", scene.at, Some(published_by));
    draft.add_milestone(
        "the new key is active: every target knows it",
        scene.after(delay),
        Some(after(published_by, delay)),
    );
    refuse_callers_without_token(scene, &mut draft, published_by);
    for access in scene.own_minters() {
        refuse_own_minter(scene, &mut draft, access, published_by);
    }
    add_old_key_end(scene, &mut draft, scene.at);
    let target_refuses = draft
        .refusals()
        .iter()
        .filter(|refusal| refusal.caller == CallerClass::OwnMinter)
        .count();
    draft.answer = format!(
        "callers without a token wait until {} at most; tokens that Keyferry delivered stay valid; \
         accesses whose client mints by itself, and may be refused at its target: {target_refuses}",
        printed(after(published_by, delay))
    );
    draft.earliest_safe = Some(SafeMoment {
        at: after(published_by, delay),
        step: "rotate again: every target knows the key".to_owned(),
    });
    assume_rotation(scene, &mut draft);
    write_signing_runbook(scene, &mut draft, after(published_by, delay));
    draft
}

/// Callers for which no token is cached get one once the key is active.
fn refuse_callers_without_token(scene: &Scene<'_>, draft: &mut Draft, published_by: Timestamp) {
    let active_by = after(published_by, scene.activation_delay());
    // A caller is not refused while the rest of the delay is short.
    let certain_until = scene.after(
        scene
            .activation_delay()
            .saturating_sub(ACTIVATION_PATIENCE + CLOCK_TOLERANCE),
    );
    draft.refuse(
        Refused::callers(
            CallerClass::CallerWithoutToken,
            "KeySettling",
            "the hub signs with a key that not every target can know yet",
        ),
        Window::between(scene.after(CLOCK_TOLERANCE), Some(certain_until)),
        Window::between(
            scene.at,
            Some(after(active_by, MINT_FAILURE_LIFETIME + CLOCK_TOLERANCE)),
        ),
    );
    let published = Window::between(scene.at, Some(published_by));
    let restarted = Window::between(scene.at, Some(scene.after(HUB_RECOVERY)));
    for (caller, reason, why, possible) in [
        (
            CallerClass::CallerWithoutToken,
            "KeyNotPublished",
            "the hub signs with a key that Keyferry has not read yet",
            published,
        ),
        (
            CallerClass::UnconfirmedCaller,
            "CallerRejected",
            "the caller's own token has a key that Keyferry has not read yet",
            published,
        ),
        (
            CallerClass::CallerWithoutToken,
            "HubUnreachable",
            "an apiserver of the hub restarts",
            restarted,
        ),
    ] {
        draft.refuse(Refused::callers(caller, reason, why), None, possible);
    }
    draft.refuse_while_hub_starts(restarted);
}

/// A client that mints by itself uses the new key at once, and its target may not know it.
fn refuse_own_minter(
    scene: &Scene<'_>,
    draft: &mut Draft,
    access: &AccessFacts,
    published_by: Timestamp,
) {
    let target = scene.target(&access.target);
    if target.is_some_and(|target| target.relying_party || !scene.trusts_hub_keys(target)) {
        return;
    }
    let (certain, possible) = unknown_key_windows(scene, target, published_by);
    let refused = Refused {
        caller: CallerClass::OwnMinter,
        access: Some(access.name.clone()),
        target: Some(access.target.clone()),
        reason: "SignatureInvalid",
        why: "the client's token has the new key, which the target fetches only once its copy of \
              the keys has 30 s left"
            .to_owned(),
    };
    draft.refuse(refused, certain, possible);
}

/// When a target refuses a key that it does not know: certainly while its copy is too young to be
/// fetched again, where the time of the last fetch was read, and possibly until a fetch just before
/// the publication has grown old.
fn unknown_key_windows(
    scene: &Scene<'_>,
    target: Option<&TargetFacts>,
    published_by: Timestamp,
) -> (Option<Window>, Option<Window>) {
    let pause = refetch_pause(scene.parameters.max_age);
    let latest = after(published_by, pause);
    let fetched_at = target.and_then(|target| scene.parameters.fetched_at.get(&target.name));
    let Some(fetched_at) = fetched_at.copied().filter(|at| *at <= scene.at) else {
        return (None, Window::between(scene.at, Some(latest)));
    };
    let may_fetch = after(fetched_at, pause);
    let certain = Window::between(scene.at, Some(before(may_fetch, CLOCK_TOLERANCE)));
    // A fetch after the publication finds the key. An earlier one makes the target wait again.
    let known_by = if may_fetch > published_by {
        after(may_fetch, CLOCK_TOLERANCE)
    } else {
        latest
    };
    (certain, Window::between(scene.at, Some(known_by)))
}

/// When the old key may go, if the hub stops signing with it at `stops`.
fn add_old_key_end(scene: &Scene<'_>, draft: &mut Draft, stops: Timestamp) {
    let kid = match scene.signing_key() {
        Some(key) => format!("the old key {}", key.kid),
        None => "the old key".to_owned(),
    };
    // No token that Keyferry issues lives longer than a day; those that clients mint by themselves
    // live an hour.
    let last_end: Timestamp = after(stops, lifetime::MAX + UNTIL_REFUSED);
    draft.add_milestone(
        format!("{kid} is safe to remove; `keyferry keys` says how much earlier"),
        stops,
        Some(last_end),
    );
}

fn assume_rotation(scene: &Scene<'_>, draft: &mut Draft) {
    draft.assume(format!(
        "discovery.maxAge is {} s, so a key is active {} s after it was published",
        scene.parameters.max_age.as_secs(),
        scene.activation_delay().as_secs()
    ));
    draft.assume(
        "every apiserver of the hub lists the new key from the begin on, and the old one too",
    );
    draft.assume(
        "targets fetch keys as kube-apiserver does up to 1.37; a later one may know the key sooner",
    );
}

fn add_restart_step(draft: &mut Draft, action: &str) {
    draft.add_step(
        action,
        Some(
            "kubectl --server https://APISERVER:6443 create token keyferry-canary -n \
             keyferry-system --audience keyferry.dev/inert --duration 10m"
                .to_owned(),
        ),
        "each apiserver mints before the next one restarts",
    );
}

fn write_publishing_runbook(scene: &Scene<'_>, draft: &mut Draft, signs: Timestamp) {
    add_restart_step(
        draft,
        "add the public key to every apiserver of the hub, as a further \
         --service-account-key-file; restart one at a time",
    );
    draft.add_step(
        "see the new key published and active",
        Some("keyferry keys".to_owned()),
        format!(
            "a new kid in state active; if the first step ended at {}, at {} at the latest",
            printed(scene.at),
            printed(signs)
        ),
    );
    add_restart_step(
        draft,
        "sign with it: --service-account-signing-key-file on every apiserver; keep the old public \
         key; restart one at a time",
    );
    write_last_steps(scene, draft);
}

fn write_signing_runbook(scene: &Scene<'_>, draft: &mut Draft, active_by: Timestamp) {
    let own: Vec<String> = scene
        .own_minters()
        .take(3)
        .map(|access| access.name.to_string())
        .collect();
    if !own.is_empty() {
        draft.add_step(
            "prefer to publish first: these mint by themselves and may be refused",
            Some("keyferry rehearse key-rotation --publish-first".to_owned()),
            format!("no refusals; concerned: {}", own.join(", ")),
        );
    }
    add_restart_step(
        draft,
        "sign with the new key on every apiserver, and list the old public key too; restart one at \
         a time",
    );
    draft.add_step(
        "see the new key active",
        Some("keyferry keys".to_owned()),
        format!(
            "the new kid in state active, at {} at the latest",
            printed(active_by)
        ),
    );
    write_last_steps(scene, draft);
}

fn write_last_steps(scene: &Scene<'_>, draft: &mut Draft) {
    let kid = scene
        .signing_key()
        .map_or_else(|| "KID".to_owned(), |key| key.kid.to_string());
    draft.add_step(
        "see which key signs",
        Some("keyferry keys".to_owned()),
        format!("SIGNS says `since` at the new kid; SAFE TO REMOVE at {kid} says when"),
    );
    draft.add_step(
        "check the end of the old key before you remove it",
        Some(format!("keyferry rehearse remove-key {kid}")),
        "no refusal; then remove its --service-account-key-file from every apiserver",
    );
}
