//! The minor versions of Kubernetes that suites run with.

/// A minor version of Kubernetes for which tests run a real kube-apiserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// 1.33, the oldest: uses `go-oidc` 2.3 and ignores the ServiceAccount UID pinned in a
    /// TokenRequest.
    V1_33,
    /// 1.34, through which a hub of 1.33 is upgraded.
    V1_34,
    /// 1.35, as 1.34.
    V1_35,
    /// 1.36, the newest of the stage `newest-1.36` of `.ci/full`.
    V1_36,
    /// 1.37, the newest.
    V1_37,
}

/// Names the newest minor version of a run, if it is not [`Minor::V1_37`].
const NEWEST: &str = "KEYFERRY_NEWEST_MINOR";

impl Minor {
    /// The newest minor version of this run, which hubs and most targets have: 1.37, or 1.36 with
    /// `KEYFERRY_NEWEST_MINOR=1.36`.
    pub fn newest() -> Self {
        Self::named_newest().unwrap_or(Self::V1_37)
    }

    /// As [`Self::newest`].
    ///
    /// # Errors
    /// The environment names another version, for which no test was written.
    pub(crate) fn named_newest() -> Result<Self, String> {
        match std::env::var(NEWEST).as_deref() {
            Err(_) | Ok("1.37") => Ok(Self::V1_37),
            Ok("1.36") => Ok(Self::V1_36),
            Ok(other) => Err(format!(
                "{NEWEST} is {other}, but suites run with 1.36 or 1.37"
            )),
        }
    }

    /// The version that `/version` reports, such as `v1.37.2`.
    pub fn git_version(self) -> &'static str {
        match self {
            Self::V1_33 => "v1.33.13",
            Self::V1_34 => "v1.34.4",
            Self::V1_35 => "v1.35.4",
            Self::V1_36 => "v1.36.3",
            Self::V1_37 => "v1.37.2",
        }
    }

    /// The number after `1.`.
    pub fn number(self) -> u16 {
        match self {
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::V1_33 => "kube-1.33",
            Self::V1_34 => "kube-1.34",
            Self::V1_35 => "kube-1.35",
            Self::V1_36 => "kube-1.36",
            Self::V1_37 => "kube-1.37",
        }
    }
}
