//! What is wrong with a configuration, said so that it can be mended.

use std::fmt;

use serde::de::DeserializeOwned;

use super::document::Document;
use super::typed;

/// One mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `<kind>/<name>` of the object, empty for the file as a whole.
    pub object: String,
    /// The field's path, such as `spec.allow[0].serviceAccounts`.
    pub path: String,
    /// Line in the file, from 1; 0 where there is no better place than the file.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub mend: String,
}

impl Mistake {
    pub(super) fn whole_file(problem: impl Into<String>, mend: impl Into<String>) -> Mistake {
        Mistake { object: String::new(), path: String::new(), line: 0, problem: problem.into(), mend: mend.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        for part in [&self.object, &self.path] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        write!(f, "{}; {}", self.problem, self.mend)
    }
}

/// Every mistake found in one configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub mistakes: Vec<Mistake>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

/// Collects the mistakes of one object while its fields are turned into what they mean.
pub(super) struct Check<'a> {
    document: &'a Document,
    mistakes: &'a mut Vec<Mistake>,
    before: usize,
    replaced: Vec<String>,
}

impl<'a> Check<'a> {
    pub(super) fn new(document: &'a Document, mistakes: &'a mut Vec<Mistake>) -> Check<'a> {
        let before = mistakes.len();
        Check { document, mistakes, before, replaced: Vec::new() }
    }

    /// The document as a typed object. What does not fit is noted; an empty value then stands in for it, so the rest can be checked.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (object, misfits) = typed::read(self.document);
        for misfit in misfits {
            self.wrong(&misfit.path, misfit.problem, misfit.mend);
            if misfit.replaced {
                self.replaced.push(misfit.path);
            }
        }
        object
    }

    /// Notes a mistake in the field at `path`, unless it is about a stand-in.
    pub(super) fn wrong(&mut self, path: &str, problem: impl Into<String>, mend: impl Into<String>) {
        if !self.replaced.iter().any(|replaced| typed::covers(replaced, path)) {
            self.mistakes.push(self.document.mistake(path, problem, mend));
        }
    }

    /// The value, or nothing and a note of why not.
    pub(super) fn take<T, E: fmt::Display>(&mut self, path: &str, result: Result<T, E>, mend: &str) -> Option<T> {
        result.map_err(|error| self.wrong(path, error.to_string(), mend)).ok()
    }

    /// Whether nothing at all was wrong with this object. For its end only: inside it, one field's mistake must not hide another's.
    pub(super) fn clean(&self) -> bool {
        self.mistakes.len() == self.before
    }
}
