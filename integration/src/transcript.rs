//! What a person sees of one call of a program, as text for a snapshot.
//!
//! A snapshot holds the whole output, so a changed word shows as a difference. What differs from
//! run to run gets a name: a folder, an address, a time. A name replaces only what the test itself
//! gave or asked for, so it hides nothing that the test is about.

use std::fmt;
use std::process::Output;

/// One call of a program: its words, what it printed, and its exit code.
#[derive(Debug, Clone)]
pub struct Transcript {
    variables: Vec<(String, String)>,
    words: Vec<String>,
    code: Option<i32>,
    stdout: String,
    stderr: String,
    names: Vec<(String, String)>,
}

impl Transcript {
    /// The call of `program` with these arguments.
    pub fn new(program: &str, arguments: &[&str], output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            variables: Vec::new(),
            words: std::iter::once(&program)
                .chain(arguments)
                .map(|word| (*word).to_owned())
                .collect(),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            names: Vec::new(),
        }
    }

    /// Shows the environment variables that the test set for the call.
    #[must_use]
    pub fn with_variables(mut self, variables: &[(&str, &str)]) -> Self {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.variables.extend(owned);
        self
    }

    /// Shows `name` in place of `text`, which differs from run to run. The longest text goes first,
    /// so a folder does not hide the name of a file below it.
    #[must_use]
    pub fn with_name(mut self, text: &str, name: &str) -> Self {
        assert!(!text.is_empty(), "{name} would replace nothing");
        self.names.push((text.to_owned(), name.to_owned()));
        self.names
            .sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        self
    }

    fn named(&self, text: &str) -> String {
        let names = self.names.iter();
        names.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("$")?;
        for (name, value) in &self.variables {
            write!(formatter, " {name}={}", quoted(&self.named(value)))?;
        }
        for word in &self.words {
            write!(formatter, " {}", quoted(&self.named(word)))?;
        }
        formatter.write_str("\n")?;
        formatter.write_str(&ended(&self.named(&self.stdout)))?;
        if !self.stderr.is_empty() {
            writeln!(formatter, "--- standard error")?;
            formatter.write_str(&ended(&self.named(&self.stderr)))?;
        }
        match self.code {
            Some(code) => writeln!(formatter, "--- exit code {code}"),
            None => writeln!(formatter, "--- ended by a signal"),
        }
    }
}

/// The transcripts of several calls, one below the other.
pub fn joined<'a>(transcripts: impl IntoIterator<Item = &'a Transcript>) -> String {
    let texts: Vec<String> = transcripts.into_iter().map(Transcript::to_string).collect();
    texts.join("\n")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| format!("{word:?}"), |word| word.into_owned())
}

/// A text that ends with a line end, and shows when the program wrote none.
fn ended(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\\\n"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn it_shows_the_call_both_outputs_and_the_exit_code() {
        let output = Output {
            status: ExitStatus::from_raw(2 << 8),
            stdout: b"read /tmp/x/a".to_vec(),
            stderr: b"error: /tmp/x is full\n".to_vec(),
        };
        let transcript = Transcript::new("keyferry", &["lint", "/tmp/x/a", "a b"], &output)
            .with_variables(&[("HOME", "/tmp/x")])
            .with_name("/tmp/x", "FOLDER")
            .with_name("/tmp/x/a", "FILE");
        assert_eq!(
            transcript.to_string(),
            "$ HOME=FOLDER keyferry lint FILE 'a b'\nread FILE\\\n--- standard error\nerror: FOLDER is \
             full\n--- exit code 2\n"
        );
        assert_eq!(
            joined([&transcript, &transcript])
                .matches("\n\n$ HOME")
                .count(),
            1
        );
    }
}
