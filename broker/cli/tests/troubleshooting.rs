//! Each reason code has one file. docs/reference/reason-codes.md, docs/reference/verify-codes.md and
//! the anchors at their old addresses are what the files print; `KEYFERRY_WRITE_COPIES=1` writes
//! them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyferry_api::reason::Reason;
use keyferry_client::code_link::{replace_links, repository_path};
use keyferry_kube_authn::Code;
use keyferry_kube_authn::code_text::CodeText;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A code, and the text of its file.
type CodeFile = (&'static str, &'static str);

fn server_codes() -> Vec<CodeFile> {
    let codes = Reason::ALL.iter();
    codes
        .map(|reason| (reason.as_str(), reason.markdown()))
        .collect()
}

fn target_codes() -> Vec<CodeFile> {
    let codes = Code::ALL.iter();
    codes.map(|code| (code.name(), code.markdown())).collect()
}

#[test]
fn no_name_means_two_things() {
    let codes: BTreeSet<&str> = [server_codes(), target_codes()]
        .concat()
        .into_iter()
        .map(|(code, _)| code)
        .collect();
    assert_eq!(codes.len(), Reason::ALL.len() + Code::ALL.len());
}

#[test]
fn every_file_is_of_a_code() {
    for (folder, codes) in [
        ("broker/api/reasons", server_codes()),
        ("broker/kube-authn/codes", target_codes()),
    ] {
        let files: BTreeSet<String> = std::fs::read_dir(repository().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let codes: BTreeSet<String> = codes.iter().map(|(code, _)| format!("{code}.md")).collect();
        assert_eq!(files, codes, "left: files of {folder}; right: codes");
    }
}

#[test]
fn every_file_has_its_title_and_sections() {
    for (code, markdown) in [server_codes(), target_codes()].concat() {
        let headings: Vec<&str> = markdown
            .lines()
            .filter(|line| line.starts_with('#'))
            .collect();
        let title = format!("# {code}");
        assert_eq!(
            headings,
            [&title, "## What happened", "## Fix", "## Where it shows"]
        );
        let text = CodeText::parse(markdown).unwrap();
        for section in [text.what_happened, text.fix, text.where_it_shows] {
            assert!(
                section.ends_with(['.', ')']) && !section.contains("**"),
                "{code}: {section}"
            );
        }
        let summary = text.cause();
        assert!(
            summary.ends_with('.') && summary.chars().count() <= 140,
            "{code}: the first paragraph says what happened in a sentence or two: {summary}"
        );
    }
}

#[test]
fn the_links_of_the_files_lead_somewhere() {
    for (folder, codes) in [
        ("broker/api/reasons", server_codes()),
        ("broker/kube-authn/codes", target_codes()),
    ] {
        for (code, markdown) in codes {
            replace_links(markdown, |_, target| {
                let file = target.split('#').next().unwrap();
                let path = repository().join(folder).join(file);
                assert!(path.exists(), "{code}: {target} leads nowhere");
                String::new()
            });
        }
    }
}

/// The codes of targets by topic: the first code of each topic, its heading and what it is about.
const TOPICS: [(&str, &str, &str); 4] = [
    (
        "EmptyFile",
        "The target's AuthenticationConfiguration",
        "`keyferry lint` and `keyferry verify` report these, with the message of kube-apiserver\n\
         ([trust.md](../guides/trust.md)).",
    ),
    (
        "NotCompact",
        "A token at the target",
        "`keyferry verify` reports these, with the message of the target's log.",
    ),
    (
        "ConfigurationRefused",
        "What verify and lint cannot know, and traps that they see",
        "A file with a trap loads, but does not mean what its author thinks.",
    ),
    (
        "StartUnread",
        "The path of a token to a target",
        "`keyferry doctor` reports these, in the order of its steps ([doctor.md](../guides/doctor.md)).",
    ),
];

/// Prints a code as a section of a page of docs.
fn section(code: &str, markdown: &str, level: &str) -> String {
    let text = CodeText::parse(markdown).unwrap();
    let printed = format!(
        "{level} {code}\n\n{}\n\n**Fix:** {}\n\n**Where it shows:** {}\n",
        text.what_happened, text.fix, text.where_it_shows
    );
    replace_links(&printed, |name, target| {
        let path = repository_path(target);
        let from_reference = match path.strip_prefix("docs/") {
            Some(path) => match path.strip_prefix("reference/") {
                Some(page) => page.to_owned(),
                None => format!("../{path}"),
            },
            None => format!("../../{path}"),
        };
        format!("[{name}]({from_reference})")
    })
}

fn reason_codes_page() -> String {
    let sections = server_codes();
    let sections = sections
        .iter()
        .map(|(code, markdown)| section(code, markdown, "##"));
    let head = "# Reason codes\n\nUse this page when a log, an audit record, a metric, a condition or \
                an answer has a reason code.\n`keyferry explain CODE` prints the same text. For a \
                symptom without a code, see [troubleshooting.md](../guides/troubleshooting.md);\nfor a code of \
                `verify`, `lint` or `doctor`, see [verify-codes.md](verify-codes.md).\n\nThis page \
                is printed from `broker/api/reasons`, one file for each code.\n";
    let sections: Vec<String> = std::iter::once(head.to_owned()).chain(sections).collect();
    sections.join("\n")
}

fn verify_codes_page() -> String {
    let mut page = "# Codes of verify, lint and doctor\n\nUse this page when `keyferry verify`, \
                    `keyferry lint` or `keyferry doctor` names a code. `keyferry explain CODE` \
                    prints the\nsame text. For a code of the server or of a delivery, see \
                    [reason-codes.md](reason-codes.md).\n\nThis page is printed from \
                    `broker/kube-authn/codes`, one file for each code.\n"
        .to_owned();
    for (code, markdown) in target_codes() {
        if let Some((_, topic, about)) = TOPICS.iter().find(|(first, ..)| *first == code) {
            page += &format!("\n## {topic}\n\n{about}\n");
        }
        page += "\n";
        page += &section(code, markdown, "###");
    }
    page
}

/// Pages that had a section for each code, with the symptoms that alerts link to.
const MOVED_PAGES: [(&str, &str, &[&str]); 3] = [
    ("reason-codes.md", "reference/reason-codes.md", &[]),
    ("verify-codes.md", "reference/verify-codes.md", &[]),
    (
        "troubleshooting.md",
        "guides/troubleshooting.md",
        &[
            "the-hub-refuses-every-tokenrequest",
            "connections-are-refused",
            "the-cause-of-a-401-at-a-target",
            "discovery-cannot-be-reached",
        ],
    ),
];

/// Prints the page at an old address. Each code keeps the anchor that its section had there,
/// because alerts and messages of earlier versions link to it.
fn moved_page(new_page: &str, symptoms: &[&str]) -> String {
    let codes_of = |page: &'static str, codes: Vec<CodeFile>| {
        let is_of_page = new_page == page || new_page.starts_with("guides/");
        let codes = if is_of_page { codes } else { Vec::new() };
        codes.into_iter().map(move |(code, _)| (code, page))
    };
    let codes = codes_of("reference/reason-codes.md", server_codes())
        .chain(codes_of("reference/verify-codes.md", target_codes()));
    let mut entries: Vec<String> = symptoms
        .iter()
        .map(|anchor| format!("<a id=\"{anchor}\"></a>[{anchor}]({new_page}#{anchor})"))
        .collect();
    entries.extend(codes.map(|(code, page)| {
        let anchor = code.to_ascii_lowercase();
        format!("<a id=\"{anchor}\"></a>[{code}]({page}#{anchor})")
    }));
    format!(
        "# Moved\n\nThis page is now [{new_page}]({new_page}). Messages of earlier versions link \
         to these anchors:\n\n{}\n",
        entries.join(" ·\n")
    )
}

#[test]
fn the_pages_are_what_the_files_print() {
    let mut pages = vec![
        ("reference/reason-codes.md".to_owned(), reason_codes_page()),
        ("reference/verify-codes.md".to_owned(), verify_codes_page()),
    ];
    pages.extend(MOVED_PAGES.iter().map(|(old_page, new_page, symptoms)| {
        ((*old_page).to_owned(), moved_page(new_page, symptoms))
    }));
    for (name, printed) in pages {
        let page = repository().join("docs").join(&name);
        if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
            std::fs::write(&page, &printed).unwrap();
        }
        assert!(
            std::fs::read_to_string(&page).is_ok_and(|text| text == printed),
            "docs/{name} is not what the files of the codes print; KEYFERRY_WRITE_COPIES=1 writes it"
        );
    }
}
