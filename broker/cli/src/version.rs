//! What `keyferry --version` prints.

use std::sync::LazyLock;

use keyferry_server::fips;

/// The version of the workspace.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit from which the binary was built, with `-dirty` if the sources differed from it, or
/// `unknown`, as the log says. Not the time of the build, so that two builds of a commit are equal.
pub(crate) const COMMIT: &str = env!("KEYFERRY_BUILD_COMMIT");

/// What the build script writes where it does not read git.
const UNKNOWN_COMMIT: &str = "unknown";

/// The text of `--version`; that of `-V` is [`VERSION`] alone.
pub(crate) static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| long_version(VERSION, COMMIT, fips::is_enabled()));

fn long_version(version: &str, commit: &str, is_fips: bool) -> String {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let mode = if is_fips { "on" } else { "off" };
    let commit = match commit {
        UNKNOWN_COMMIT => String::new(),
        commit => format!("commit: {commit}\n"),
    };
    format!("{version}\n{commit}build: {build}\nFIPS mode: {mode}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_module_turns_fips_mode_on() {
        assert!(long_version("1.2.3", "abc", true).ends_with("\nFIPS mode: on"));
        let off = long_version("1.2.3", "abc", false);
        assert!(off.starts_with("1.2.3\ncommit: abc\nbuild: "), "{off}");
        assert!(off.ends_with("\nFIPS mode: off"), "{off}");
        let unknown = long_version("1.2.3", UNKNOWN_COMMIT, false);
        assert!(unknown.starts_with("1.2.3\nbuild: "), "{unknown}");
        assert_eq!(fips::is_enabled(), cfg!(feature = "fips"));
    }
}
