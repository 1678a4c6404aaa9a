//! Tests that the command line accepts every keyferry command in the README and the documents.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::CommandFactory;
use clap::error::ErrorKind;
use keyferry_integration::documents::{
    CommandBlock, ShellCommand, command_blocks, documents, inline_commands, shell_commands,
};

use super::Cli;

/// Returns the command line's error for a command. `None` if it is accepted, or if the document
/// deliberately shortens it (`keyferry trust`).
fn fault(command: &ShellCommand) -> Option<String> {
    let arguments = command.keyferry_arguments()?;
    let line = std::iter::once("keyferry").chain(arguments.iter().map(String::as_str));
    let error = Cli::command().try_get_matches_from(line).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        _ => Some(error.to_string()),
    }
}

fn blocks() -> Vec<CommandBlock> {
    documents()
        .unwrap()
        .iter()
        .flat_map(|document| command_blocks(document).unwrap())
        .collect()
}

#[test]
fn every_command_of_a_block_is_taken() {
    let mut faults = Vec::new();
    for block in blocks() {
        for command in shell_commands(&block.text) {
            if let Some(fault) = fault(&command) {
                faults.push(format!(
                    "{}:{}: {}\n{fault}",
                    block.document,
                    block.line,
                    command.words.join(" ")
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_block_says_how_it_is_held() {
    let silent: Vec<String> = blocks()
        .iter()
        .filter(|block| block.run.is_none())
        .map(|block| format!("{}:{}", block.document, block.line))
        .collect();
    assert!(
        silent.is_empty(),
        "begin these with ```sh run=offline, run=hub or run=no: {}",
        silent.join(", ")
    );
}

/// A command within a sentence may be shortened, so missing arguments are no fault. The words that
/// are there must exist.
#[test]
fn commands_in_sentences_name_what_exists() {
    let mut faults = Vec::new();
    for document in documents().unwrap() {
        for (line, command) in inline_commands(&document).unwrap() {
            let Some(arguments) = command.keyferry_arguments() else {
                continue;
            };
            let placeholder =
                |word: &String| word.contains('…') || word.contains('[') || word == "COMMAND";
            if arguments.iter().any(placeholder) {
                continue;
            }
            let words = std::iter::once("keyferry").chain(arguments.iter().map(String::as_str));
            if let Err(error) = Cli::command().try_get_matches_from(words)
                && matches!(
                    error.kind(),
                    ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
                )
            {
                faults.push(format!(
                    "{}:{line}: {}\n{error}",
                    document.display(),
                    command.words.join(" ")
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What the changelog and the documents call missing must not exist in the command line.
#[test]
fn not_there_yet_names_nothing_that_exists() {
    let root = keyferry_integration::documents::repository();
    let commands: Vec<String> = Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let kinds = [
        "TargetCluster",
        "TargetAccess",
        "AudiencePairing",
        "controller",
        "CRD",
        "managed issuer",
        "rate limit",
    ];
    let mut gaps = Vec::new();
    for (document, heading) in [
        ("CHANGELOG.md", "### Not there yet"),
        ("docs/concepts/security.md", "## What is not there yet"),
    ] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let (_, section) = text
            .split_once(heading)
            .unwrap_or_else(|| panic!("{document} has no {heading:?}"));
        let section = section.split("\n## ").next().unwrap_or(section);
        for line in section.lines().filter(|line| line.starts_with("- ")) {
            let named = |name: &str| {
                line.contains(&format!("keyferry {name}")) || line.contains(&format!("`{name}`"))
            };
            gaps.extend(
                commands
                    .iter()
                    .filter(|name| named(name))
                    .map(|name| format!("{document}: {name}: {line}")),
            );
            let title = line.split("**").nth(1).unwrap_or(line);
            gaps.extend(
                kinds
                    .iter()
                    .filter(|kind| title.contains(*kind))
                    .map(|kind| format!("{document}: {kind}: {line}")),
            );
        }
    }
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}
