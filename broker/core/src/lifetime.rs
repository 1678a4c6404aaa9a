//! How long tokens live, when they are renewed, and what clients are told.

use std::time::Duration;

/// The least and the most that Keyferry asks for. Kubernetes itself allows no less than ten minutes.
pub const MIN: Duration = Duration::from_secs(600);
/// A day: longer than any refresh needs.
pub const MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a key must have been published before a token that it signed is handed out.
pub const SOAK: Duration = Duration::from_secs(90);
/// How much earlier than `exp` clients are told a token ends: a target gives no leeway, and clients use a token to the last second.
pub const MARGIN: Duration = Duration::from_secs(60);
/// A token with less than this left, after the margin, is not handed out at all.
pub const LEAST_USE: Duration = Duration::from_secs(10);
/// The largest difference between the hub's clock and ours at which tokens are still minted.
pub const MAX_SKEW: Duration = Duration::from_secs(30);

/// Whether a lifetime is one that may be configured.
///
/// # Errors
/// What is wrong with it.
pub fn check(lifetime: Duration) -> Result<(), &'static str> {
    if lifetime < MIN {
        return Err("is shorter than 10m, the least that Kubernetes mints");
    }
    if lifetime > MAX {
        return Err("is longer than 24h");
    }
    Ok(())
}

/// How long after its minting a token of this lifetime is renewed: min(0.8 L, L - 70 s - soak), up to 5 % of L earlier by `jitter`.
///
/// `jitter` is a random number from 0 to 1: tokens minted together must not be renewed together.
pub fn refresh_after(lifetime: Duration, jitter: f64) -> Duration {
    let latest = lifetime.mul_f64(0.8).min(lifetime.saturating_sub(Duration::from_secs(70)).saturating_sub(SOAK));
    latest.saturating_sub(lifetime.mul_f64(0.05 * jitter.clamp(0.0, 1.0)))
}

/// The most that a caller may ask for by `min_ttl`: half a lifetime, so that asking cannot cause more than two mints per lifetime.
pub fn greatest_min_ttl(lifetime: Duration) -> Duration {
    lifetime / 2
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LEAST_USE, MARGIN, MAX, MIN, SOAK, check, greatest_min_ttl, refresh_after};

    #[test]
    fn a_renewed_token_always_leaves_its_predecessor_time_to_soak() {
        for minutes in 10..=1440 {
            let lifetime = Duration::from_secs(minutes * 60);
            for jitter in [0.0, 0.5, 1.0] {
                let left = lifetime - refresh_after(lifetime, jitter);
                assert!(left >= SOAK + MARGIN + LEAST_USE, "{minutes} min leave {left:?}");
            }
        }
    }

    #[test]
    fn jitter_spreads_renewals_and_only_makes_them_earlier() {
        let hour = Duration::from_secs(3600);
        assert_eq!(refresh_after(hour, 0.0), Duration::from_secs(2880));
        assert_eq!(refresh_after(hour, 1.0), Duration::from_secs(2700));
        assert_eq!(refresh_after(hour, 7.0), Duration::from_secs(2700), "a bad random number does no harm");
        assert_eq!(refresh_after(MIN, 0.0), Duration::from_secs(440), "short tokens keep the fixed margin");
    }

    #[test]
    fn lifetimes_have_bounds() {
        assert!(check(MIN).is_ok() && check(MAX).is_ok());
        assert!(check(Duration::from_secs(599)).is_err() && check(Duration::from_secs(86_401)).is_err());
        assert_eq!(greatest_min_ttl(Duration::from_secs(3600)), Duration::from_secs(1800));
    }
}
