//! The URL's query: what to search, which state, in which order, from which row. Anybody may type
//! it, so it is bounded and every value is checked.

use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::Health;
use url::form_urlencoded::{Serializer, parse};

/// The longest query that is read; a longer one is as none.
const MAX_QUERY_BYTES: usize = 2048;
/// The last row that a page can begin after, far beyond what a hub holds.
const MAX_OFFSET: usize = 1_000_000;
/// Rows on one page.
pub(crate) const PAGE_ROWS: usize = 100;

/// The order of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As in the facts: worst first.
    #[default]
    Worst,
    /// The earliest ending first.
    Runway,
    /// By name.
    Name,
    /// The most accesses first.
    Accesses,
}

impl Sort {
    /// Each order, with its word in the URL and on the page.
    pub(crate) const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Worst, "worst", "worst first"),
        (Self::Runway, "runway", "shortest runway"),
        (Self::Name, "name", "name"),
        (Self::Accesses, "accesses", "most accesses"),
    ];

    fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(sort, _, _)| *sort == self)
            .map_or("worst", |(_, word, _)| word)
    }
}

/// The word of each state in the URL.
pub(crate) const STATES: [(Health, &str); 4] = [
    (Health::Broken, "broken"),
    (Health::Attention, "attention"),
    (Health::Unknown, "unknown"),
    (Health::Ready, "ready"),
];

/// A question to a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    /// Text that a row must contain; empty for all.
    pub(crate) search: String,
    /// The state that a row must have.
    pub(crate) state: Option<Health>,
    /// The order.
    pub(crate) sort: Sort,
    /// How many rows come before the page.
    pub(crate) offset: usize,
}

impl Question {
    /// Reads a percent-encoded query. What is unknown or wrong counts as not asked.
    pub(crate) fn parse(query: &str) -> Self {
        let mut question = Self::default();
        if query.len() > MAX_QUERY_BYTES {
            return question;
        }
        for (key, value) in parse(query.as_bytes()) {
            match key.as_ref() {
                // The characters that are shown are those that are searched.
                "q" => question.search = ForeignText::new(value.trim()).to_string(),
                "state" => {
                    let state = STATES.iter().find(|(_, word)| *word == value);
                    question.state = state.map(|(health, _)| *health);
                }
                "sort" => {
                    let sort = Sort::ALL.iter().find(|(_, word, _)| *word == value);
                    question.sort = sort.map(|(sort, _, _)| *sort).unwrap_or_default();
                }
                "from" => {
                    let first: usize = value.parse().unwrap_or(1);
                    let offset = first.saturating_sub(1) / PAGE_ROWS * PAGE_ROWS;
                    question.offset = offset.min(MAX_OFFSET);
                }
                _ => {}
            }
        }
        question
    }

    /// The relative URL of the same page with this question.
    pub(crate) fn link(&self, page: &str) -> String {
        let mut query = Serializer::new(String::new());
        if !self.search.is_empty() {
            query.append_pair("q", &self.search);
        }
        if let Some((_, word)) = STATES
            .iter()
            .find(|(health, _)| Some(*health) == self.state)
        {
            query.append_pair("state", word);
        }
        if self.sort != Sort::default() {
            query.append_pair("sort", self.sort.word());
        }
        if self.offset > 0 {
            query.append_pair("from", &(self.offset + 1).to_string());
        }
        match query.finish().as_str() {
            "" => page.to_owned(),
            query => format!("{page}?{query}"),
        }
    }

    /// The same question from its first row, with another state.
    pub(crate) fn with_state(&self, state: Option<Health>) -> Self {
        Self {
            state,
            offset: 0,
            ..self.clone()
        }
    }

    /// The same question from its first row, in another order.
    pub(crate) fn with_sort(&self, sort: Sort) -> Self {
        Self {
            sort,
            offset: 0,
            ..self.clone()
        }
    }

    /// The same question without its text.
    pub(crate) fn without_search(&self) -> Self {
        Self {
            search: String::new(),
            offset: 0,
            ..self.clone()
        }
    }

    /// The same question from another row.
    pub(crate) fn with_offset(&self, offset: usize) -> Self {
        Self {
            offset,
            ..self.clone()
        }
    }

    /// Whether a row with these texts contains what is searched, in any case of letters.
    pub(crate) fn matches_any<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> bool {
        let search = self.search.to_lowercase();
        search.is_empty()
            || texts
                .into_iter()
                .any(|text| text.to_lowercase().contains(&search))
    }
}

#[cfg(test)]
mod tests {
    use keyferry_fleet::facts::Health;

    use super::{Question, Sort};

    #[test]
    fn a_query_is_read_and_written() {
        for (query, link) in [
            ("", "fleet"),
            (
                "q=prod+eu&state=broken&sort=runway&from=101",
                "fleet?q=prod+eu&state=broken&sort=runway&from=101",
            ),
            ("state=nonsense&sort=nonsense&from=x&other=1", "fleet"),
            ("sort=worst&from=1", "fleet"),
            ("from=150", "fleet?from=101"),
            ("q=%3Cscript%3E%22%26", "fleet?q=%3Cscript%3E%22%26"),
            ("q=%ff%zz", "fleet?q=%EF%BF%BD%25zz"),
            ("from=99999999999999999999999", "fleet"),
            ("from=18446744073709551615", "fleet?from=1000001"),
        ] {
            assert_eq!(Question::parse(query).link("fleet"), link, "{query}");
        }
        let long = format!("q={}", "a".repeat(3000));
        assert_eq!(Question::parse(&long), Question::default());
    }

    #[test]
    fn a_search_shows_what_it_searches() {
        let question = Question::parse("q=%E2%80%AEprod%0A");
        assert_eq!(question.search, r"\u{202e}prod");
    }

    #[test]
    fn a_change_of_the_question_starts_at_its_first_row() {
        let question = Question::parse("q=a&from=201");
        assert_eq!(
            question.with_state(Some(Health::Ready)).link("x"),
            "x?q=a&state=ready"
        );
        assert_eq!(question.with_sort(Sort::Name).link("x"), "x?q=a&sort=name");
        assert_eq!(question.without_search().link("x"), "x");
        assert_eq!(question.with_offset(100).link("x"), "x?q=a&from=101");
        assert!(question.matches_any(["PrAd"]) && !question.matches_any(["x"]));
    }
}
