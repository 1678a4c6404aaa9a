//! Writes configurations as YAML like that of people and generators, and as nearly valid YAML.
//!
//! The tree defines what the file means. This module chooses every detail of the text at random:
//! styles of scalars, indentation, tabs, comments, line ends, keys, flow and block collections,
//! anchors, tags, directives. It may then damage the text.

mod writer;

use self::writer::Writer;
use crate::differential::node::Node;
use crate::random::Random;

/// Writes a tree as YAML, well formed or nearly so.
pub(crate) fn text(random: &mut Random, tree: &Node) -> String {
    let line_end = if random.percent(90) {
        "\n"
    } else {
        random.pick(&["\r\n", "\r", "\u{85}", "\u{2028}"])
    };
    let mut writer = Writer {
        random,
        out: String::new(),
        line_end,
        anchors: 0,
        odd: 0,
    };
    // Half of the files are written plainly except for their scalars, so that only one thing
    // differs at a time.
    writer.odd = writer.random.pick_copied(&[0, 0, 0, 1, 1, 2, 4, 10]);
    if writer.random.percent(15) {
        let before = writer.random.pick(&FILE_PREFIXES);
        writer.out.push_str(before);
    }
    writer.block(tree, 0);
    if writer.random.percent(12) {
        let after = writer.random.pick(&FILE_SUFFIXES);
        writer.out.push_str(after);
    }
    let mut out = writer.out;
    if random.percent(40) {
        for _ in 0..random.pick_copied(&[1, 1, 1, 2, 4]) {
            out = damaged(random, &out);
        }
    }
    out
}

/// The text with one small change.
fn damaged(random: &mut Random, text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let at = random.below(characters.len() + 1);
    let (before, after) = characters.split_at(at);
    let (before, after): (String, String) = (before.iter().collect(), after.iter().collect());
    match random.below(10) {
        0..=3 => format!("{before}{}{after}", random.pick(&SNIPPETS)),
        4 => format!(
            "{before}{}",
            after.chars().skip(1 + random.below(3)).collect::<String>()
        ),
        5 => lines(random, text, |random, line| {
            let indent = line.len() - line.trim_start_matches(' ').len();
            let other = match random.below(4) {
                0 => " ".repeat(indent + 1),
                1 => " ".repeat(indent.saturating_sub(1)),
                2 => format!("{}\t", " ".repeat(indent)),
                _ => "\t".to_owned(),
            };
            vec![format!("{other}{}", line.trim_start_matches(' '))]
        }),
        6 => lines(random, text, |_, line| {
            vec![line.to_owned(), line.to_owned()]
        }),
        7 => lines(random, text, |_, _| Vec::new()),
        8 => lines(random, text, |random, line| {
            vec![format!("{line}{}", random.pick(&ENDS))]
        }),
        _ => lines(random, text, |random, line| {
            vec![line.to_owned(), random.pick(&LINES).to_owned()]
        }),
    }
}

/// The text with one of its lines changed.
fn lines(
    random: &mut Random,
    text: &str,
    change: impl Fn(&mut Random, &str) -> Vec<String>,
) -> String {
    let all: Vec<&str> = text.split('\n').collect();
    let chosen = random.below(all.len());
    let mut out = Vec::new();
    for (index, line) in all.into_iter().enumerate() {
        if index == chosen {
            out.extend(change(random, line))
        } else {
            out.push(line.to_owned())
        }
    }
    out.join("\n")
}

const FILE_PREFIXES: [&str; 20] = [
    "---\n",
    "--- # c\n",
    "# c\n",
    "\u{feff}",
    "\u{feff}\u{feff}",
    "\n\u{feff}",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "%YAML 1.1 # c\n--- \n",
    "%TAG !e! tag:e,2000:\n---\n",
    "%TAG !! tag:yaml.org,2002:\n--- !!map\n",
    "%FOO\n---\n",
    "\n\n",
    "\t\n",
    " \n",
    "...\n",
    "--- !!map\n",
    "--- &root\n",
    "---\n---\n",
    "\u{2028}",
];

const FILE_SUFFIXES: [&str; 26] = [
    "---\nkind: Other\n",
    "--- { not yaml",
    "...\n",
    "...\ngarbage: [\n",
    "# c",
    "\t",
    "}\n",
    "]\n",
    "x\n",
    "x: \"\n",
    "unknown: 1\n",
    "\tx: 1\n",
    "<<: {a: 1}\n",
    "<<: [{a: 1}, {jwt: []}]\n",
    "<<: x\n",
    "x: &a {b: 1}\ny: *a\n",
    "x: &a {b: 1}\n<<: *a\n",
    "x: &a [*a]\n",
    "x: *none\n",
    "1: x\n1: y\n",
    "? [a]\n: b\n",
    "? {a: 1}\n",
    "---\n\u{0}",
    "x: .inf\n",
    "\u{7f}",
    "kind: AuthenticationConfiguration\n",
];

const SNIPPETS: [&str; 48] = [
    " ", "  ", "\t", "\n", "\n\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{feff}", ":", ": ",
    ":\t", "#", " #", "-", "- ", "-\t", "?", "? ", "'", "\"", "\\", "\\\n", "[", "]", "{", "}",
    ",", "&a ", "*a", "!", "!!str ", "|", ">", "|\n", "%", "@", "`", "\n---\n", "\n...\n", "\u{0}",
    "\u{7f}", "x: y", "\nx", "\n x: y", "\n\tx", "<<: ",
];

const ENDS: [&str; 16] = [
    "#c", " #c", "\t#c", " ", "\t", ":", " :", ": x", " x", ",", "'", "\"", "|", " |", "\\", " &a",
];

const LINES: [&str; 16] = [
    "",
    "\t",
    "# c",
    "x",
    "x:",
    "  x: y",
    "- x",
    "  - x",
    ": x",
    "? x",
    "---",
    "...",
    "\u{feff}x: y",
    "\"x\" : y",
    "'x\ny': z",
    "x: 'a\nb'",
];
