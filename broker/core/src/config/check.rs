//! Turning the fields of one object into what they mean, and noting every mistake on the way.

use std::fmt;

use serde::de::DeserializeOwned;

use super::document::{Document, Origin};
use super::mistake::Mistake;
use super::typed;

/// Collects the mistakes of one object while its fields are turned into what they mean.
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

    /// Where the object stands.
    pub(super) fn origin(&self) -> &Origin {
        self.document.origin()
    }

    /// The document as a typed object. What does not fit is noted; an empty value then stands in
    /// for it, so the rest can be checked.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (object, misfits) = typed::read(self.document);
        for misfit in misfits {
            self.wrong(&misfit.path, misfit.problem, misfit.fix);
            if misfit.replaced {
                self.replaced.push(misfit.path);
            }
        }
        object
    }

    /// Notes a mistake in the field at `path`, unless it is about a stand-in.
    pub(super) fn wrong(&mut self, path: &str, problem: impl Into<String>, fix: impl Into<String>) {
        if !self
            .replaced
            .iter()
            .any(|replaced| typed::covers(replaced, path))
        {
            self.mistakes
                .push(self.document.mistake(path, problem, fix));
        }
    }

    /// The value, or nothing and a note of why not.
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

    /// Whether nothing at all was wrong with this object. For its end only: inside it, one field's
    /// mistake must not hide another's.
    pub(super) fn clean(&self) -> bool {
        self.mistakes.len() == self.before
    }
}
