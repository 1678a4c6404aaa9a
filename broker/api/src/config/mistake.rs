//! Mistakes in a configuration, each with its fix.

use std::fmt;

/// One mistake and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `<kind>/<name>` of the object; empty for the file as a whole.
    pub object: String,
    /// The field's path, such as `spec.allow[0].serviceAccounts`.
    pub path: String,
    /// The line in the file, from 1; 0 if only the file is known.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
}

impl Mistake {
    pub(super) fn whole_file(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            object: String::new(),
            path: String::new(),
            line: 0,
            problem: problem.into(),
            fix: fix.into(),
        }
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
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// Every mistake found in one configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The mistakes, at least one.
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
