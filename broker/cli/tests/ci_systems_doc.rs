//! The table of docs/guides/ci.md on systems is what the configuration's rules are checked by.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use keyferry_api::config::{ExternalSystem, TokenUse};

/// A row for each system.
fn system_table() -> String {
    let quoted = |names: &[&str], separator: &str| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(separator)
    };
    let mut table =
        "| `system` | a rule needs | and one of | default `tokenUse` | its scope proves |\n\
                     |---|---|---|---|---|\n"
            .to_owned();
    for (name, system) in ExternalSystem::ALL {
        let facts = system.facts();
        let projects: Vec<String> = facts
            .project
            .iter()
            .map(|claims| quoted(claims, " and "))
            .collect();
        let token_use = match facts.token_use {
            TokenUse::Once => "`Once`",
            TokenUse::UntilExpiry => "`UntilExpiry`",
        };
        table.push_str(&format!(
            "| [`{name}`]({}) | {} | {} | {token_use} | {} |\n",
            facts.page,
            projects.join(" or "),
            quoted(facts.scope, " or "),
            facts.proves,
        ));
    }
    table
}

#[test]
fn the_guide_says_what_each_system_needs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/ci.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    let (before, after) = guide.split_once("<!-- systems -->\n").unwrap();
    let (written, rest) = after.split_once("<!-- end -->").unwrap();
    let table = system_table();
    if written != table && std::env::var_os("KEYFERRY_WRITE_COPIES").is_some() {
        let whole = format!("{before}<!-- systems -->\n{table}<!-- end -->{rest}");
        std::fs::write(&path, whole).unwrap();
        return;
    }
    assert_eq!(
        written, table,
        "KEYFERRY_WRITE_COPIES=1 writes the table into docs/guides/ci.md"
    );
}
