//! The Kubernetes minor release of a target, because the semantics of its
//! AuthenticationConfiguration depend on it.

use std::fmt;
use std::str::FromStr;

/// A supported Kubernetes minor release: 1.30 to 1.37, ordered by release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// 1.30, the first with AuthenticationConfiguration on by default.
    V1_30,
    /// Kubernetes 1.31.
    V1_31,
    /// Kubernetes 1.32.
    V1_32,
    /// Kubernetes 1.33.
    V1_33,
    /// 1.34, the first with `apiserver.config.k8s.io/v1`.
    V1_34,
    /// Kubernetes 1.35.
    V1_35,
    /// 1.36, the first that verifies the signature before it reads the claims.
    V1_36,
    /// Kubernetes 1.37.
    V1_37,
}

/// A version that is not one of the supported minors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Kubernetes version {release_text:?} is not one of 1.30 to 1.37: give the target's minor, like \
     1.33"
)]
pub struct UnknownMinor {
    release_text: String,
}

impl Minor {
    /// Every supported minor, oldest first.
    pub const ALL: [Self; 8] = [
        Self::V1_30,
        Self::V1_31,
        Self::V1_32,
        Self::V1_33,
        Self::V1_34,
        Self::V1_35,
        Self::V1_36,
        Self::V1_37,
    ];

    /// The number after `1.`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V1_30 => 30,
            Self::V1_31 => 31,
            Self::V1_32 => 32,
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.number())
    }
}

/// Reads `1.33`, `v1.33` and `v1.33.13`.
impl FromStr for Minor {
    type Err = UnknownMinor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownMinor {
            release_text: text.chars().take(32).collect(),
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let (major, minor) = (parts.next(), parts.next());
        let number: u8 = match (major, minor) {
            (Some("1"), Some(minor)) => minor.parse().map_err(|_| unknown())?,
            _ => return Err(unknown()),
        };
        Self::ALL
            .into_iter()
            .find(|known| known.number() == number)
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_is_read_as_people_write_it() {
        for text in ["1.33", "v1.33", "v1.33.13", "1.33.0-rc.1"] {
            assert_eq!(text.parse(), Ok(Minor::V1_33), "{text}");
        }
        for text in ["1.29", "1.38", "2.33", "33", "", "v", "1.x"] {
            assert!(text.parse::<Minor>().is_err(), "{text}");
        }
    }
}
