//! The figures of a run: each subject's median over the rounds, and their ratios.

use std::fmt::Write;

use super::counted::Subject;

/// How much more an exchange by `client_assertion` may cost than one by `subject_token`, in per
/// cent.
const MAX_ASSERTION_SURPLUS: f64 = 3.0;

/// One subject's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    pub subject: Subject,
    /// The round in the middle.
    pub median: u64,
    smallest: u64,
    largest: u64,
}

/// All subjects' instructions.
pub struct Figures(pub Vec<Figure>);

impl Figures {
    /// The figures of these rounds.
    pub fn of_rounds(rounds: &[Vec<u64>]) -> Self {
        let of_subject = |(at, subject): (usize, &Subject)| {
            let mut counts: Vec<u64> = rounds.iter().map(|round| round[at]).collect();
            counts.sort_unstable();
            Figure {
                subject: *subject,
                median: counts[counts.len() / 2],
                smallest: counts[0],
                largest: counts[counts.len() - 1],
            }
        };
        Self(Subject::ALL.iter().enumerate().map(of_subject).collect())
    }

    fn median(&self, subject: Subject) -> f64 {
        let figure = self.0.iter().find(|figure| figure.subject == subject);
        figure.map_or(f64::NAN, |figure| figure.median as f64)
    }

    /// The table of the figures, in Markdown.
    pub fn table(&self) -> String {
        let mut text =
            "| instructions of one | median | spread of 5 | ratio |\n|---|---:|---:|---|\n"
                .to_owned();
        for figure in &self.0 {
            let spread = (figure.largest - figure.smallest) as f64 / figure.median as f64 * 100.0;
            let ratio = self.ratio(figure.subject).unwrap_or_default();
            let name = figure.subject.name();
            let _ = writeln!(
                text,
                "| {name} | {} | {spread:.1} % | {ratio} |",
                figure.median
            );
        }
        text
    }

    /// A subject beside the peer that shows what it cannot do without.
    fn ratio(&self, subject: Subject) -> Option<String> {
        let peer = match subject {
            Subject::Exchange => Subject::EmptyHandler,
            Subject::ClientAssertion => Subject::Exchange,
            Subject::Delivery => Subject::Kubeconfig,
            Subject::Verify | Subject::Evaluation => Subject::Signature,
            Subject::EmptyHandler | Subject::Kubeconfig | Subject::Signature => return None,
        };
        let ratio = self.median(subject) / self.median(peer);
        Some(format!("{ratio:.3} of {}", peer.name()))
    }

    /// Holds what needs no record, because both sides are of this run.
    pub fn hold_ratios(&self) -> Result<(), String> {
        let ratio = self.median(Subject::ClientAssertion) / self.median(Subject::Exchange);
        let surplus = (ratio - 1.0) * 100.0;
        println!("instructions: client_assertion costs {surplus:+.2} % beside subject_token");
        if surplus <= MAX_ASSERTION_SURPLUS {
            return Ok(());
        }
        Err(format!(
            "an exchange by client_assertion costs {surplus:.2} % more than by subject_token, and \
             may cost {MAX_ASSERTION_SURPLUS} % more"
        ))
    }
}
