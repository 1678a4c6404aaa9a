//! Reads from a target's metrics which AuthenticationConfiguration it has loaded.

use jiff::Timestamp;

use crate::doctor::diagnosis::ActiveConfiguration;

const IN_FORCE: &str = "apiserver_authentication_config_controller_last_config_info{";
const LAST_RELOAD: &str =
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds{";

/// The prefix of metrics that exist only once a file was reloaded.
const RELOADS: &str = "apiserver_authentication_config_controller_automatic_reload";

/// Whether the apiserver has reloaded a file, and so has one. Before 1.34 nothing else shows it.
pub fn has_reloaded(metrics: &str) -> bool {
    metrics.lines().any(|line| line.starts_with(RELOADS))
}

/// Returns what the metrics show of the loaded file.
pub fn active_configuration(metrics: &str) -> ActiveConfiguration {
    let last = |status: &str| {
        let times = metrics.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(LAST_RELOAD)?.split_once('}')?;
            let label = format!("status=\"{status}\"");
            let of_status = labels.split(',').any(|one| one == label);
            of_status
                .then(|| value.trim().parse::<f64>().ok())
                .flatten()
        });
        times.max_by(f64::total_cmp)
    };
    let (failed, succeeded) = (last("failure"), last("success"));
    let reload_failed = failed.filter(|at| succeeded.is_none_or(|succeeded| *at > succeeded));
    ActiveConfiguration {
        hashes: hashes(metrics),
        reload_failed: reload_failed.and_then(|at| Timestamp::from_second(at as i64).ok()),
    }
}

/// Returns the hashes of `last_config_info` from the metrics.
fn hashes(metrics: &str) -> Vec<String> {
    let labels = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(IN_FORCE)?.split_once('}'))
        .map(|(labels, _)| labels);
    // The apiserver's own identity is in another label that ends in the same letters.
    let values = labels
        .flat_map(|labels| labels.split(','))
        .filter_map(|label| label.strip_prefix("hash=\"")?.strip_suffix('"'));
    values.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_found_among_the_metrics() {
        let text = "# HELP \
            x\napiserver_authentication_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:bb\"} 1\nother 2\n";
        assert_eq!(hashes(text), ["sha256:bb"]);
        assert!(hashes("").is_empty());
    }

    #[test]
    fn a_failed_reload_counts_until_one_succeeds() {
        let line = |status: &str, at: &str| {
            format!("{LAST_RELOAD}apiserver_id_hash=\"sha256:aa\",status=\"{status}\"}} {at}\n")
        };
        let failed = |text: &str| active_configuration(text).reload_failed;
        assert_eq!(failed(""), None);
        let failure = line("failure", "1.79e+09");
        assert_eq!(failed(&failure), Timestamp::from_second(1_790_000_000).ok());
        let before = line("success", "1.789e+09");
        assert!(failed(&format!("{before}{failure}")).is_some());
        assert_eq!(
            failed(&format!("{failure}{}", line("success", "1.791e+09"))),
            None
        );
    }
}
