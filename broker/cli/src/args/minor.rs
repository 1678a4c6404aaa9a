//! The flags about the apiserver for which a file is evaluated: `--kubernetes`, `--own-issuer`.

use clap::Args;
use keyferry_kube_authn::{Minor, Release, UnknownMinor};

use crate::command_error::CommandError;

/// The release of the target.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct MinorArgs {
    /// The target's Kubernetes release, like 1.33 or v1.33.4 [default: the newest that is known
    /// here]
    #[arg(long = "kubernetes", value_name = "VERSION", value_parser = read)]
    target_release: Option<Release>,
}

/// What is known of the target's apiserver when a file for it is evaluated.
#[derive(Args)]
pub(crate) struct ApiserverArgs {
    #[command(flatten)]
    /// The release.
    pub(crate) minor: MinorArgs,
    /// An issuer of the target's own ServiceAccount tokens (may be repeated)
    ///
    /// It is --service-account-issuer of the target's apiserver.
    #[arg(long = "own-issuer", value_name = "URL", hide_short_help = true)]
    pub(crate) own_issuers: Vec<String>,
}

impl MinorArgs {
    /// Returns the given release, or the newest known one.
    pub(crate) fn release(self) -> Release {
        self.target_release.unwrap_or(Release::NEWEST)
    }

    /// Returns the release, if one is given.
    pub(crate) fn given_release(self) -> Option<Release> {
        self.target_release
    }

    /// Returns the release, for what only a known one can be printed for.
    ///
    /// # Errors
    /// The release is newer than the known ones.
    pub(crate) fn known_minor(self) -> Result<Minor, CommandError> {
        match self.release() {
            Release::Known(minor) => Ok(minor),
            newer @ Release::Newer(_) => {
                let newest = Release::NEWEST;
                Err(CommandError::with_fix(
                    format!(
                        "printing for Kubernetes {newer}: the newest known release is {newest}"
                    ),
                    "give the newest known release to --kubernetes, and test the file at the target; \
                     or use a newer Keyferry",
                ))
            }
        }
    }

    /// Uses this release, if the user gives none.
    pub(crate) fn or(self, known: Option<Minor>) -> Self {
        Self {
            target_release: self.target_release.or(known.map(Release::Known)),
        }
    }

    /// Describes the release to the user, and whether it is the default.
    pub(crate) fn description(self) -> String {
        match self.target_release {
            Some(Release::Known(minor)) => format!("Kubernetes {minor}"),
            Some(newer @ Release::Newer(_)) => format!(
                "Kubernetes {newer}, which is newer than {}, the newest known here",
                Release::NEWEST
            ),
            None => format!(
                "Kubernetes {}, the newest known here; --kubernetes says which one the target is",
                Release::NEWEST
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

fn read(text: &str) -> Result<Release, MinorError> {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_are_refused_with_the_reason() {
        for old in ["1.29", "v1.19.16"] {
            assert!(matches!(read(old), Err(MinorError::TooOld)), "{old}");
        }
        assert_eq!(read("v1.33.4").ok(), Some(Release::Known(Minor::V1_33)));
        assert!(
            read("2.33").is_err_and(|error| matches!(error, MinorError::Unknown(_))
                && error.to_string().contains("2.33"))
        );
    }

    #[test]
    fn a_newer_release_is_taken_but_nothing_is_printed_for_it() {
        let newer = MinorArgs {
            target_release: read("v1.38.0").ok(),
        };
        assert_eq!(newer.release(), Release::Newer(38));
        assert!(newer.description().contains("newer than 1.37"));
        let error = newer.known_minor().unwrap_err();
        assert!(
            error.problem.contains("1.38") && error.fix.is_some(),
            "{error}"
        );
        let none = MinorArgs {
            target_release: None,
        };
        assert_eq!(none.known_minor(), Ok(Release::NEWEST.nearest_minor()));
    }
}
