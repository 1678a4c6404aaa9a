//! Converts the fields of one object to typed values, and collects every mistake.

use std::fmt;

use serde::de::DeserializeOwned;

use super::document::{Document, Origin};
use super::misfit::{self, MisplacedField};
use super::mistake::Mistake;
use crate::schema::choice_names;

/// Collects the mistakes of one object while its fields are converted to typed values.
pub(super) struct Check<'a> {
    document: &'a Document,
    mistakes: &'a mut Vec<Mistake>,
    before: usize,
    replaced: Vec<String>,
}

impl<'a> Check<'a> {
    pub(super) fn new(document: &'a Document, mistakes: &'a mut Vec<Mistake>) -> Self {
        let before = mistakes.len();
        Check {
            document,
            mistakes,
            before,
            replaced: Vec::new(),
        }
    }

    /// The source of the object.
    pub(super) fn origin(&self) -> &Origin {
        self.document.origin()
    }

    /// Reads the document as a typed object. A field that does not fit is noted, and an empty value
    /// replaces it so that the rest can be checked.
    /// `misplaced` are fields that belong elsewhere.
    pub(super) fn read_fields<T: DeserializeOwned>(
        &mut self,
        misplaced: &[MisplacedField],
    ) -> Option<T> {
        let (object, misfits) = misfit::read_fields(self.document, misplaced);
        for misfit in misfits {
            self.wrong(&misfit.path, misfit.problem, misfit.fix);
            if misfit.replaced {
                self.replaced.push(misfit.path);
            }
        }
        object
    }

    /// Notes a mistake in the field at `path`, unless a placeholder replaced that field.
    pub(super) fn wrong(&mut self, path: &str, problem: impl Into<String>, fix: impl Into<String>) {
        if !self
            .replaced
            .iter()
            .any(|replaced| misfit::covers(replaced, path))
        {
            self.mistakes
                .push(self.document.mistake(path, problem, fix));
        }
    }

    /// Returns the value; on an error, notes the mistake and returns `None`.
    pub(super) fn take<T, E: fmt::Display>(
        &mut self,
        path: &str,
        result: Result<T, E>,
        fix: &str,
    ) -> Option<T> {
        result
            .map_err(|error| self.wrong(path, error.to_string(), fix))
            .ok()
    }

    /// Returns the choice that `text` names, or notes that it is not `noun`.
    pub(super) fn choose<T: Copy>(
        &mut self,
        path: &str,
        text: &str,
        noun: &str,
        choices: &'static [(&'static str, T)],
    ) -> Option<T> {
        let choice = choices.iter().find(|(name, _)| *name == text);
        if choice.is_none() {
            let fix = format!("use {}", alternatives(&choice_names(choices)));
            self.wrong(path, format!("{text:?} is not {noun}"), fix);
        }
        choice.map(|(_, value)| *value)
    }

    /// As [`Check::choose`]; a missing text means the default.
    pub(super) fn choose_or_default<T: Copy + Default>(
        &mut self,
        path: &str,
        text: Option<&str>,
        noun: &str,
        choices: &'static [(&'static str, T)],
    ) -> Option<T> {
        match text {
            None => Some(T::default()),
            Some(text) => self.choose(path, text, noun, choices),
        }
    }

    /// Whether the object had no mistake. Call it only at the end: one field's mistake must not
    /// hide another's.
    pub(super) fn clean(&self) -> bool {
        self.mistakes.len() == self.before
    }
}

/// Lists names as `a, b or c`.
fn alternatives(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
