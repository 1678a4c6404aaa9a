//! What a reader of the code may rely on: no name is a riddle, and whatever is long says why.
//!
//! The lists are tables beside this file, one row a line, with tabs between the columns:
//! `style/banned.tsv` (kinds, name, what to write in its place), `style/exceptions.tsv` (path, name,
//! reason) and `style/budget.tsv` (path, name of the function or `-` for the whole file, reason).

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "style/banned_names.rs"]
mod banned_names;
#[path = "style/budget.rs"]
mod budget;
#[path = "style/source.rs"]
mod source;
#[path = "style/table.rs"]
mod table;
