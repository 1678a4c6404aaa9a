//! Reads from a target's metrics which AuthenticationConfiguration it has loaded.

use jiff::Timestamp;
use keyferry_kube_authn::prediction::hash_of;

use crate::doctor::diagnosis::ActiveConfiguration;

const IN_FORCE: &str = "apiserver_authentication_config_controller_last_config_info{";
const KEY_SET: &str = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{";
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

/// Returns the hashes of the key sets that the apiserver fetched last for an issuer.
pub(crate) fn key_set_hashes(metrics: &str, issuer: &str) -> Vec<String> {
    let of_issuer = format!("jwt_issuer_hash=\"{}\"", hash_of(issuer.as_bytes()));
    let lines = labels(metrics, KEY_SET).filter(|labels| labels.contains(&of_issuer.as_str()));
    lines.filter_map(|labels| hash_in(&labels)).collect()
}

/// Returns the hashes of `last_config_info` from the metrics.
fn hashes(metrics: &str) -> Vec<String> {
    labels(metrics, IN_FORCE)
        .filter_map(|labels| hash_in(&labels))
        .collect()
}

/// Returns the labels of each line of a metric.
fn labels<'a>(metrics: &'a str, metric: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let lines = metrics.lines();
    let of_metric = lines.filter_map(move |line| line.strip_prefix(metric)?.split_once('}'));
    of_metric.map(|(labels, _)| labels.split(',').collect())
}

/// The hash of a line. The apiserver's own identity is in another label that ends in the same letters.
fn hash_in(labels: &[&str]) -> Option<String> {
    let mut values = labels
        .iter()
        .filter_map(|label| label.strip_prefix("hash=\"")?.strip_suffix('"'));
    values.next().map(str::to_owned)
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
    fn the_key_set_is_that_of_the_issuer() {
        let line = |issuer: &str, hash: &str| {
            let issuer = hash_of(issuer.as_bytes());
            format!(
                "{KEY_SET}apiserver_id_hash=\"sha256:aa\",hash=\"{hash}\",jwt_issuer_hash=\"{issuer}\"}} 1\n"
            )
        };
        let text = line("https://a", "sha256:bb") + &line("https://b", "sha256:cc");
        assert_eq!(key_set_hashes(&text, "https://b"), ["sha256:cc"]);
        assert!(key_set_hashes(&text, "https://c").is_empty());
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
