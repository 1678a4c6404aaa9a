//! The tables beside this file.

use std::path::{Path, PathBuf};

/// A file of this folder.
pub(crate) fn table_path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/style");
    folder.join(name)
}

/// The rows of a table, each of three columns. A line that starts with `#` is a comment.
pub(crate) fn read_rows(name: &str) -> Vec<[String; 3]> {
    let text = std::fs::read_to_string(table_path(name)).unwrap();
    let rows = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        columns
            .try_into()
            .unwrap_or_else(|columns| panic!("{name}: not three columns: {columns:?}"))
    })
    .collect()
}
