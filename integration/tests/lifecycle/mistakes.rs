//! Mistakes in a previously valid configuration file.

use keyferry_integration::runner::TestError;

/// One edit of a valid file, and the expected report.
pub(super) struct Mistake {
    pub(super) name: &'static str,
    from: &'static str,
    to: &'static str,
    /// The reported place: `<kind>/<name>: <path>`.
    pub(super) location: &'static str,
    /// The reported fix.
    pub(super) fix: &'static str,
    /// The text that only the faulty line contains.
    line: &'static str,
}

/// Mistakes of every kind: unknown, absent, out of range, forbidden, conflicting, unreadable.
pub(super) const MISTAKES: [Mistake; 10] = [
    Mistake {
        name: "an unknown field",
        from: "\n  audience: https://second.keyferry.test\n",
        to: "\n  audience: https://second.keyferry.test\n  adress: https://127.0.0.1\n",
        location: "TargetCluster/second: spec.adress: ",
        fix: "spelling",
        line: "  adress:",
    },
    Mistake {
        name: "an address in the clear",
        from: "\n  name: second\nspec:\n  address: https://",
        to: "\n  name: second\nspec:\n  address: http://",
        location: "TargetCluster/second: spec.address: ",
        fix: "https://host[:port][/path]",
        line: "  address: http://",
    },
    Mistake {
        name: "two targets with one audience",
        from: "https://second.keyferry.test",
        to: "https://first.keyferry.test",
        location: "TargetCluster/second: spec.audience: ",
        fix: "of its own",
        line: "",
    },
    Mistake {
        name: "nobody in a rule",
        from: "\n  audience: https://second.keyferry.test\n",
        to: "\n  audience: https://second.keyferry.test\n  allow: [{namespaces: [tenant-a], \
            serviceAccounts: []}]\n",
        location: "TargetCluster/second: spec.allow[0].serviceAccounts: ",
        fix: "exact name",
        line: "  allow: [{namespaces: [tenant-a], serviceAccounts: []}]",
    },
    Mistake {
        name: "a wildcard",
        from: "\n  audience: https://second.keyferry.test\n",
        to: "\n  audience: https://second.keyferry.test\n  allow: [{namespaces: ['*'], \
            serviceAccounts: [reconciler]}]\n",
        location: "TargetCluster/second: spec.allow[0].namespaces[0]: ",
        fix: "patterns are not allowed",
        line: "  allow: [{namespaces: ['*']",
    },
    Mistake {
        name: "a life of two days",
        from: "\n  audience: https://second.keyferry.test\n",
        to: "\n  audience: https://second.keyferry.test\n  tokenLifetime: {max: 48h}\n",
        location: "TargetCluster/second: spec.tokenLifetime.max: ",
        fix: "10m to 24h",
        line: "  tokenLifetime: {max: 48h}",
    },
    Mistake {
        name: "an issuer that is not there yet",
        from: "\n  audience: https://second.keyferry.test\n",
        to: "\n  audience: https://second.keyferry.test\n  issuer: Keyferry\n",
        location: "TargetCluster/second: spec.issuer: ",
        fix: "use Hub",
        line: "  issuer: Keyferry",
    },
    Mistake {
        name: "an access without an account",
        from: "\n  serviceAccountName: reconciler\n",
        to: "\n  serviceAccountName: tenant-b/reconciler\n",
        location: "TargetAccess/tenant-a/a: spec.serviceAccountName: ",
        fix: "name a ServiceAccount of the same namespace",
        line: "  serviceAccountName: tenant-b/reconciler",
    },
    Mistake {
        name: "a duration out of range",
        from: "\nmaxStaleAuthorization: 300s\n",
        to: "\nmaxStaleAuthorization: 2h\n",
        location: "ServerConfiguration: maxStaleAuthorization: ",
        fix: "from 0s to 1h",
        line: "maxStaleAuthorization: 2h",
    },
    Mistake {
        name: "no YAML",
        from: "\nmaxStaleAuthorization: 300s\n",
        to: "\nmaxStaleAuthorization: [300s\n",
        location: "the YAML cannot be read",
        fix: "correct the YAML",
        line: "",
    },
];

impl Mistake {
    /// The valid text with the mistake in it.
    pub(super) fn in_text(&self, good: &str) -> Result<String, TestError> {
        if good.matches(self.from).count() != 1 {
            return Err(format!(
                "{}: the good file holds {:?} {} times",
                self.name,
                self.from,
                good.matches(self.from).count()
            )
            .into());
        }
        Ok(good.replace(self.from, self.to))
    }

    /// `line N: `, if the edit says on which line it is.
    pub(super) fn line_in(&self, bad: &str) -> String {
        let number = bad
            .lines()
            .position(|line| !self.line.is_empty() && line.starts_with(self.line));
        number.map_or_else(
            || "line ".to_owned(),
            |number| format!("line {}: ", number + 1),
        )
    }
}
