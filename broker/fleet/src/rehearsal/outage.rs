//! The hub does not answer, or no replica of Keyferry runs: nothing is renewed, and tokens end one
//! after the other.

use std::time::Duration;

use jiff::Timestamp;

use super::delivered::{add_unrenewed_ends, check_statuses};
use super::draft::{Draft, NeededFacts, Refused};
use super::scene::Scene;
use super::timing::{
    CLOCK_TOLERANCE, DELIVERY_RECOVERY, HUB_RECOVERY, OWN_TOKEN_LIFETIME, REVIEW_LIFETIME,
    STATE_DIRECTORY_LIFETIME, UNTIL_REFUSED, least_cached_use,
};
use super::window::{Window, after, printed};
use super::{CallerClass, SafeMoment};

/// No apiserver of the hub answers from the begin on.
pub(super) fn rehearse_hub_outage(scene: &Scene<'_>, lasts: Option<Duration>) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Accesses]);
    check_statuses(scene, &mut draft, false);
    let end = lasts.map(|lasts| scene.after(lasts));
    refuse_callers_without_hub(scene, &mut draft, end);
    refuse_own_minters(scene, &mut draft, end);
    let (count, first) = add_unrenewed_ends(scene, &mut draft, end);
    draft.answer = format!(
        "callers that Keyferry does not know get 503 at once, known ones from {} on; {}",
        printed(scene.after(scene.parameters.max_stale_authorization)),
        endings(&draft, count, first, end)
    );
    describe_restarts(scene, &mut draft, end);
    draft.assume(format!(
        "maxStaleAuthorization is {} s and discovery.maxAge {} s",
        scene.parameters.max_stale_authorization.as_secs(),
        scene.parameters.max_age.as_secs()
    ));
    if let Some(end) = end {
        draft.add_milestone(
            "the hub mints again, and callers are served",
            end,
            Some(after(end, HUB_RECOVERY)),
        );
        draft.add_milestone(
            "each delivery that was due is written",
            end,
            Some(after(end, DELIVERY_RECOVERY)),
        );
        draft.earliest_safe = Some(SafeMoment {
            at: after(end, DELIVERY_RECOVERY),
            step: "rotate a key, restart a target or a replica: all is as before".to_owned(),
        });
    }
    write_hub_runbook(scene, &mut draft);
    draft
}

fn refuse_callers_without_hub(scene: &Scene<'_>, draft: &mut Draft, end: Option<Timestamp>) {
    let recovered = end.map(|end| after(end, HUB_RECOVERY));
    draft.refuse(
        Refused::callers(
            CallerClass::UnconfirmedCaller,
            "HubUnreachable",
            "no answer of the hub says who calls",
        ),
        Window::between(scene.at, end),
        Window::between(scene.at, recovered),
    );
    draft.refuse_while_hub_starts(
        end.and_then(|end| Window::between(end, Some(after(end, HUB_RECOVERY)))),
    );
    let stale = scene.parameters.max_stale_authorization;
    // The hub confirmed such a caller in the last 10 s, and its cached token may be due already.
    let earliest = stale
        .saturating_sub(REVIEW_LIFETIME)
        .min(least_cached_use(scene.parameters.max_age));
    draft.refuse(
        Refused::callers(
            CallerClass::ConfirmedCaller,
            "HubUnreachable",
            "the hub's last answer about the caller is older than maxStaleAuthorization, or the \
             cached token ends",
        ),
        Window::between(scene.after(stale + CLOCK_TOLERANCE), end),
        Window::between(scene.after(earliest), recovered),
    );
}

/// Clients that mint by the hub itself, such as Flux by a ConfigMap.
fn refuse_own_minters(scene: &Scene<'_>, draft: &mut Draft, end: Option<Timestamp>) {
    let recovered = end.map(|end| after(end, HUB_RECOVERY));
    for access in scene.own_minters() {
        let refused = Refused {
            caller: CallerClass::OwnMinter,
            access: Some(access.name.clone()),
            target: Some(access.target.clone()),
            reason: "HubUnreachable",
            why: "the client mints by the hub, and its last token lives an hour at most".to_owned(),
        };
        draft.refuse(
            refused,
            Window::between(scene.after(OWN_TOKEN_LIFETIME + UNTIL_REFUSED), end),
            Window::between(scene.at, recovered),
        );
    }
}

/// What the delivered tokens do, as the end of a sentence.
fn endings(
    draft: &Draft,
    count: usize,
    first: Option<Timestamp>,
    end: Option<Timestamp>,
) -> String {
    let sentence = match (first, end) {
        (Some(first), _) => format!(
            "delivered tokens that end meanwhile: {count}, the first at {}",
            printed(first)
        ),
        (None, Some(_)) => "no delivered token that is known ends meanwhile".to_owned(),
        (None, None) => "no delivered token is known to end".to_owned(),
    };
    if draft.is_open() {
        return format!("{sentence}; what is undetermined may end earlier");
    }
    sentence
}

/// What a replica serves that starts while the hub is down.
fn describe_restarts(scene: &Scene<'_>, draft: &mut Draft, end: Option<Timestamp>) {
    let until = scene.after(STATE_DIRECTORY_LIFETIME);
    let limit = match end {
        Some(end) if end <= until => String::new(),
        _ => format!(", until {} at most if it starts at once", printed(until)),
    };
    let with =
        format!("it publishes the keys of its directory{limit}, and answers every caller 503");
    let without = "it publishes no keys and answers every caller 503 until the hub answers, so a \
                   target that restarts then refuses every token";
    match scene.parameters.state_dir {
        Some(true) => draft.add_branch("a replica restarts meanwhile", with),
        Some(false) => draft.add_branch("a replica restarts meanwhile", without),
        None => {
            draft.add_branch("a replica with --state-dir restarts meanwhile", with);
            draft.add_branch("a replica without --state-dir restarts meanwhile", without);
        }
    }
    draft.add_branch(
        "a target's apiserver restarts meanwhile",
        "it fetches the keys from a replica that runs, and goes on",
    );
}

fn write_hub_runbook(scene: &Scene<'_>, draft: &mut Draft) {
    draft.add_step(
        "leave replicas and targets' apiservers running",
        Some("kubectl -n keyferry-system get pods".to_owned()),
        "no Pod of Keyferry restarts; without a hub, ask its machines instead",
    );
    draft.add_step(
        "bring one apiserver of the hub back, and check that it mints",
        Some(
            "kubectl --server https://APISERVER:6443 create token keyferry-canary -n \
             keyferry-system --audience keyferry.dev/inert --duration 10m"
                .to_owned(),
        ),
        "a token, 30 s after the apiserver is ready at the latest",
    );
    draft.add_step(
        "check that Keyferry reads the hub again",
        Some("keyferry keys".to_owned()),
        "the keys of before, none withdrawn",
    );
    draft.add_step(
        "check the deliveries",
        Some("kubectl get targetaccesses -A".to_owned()),
        match scene.fleet.accesses.first() {
            Some(access) => format!(
                "each access is READY, and EXPIRES lies ahead, as of {}",
                access.name
            ),
            None => "each access is READY, and EXPIRES lies ahead".to_owned(),
        },
    );
}

/// No replica of Keyferry runs from the begin on.
pub(super) fn rehearse_keyferry_outage(scene: &Scene<'_>, lasts: Option<Duration>) -> Draft {
    let mut draft = Draft::default();
    draft.check_facts(scene, &[NeededFacts::Accesses]);
    check_statuses(scene, &mut draft, false);
    let end = lasts.map(|lasts| scene.after(lasts));
    draft.refuse(
        Refused::callers(CallerClass::AnyCaller, "NoConnection", "no replica listens"),
        Window::between(scene.at, end),
        Window::between(scene.at, end.map(|end| after(end, HUB_RECOVERY))),
    );
    draft.refuse(
        Refused::callers(
            CallerClass::AnyCaller,
            "temporarily_unavailable",
            "a replica that has just started answers 503 until it has read the hub",
        ),
        None,
        end.and_then(|end| Window::between(end, Some(after(end, HUB_RECOVERY)))),
    );
    let (count, first) = add_unrenewed_ends(scene, &mut draft, end);
    draft.answer = format!(
        "no caller gets a token; targets go on with the keys that they read; {}",
        endings(&draft, count, first, end)
    );
    let own_minters = scene.own_minters().count();
    if own_minters > 0 {
        draft.add_branch(
            "the hub gets no new signing key, and no target restarts",
            format!("accesses whose client mints by the hub go on: {own_minters}"),
        );
    }
    draft.add_branch(
        "a target's apiserver restarts meanwhile",
        "it reads no keys, and refuses every token until a replica runs",
    );
    draft.add_branch(
        "the hub signs with a new key meanwhile",
        "every target refuses its tokens until a replica runs and the target has read the key",
    );
    if let Some(end) = end {
        draft.add_milestone(
            "each delivery that was due is written",
            end,
            Some(after(end, DELIVERY_RECOVERY)),
        );
        draft.earliest_safe = Some(SafeMoment {
            at: after(end, DELIVERY_RECOVERY),
            step: "rotate a key, or restart a target: all is as before".to_owned(),
        });
    }
    write_keyferry_runbook(&mut draft);
    draft
}

fn write_keyferry_runbook(draft: &mut Draft) {
    draft.add_step(
        "find out why no replica runs",
        Some("kubectl -n keyferry-system describe pods".to_owned()),
        "the reason, such as a certificate or a configuration that is refused",
    );
    draft.add_step(
        "give a tenant a token without the server, where it may mint",
        Some("keyferry token NAMESPACE/ACCESS --kubeconfig hub.kubeconfig".to_owned()),
        "a token that the target accepts",
    );
    draft.add_step(
        "wait until a replica is ready",
        Some("kubectl -n keyferry-system rollout status deployment/keyferry".to_owned()),
        "the rollout is complete",
    );
    draft.add_step(
        "check the deliveries",
        Some("kubectl get targetaccesses -A".to_owned()),
        "each access is READY, and EXPIRES lies ahead",
    );
}
