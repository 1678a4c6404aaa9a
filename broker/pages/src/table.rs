//! Tables: a caption, headings with their scope, and cells that name their column where a narrow
//! screen shows each row as a card.

use maud::{Markup, Render, html};

use crate::words::number;

/// A table with headings as text.
pub(crate) fn table(caption: &str, columns: &[&str], rows: &Markup) -> Markup {
    html! {
        table {
            caption { (caption) }
            thead { tr { @for column in columns { th scope="col" { (column) } } } }
            tbody { (rows) }
        }
    }
}

/// A cell that names its column.
pub(crate) fn cell(column: &str, content: impl Render) -> Markup {
    html! { td data-label=(column) { (content) } }
}

/// A cell with a number, which is aligned with those above it.
pub(crate) fn number_cell(column: &str, content: impl Render) -> Markup {
    html! { td.number data-label=(column) { (content) } }
}

/// What a table does not show, and the command that prints all.
pub(crate) fn rest_note(shown: usize, all: usize, plural: &str) -> Markup {
    html! {
        @if all > shown {
            p.note {
                @if shown > 0 { "The first " (number(shown)) " of " }
                (number(all)) " " (plural) ". All of them: " code { "keyferry fleet -o json" }
            }
        }
    }
}
