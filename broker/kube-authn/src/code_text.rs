//! The text about a code: a Markdown file with the code as its title, and three sections.

/// The sections of a code's file, in Markdown, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeText<'a> {
    /// What happened. The first paragraph is the cause in a sentence.
    pub what_happened: &'a str,
    /// What to do about it. The first paragraph is what reports print.
    pub fix: &'a str,
    /// Where a user meets the code. In backquotes are messages, with `…` for a value.
    pub where_it_shows: &'a str,
}

impl<'a> CodeText<'a> {
    /// Splits a file into its sections; `None` if one is missing or not in its place.
    #[must_use]
    pub fn parse(markdown: &'a str) -> Option<Self> {
        let (_, rest) = markdown.split_once("\n## What happened\n")?;
        let (what_happened, rest) = rest.split_once("\n## Fix\n")?;
        let (fix, where_it_shows) = rest.split_once("\n## Where it shows\n")?;
        Some(Self {
            what_happened: what_happened.trim(),
            fix: fix.trim(),
            where_it_shows: where_it_shows.trim(),
        })
    }

    /// Returns the cause in a sentence, in one line.
    #[must_use]
    pub fn cause(&self) -> String {
        first_paragraph(self.what_happened)
    }

    /// Returns the first paragraph of the fix as reports print fixes: in one line, in lower case,
    /// without a full stop.
    #[must_use]
    pub fn advice(&self) -> String {
        let line = first_paragraph(self.fix);
        let line = line.trim_end_matches(['.', ':']);
        let mut letters = line.chars();
        match (letters.next(), letters.clone().next()) {
            (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
                first.to_lowercase().chain(letters).collect()
            }
            _ => line.to_owned(),
        }
    }
}

/// Returns the paragraphs of a section, each in one line.
pub fn split_paragraphs(section: &str) -> impl Iterator<Item = String> {
    section
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn first_paragraph(section: &str) -> String {
    split_paragraphs(section).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_sections_in_their_order() {
        let text = "# X\n\n## What happened\n\nIt is\nso.\n\nMore.\n\n## Fix\n\nDo\nit.\n\n## Where it shows\n\nHere.\n";
        let parsed = CodeText::parse(text).unwrap();
        assert_eq!(parsed.what_happened, "It is\nso.\n\nMore.");
        assert_eq!(parsed.where_it_shows, "Here.");
        assert_eq!(
            (parsed.cause().as_str(), parsed.advice().as_str()),
            ("It is so.", "do it")
        );
        assert_eq!(CodeText::parse(&text.replace("Fix", "Cure")), None);
    }
}
