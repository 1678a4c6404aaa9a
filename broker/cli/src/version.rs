//! What `keyferry --version` prints.

use std::sync::LazyLock;

use keyferry_server::fips;

/// The version of the workspace.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit from which the binary was built, with `-dirty` if the sources differed from it, or
/// `unknown`. Not the time of the build, so that two builds of a commit are equal.
pub(crate) const COMMIT: &str = env!("KEYFERRY_BUILD_COMMIT");

/// The text of `--version`; that of `-V` is [`VERSION`] alone.
pub(crate) static LONG: LazyLock<String> =
    LazyLock::new(|| long(VERSION, COMMIT, fips::is_enabled()));

fn long(version: &str, commit: &str, is_fips: bool) -> String {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let mode = if is_fips { "on" } else { "off" };
    format!("{version}\ncommit: {commit}\nbuild: {build}\nFIPS mode: {mode}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_module_turns_fips_mode_on() {
        assert!(long("1.2.3", "abc", true).ends_with("\nFIPS mode: on"));
        let off = long("1.2.3", "abc", false);
        assert!(off.starts_with("1.2.3\ncommit: abc\nbuild: "), "{off}");
        assert!(off.ends_with("\nFIPS mode: off"), "{off}");
        assert_eq!(fips::is_enabled(), cfg!(feature = "fips"));
    }
}
