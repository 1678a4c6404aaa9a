//! The page `keys`: the life of each signing key as a timeline, and as a table.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{KeyLife, KeyState};
use maud::{Markup, html};

use crate::document::Content;
use crate::empty::unreadable;
use crate::outlet::View;
use crate::picture::{anchor, per_cent};
use crate::table::{cell, number_cell, table};
use crate::words::{number, relative, time_or};

/// A timeline shows this much of the past and of the future at most.
const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(14 * 24);
const MIN_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// Keys of the picture; a hub seldom has more than three.
const MAX_LANES: usize = 12;
const LANE_HEIGHT: usize = 52;
const LANE_TOP: usize = 26;
/// A kid is 43 characters, of which the first ones tell it apart.
const SHORT_KID: usize = 14;

pub(crate) fn keys_content(view: &View<'_>) -> Content {
    let keys = &view.fleet.keys;
    Content {
        title: "Keys".to_owned(),
        sentence: keys_sentence(view),
        body: html! {
            @if let Some(issuer) = &keys.issuer { p.lead { "The hub's issuer is " (issuer) "." } }
            @if !keys.journal_read {
                @match view.gap_of("secrets") {
                    Some(gap) => (unreadable(gap)),
                    None => p.note {
                        "The key journal was not read: only keys that delivered tokens name are here, \
                         and how many tokens use them."
                    },
                }
            }
            @if !keys.keys.is_empty() {
                (timeline(view))
                (view.heading("The keys"))
                (key_table(view))
            }
        },
    }
}

fn keys_sentence(view: &View<'_>) -> String {
    let keys = &view.fleet.keys;
    if keys.keys.is_empty() {
        return match keys.journal_read {
            true => "The journal has no key yet".to_owned(),
            false => "No signing key is known".to_owned(),
        };
    }
    if !keys.journal_read {
        return format!(
            "Delivered tokens name {}; the rest of the keys' life is not known",
            crate::words::counted(keys.keys.len(), "key", "keys")
        );
    }
    let signing = keys.keys.iter().find(|key| key.state == KeyState::Signs);
    let signs = match signing {
        Some(key) => format!("{} signs", short_kid(&key.kid)),
        None => "No key has been seen to sign".to_owned(),
    };
    let removable = keys.keys.iter().filter(|key| key.state != KeyState::Signs);
    let next = removable
        .filter(|key| key.withdrawn_at.is_none())
        .filter_map(|key| Some((key, key.safe_to_remove_at?)))
        .min_by_key(|(_, at)| *at);
    match next {
        Some((key, at)) if at > view.now => {
            let moment = relative(at, view.now);
            format!(
                "{signs}; {} is safe to remove {moment}",
                short_kid(&key.kid)
            )
        }
        Some((key, _)) => format!("{signs}; {} is safe to remove", short_kid(&key.kid)),
        None => signs,
    }
}

fn short_kid(kid: &ForeignText) -> String {
    let text = kid.to_string();
    match text.char_indices().nth(SHORT_KID) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A part of a key's life. Each has a height of its own, so that it needs no colour.
struct Phase {
    class: &'static str,
    height: usize,
    start: Timestamp,
    end: Timestamp,
}

/// The parts of a key's life as far as they are known.
fn phases(key: &KeyLife, now: Timestamp, horizon: Timestamp) -> Vec<Phase> {
    let end_of_life = [
        key.revoked_at,
        key.withdrawn_at,
        key.safe_to_remove_at,
        key.last_token_ends,
    ];
    let gone = key.revoked_at.or(key.withdrawn_at);
    let trusted_until = end_of_life.into_iter().flatten().next().unwrap_or(horizon);
    let signs_until = match key.state {
        KeyState::Signs => Some(horizon),
        _ => key.signs_until,
    };
    let signs_since = key
        .signs_since
        .or(gone)
        .unwrap_or(now.max(key.active_at.unwrap_or(now)));
    let candidates = [
        (
            "activating",
            6,
            key.published_at,
            key.active_at.or(Some(signs_since)),
        ),
        ("active", 12, key.active_at, Some(signs_since)),
        ("signs", 24, key.signs_since, signs_until),
        ("verifies", 18, signs_until, Some(trusted_until)),
        ("over", 3, gone, Some(horizon)),
    ];
    let phases = candidates
        .into_iter()
        .filter_map(|(class, height, start, end)| {
            let (start, end) = (start?, end?);
            (start < end).then_some(Phase {
                class,
                height,
                start,
                end,
            })
        });
    phases.collect()
}

/// The stretch of time that the picture shows.
struct Window {
    start: Timestamp,
    end: Timestamp,
}

impl Window {
    fn of(keys: &[KeyLife], now: Timestamp) -> Self {
        let moments = keys.iter().flat_map(|key| {
            [
                key.published_at,
                key.active_at,
                key.signs_since,
                key.signs_until,
                key.withdrawn_at,
                key.revoked_at,
                key.safe_to_remove_at,
                key.last_token_ends,
            ]
        });
        let moments: Vec<Timestamp> = moments.flatten().collect();
        let past = moments.iter().map(|at| now.duration_since(*at)).max();
        let future = moments.iter().map(|at| at.duration_since(now)).max();
        let bounded = |length: Option<SignedDuration>| {
            length.unwrap_or(MIN_WINDOW).clamp(MIN_WINDOW, MAX_WINDOW)
        };
        // Some room after the last moment, so that what goes on is seen to go on.
        let future = bounded(future).max(bounded(past) / 4);
        Self {
            start: now.saturating_sub(bounded(past)).unwrap_or(now),
            end: now.saturating_add(future + future / 8).unwrap_or(now),
        }
    }

    fn x_share(&self, at: Timestamp) -> f64 {
        let whole = self.end.duration_since(self.start).as_secs_f64();
        (at.duration_since(self.start).as_secs_f64() / whole.max(1.0)).clamp(0.0, 1.0)
    }
}

fn timeline(view: &View<'_>) -> Markup {
    let keys: &[KeyLife] = &view.fleet.keys.keys;
    let keys = keys.get(..MAX_LANES).unwrap_or(keys);
    let window = Window::of(keys, view.now);
    let now = window.x_share(view.now);
    let height = LANE_TOP + keys.len() * LANE_HEIGHT;
    html! {
        (view.heading("Their lives"))
        figure {
            svg.timeline width="100%" height=(height) role="img" {
                title { "Timeline of the signing keys; the table below has the same facts" }
                line.now x1=(per_cent(now)) x2=(per_cent(now)) y1="18" y2=(height) {}
                @for (index, key) in keys.iter().enumerate() {
                    (key_lane(&window, key, view.now, LANE_TOP + index * LANE_HEIGHT))
                }
                text.now x=(per_cent(now)) y="12" text-anchor=(anchor(now)) { "now" }
            }
            figcaption {
                span { (relative(window.start, view.now)) }
                span { (relative(window.end, view.now)) }
            }
            (legend())
        }
    }
}

fn key_lane(window: &Window, key: &KeyLife, now: Timestamp, top: usize) -> Markup {
    let middle = top + 33;
    html! {
        text x="0" y=(top + 14) { (short_kid(&key.kid)) " · " (state_word(key.state)) }
        @for phase in phases(key, now, window.end) {
            @let x = window.x_share(phase.start);
            rect.(phase.class) x=(per_cent(x)) width=(per_cent(window.x_share(phase.end) - x))
                y=(middle - phase.height / 2) height=(phase.height) rx="2" {}
        }
        @let now = window.x_share(now);
        rect.ahead x=(per_cent(now)) width=(per_cent(1.0 - now)) y=(top + 20) height="27" {}
    }
}

fn legend() -> Markup {
    let phases = [
        (
            "activating",
            6,
            "activating: published, not every target knows it",
        ),
        ("active", 12, "active: every target knows it"),
        ("signs", 24, "signs"),
        ("verifies", 18, "verifies: its tokens may live"),
        ("over", 3, "withdrawn or revoked"),
    ];
    html! {
        ul.legend {
            @for (class, height, text) in phases {
                li {
                    svg.timeline width="22" height="24" aria-hidden="true" {
                        rect.(class) x="0" y=(12 - height / 2) width="22" height=(height) rx="2" {}
                    }
                    " " (text)
                }
            }
            li { "paler: ahead of now" }
        }
    }
}

fn state_word(state: KeyState) -> &'static str {
    match state {
        KeyState::Activating => "◌ activating",
        KeyState::Active => "○ active",
        KeyState::Signs => "● signs",
        KeyState::Verifies => "◐ verifies",
        KeyState::Retired => "– retired",
        KeyState::Revoked => "✕ revoked",
        KeyState::NotKnown => "? not known",
    }
}

fn key_table(view: &View<'_>) -> Markup {
    const COLUMNS: [&str; 10] = [
        "Key",
        "State",
        "Published",
        "Active",
        "Signs since",
        "Signed until",
        "Live tokens",
        "Last token ends",
        "Safe to remove",
        "Gone",
    ];
    let missing = if view.fleet.keys.journal_read {
        "–"
    } else {
        view.missing()
    };
    let moment = |at: Option<Timestamp>| time_or(at, view.now, missing);
    let rows = html! {
        @for key in &view.fleet.keys.keys {
            tr {
                th scope="row" {
                    span.kid { (key.kid) }
                    @if let Some(algorithm) = &key.algorithm { " " span.code { (algorithm) } }
                }
                (cell("State", html! { span.mark { (state_word(key.state)) } }))
                (cell("Published", moment(key.published_at)))
                (cell("Active", moment(key.active_at)))
                (cell("Signs since", moment(key.signs_since)))
                (cell("Signed until", moment(key.signs_until)))
                (number_cell("Live tokens", html! {
                    @match key.live_tokens {
                        Some(count) => (number(count)),
                        None => span.faint { (view.missing()) },
                    }
                }))
                (cell("Last token ends", time_or(key.last_token_ends, view.now, "–")))
                (cell("Safe to remove", moment(key.safe_to_remove_at)))
                (cell("Gone", html! {
                    @match (key.revoked_at, key.withdrawn_at) {
                        (Some(at), _) => { "revoked " (time_or(Some(at), view.now, "–")) }
                        (None, at) => (time_or(at, view.now, "–")),
                    }
                }))
            }
        }
    };
    html! { div.dense { (table("The life of each signing key", &COLUMNS, &rows)) } }
}
