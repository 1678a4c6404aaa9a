//! Reads rendered pages: a line for each element, their tags, and the values of attributes.

/// Elements that begin a line.
const BLOCKS: [&str; 25] = [
    "<head", "<meta", "<title", "<style", "<body", "<header", "<nav", "<main", "<footer",
    "<section", "<div", "<p", "<h1", "<h2", "<h3", "<ul", "<li", "<dl", "<table", "<tr", "<th",
    "<td", "<svg", "<rect", "<form",
];

/// The page with a line for each block, without the text of its style sheet.
pub(super) fn laid_out(html: &str) -> String {
    let (before, rest) = html.split_once("<style>").unwrap_or((html, ""));
    let after = rest.split_once("</style>").map_or(rest, |(_, after)| after);
    let page = format!("{}<style>…</style>{after}", without_hash(before));
    lines(&page)
}

/// What is inside the element `main`, with a line for each block.
pub(super) fn main_part(html: &str) -> String {
    let (_, rest) = html.split_once("<main ").unwrap();
    let (main, _) = rest.split_once("</main>").unwrap();
    lines(&format!("<main {main}</main>"))
}

fn lines(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        text.push_str(before);
        let is_block = BLOCKS.iter().any(|block| {
            tag.strip_prefix(block)
                .is_some_and(|after| after.starts_with([' ', '>']))
        });
        if is_block {
            text.push('\n');
        }
        text.push('<');
        rest = &tag[1..];
    }
    text.push_str(rest);
    text.trim().to_owned()
}

/// The policy's hash changes with every change of the style sheet.
fn without_hash(head: &str) -> String {
    match head
        .split_once("'sha256-")
        .and_then(|(before, rest)| Some((before, rest.split_once('\'')?.1)))
    {
        Some((before, after)) => format!("{before}'sha256-…'{after}"),
        None => head.to_owned(),
    }
}

/// The names of all tags and of their attributes, in order.
pub(super) fn skeleton(html: &str) -> String {
    let html = match html.split_once("<style>") {
        Some((before, rest)) => format!("{before}{}", rest.split_once("</style>").unwrap().1),
        None => html.to_owned(),
    };
    let mut names = String::new();
    for tag in html.split('<').skip(1) {
        let (mut quoted, mut in_value) = (false, false);
        for character in tag.chars() {
            match character {
                '"' => quoted = !quoted,
                '>' if !quoted => break,
                '=' if !quoted => in_value = true,
                ' ' if !quoted => {
                    in_value = false;
                    names.push(' ');
                }
                _ if !quoted && !in_value => names.push(character),
                _ => {}
            }
        }
        names.push('\n');
    }
    names
}

/// The values of an attribute, wherever it stands.
pub(super) fn attribute_values<'h>(html: &'h str, name: &str) -> Vec<&'h str> {
    let start = format!(" {name}=\"");
    let values = html.split(start.as_str()).skip(1);
    values.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_tag_that_was_let_through_changes_the_skeleton() {
    let harmless = skeleton("<p class=\"a\">text</p>");
    assert_eq!(harmless, "p class\n/p\n");
    for hostile in [
        "<p class=\"a\"><b>text</b></p>",
        "<p class=\"a\" onclick=\"x\">text</p>",
        "<p>text</p>",
    ] {
        assert_ne!(skeleton(hostile), harmless, "{hostile}");
    }
}
