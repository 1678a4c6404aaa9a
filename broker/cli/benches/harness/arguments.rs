//! The arguments of a bench.

use super::Outcome;

/// The arguments of a bench, without the program.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// The arguments of this process.
    pub fn from_environment() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Whether this argument is given.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }

    /// The number after this argument, or the usual one.
    pub fn number(&self, name: &str, usual: u64) -> Outcome<u64> {
        let Some(at) = self.0.iter().position(|argument| argument == name) else {
            return Ok(usual);
        };
        let number = self.0.get(at + 1).and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("{name} takes a number").into())
    }

    /// The command that starts this bench with these arguments.
    pub fn command(&self, bench: &str) -> String {
        let own: Vec<&str> = self.0.iter().map(String::as_str).collect();
        // Cargo adds this one.
        let own: Vec<&str> = own.into_iter().filter(|name| *name != "--bench").collect();
        let command = format!("cargo bench -p keyferry --bench {bench}");
        if own.is_empty() {
            command
        } else {
            format!("{command} -- {}", own.join(" "))
        }
    }
}
