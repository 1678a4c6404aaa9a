//! `--kubernetes`: the Kubernetes release of the target.

use clap::Args;
use keyferry_kube_authn::{Minor, UnknownMinor};

/// The release of the target.
#[derive(Args, Clone, Copy)]
pub(super) struct MinorArgs {
    /// The target's Kubernetes release, like 1.33 or v1.33.4: without it, the newest that is known
    /// here.
    #[arg(long = "kubernetes", value_name = "VERSION", value_parser = read)]
    given: Option<Minor>,
}

/// The newest supported release.
const NEWEST: Minor = match Minor::ALL {
    [.., newest] => newest,
};

impl MinorArgs {
    /// Returns the given release, or the newest.
    pub(super) fn minor(self) -> Minor {
        self.given.unwrap_or(NEWEST)
    }

    /// Uses this release, if the user gives none.
    pub(super) fn or(self, known: Option<Minor>) -> Self {
        Self {
            given: self.given.or(known),
        }
    }

    /// Describes the release to the user, and whether it is the default.
    pub(super) fn description(self) -> String {
        match self.given {
            Some(minor) => format!("Kubernetes {minor}"),
            None => format!(
                "Kubernetes {NEWEST}, the newest known here; --kubernetes says which one the \
                 target is"
            ),
        }
    }
}

/// Why a release of the target cannot be used.
#[derive(Debug, thiserror::Error)]
enum MinorError {
    #[error(
        "before 1.30 kube-apiserver does not read an AuthenticationConfiguration unless an alpha \
         gate of 1.29 is set, and knows no discoveryURL: upgrade the target to 1.30 or newer"
    )]
    TooOld,
    #[error(transparent)]
    Unknown(#[from] UnknownMinor),
}

fn read(text: &str) -> Result<Minor, MinorError> {
    if is_too_old(text) {
        return Err(MinorError::TooOld);
    }
    Ok(text.parse()?)
}

fn is_too_old(text: &str) -> bool {
    let mut numbers = text
        .strip_prefix('v')
        .unwrap_or(text)
        .split('.')
        .map(str::parse::<u32>);
    matches!(
        (numbers.next(), numbers.next()),
        (Some(Ok(1)), Some(Ok(0..30))) | (Some(Ok(0)), Some(Ok(_)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_are_refused_with_the_reason() {
        for old in ["1.29", "v1.19.16"] {
            assert!(matches!(read(old), Err(MinorError::TooOld)), "{old}");
        }
        assert_eq!(read("v1.33.4").ok(), Some(Minor::V1_33));
        assert!(
            read("1.99").is_err_and(|error| matches!(error, MinorError::Unknown(_))
                && error.to_string().contains("1.99"))
        );
    }
}
