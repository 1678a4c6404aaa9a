//! How long tokens live, when they are renewed, and which expiry clients are given.

use std::time::Duration;

/// The shortest token lifetime that Keyferry requests. Kubernetes itself allows no less than ten
/// minutes.
pub const MIN: Duration = Duration::from_secs(600);
/// The longest token lifetime that Keyferry requests: a day, longer than any refresh needs.
pub const MAX: Duration = Duration::from_secs(24 * 3600);
/// How long it may take until every replica knows and publishes what one has recorded.
pub const SPREAD: Duration = Duration::from_secs(30);
/// How much longer than `max-age` a verifier may keep an older key set.
pub const SOAK_MARGIN: Duration = Duration::from_secs(30);
/// How much earlier than `exp` the expiry is that clients get. A target gives no leeway, and
/// clients use a token to the last second.
pub const MARGIN: Duration = Duration::from_secs(60);
/// Minimum remaining lifetime, after the margin, of a token that is issued.
pub const LEAST_USE: Duration = Duration::from_secs(10);
/// The largest difference between the hub's clock and ours at which tokens are still minted.
pub const MAX_SKEW: Duration = Duration::from_secs(30);

/// The activation delay: how long a key must have been published before a token that it signed is
/// issued.
///
/// It covers the time until every replica publishes the key, then the `max-age` that verifiers were
/// given, and half a minute.
pub fn activation_delay(max_age: Duration) -> Duration {
    SPREAD + max_age + SOAK_MARGIN
}

/// The shortest lifetime that leaves time for the activation delay. A token is renewed no earlier
/// than half-way, and its predecessor must still be useful when the new one may be issued.
pub fn least_for(delay: Duration) -> Duration {
    (delay + MARGIN + LEAST_USE) * 2
}

/// Checks whether a lifetime may be configured.
///
/// # Errors
/// A description of what is wrong with the lifetime.
pub fn check_lifetime(lifetime: Duration) -> Result<(), &'static str> {
    if lifetime < MIN {
        return Err("is shorter than 10m, the least that Kubernetes mints");
    }
    if lifetime > MAX {
        return Err("is longer than 24h");
    }
    Ok(())
}

/// When to renew a token, counted from its minting.
///
/// For a lifetime L this is min(0.8 L, L - 70 s - delay), up to 2.5 % of L earlier by `jitter`.
///
/// `jitter` is a random number from 0 to 1. It spreads the renewal of tokens that were minted
/// together. With 5 % of L, a key would cost the hub up to 1.33 TokenRequests for each lifetime
/// instead of 1.29.
pub fn refresh_after(lifetime: Duration, delay: Duration, jitter: f64) -> Duration {
    let latest = lifetime.mul_f64(0.8).min(
        lifetime
            .saturating_sub(MARGIN + LEAST_USE)
            .saturating_sub(delay),
    );
    // A lifetime without enough room, which the configuration refuses, must still not cause
    // constant renewal.
    latest
        .max(lifetime / 3)
        .saturating_sub(lifetime.mul_f64(0.025 * jitter.clamp(0.0, 1.0)))
}

/// When to check a token file again, counted from its writing.
///
/// With a remaining life L this is min(0.8 L, L - 180 s), at most ten minutes, up to 5 % earlier by
/// `jitter`.
///
/// client-go takes up to a minute to read a changed file, and a failed first attempt must leave
/// time for another.
pub fn rewrite_after(left: Duration, jitter: f64) -> Duration {
    let latest = left
        .mul_f64(0.8)
        .min(left.saturating_sub(Duration::from_secs(180)))
        .min(REWRITE_MOST);
    latest
        .mul_f64(1.0 - 0.05 * jitter.clamp(0.0, 1.0))
        .max(REWRITE_LEAST)
}

/// The longest wait between checks. Files follow a changed CA or address within this time.
const REWRITE_MOST: Duration = Duration::from_secs(600);
/// The shortest wait between checks. A token with little life left must not cause constant
/// requests; the server renews it soon.
const REWRITE_LEAST: Duration = Duration::from_secs(15);

/// The largest `min_ttl` that a caller may request: half a lifetime, so that such requests cannot
/// cause more than two mints per lifetime.
pub fn greatest_min_ttl(lifetime: Duration) -> Duration {
    lifetime / 2
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        LEAST_USE, MARGIN, MAX, MIN, activation_delay, check_lifetime, greatest_min_ttl, least_for,
        refresh_after, rewrite_after,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_renewed_token_always_leaves_time_for_the_activation_delay() {
        for max_age in [30, 60, 600, 3600].map(Duration::from_secs) {
            let delay = activation_delay(max_age);
            for minutes in 10..=1440 {
                let lifetime = MINUTE * minutes;
                if lifetime < least_for(delay) {
                    continue;
                }
                for jitter in [0.0, 0.5, 1.0] {
                    let after = refresh_after(lifetime, delay, jitter);
                    let left = lifetime - after;
                    assert!(
                        left >= delay + MARGIN + LEAST_USE,
                        "{minutes} min leave {left:?}"
                    );
                    assert!(
                        after >= lifetime.mul_f64(0.44),
                        "{minutes} min are renewed after {after:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_key_costs_more_than_one_and_three_tenths_token_requests_for_each_lifetime() {
        for minutes in 20..=1440 {
            let lifetime = MINUTE * minutes;
            let after = refresh_after(lifetime, activation_delay(MINUTE), 1.0);
            assert!(
                after * 13 >= lifetime * 10,
                "{minutes} min are renewed after {after:?}"
            );
        }
    }

    #[test]
    fn a_long_max_age_needs_a_long_lifetime() {
        assert!(
            least_for(activation_delay(MINUTE)) <= MIN,
            "the default leaves every lifetime room"
        );
        let hour = activation_delay(MINUTE * 60);
        assert!(
            MINUTE * 60 < least_for(hour) && least_for(hour) <= MINUTE * 240,
            "{:?}",
            least_for(hour)
        );
    }

    #[test]
    fn jitter_spreads_renewals_and_only_makes_them_earlier() {
        let (hour, delay) = (MINUTE * 60, activation_delay(MINUTE));
        assert_eq!(refresh_after(hour, delay, 0.0), Duration::from_secs(2880));
        assert_eq!(refresh_after(hour, delay, 1.0), Duration::from_secs(2790));
        assert_eq!(
            refresh_after(hour, delay, 7.0),
            Duration::from_secs(2790),
            "a bad random number does no harm"
        );
        assert_eq!(
            refresh_after(MIN, delay, 0.0),
            Duration::from_secs(410),
            "short tokens keep the fixed margin"
        );
    }

    #[test]
    fn files_are_rewritten_two_minutes_before_their_end_and_more() {
        for seconds in 200..90_000 {
            let left = Duration::from_secs(seconds);
            for jitter in [0.0, 1.0, 9.0] {
                let after = rewrite_after(left, jitter);
                assert!(
                    left - after >= Duration::from_secs(175) && after <= MINUTE * 10,
                    "{seconds} s are left alone for {after:?}"
                );
                assert!(after >= Duration::from_secs(15));
            }
        }
        assert_eq!(
            rewrite_after(Duration::from_secs(600), 0.0),
            Duration::from_secs(420)
        );
        assert_eq!(rewrite_after(Duration::ZERO, 0.0), Duration::from_secs(15));
    }

    #[test]
    fn lifetimes_have_bounds() {
        assert!(check_lifetime(MIN).is_ok() && check_lifetime(MAX).is_ok());
        assert!(
            check_lifetime(Duration::from_secs(599)).is_err()
                && check_lifetime(Duration::from_secs(86_401)).is_err()
        );
        assert_eq!(
            greatest_min_ttl(Duration::from_secs(3600)),
            Duration::from_secs(1800)
        );
    }
}
