//! The releases of Go whose libraries behave differently here.

/// A release of Go, by the first one that behaves so. Builds of one Kubernetes minor use several:
/// patch releases and distributions move to newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoRelease {
    /// Go 1.22.
    V1_22,
    /// Go 1.23: refuses a negative serial number, and some extensions that are critical.
    V1_23,
    /// Go 1.24: reads the extensions about policies.
    V1_24,
    /// Go 1.24 since October 2025, with the security fixes for PEM, URLs and names of domains.
    V1_24Fixed,
    /// Go 1.25: refuses reserved characters of a BMPString.
    V1_25,
    /// Go 1.25 since October 2025.
    V1_25Fixed,
    /// Go 1.26: refuses a second colon in the host of a URL, and names what is wrong with a point.
    V1_26,
}

impl GoRelease {
    /// Every release that behaves differently, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V1_22,
        Self::V1_23,
        Self::V1_24,
        Self::V1_24Fixed,
        Self::V1_25,
        Self::V1_25Fixed,
        Self::V1_26,
    ];

    /// Returns this release and all newer ones.
    #[must_use]
    pub fn and_newer(self) -> &'static [Self] {
        const ALL: &[GoRelease] = &GoRelease::ALL;
        ALL.get(self as usize..).unwrap_or_default()
    }

    /// Returns its name, as `go version` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_22 => "Go 1.22",
            Self::V1_23 => "Go 1.23",
            Self::V1_24 => "Go 1.24.0",
            Self::V1_24Fixed => "Go 1.24.9",
            Self::V1_25 => "Go 1.25.0",
            Self::V1_25Fixed => "Go 1.25.3",
            Self::V1_26 => "Go 1.26",
        }
    }

    /// Whether it has the security fixes of October 2025.
    pub(crate) fn has_fixes_of_2025(self) -> bool {
        matches!(self, Self::V1_24Fixed | Self::V1_25Fixed | Self::V1_26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_releases_follow_in_order() {
        assert_eq!(GoRelease::V1_22.and_newer(), GoRelease::ALL);
        assert_eq!(GoRelease::V1_26.and_newer(), [GoRelease::V1_26]);
        assert_eq!(GoRelease::V1_24.and_newer().len(), 5);
        assert!(GoRelease::ALL.is_sorted());
    }
}
