//! A target's release, which may be newer than every release that is known here.

use std::fmt;
use std::str::FromStr;

use crate::config::Undetermined;
use crate::{Code, Minor, UnknownMinor};

/// The newest known release.
const NEWEST: Minor = match Minor::ALL {
    [.., newest] => newest,
};

/// What is known to change in releases that are not known otherwise: the number after `1.` of the
/// first one, and the change. Measured with k8s.io/apiserver v0.38.0-alpha.2; the suite
/// `next_release` fails if it differs in more.
const KNOWN_CHANGES: [(u8, &str); 4] = [
    (
        38,
        "go-oidc v3 verifies tokens, so the order of checks and the caching of keys may change",
    ),
    (
        38,
        "a token is accepted up to five minutes before its nbf, not one",
    ),
    (
        38,
        "a key of an unknown kty is skipped, where 1.37 refuses the whole key set",
    ),
    (38, "the texts for alg none and HS256 change"),
];

/// A release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// A release whose decisions are known.
    Known(Minor),
    /// A release that is newer than the known ones, by the number after `1.`.
    Newer(u8),
}

impl Release {
    /// The newest known release.
    pub const NEWEST: Self = Self::Known(NEWEST);

    /// Returns the release itself, or the known one that is nearest to it.
    #[must_use]
    pub fn nearest_minor(self) -> Minor {
        match self {
            Self::Known(minor) => minor,
            Self::Newer(_) => NEWEST,
        }
    }

    /// Returns why nothing is decided for a newer release, and what is known to change in it.
    /// `None` for a known release.
    #[must_use]
    pub fn undetermined(self) -> Option<Undetermined> {
        let Self::Newer(number) = self else {
            return None;
        };
        let changes = KNOWN_CHANGES
            .iter()
            .filter(|(first, _)| *first <= number)
            .map(|(first, change)| format!("; from 1.{first} on, {change}"));
        let reason = format!(
            "Kubernetes {self} is newer than {NEWEST}, the newest release known here{}",
            changes.collect::<String>()
        );
        Some(Undetermined::new(Code::NewerRelease, reason))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(minor) => minor.fmt(f),
            Self::Newer(number) => write!(f, "1.{number}"),
        }
    }
}

/// Reads a release as [`Minor`] does, and also newer ones like `1.38` and `v1.38.0`.
impl FromStr for Release {
    type Err = UnknownMinor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = match text.parse() {
            Ok(minor) => return Ok(Self::Known(minor)),
            Err(unknown) => unknown,
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        match (parts.next(), parts.next().map(str::parse)) {
            (Some("1"), Some(Ok(number))) if number > NEWEST.number() => Ok(Self::Newer(number)),
            _ => Err(unknown),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_release_is_read_and_undetermined() {
        for (text, release) in [
            ("1.33", Release::Known(Minor::V1_33)),
            ("v1.37.2", Release::NEWEST),
            ("1.38", Release::Newer(38)),
            ("v1.38.0-alpha.2", Release::Newer(38)),
            ("1.99", Release::Newer(99)),
        ] {
            assert_eq!(text.parse(), Ok(release), "{text}");
            let known = matches!(release, Release::Known(_));
            assert_eq!(release.undetermined().is_none(), known, "{text}");
        }
        for text in ["1.29", "1.9", "2.38", "1.38x", "1.", "1.1000", "", "v"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
        assert_eq!(Release::Newer(38).nearest_minor(), NEWEST);
        let why = Release::Newer(38).undetermined().unwrap().reason;
        assert!(
            why.contains("1.38 is newer than 1.37") && why.contains("go-oidc v3"),
            "{why}"
        );
        for what in [
            "five minutes before its nbf",
            "unknown kty is skipped",
            "HS256",
        ] {
            assert!(why.contains(what), "not silently too strict: {why}");
        }
    }
}
