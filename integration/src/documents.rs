//! The commands that the README and the documents show, so that tests can check them.
//!
//! The info string of a code block says how it is checked. `integration/tests/walk.rs` runs blocks
//! with `sh run=offline` and `sh run=hub`, and `integration/tests/install/kind_page.rs` those with
//! `sh run=kind`. No test can run a block with `sh run=no`, so its commands are only parsed. `exit=1` says that the last command exits with 1. A block with `text
//! shows` behind a block that is run is compared with what that prints. A block with `file=NAME` is
//! a file that later blocks read.

use std::path::{Path, PathBuf};

/// The info string of a block that shows what the commands before it print.
const SHOWS: &str = "text shows";

/// The folders of `docs` whose pages show commands.
const SHELVES: [&str; 4] = ["guides", "concepts", "reference", "development"];

/// How a code block of commands is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Run without a cluster.
    Offline,
    /// Run with a hub and its targets.
    Hub,
    /// Run in order as one user's session, with clusters that stand for those of kind.
    Kind,
    /// Only parsed, because the commands need something that a test machine does not have.
    No,
}

/// A fenced code block of commands.
#[derive(Debug, Clone)]
pub struct CommandBlock {
    /// The path of the document, relative to the repository.
    pub document: String,
    /// The line of its opening fence, counted from 1.
    pub line: usize,
    /// How it is checked; `None` if the info string does not say.
    pub run: Option<Run>,
    /// The exit code of its last command.
    pub exit: i32,
    /// Its text, without the fences.
    pub text: String,
    /// What the document says that it prints: consecutive lines of it.
    pub shows: Option<String>,
}

/// A line of shell, as one command of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// Its words, without redirections.
    pub words: Vec<String>,
}

/// The root folder of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every document that shows commands: the README, the shelves of `docs`, and the READMEs of
/// examples and auth-configs.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn documents() -> std::io::Result<Vec<PathBuf>> {
    let root = repository();
    let mut pages = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("auth-configs/README.md"),
    ];
    for shelf in SHELVES {
        for entry in std::fs::read_dir(root.join("docs").join(shelf))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    for entry in std::fs::read_dir(root.join("examples"))? {
        let path = entry?.path().join("README.md");
        if path.exists() {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// The fenced blocks of a document that contain a command of Keyferry, kubectl, helm, cargo or
/// curl.
///
/// # Errors
/// The file cannot be read.
pub fn command_blocks(document: &Path) -> std::io::Result<Vec<CommandBlock>> {
    let text = std::fs::read_to_string(document)?;
    let name = document
        .strip_prefix(repository())
        .unwrap_or(document)
        .display()
        .to_string();
    let mut blocks: Vec<CommandBlock> = Vec::new();
    let mut open: Option<(usize, String, Vec<&str>)> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(info), None) => open = Some((index + 1, info.trim().to_owned(), Vec::new())),
            (Some(_), Some((line, info, lines))) => {
                let block = CommandBlock {
                    document: name.clone(),
                    line,
                    run: run_of(&info),
                    exit: value_of(&info, "exit")
                        .map_or(Ok(0), str::parse)
                        .unwrap_or(-1),
                    text: dedent(&lines),
                    shows: None,
                };
                if info == SHOWS {
                    if let Some(last) = blocks.last_mut() {
                        last.shows = Some(block.text);
                    }
                } else if block.run == Some(Run::Kind)
                    || is_shell(&info)
                        && shell_commands(&block.text)
                            .iter()
                            .any(ShellCommand::is_known)
                {
                    blocks.push(block);
                }
            }
            (None, Some((start, info, mut lines))) => {
                lines.push(line);
                open = Some((start, info, lines));
            }
            (None, None) => {}
        }
    }
    Ok(blocks)
}

/// The files that a document shows whole, by name.
///
/// # Errors
/// The document cannot be read.
pub fn shown_files(document: &Path) -> std::io::Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(document)?;
    let mut files = Vec::new();
    let mut open: Option<(Option<String>, Vec<&str>)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                open = Some((value_of(info, "file").map(str::to_owned), Vec::new()));
            }
            (Some(_), Some((name, lines))) => {
                files.extend(name.map(|name| (name, dedent(&lines))));
            }
            (None, Some((name, mut lines))) => {
                lines.push(line);
                open = Some((name, lines));
            }
            (None, None) => {}
        }
    }
    Ok(files)
}

/// The commands between single backticks outside fenced blocks, each with its line number.
///
/// # Errors
/// The file cannot be read.
pub fn inline_commands(document: &Path) -> std::io::Result<Vec<(usize, ShellCommand)>> {
    let text = std::fs::read_to_string(document)?;
    let mut fenced = false;
    let mut commands = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        for code in line.split('`').skip(1).step_by(2) {
            commands.extend(
                shell_commands(code)
                    .into_iter()
                    .map(|command| (index + 1, command)),
            );
        }
    }
    Ok(commands)
}

impl ShellCommand {
    /// The arguments after `keyferry` or `kubectl keyferry`; `None` for another program.
    pub fn keyferry_arguments(&self) -> Option<&[String]> {
        match self.words.as_slice() {
            [program, rest @ ..] if program == "keyferry" => Some(rest),
            [program, plugin, rest @ ..] if program == "kubectl" && plugin == "keyferry" => {
                Some(rest)
            }
            _ => None,
        }
    }

    fn is_known(&self) -> bool {
        let program = self.words.first().map(String::as_str);
        matches!(
            program,
            Some("keyferry" | "kubectl" | "helm" | "cargo" | "curl")
        )
    }
}

fn is_shell(info: &str) -> bool {
    matches!(
        info.split_whitespace().next(),
        None | Some("sh" | "console")
    )
}

fn run_of(info: &str) -> Option<Run> {
    match value_of(info, "run")? {
        "offline" => Some(Run::Offline),
        "hub" => Some(Run::Hub),
        "kind" => Some(Run::Kind),
        "no" => Some(Run::No),
        _ => None,
    }
}

/// The value of `key=value` in an info string.
fn value_of<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    info.split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Removes the indentation that all lines share, because a block in a list is indented like the
/// list.
fn dedent(lines: &[&str]) -> String {
    let blank = |line: &&&str| !line.trim().is_empty();
    let indent = lines
        .iter()
        .filter(blank)
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        text.push_str(line.get(indent..).unwrap_or(""));
        text.push('\n');
    }
    text
}

/// The commands of a shell text. It joins continued lines, removes comments and redirections,
/// splits pipelines and lists, and skips here-documents.
pub fn shell_commands(text: &str) -> Vec<ShellCommand> {
    let mut commands = Vec::new();
    let mut end_of_document: Option<String> = None;
    for line in text.replace("\\\n", " ").lines() {
        if let Some(end) = &end_of_document {
            if line.trim() == end {
                end_of_document = None;
            }
            continue;
        }
        let words = shlex::split(line).unwrap_or_default();
        if let Some(marker) = words.iter().find_map(|word| word.strip_prefix("<<")) {
            end_of_document = Some(
                marker
                    .trim_matches(|character| "'\"-".contains(character))
                    .to_owned(),
            );
        }
        let mut current = Vec::new();
        let mut skip = false;
        for word in words {
            match word.as_str() {
                "|" | "&&" | "||" | ";" => commands.extend(command(std::mem::take(&mut current))),
                ">" | ">>" | "<" | "2>" => skip = true,
                _ if std::mem::take(&mut skip) || word.starts_with("<<") => {}
                _ => current.push(word),
            }
        }
        commands.extend(command(current));
    }
    commands
}

fn command(words: Vec<String>) -> Option<ShellCommand> {
    (!words.is_empty()).then_some(ShellCommand { words })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<Vec<String>> {
        shell_commands(text)
            .into_iter()
            .map(|command| command.words)
            .collect()
    }

    #[test]
    fn a_shell_text_falls_into_its_commands() {
        assert_eq!(
            split(
                "keyferry token a/b \\\n  --server https://x > out  # why\nkubectl get x | \
                 keyferry import - --audience 'a b'"
            ),
            [
                vec!["keyferry", "token", "a/b", "--server", "https://x"],
                vec!["kubectl", "get", "x"],
                vec!["keyferry", "import", "-", "--audience", "a b"]
            ]
        );
    }

    #[test]
    fn a_here_document_is_no_command() {
        assert_eq!(
            split("kubectl apply -f - <<END\nkeyferry nonsense\nEND\nkeyferry keys"),
            [
                vec!["kubectl", "apply", "-f", "-"],
                vec!["keyferry", "keys"]
            ]
        );
    }

    #[test]
    fn an_info_string_says_how_a_block_is_checked() {
        let info = "sh run=hub exit=1";
        assert_eq!(run_of(info), Some(Run::Hub));
        assert_eq!(value_of(info, "exit"), Some("1"));
        assert_eq!(value_of("yaml file=a.yaml", "file"), Some("a.yaml"));
        assert_eq!((value_of("yaml", "file"), run_of("sh")), (None, None));
    }

    #[test]
    fn the_readme_shows_commands() {
        let blocks = command_blocks(&repository().join("README.md")).expect("the README");
        assert!(blocks.iter().any(|block| block.text.contains("cargo test")));
    }
}
