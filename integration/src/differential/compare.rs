//! Compares one ruling with one oracle's answer.

use std::fmt;

use super::class;
use super::verdict::{FieldFault, Ruling, User, Verdict};
use crate::oracle::{Answer, OracleVerdict};

/// How often the two sides agree. A refused configuration counts as one judgement; otherwise each
/// token and entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) agreed: usize,
    /// Of the agreed ones: the texts differ but the classes do not.
    pub(crate) other_words: usize,
    /// Of the agreed ones: refusals, which have a text.
    pub(crate) refusals: usize,
    /// Of the refusals: those whose text is meant to equal kube-apiserver's, and does.
    pub(crate) exact: usize,
    pub(crate) undetermined: usize,
    pub(crate) disagreed: usize,
    /// The issuer's documents could not be fetched, so there is nothing to compare.
    pub(crate) unpublished: usize,
    /// The authenticator panicked, so there is nothing to compare.
    pub(crate) panicked: usize,
}

/// The result of one case on one release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Comparison {
    pub(crate) tally: Tally,
    pub(crate) differences: Vec<Difference>,
    /// Why judgements are undetermined.
    pub(crate) reasons: Vec<String>,
    /// Both texts, where they differ in wording only.
    pub(crate) words: Vec<(String, String)>,
}

/// A disagreement between the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The index of the token, when the difference is about one.
    pub(crate) token: Option<usize>,
    /// The kind of difference, without values.
    pub(crate) kind: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            agreed,
            other_words,
            refusals,
            exact,
            undetermined,
            disagreed,
            unpublished,
            panicked,
        } = self;
        write!(
            f,
            "agreed {agreed} (in other words {other_words}; of {refusals} refusals {exact} with \
             the exact text), undetermined {undetermined}, disagreed {disagreed}, without \
             documents {unpublished}, panics of theirs {panicked}"
        )
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.agreed += other.agreed;
        self.other_words += other.other_words;
        self.refusals += other.refusals;
        self.exact += other.exact;
        self.undetermined += other.undetermined;
        self.disagreed += other.disagreed;
        self.unpublished += other.unpublished;
        self.panicked += other.panicked;
    }

    /// How many of a thousand judgements were decided, rightly or wrongly.
    pub(crate) fn decided_per_mille(&self) -> usize {
        let decided = self.agreed + self.disagreed;
        decided * 1000 / (decided + self.undetermined).max(1)
    }
}

/// Compares a ruling with an oracle's answer.
pub(crate) fn compare(ours: &Ruling, theirs: &Answer) -> Comparison {
    let mut comparison = Comparison::default();
    if theirs.failure.is_some() {
        comparison.tally.panicked += 1;
        return comparison;
    }
    match (
        ours,
        &theirs.load_error,
        theirs.validation_errors.as_slice(),
    ) {
        (Ruling::Undetermined { why }, _, _) => comparison.undetermined(why),
        (Ruling::NotLoaded { text, exact }, Some(load_error), _) => {
            let (our_class, their_class) =
                (class::of_load_error(text), class::of_load_error(load_error));
            if !exact || (our_class == their_class && *text == load_error_of_a_server(load_error)) {
                comparison.agree_on_text(text, load_error, *exact)
            } else {
                comparison.differ(
                    None,
                    format!("load error: ours {our_class}, theirs {their_class}"),
                    text,
                    load_error,
                )
            }
        }
        (Ruling::NotValid { errors, complete }, None, [_, ..]) => {
            compare_faults(errors, *complete, theirs, &mut comparison)
        }
        (Ruling::Verdicts(verdicts), None, []) => compare_tokens(verdicts, theirs, &mut comparison),
        _ => comparison.differ(
            None,
            format!(
                "configuration: ours {}, theirs {}",
                our_stage(ours),
                their_stage(theirs)
            ),
            &format!("{ours:?}"),
            &their_stage_text(theirs),
        ),
    }
    comparison
}

impl Comparison {
    fn agree(&mut self, ours: &str, theirs: &str) {
        self.tally.agreed += 1;
        if ours != theirs {
            self.tally.other_words += 1;
            self.words.push((ours.to_owned(), theirs.to_owned()));
        }
    }

    fn agree_on_text(&mut self, ours: &str, theirs: &str, exact: bool) {
        self.agree(ours, theirs);
        self.tally.refusals += 1;
        self.tally.exact += usize::from(exact);
    }

    fn undetermined(&mut self, why: &str) {
        self.tally.undetermined += 1;
        self.reasons.push(why.to_owned());
    }

    fn differ(&mut self, token: Option<usize>, kind: String, ours: &str, theirs: &str) {
        self.tally.disagreed += 1;
        self.differences.push(Difference {
            token,
            kind,
            ours: ours.to_owned(),
            theirs: theirs.to_owned(),
        });
    }
}

fn compare_faults(ours: &[FieldFault], complete: bool, theirs: &Answer, found: &mut Comparison) {
    let place = |field: &str, kind: &str| format!("{field} {kind}");
    let mut our_places: Vec<String> = ours
        .iter()
        .map(|fault| place(&fault.field, &fault.kind))
        .collect();
    let mut their_places: Vec<String> = theirs
        .validation_errors
        .iter()
        .map(|error| place(&error.field, &error.kind))
        .collect();
    our_places.sort();
    their_places.sort();
    let lines = |texts: Vec<&str>| texts.join("\n");
    let our_text = lines(ours.iter().map(|fault| fault.text.as_str()).collect());
    let their_text = lines(
        theirs
            .validation_errors
            .iter()
            .map(|error| error.text.as_str())
            .collect(),
    );
    let found_by_both = if complete {
        our_places == their_places
    } else {
        is_part_of(&our_places, &their_places)
    };
    let said_there = |fault: &&FieldFault| {
        theirs
            .validation_errors
            .iter()
            .any(|error| error.text == fault.text)
    };
    if !found_by_both {
        found.differ(
            None,
            "validation errors of other fields".to_owned(),
            &our_text,
            &their_text,
        );
    } else if let Some(fault) = ours.iter().find(|fault| !same_issues(fault, theirs)) {
        found.differ(
            None,
            "other issues of an expression".to_owned(),
            &fault.text,
            &their_text,
        );
    } else if ours
        .iter()
        .filter(|fault| fault.exact)
        .all(|fault| said_there(&fault))
    {
        let exact = complete && ours.iter().all(|fault| fault.exact);
        found.agree_on_text(
            &our_text,
            if complete { &their_text } else { &our_text },
            exact,
        );
    } else {
        found.differ(
            None,
            "other words of a validation error".to_owned(),
            &our_text,
            &their_text,
        );
    }
}

/// Whether the right list contains everything of the left one, at least as often.
fn is_part_of(left: &[String], right: &[String]) -> bool {
    let often = |all: &[String], one: &String| all.iter().filter(|other| *other == one).count();
    left.iter().all(|one| often(left, one) <= often(right, one))
}

/// Whether their error has as many issues of the expression as ours. After a syntax error, their
/// parser recovers in its own way and may find more.
fn same_issues(ours: &FieldFault, theirs: &Answer) -> bool {
    let issues = |text: &str| text.matches("ERROR: <input>:").count();
    let is_syntax = |text: &str| text.contains(": Syntax error: ");
    let fits = |text: &str| match (is_syntax(&ours.text), is_syntax(text)) {
        (true, true) => issues(&ours.text) <= issues(text),
        (false, false) => issues(&ours.text) == issues(text),
        _ => false,
    };
    theirs
        .validation_errors
        .iter()
        .any(|error| error.field == ours.field && error.kind == ours.kind && fits(&error.text))
}

fn compare_tokens(ours: &[Vec<Verdict>], theirs: &Answer, found: &mut Comparison) {
    for (token, their_verdicts) in theirs.tokens.iter().enumerate() {
        for (entry, their_verdict) in their_verdicts.iter().enumerate() {
            let state = theirs.authenticators.get(entry);
            if state.is_some_and(|state| state.not_ready.is_some()) {
                found.tally.unpublished += 1;
                continue;
            }
            let their_verdict = neutral(their_verdict);
            match ours.get(token).and_then(|verdicts| verdicts.get(entry)) {
                Some(Verdict::Undetermined { why }) => found.undetermined(why),
                Some(our_verdict) => compare_verdicts(token, our_verdict, &their_verdict, found),
                None => found.differ(
                    Some(token),
                    "no verdict of ours".to_owned(),
                    "",
                    &format!("{their_verdict:?}"),
                ),
            }
        }
    }
}

fn compare_verdicts(token: usize, ours: &Verdict, theirs: &Verdict, found: &mut Comparison) {
    let possible = if let Verdict::OneOf(possible) = ours {
        possible.as_slice()
    } else {
        std::slice::from_ref(ours)
    };
    let their_class = theirs.name();
    for verdict in possible {
        match (verdict, theirs) {
            (
                Verdict::Rejected { text, exact },
                Verdict::Rejected {
                    text: their_text, ..
                },
            ) if text == their_text => {
                return found.agree_on_text("", "", *exact);
            }
            (
                Verdict::Rejected { text, exact: false },
                Verdict::Rejected {
                    text: their_text, ..
                },
            ) if verdict.name() == their_class => {
                return found.agree_on_text(text, their_text, false);
            }
            (Verdict::Accepted(_) | Verdict::Skipped, _) if verdict == theirs => {
                return found.agree("", "");
            }
            _ => {}
        }
    }
    let kind = match (ours, theirs) {
        (Verdict::Accepted(ours), Verdict::Accepted(theirs)) => {
            format!("another user: {}", other_parts(ours, theirs))
        }
        _ if possible.iter().any(|verdict| verdict.name() == their_class) => {
            format!("other words: {their_class}")
        }
        _ => format!("verdict: ours {}, theirs {their_class}", ours.name()),
    };
    found.differ(
        Some(token),
        kind,
        &format!("{ours:?}"),
        &format!("{theirs:?}"),
    );
}

/// Normalises a load error. A scheme is named after the line that created it, so kube-apiserver's
/// name differs from the oracle's.
fn load_error_of_a_server(text: &str) -> String {
    match text.split_once(" in scheme \"") {
        Some((before, _)) => {
            format!("{before} in scheme \"pkg/kubeapiserver/options/authentication.go\"")
        }
        None => text.to_owned(),
    }
}

fn other_parts(ours: &User, theirs: &User) -> String {
    let parts = [
        ("name", ours.name != theirs.name),
        ("uid", ours.uid != theirs.uid),
        ("groups", ours.groups != theirs.groups),
        ("extra", ours.extra != theirs.extra),
    ];
    parts
        .iter()
        .filter(|(_, differs)| *differs)
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(" ")
}

fn neutral(verdict: &OracleVerdict) -> Verdict {
    match (&verdict.user, &verdict.error) {
        (Some(user), _) => Verdict::Accepted(User {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }),
        (None, Some(text)) => Verdict::Rejected {
            text: text.clone(),
            exact: true,
        },
        (None, None) => Verdict::Skipped,
    }
}

fn our_stage(ours: &Ruling) -> &'static str {
    match ours {
        Ruling::NotLoaded { .. } => "not loaded",
        Ruling::NotValid { .. } => "not valid",
        Ruling::Verdicts(_) => "taken",
        Ruling::Undetermined { .. } => "undetermined",
    }
}

fn their_stage(theirs: &Answer) -> &'static str {
    match (&theirs.load_error, theirs.validation_errors.as_slice()) {
        (Some(_), _) => "not loaded",
        (None, [_, ..]) => "not valid",
        (None, []) => "taken",
    }
}

fn their_stage_text(theirs: &Answer) -> String {
    match (&theirs.load_error, theirs.validation_errors.as_slice()) {
        (Some(text), _) => text.clone(),
        (None, []) => "taken".to_owned(),
        (None, errors) => errors
            .iter()
            .map(|error| error.text.as_str())
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

#[cfg(test)]
mod tests;
