//! Pictures as SVG: lengths in per cent, so that they fit every width and their text is never
//! stretched. Each has a title, and the page has the same facts as a table.

use keyferry_fleet::facts::{Fleet, Health};
use maud::{Markup, html};

use crate::query::STATES;
use crate::words::{health_class, health_word, number};

/// The height of the tallest bar.
const BAR_HEIGHT: usize = 88;
/// The room above the bars for the largest number.
const BAR_TOP: usize = 18;

/// A number between 0 and 1 as a length in the picture.
pub(crate) fn per_cent(share: f64) -> String {
    format!("{:.2}%", share.clamp(0.0, 1.0) * 100.0)
}

/// How many there are of `all`, between 0 and 1.
pub(crate) fn share(count: usize, all: usize) -> f64 {
    // A count of objects is far below 2^52, where f64 is exact.
    count as f64 / all.max(1) as f64
}

/// The states of the targets as parts of one bar.
pub(crate) fn state_bar(fleet: &Fleet) -> Markup {
    let all = fleet.targets.len();
    let mut start = 0;
    let mut parts = Vec::new();
    let mut words = Vec::new();
    for (health, _) in STATES {
        let count = count_state(fleet, health);
        if count > 0 {
            parts.push((health, share(start, all), share(count, all)));
            words.push(format!("{} {}", number(count), health_word(health)));
        }
        start += count;
    }
    html! {
        svg.state-bar width="100%" height="10" role="img" {
            title { "Targets: " (words.join(", ")) }
            @for (health, x, width) in parts {
                rect.(health_class(health)) x=(per_cent(x)) y="0" width=(per_cent(width)) height="10" {}
            }
        }
    }
}

/// Counts over time as bars, the earliest first, with a number at the tallest.
pub(crate) fn bars(title: &str, counts: &[usize], labels: (&str, &str)) -> Markup {
    let largest = counts.iter().copied().max().unwrap_or(0);
    let tallest = counts.iter().position(|count| *count == largest);
    let width = share(1, counts.len());
    let height = |count: usize| {
        let pixels = count * BAR_HEIGHT / largest.max(1);
        if count > 0 { pixels.max(2) } else { 0 }
    };
    html! {
        figure {
            svg.bars width="100%" height=(BAR_TOP + BAR_HEIGHT + 1) role="img" {
                title { (title) }
                @for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    rect x=(per_cent(share(index, counts.len()) + width * 0.1))
                        y=(BAR_TOP + BAR_HEIGHT - height(*count))
                        width=(per_cent(width * 0.8)) height=(height(*count)) rx="2" {}
                }
                line.axis x1="0" x2="100%" y1=(BAR_TOP + BAR_HEIGHT) y2=(BAR_TOP + BAR_HEIGHT) {}
                @if let (true, Some(index)) = (largest > 0, tallest) {
                    @let centre = share(index, counts.len()) + width / 2.0;
                    text x=(per_cent(centre)) y=(BAR_TOP - 6) text-anchor=(anchor(centre)) {
                        (number(largest))
                    }
                }
            }
            figcaption { span { (labels.0) } span { (labels.1) } }
        }
    }
}

/// Keeps a text inside the picture.
pub(crate) fn anchor(centre: f64) -> &'static str {
    match centre {
        ..0.06 => "start",
        0.94.. => "end",
        _ => "middle",
    }
}

/// How many targets have a state.
pub(crate) fn count_state(fleet: &Fleet, health: Health) -> usize {
    fleet
        .targets
        .iter()
        .filter(|target| target.health == health)
        .count()
}
