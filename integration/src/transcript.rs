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
    shows_random_words: bool,
}

impl Transcript {
    /// The call of `program`, which may be several words, with these arguments.
    pub fn new(program: &str, arguments: &[&str], output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            variables: Vec::new(),
            words: program
                .split(' ')
                .chain(arguments.iter().copied())
                .map(str::to_owned)
                .collect(),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            names: Vec::new(),
            shows_random_words: true,
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

    /// Shows `TOKEN`, `CERTIFICATE`, `UUID`, `TIME` and `RANDOM` in place of such words, `PORT` in
    /// place of a random port of this machine, `/TEMPORARY` in place of a folder for temporary files,
    /// and no line of PEM.
    #[must_use]
    pub fn without_random_words(mut self) -> Self {
        self.shows_random_words = false;
        self
    }

    fn named(&self, text: &str) -> String {
        let names = self.names.iter();
        let text = names.fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        match self.shows_random_words {
            true => text,
            false => without_random_words(&text),
        }
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

/// Replaces what is another one in each run: the lines of PEM, and random words. The padding of
/// base64 goes with its word.
fn without_random_words(text: &str) -> String {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-_.:+/".contains(letter);
    let text = without_pem(text);
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_of_word) {
        let (before, from_word) = rest.split_at(start);
        let end = from_word
            .find(|letter| !is_of_word(letter))
            .unwrap_or(from_word.len());
        // A full stop or a colon ends a clause, and is no part of the word.
        let word = from_word.get(..end).unwrap_or_default();
        let word = word.trim_end_matches(['.', ':']);
        let after = from_word.get(word.len()..).unwrap_or_default();
        shown.push_str(before);
        match name_of_random_word(word) {
            Some(name) => {
                shown.push_str(&name);
                rest = after.trim_start_matches('=');
            }
            None if word.is_empty() => {
                let (marks, after) = from_word.split_at(end);
                shown.push_str(marks);
                rest = after;
            }
            None => {
                shown.push_str(word);
                rest = after;
            }
        }
    }
    shown + rest
}

/// Leaves out the base64 lines between the first and the last line of PEM.
fn without_pem(text: &str) -> String {
    let mut is_inside = false;
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        is_inside &= !line.contains("-----END ");
        if !is_inside {
            shown.push_str(line);
        }
        is_inside |= line.contains("-----BEGIN ") && !line.contains("-----END ");
    }
    shown
}

fn name_of_random_word(word: &str) -> Option<String> {
    const REQUEST_ID_CHARS: usize = 16;
    const UUID_CHARS: usize = 36;
    /// 256 bits as base64url.
    const RANDOM_CHARS: usize = 43;
    /// A port that a test chose, as 1, has fewer.
    const RANDOM_PORT_DIGITS: usize = 4;
    const BASE64_OF_PEM: &str = "LS0tLS1CRUdJTi";
    const LOOPBACK: &str = "127.0.0.1:";
    let is_hex = |part: &str| part.chars().all(|letter| letter.is_ascii_hexdigit());
    if word.len() == REQUEST_ID_CHARS && is_hex(word) {
        return Some("ID".to_owned());
    }
    if word.starts_with("eyJ") && word.split('.').count() == 3 {
        return Some("TOKEN".to_owned());
    }
    if word.starts_with(BASE64_OF_PEM) {
        return Some("CERTIFICATE".to_owned());
    }
    if word.len() == UUID_CHARS && word.split('-').count() == 5 && word.split('-').all(is_hex) {
        return Some("UUID".to_owned());
    }
    if word.contains('T') && word.parse::<jiff::Timestamp>().is_ok() {
        return Some("TIME".to_owned());
    }
    let temporary = format!("{}/", std::env::temp_dir().display());
    if let Some((before, after)) = word.split_once(&temporary) {
        let below = after.split_once('/').map(|(_, below)| format!("/{below}"));
        let below = below.unwrap_or_default();
        return Some(format!("{before}/TEMPORARY{below}"));
    }
    if let Some((before, after)) = word.split_once(LOOPBACK) {
        let path = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if after.len() - path.len() < RANDOM_PORT_DIGITS {
            return None;
        }
        return Some(format!("{before}{LOOPBACK}PORT{path}"));
    }
    let has = |is: fn(char) -> bool| word.chars().any(is);
    let is_random = word.len() >= RANDOM_CHARS
        && !word.contains(['.', ':', '/'])
        && has(|letter| letter.is_ascii_uppercase())
        && has(|letter| letter.is_ascii_lowercase());
    is_random.then(|| "RANDOM".to_owned())
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
    fn random_words_have_one_name() {
        for (text, shown) in [
            ("at 2026-01-01T00:00:00Z: x", "at TIME: x"),
            ("(request id f4dd1dcf5faf5836)", "(request id ID)"),
            ("at 127.0.0.1:1", "at 127.0.0.1:1"),
            (
                &format!("in {}", std::env::temp_dir().join(".tmpAb/c").display()),
                "in /TEMPORARY/c",
            ),
            ("'eyJh.eyJi.c', 1", "'TOKEN', 1"),
            ("a: LS0tLS1CRUdJTiBD==;", "a: CERTIFICATE;"),
            (
                "JTI=6078d0bc-709d-4272-9675-219984c5b97c of v1.33.4.",
                "JTI=UUID of v1.33.4.",
            ),
            (
                "at https://127.0.0.1:34567/a: ok",
                "at https://127.0.0.1:PORT/a: ok",
            ),
            (
                "kid ujW4Q884_tPD179GOyNAx53s6BKpOemdjXG7rXYyA7M",
                "kid RANDOM",
            ),
            (
                "  -----BEGIN A-----\n  abc\n  -----END A-----\nb",
                "  -----BEGIN A-----\n  -----END A-----\nb",
            ),
            ("a :: b ...", "a :: b ..."),
        ] {
            assert_eq!(without_random_words(text), shown);
        }
    }

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
