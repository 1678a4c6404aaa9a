//! Formats figures for the cells of tables.

use super::spread::Spread;

/// A figure that was not measured.
pub const MISSING: &str = "-";

/// A number, if it was measured.
pub fn number(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or(MISSING.to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// The median, if anything was measured.
pub fn median(spread: Option<Spread>, decimals: usize) -> String {
    number(spread.map(|spread| spread.median), decimals)
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The minimum, the median and the maximum of a share.
pub fn percents(spread: Option<Spread>) -> String {
    spread.map_or(MISSING.to_owned(), |it| {
        let shares = [it.least, it.median, it.most].map(percent);
        shares.join(" / ")
    })
}

/// Memory.
pub fn mebibytes(kib: Option<u64>) -> String {
    kib.map_or(MISSING.to_owned(), |kib| {
        format!("{:.1} MiB", kib as f64 / 1024.0)
    })
}

/// A row of as many columns that says in the first one why nothing was measured.
pub fn missing_row(first: String, columns: usize) -> Vec<String> {
    let mut row = vec![MISSING.to_owned(); columns];
    if let Some(cell) = row.first_mut() {
        *cell = first;
    }
    row
}
